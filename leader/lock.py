"""The port through which an elector reaches its store, and the two that it may be given for its surroundings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from leader.effects import Request
from leader.events import Event
from leader.record import LeaderRecord


class ElectionLock(Protocol):
    """A record and an epoch in a store that has transactions.

    `submit` must not block. Answers and what the watch sees are given to `deliver`, from any thread. An answer that never
    comes does no harm.
    """

    def start(self, deliver: Callable[[Event], None], ttl_seconds: int) -> None:
        """Connect and begin to watch. `ttl_seconds`: how long the store keeps the record of a holder that is gone; it is
        `ElectionConfig.store_ttl_seconds`, which was checked."""

    def submit(self, request: Request) -> None: ...

    def close(self) -> None:
        """End the watch and the connection; takes a fraction of a second at most."""

    def describe(self) -> str:
        """For messages: where the lock is."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What the elector calls. None of these runs on the elector's own thread, so none can delay it.

    `on_started_leading(epoch)` runs on a thread of its own for each start. It may return at once or do the work until it is
    told to stop. With the epoch of the call before it, leading goes on after a suspension: nobody led in between, so nothing
    that was cached is stale.

    `on_stopped_leading()` must end the work, and returns when nothing more will be written. Writes that are in flight need
    not be awaited: the epoch guards them. It can run while on_started_leading still does; work that takes long to prepare
    looks at `Elector.epoch()` before it goes on. The next start waits until both have returned. It is also called at the
    end of a run that never led.

    `on_new_leader(identity, record)` is called once for each observed change of holder, in order; "" means nobody.

    `on_overdue()` is called when the work has not stopped within lease duration - renew deadline. It should end the work by
    force, for example by killing its process. The term is then not released.

    `on_failed(failure)` is called once when the elector itself has failed, which is a bug: the belief is withdrawn, the work is
    told to stop, and nothing of this candidate goes on. It runs at the end of the elector's thread.

    `on_event(text)` gets the texts "<identity> became leader" and the like.
    """

    on_started_leading: Callable[[int], None] | None
    on_stopped_leading: Callable[[], None] | None
    on_new_leader: Callable[[str, LeaderRecord | None], None] | None = None
    on_overdue: Callable[[], None] | None = None
    on_event: Callable[[str], None] | None = None
    on_failed: Callable[[BaseException], None] | None = None


class ElectionMetrics(Protocol):
    """Called on the elector's thread: must return at once and must not raise."""

    def master_status(self, name: str, leading: bool) -> None:
        """leader_election_master_status{name}; False at construction."""

    def slowpath(self, name: str) -> None:
        """leader_election_slowpath_total{name}."""

    def renewed(self, name: str, seconds: float) -> None:
        """A renewal succeeded and took this long."""

    def not_renewed(self, name: str, seconds: float) -> None:
        """A renewal was given up after this long, or failed."""

"""An attempt that needs what workers were asked for: it is put off until they have answered, and no other begins before.

So decisions keep their order, and are those of a scheduler that evaluates everything itself. Meanwhile the loop goes on with the
watch, writes and the exchange, and workers are asked for what the pods behind will need, too.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rayched.core.cache.cache import Cache
from rayched.core.costly_pods import Trial
from rayched.core.exchange.queue_session import QueueLink
from rayched.scheduler.scheduler import Scheduler
from rayched.snapshot.work_budget import AwaitedWork

PREFETCHED_MAX: Final = 16
"""Pods in the hand for whose templates workers are asked ahead."""


class AwaitedAttempt(NamedTuple):
    """Made again once `work.is_over`."""

    uid: str
    turn: Trial | None
    """Of a pod that stepped aside."""
    work: AwaitedWork


def prefetch(link: QueueLink, cache: Cache, scheduler: Scheduler) -> None:
    """Have workers evaluate what the next pods in the hand need first."""
    for coming in filter(None, map(cache.pod, link.coming(PREFETCHED_MAX))):
        scheduler.prefetch(coming.template)

"""A replica's two cores with everything around them under the test's hand: store, network, belief and clock.

Nothing happens by itself. `settle` lets all that is under way arrive, in order, until nothing is left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from leader.etcd_shim import rpc
from rayched.configuration.configuration import Configuration
from rayched.configuration.profile_building import default_profile
from rayched.core.exchange.messages import ExchangeAnswer, ExchangeRequest
from rayched.core.exchange.queue_core import QueueCore, queue_factory
from rayched.core.ports import Ports
from rayched.core.scheduler_core import SchedulerCore
from rayched.core.writes.window import Send
from rayched.engine.shards import ShardEvaluator
from rayched.framework.profile import Profile
from rayched.plugins.in_tree import IN_TREE
from rayched.queue.flags import QueueFlags
from rayched.store.errors import NotApplied, StoreUnavailable
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Delivery
from tests.core.model_store import ModelStore

KEYS = Keys("/t")


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def default_profiles() -> dict[str, Profile]:
    profile = default_profile(IN_TREE)
    return {profile.scheduler_name: profile}


class Replica:
    """One scheduler core, one queue core, and what is on its way between them and the store."""

    def __init__(
        self,
        store: ModelStore,
        clock: Clock,
        name: str = "a",
        *,
        profiles: Mapping[str, Profile] | None = None,
        seed: int = 7,
        stopwatch: Callable[[], float] | None = None,
        events: bool = False,
        identity: str = "",
        work_clock: Callable[[], float] | None = None,
        shards: Callable[[str], ShardEvaluator] | None = None,
        fair_namespaces: bool = False,
    ) -> None:
        self.store, self.clock = store, clock
        self.profiles = dict(profiles or default_profiles())
        self.belief: int | None = None
        self.signs_of_life = 0
        self.decided_about: list[str] = []
        """Uids, and "" after each batch."""
        self.core = SchedulerCore(
            KEYS,
            self.profiles,
            seed,
            incarnation=name,
            first_session=1,
            ports=Ports(
                lambda: self.belief,
                stopwatch or clock,
                lambda: 1_700_000_000 + clock.now,
                self.gives_a_sign_of_life,
                work_clock,
                self.decides_about,
                lambda: self.has_room_for_events,
                lambda: self.others_wait,
            ),
            identity=identity,
            shards=shards,
            fair_namespaces=fair_namespaces,
        )
        self._flags = QueueFlags(fair_namespaces=fair_namespaces)
        self.queue = self.new_queue()
        self.watched_through = 0
        self.to_store: list[Send] = []
        """Sent, not arrived."""
        self.to_core: list[tuple[int, Any]] = []
        """Answers on their way back."""
        self.to_queue: list[ExchangeRequest] = []
        self.from_queue: list[ExchangeAnswer] = []
        self.late: list[Any] = []
        """Transactions whose sender was told that nobody answered, and that may still arrive."""
        self.turn_at: float | None = None
        self.has_room_for_events = True
        self.others_wait = True
        """Something has come for the thread that decides."""
        self.events = events
        """Leases for events are granted, at once; else no event is ever written."""
        self.leases = 0

    def gives_a_sign_of_life(self) -> None:
        self.signs_of_life += 1

    def decides_about(self, uid: str) -> None:
        self.decided_about.append(uid)

    def new_queue(self) -> QueueCore:
        return QueueCore(queue_factory(Configuration(), self.profiles, self._flags))

    # ------------------------------------------------------------------------------------------------------------ steps

    def list(self) -> None:
        listed = self.store.listed()
        self.deliver(listed)
        self.watched_through = listed.revision

    def deliver(self, delivery: Delivery) -> None:
        self.core.watched(delivery)

    def watch(self, revisions: int = 10**6) -> bool:
        changed = self.store.changed(self.watched_through, revisions)
        if changed is None:
            return False
        if changed.changes:
            self.deliver(changed)
        self.watched_through = changed.revision
        return True

    def turn(self) -> bool:
        turn = self.core.turn()
        self.to_store.extend(turn.sends)
        if turn.exchange is not None:
            self.to_queue.append(turn.exchange)
        self.turn_at = turn.turn_at
        if turn.lease_wanted and self.events:
            self.leases += 1
            self.core.lease_granted(self.leases)
            self.turn_at = self.clock.now
        return bool(turn.sends) or turn.exchange is not None

    def arrive(self, *, lose_answer: bool = False, lose_request: bool = False) -> bool:
        """The oldest transaction arrives at the store; its answer, or the loss of it, is on its way back."""
        if not self.to_store:
            return False
        send = self.to_store.pop(0)
        if lose_request:
            self.late.append(rpc.TxnRequest.FromString(send.content))
            self.to_core.append((send.number, StoreUnavailable("no answer")))
        else:
            answer = self.stored(send)
            self.to_core.append((send.number, StoreUnavailable("no answer") if lose_answer else answer))
        return True

    def stored(self, send: Send) -> Any:
        """What the store answers to it."""
        try:
            return self.store.txn(rpc.TxnRequest.FromString(send.content))
        except NotApplied as error:
            return error

    def arrive_late(self) -> bool:
        if not self.late:
            return False
        self.store.txn(self.late.pop(0))
        return True

    def answer(self) -> bool:
        if not self.to_core:
            return False
        self.core.transaction_answered(*self.to_core.pop(0))
        return True

    def exchange(self) -> bool:
        if not self.to_queue:
            return False
        self.from_queue.append(self.queue.exchange(self.to_queue.pop(0)))
        return True

    def exchanged(self) -> bool:
        if not self.from_queue:
            return False
        self.core.exchange_answered(self.from_queue.pop(0))
        return True

    def lose_queue(self) -> None:
        """The queue actor dies and another one takes its place."""
        self.to_queue.clear()
        self.from_queue.clear()
        self.queue = self.new_queue()
        self.core.queue_lost()

    # ----------------------------------------------------------------------------------------------------------- helpers

    def settle(self, *, rounds: int = 10_000) -> None:
        """Let everything arrive until nothing moves at this moment."""
        for _ in range(rounds):
            moved = [
                self.watch(),
                self.answer(),
                self.exchanged(),
                self.turn(),
                self.core.decide(),
                self.exchange(),
                self.arrive(),
            ]
            if not any(moved) and (self.turn_at is None or self.turn_at > self.clock.now):
                return
        raise AssertionError("it does not come to rest")

    def lead(self) -> int:
        """Acquire: the epoch key is written, and believed in at once."""
        self.belief = self.store.put(KEYS.epoch, b"{}")
        return self.belief

    def bound(self) -> dict[str, str]:
        """Pods by name and their nodes, in the store."""
        return {pod.metadata.name: pod.spec.node_name for pod in self.store.pods().values() if pod.spec.node_name}

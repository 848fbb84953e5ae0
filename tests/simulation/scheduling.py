"""A replica's scheduler: the real `SchedulerCore` and `QueueCore`, carried by the simulation.

What `SchedulerActor` does with threads and futures is done here with plans of the world. Scheduler and queue are two
processes; each can be killed and is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import CLOCK_BOOTTIME
from typing import Any, Final

from leader.belief import BeliefCell
from leader.etcd_shim import rpc
from rayched.configuration.configuration import Configuration
from rayched.core.exchange.messages import ExchangeRequest
from rayched.core.exchange.queue_core import QueueCore, queue_factory
from rayched.core.ports import Ports
from rayched.core.scheduler_core import SchedulerCore
from rayched.core.writes.window import Send
from rayched.framework.profile import Profile
from rayched.store.errors import store_error
from rayched.store.event_writes import LEASE_SECONDS
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Delivery, ListedAll
from tests.simulation.candidate import MachineClock
from tests.simulation.etcd_errors import EtcdError
from tests.simulation.following import Following
from tests.simulation.role import Role
from tests.simulation.world import MS, SECOND, Link, Process, Violation, World

WRITE_NS: Final = 2 * SECOND
"""How long a transaction is waited for."""
IDLE_NS: Final = 100 * MS
STANDBY_NS: Final = 400 * MS
CLOCK_READ_NS: Final = 100_000
"""What work between two looks at the clock takes in this world."""


class Scheduling(Role):
    """One life of a scheduler process."""

    def __init__(
        self,
        world: World,
        process: Process,
        link: Link,
        clock: MachineClock,
        keys: Keys,
        profiles: Mapping[str, Profile],
        cell: BeliefCell,
        incarnation: str,
        session: int,
        delivered: Callable[[Delivery], None],
        synced: Callable[[], None],
        bound_since: Callable[[int, int], list[str]],
        *,
        keys_max: int | None = None,
        sending: Callable[[Send], None] = lambda send: None,
    ) -> None:
        """`keys_max`: it takes it that the store takes no more keys in one transaction. `sending` is told before each."""
        super().__init__(world, process, link, clock, keys, cell)
        self._cell, self._sending = cell, sending
        self._profiles = profiles
        self._delivered, self._synced, self._bound_since = delivered, synced, bound_since
        self.core = SchedulerCore(
            keys,
            profiles,
            seed=7,
            incarnation=incarnation,
            first_session=session,
            ports=Ports(self._epoch, self._time, self._wall_time, self._tick),
        )
        if keys_max is not None:
            self.core.groups.store_takes(keys_max)
        page_size = world.random.choice((3, 20, 2000))
        self._following = Following(world, process, link, clock, keys.cluster_prefix, page_size, self._deliver)
        self.watch = self._following.watch
        self.queue = self._new_queue()
        self._queue_life = 0
        self._inbox: list[Callable[[], None]] = []
        self._wake_at: int | None = None
        self._busy_until = 0

    def start(self) -> None:
        self._following.start()
        self.wake()

    def stop(self) -> None:
        """The process is gone."""
        self.process.alive = False
        self._following.stop()

    def lose_queue(self) -> None:
        """The queue's process dies; another takes its place."""
        self._queue_life += 1
        self.queue = self._new_queue()
        self._take_in(self.core.queue_lost)

    def _new_queue(self) -> QueueCore:
        return QueueCore(queue_factory(Configuration(), self._profiles))

    # -------------------------------------------------------------------------------------------------------------- clocks

    def _time(self) -> float:
        self._machine_clock.ahead_ns += CLOCK_READ_NS
        return self._now()

    def _tick(self) -> None:
        self._cell.tick(self._machine_clock.gettime_ns(CLOCK_BOOTTIME))

    # ---------------------------------------------------------------------------------------------------------------- loop

    def wake(self, wait_ns: int = 0) -> None:
        """The loop turns then, or earlier."""
        at = max(self.world.now + wait_ns, self._busy_until)
        if self._wake_at is None or at < self._wake_at:
            self._wake_at = at
            self.world.after(at - self.world.now, lambda: self._wake_at == at and self.process.deliver(self._loop))

    def _take_in(self, what: Callable[[], None]) -> None:
        self._inbox.append(what)
        self.wake()

    def _loop(self) -> None:
        self._wake_at = None
        clock = self._machine_clock
        try:
            inbox, self._inbox = self._inbox, []
            for take in inbox:
                take()
            turn = self.core.turn()
            if turn.sends:
                self._is_about_to_write()
            for send in turn.sends:
                self._sending(send)
                # At once, unless the process was paused between its look at the belief and the sending.
                self.process.deliver(partial(self._send, send))
            if turn.exchange is not None:
                self._exchange(turn.exchange)
            if turn.lease_wanted:
                self._grant_lease()
            self.core.problems.take()
            self._tick()
            busy = self.core.decide()
        finally:
            took, clock.ahead_ns = clock.ahead_ns, 0
        self._check_nobody_is_forgotten()
        self._check_what_is_bound_takes_room()
        self._busy_until = self.world.now + took
        if busy:
            self.wake()
            return
        idle = IDLE_NS if self.core.term.leads else STANDBY_NS
        if turn.turn_at is not None:
            local_ns = int((turn.turn_at - self._now()) * SECOND)
            idle = min(idle, clock.true_delay_ns(local_ns))
        self.wake(idle)

    def _check_nobody_is_forgotten(self) -> None:
        """L1 at each quiet moment: all pods that wait for a node, as far as this scheduler knows, are in its queue."""
        core, link = self.core, self.core.link
        if link is None or link.backlog or link.is_calling or core.scheduler.occupancy.n_assumed or not core.window.quiet:
            return
        pending = core.cache.pending()
        if any(core.preemptions.is_under_way(record.uid) or core.bindings.has_lost(record.uid) for record in pending):
            # A queue that began while its write was under way hears of the pod with the outcome; where that is a lost race, once
            # the cache shows what it was lost to.
            return
        # A group is one entry, and none while it is held back.
        waiting = sum(not record.template.pod_group for record in pending) + core.groups.n_queued()
        queued = sum(link.counts.values())
        if waiting != queued:
            raise Violation("L1", f"{self.process.name} knows of {waiting} entries that wait, and its queue of {queued}")

    def _check_what_is_bound_takes_room(self) -> None:
        """S2 before it is too late: an outcome that this scheduler cannot know yet stays assumed."""
        core = self.core
        if core.term.leads:
            for uid in self._bound_since(core.cache.revision, core.term.epoch):
                if core.scheduler.occupancy.assumed_on(uid) is None:
                    raise Violation(
                        "S2", f"{uid} is bound under epoch {core.term.epoch}, and {self.process.name} counts on its room"
                    )

    def _send(self, send: Send) -> None:
        def answered(answer: Any) -> None:
            told = store_error(answer) if isinstance(answer, EtcdError) else answer
            self._take_in(lambda: self.core.transaction_answered(send.number, told))

        def handle() -> Any:
            answer = self.world.etcd.txn(rpc.TxnRequest.FromString(send.content))
            self.world.fenced += not answer.succeeded
            return answer

        self.world.call(self.process, self.link, handle, WRITE_NS, answered)

    def _exchange(self, request: ExchangeRequest) -> None:
        life, random = self._queue_life, self.world.random

        def arrive() -> None:
            if life == self._queue_life:
                answer = self.queue.exchange(request)
                self.world.after(random.randrange(MS), lambda: self.process.deliver(lambda: come_back(answer)))

        def come_back(answer: Any) -> None:
            if life == self._queue_life:
                self._take_in(lambda: self.core.exchange_answered(answer))

        self.world.after(random.randrange(MS), lambda: self.process.deliver(arrive))

    def _grant_lease(self) -> None:
        def handle() -> Any:
            return self.world.etcd.grant(rpc.LeaseGrantRequest(TTL=LEASE_SECONDS))

        def answered(answer: Any) -> None:
            lease = None if isinstance(answer, EtcdError) else int(answer.ID)
            self._take_in(lambda: self.core.lease_granted(lease))

        self.world.call(self.process, self.link, handle, WRITE_NS, answered)

    # --------------------------------------------------------------------------------------------------------------- watch

    def _deliver(self, delivery: Delivery) -> None:
        self._delivered(delivery)

        def absorb() -> None:
            self.core.watched(delivery)
            if isinstance(delivery, ListedAll):
                self._synced()

        self._take_in(absorb)

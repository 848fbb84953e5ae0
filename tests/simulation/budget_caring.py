"""A replica's care for disruption budgets: the real `BudgetView`, carried by the simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leader.belief import BeliefCell
from leader.clock import SystemClock
from rayched.controllers.budget_view import BudgetView
from rayched.store.errors import store_error
from rayched.store.fencing import Fence
from rayched.store.keys import Keys
from rayched.store.list_watch import Changed, Delivery, Listed
from rayched.store.transactions import Fenced, Guard, GuardedPut, Outcome, Refused, Unknown, build, read, split, without_answer
from tests.simulation.api import CALL_NS
from tests.simulation.candidate import MachineClock
from tests.simulation.etcd import EtcdError
from tests.simulation.following import Following
from tests.simulation.world import MS, SECOND, Link, Process, World

_LOOK_NS: Final = 200 * MS
_GATHER_NS: Final = 10 * MS
_RETRY_NS: Final = SECOND


class BudgetCaring:
    """One life of a replica's care for budgets."""

    def __init__(self, world: World, process: Process, link: Link, clock: MachineClock, keys: Keys, cell: BeliefCell) -> None:
        self._world, self._process, self._link, self._machine_clock, self._keys = world, process, link, clock, keys
        self._clock = SystemClock(clock.gettime_ns)
        self._fence = Fence(cell)
        self._term = 0
        """The epoch that the present view is for; 0: none is."""
        self._terms = 0
        self._view: BudgetView | None = None
        self._following: Following | None = None
        self._is_writing = False
        self._wake_number = 0
        self.before_next_write: Callable[[], None] | None = None

    def start(self) -> None:
        self._plan(0)

    def _plan(self, wait_ns: int) -> None:
        self._wake_number += 1
        number, wait_ns = self._wake_number, self._machine_clock.true_delay_ns(wait_ns)
        self._world.after(wait_ns, lambda: self._wake_number == number and self._process.deliver(lambda: self._look(number)))

    def _look(self, number: int) -> None:
        if self._wake_number != number or self._is_writing:
            return
        epoch = self._fence.epoch(self._clock.now().boot_ns) or 0
        if epoch != self._term:
            self._begin(epoch)
        if epoch and self._view is not None and self._view.revision >= epoch and self._view.has_budgets:
            writes = self._view.writes(epoch, self._clock.now().wall_us // 1_000_000)
            if writes:
                self._write(self._view, epoch, list(split(writes)), [])
                return
        self._plan(_LOOK_NS)

    def _begin(self, epoch: int) -> None:
        """Each term follows anew."""
        self._term = epoch
        if self._following is not None:
            self._following.stop()
            self._following = self._view = None
        if not epoch:
            return
        self._terms += 1
        view = self._view = BudgetView(self._keys, f"{self._process.name}budgets{self._terms}")

        def take(delivery: Delivery) -> None:
            match delivery:
                case Listed():
                    view.listed(delivery)
                case Changed():
                    view.changed(delivery)
            if not self._is_writing:
                self._plan(_GATHER_NS)

        prefix, page_size = self._keys.cluster_prefix, self._world.random.choice((3, 2000))
        self._following = Following(self._world, self._process, self._link, self._machine_clock, prefix, page_size, take)
        self._following.start()

    def _write(self, view: BudgetView, epoch: int, batches: list[list[GuardedPut]], failed: list[bytes]) -> None:
        self._is_writing = bool(batches)
        if not batches:
            for key in failed:
                view.again(key)
            self._plan(_RETRY_NS if failed else 0)
            return
        batch, *rest = batches
        request = build(Guard(self._keys.epoch, epoch), batch)

        def answered(answer: object) -> None:
            told: list[Outcome] = (
                without_answer(store_error(answer), batch) if isinstance(answer, EtcdError) else read(answer, batch)
            )
            self._world.fenced += any(isinstance(outcome, Fenced) for outcome in told)
            lost = [write.key for write, outcome in zip(batch, told, strict=True) if isinstance(outcome, Unknown | Refused)]
            self._write(view, epoch, rest, failed + lost)

        if self.before_next_write is not None:
            happens, self.before_next_write = self.before_next_write, None
            happens()
        # At once, unless the process was paused since it decided.
        self._process.deliver(
            lambda: self._world.call(self._process, self._link, lambda: self._world.etcd.txn(request), CALL_NS, answered)
        )

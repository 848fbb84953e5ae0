"""A replica's care for disruption budgets: the real `BudgetView`, carried by the simulation."""

from __future__ import annotations

from time import CLOCK_REALTIME
from typing import Final

from leader.belief import BeliefCell
from leader.etcd_shim import rpc
from rayched.controllers.budget_view import BudgetView
from rayched.store.errors import store_error
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Changed, Delivery, ListedAll
from rayched.store.transactions import (
    Fenced,
    Guard,
    GuardedPut,
    Outcome,
    OutcomeUnknown,
    TransactionRefused,
    build,
    read,
    split,
    without_answer,
)
from tests.simulation.api import CALL_NS
from tests.simulation.candidate import MachineClock
from tests.simulation.etcd_errors import EtcdError
from tests.simulation.following import Following
from tests.simulation.role import Caring
from tests.simulation.world import MS, SECOND, Link, Process, World

_LOOK_NS: Final = 200 * MS
_GATHER_NS: Final = 10 * MS
_RETRY_NS: Final = SECOND


class BudgetCaring(Caring):
    """One life of a replica's care for budgets."""

    def __init__(self, world: World, process: Process, link: Link, clock: MachineClock, keys: Keys, cell: BeliefCell) -> None:
        super().__init__(world, process, link, clock, keys, cell)
        self._term = 0
        """The epoch that the present view is for; 0: none is."""
        self._terms = 0
        self._view: BudgetView | None = None
        self._following: Following | None = None

    def _look(self) -> None:
        epoch = self._epoch() or 0
        if epoch != self._term:
            self._begin(epoch)
        if epoch and self._view is not None and self._view.revision >= epoch and self._view.has_budgets:
            writes = self._view.writes(epoch, self._machine_clock.gettime_ns(CLOCK_REALTIME) // SECOND)
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
        view = self._view = BudgetView(self._keys, f"{self.process.name}budgets{self._terms}")

        def take(delivery: Delivery) -> None:
            match delivery:
                case ListedAll():
                    view.listed(delivery)
                case Changed():
                    view.changed(delivery)
            if not self._is_busy:
                self._plan(_GATHER_NS)

        prefix, page_size = self._keys.cluster_prefix, self.world.random.choice((3, 2000))
        self._following = Following(self.world, self.process, self.link, self._machine_clock, prefix, page_size, take)
        self._following.start()

    def _write(self, view: BudgetView, epoch: int, batches: list[list[GuardedPut]], failed: list[bytes]) -> None:
        self._is_busy = bool(batches)
        if not batches:
            for key in failed:
                view.again(key)
            self._plan(_RETRY_NS if failed else 0)
            return
        batch, *rest = batches
        request = rpc.TxnRequest.FromString(build(Guard(self._keys.epoch, epoch), batch))

        def answered(answer: object) -> None:
            told: list[Outcome] = (
                without_answer(store_error(answer), batch) if isinstance(answer, EtcdError) else read(answer, batch)
            )
            self.world.fenced += any(isinstance(outcome, Fenced) for outcome in told)
            lost = [
                write.key
                for write, outcome in zip(batch, told, strict=True)
                if isinstance(outcome, OutcomeUnknown | TransactionRefused)
            ]
            self._write(view, epoch, rest, failed + lost)

        self._is_about_to_write()
        # At once, unless the process was paused since it decided.
        self.process.deliver(
            lambda: self.world.call(self.process, self.link, lambda: self.world.etcd.txn(request), CALL_NS, answered)
        )

"""Keeps the statuses of disruption budgets current: a loop of the leader, on a thread of its own with a connection of its own.

While this replica leads and there is a budget, it follows the cluster and writes statuses some milliseconds after what changed
them. It writes nothing before its watch has seen its own epoch: then it has seen all evictions and statuses of the epochs before.
Each write is guarded by the epoch and by the budget's revision, so one that a concurrent eviction has overtaken is refused.

Without any budget only the keys of budgets are followed: a cluster that has none pays nothing for them.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from leader.channel import kept, open_channel
from rayched.api.kinds import POD_DISRUPTION_BUDGET
from rayched.controllers.budget_view import OP_BUDGET, BudgetView
from rayched.controllers.loop_thread import LoopThread
from rayched.store.entries import Entry
from rayched.store.following import ClusterChanges, Following, OwnWatches
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Changed, Delivery, ListedAll
from rayched.store.refusals import count_fenced_among
from rayched.store.transactions import Guard, OutcomeUnknown, TransactionRefused

_LOOK_SECONDS: Final = 0.2
"""Between two looks at whether this replica leads, and at what is due."""
_GATHER_SECONDS: Final = 0.01
"""What changes together is judged together."""
_REST_SHARE: Final = 4.0
"""After a turn the loop rests so many times as long as that took: large budgets that change all the time are judged less often,
and the replica has its processor for itself."""
_RETRY_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


class BudgetStatus:
    """Owns its thread. `start` and `stop` once."""

    def __init__(
        self,
        endpoints: Sequence[str],
        keys: Keys,
        epoch: Callable[[], int | None],
        wall_clock: Callable[[], float] = time.time,
        changes: ClusterChanges | None = None,
    ) -> None:
        """`epoch` gives the epoch to write under now; None on a standby. Without `changes` it follows etcd itself."""
        self._endpoints = kept(endpoints)
        self._keys = keys
        self._epoch = epoch
        self._wall_clock = wall_clock
        self._changes = changes or OwnWatches(endpoints)
        self._loop = LoopThread("budgets", self._run)
        self._stopped, self._wake = self._loop.stopped, self._loop.wake
        self.start, self.stop, self.problem = self._loop.start, self._loop.stop, self._loop.problem

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            epoch = self._epoch()
            if epoch is not None:
                with open_channel(self._endpoints) as channel:
                    self._wait_for_a_budget(epoch)
                    self._follow(channel, epoch)

    def _goes_on(self, epoch: int, following: Following) -> bool:
        return not self._stopped.is_set() and following.alive and self._epoch() == epoch

    def _wait_for_a_budget(self, epoch: int) -> None:
        found = threading.Event()

        def look(delivery: Delivery) -> None:
            match delivery:
                case ListedAll(entries) if entries:
                    found.set()
                case Changed(changes) if any(isinstance(change, Entry) for change in changes):
                    found.set()

        following = self._changes.follow(self._keys.prefix(POD_DISRUPTION_BUDGET), look)
        try:
            while self._goes_on(epoch, following) and not found.wait(_LOOK_SECONDS):
                pass
        finally:
            following.stop()

    def _follow(self, channel: object, epoch: int) -> None:
        """Writes statuses until the lead or the last budget is gone."""
        view = BudgetView(self._keys, uuid.uuid4().hex[:12], self._changes.decode)
        lock = threading.Lock()

        def take(delivery: Delivery) -> None:
            with lock:
                match delivery:
                    case ListedAll():
                        view.listed(delivery)
                    case Changed():
                        view.changed(delivery)
            self._wake.set()

        store = StoreClient(channel)
        took_seconds = 0.0
        following = self._changes.follow(self._keys.cluster_prefix, take)
        try:
            while self._goes_on(epoch, following):
                self._wake.wait(_LOOK_SECONDS)
                self._wake.clear()
                self._stopped.wait(max(_GATHER_SECONDS, _REST_SHARE * took_seconds))
                with lock:
                    if view.revision < epoch:
                        continue
                    if not view.has_budgets:
                        return
                began = time.monotonic()
                self._write(store, view, lock, epoch)
                took_seconds = time.monotonic() - began
        finally:
            following.stop()

    def _write(self, store: StoreClient, view: BudgetView, lock: threading.Lock, epoch: int) -> None:
        with lock:
            writes = view.writes(epoch, int(self._wall_clock()))
        if not writes:
            return
        outcomes = store.commit(Guard(self._keys.epoch, epoch), writes)
        failed = [
            write
            for write, outcome in zip(writes, outcomes, strict=True)
            if isinstance(outcome, OutcomeUnknown | TransactionRefused)
        ]
        if failed:
            log.warning("%d statuses of budgets could not be written; tried again in %.0f s", len(failed), _RETRY_SECONDS)
            with lock:
                for write in failed:
                    view.again(write.key)
            self._stopped.wait(_RETRY_SECONDS)
        if count_fenced_among(OP_BUDGET, outcomes):
            self._stopped.wait(_LOOK_SECONDS)

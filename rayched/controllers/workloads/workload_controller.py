"""Makes the pods of ReplicaSets and jobs: a loop of the leader, on a thread of its own with a connection of its own.

While this replica leads and there is a ReplicaSet or a job, or a pod of one that is gone, it follows the cluster, and writes
under its epoch what the reconciler decides. Otherwise it looks no more than whether there is one by now (presence.py).

A turn sends the writes of all its plans together, creations in rounds that double, and Events last. Nothing of it runs where pods
are scheduled.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from leader.channel import kept, open_channel
from rayched.api.well_known_taints import DefaultTolerations
from rayched.controllers.loop_thread import LoopThread
from rayched.controllers.workloads.event_sending import WorkloadEventSender
from rayched.controllers.workloads.presence import WorkloadPresence
from rayched.controllers.workloads.reconciler import WorkloadReconciler
from rayched.controllers.workloads.workload_metrics import FAILED_TURNS, count_committed
from rayched.controllers.workloads.workload_plan import WorkloadPlan, slow_start
from rayched.store.following import ClusterChanges, Following, OwnWatches
from rayched.store.io.client import StoreClient
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Delivery
from rayched.store.refusals import count_fenced_among
from rayched.store.transactions import Committed, Conflict, Guard, Outcome, OutcomeUnknown, TransactionRefused, Write

_LOOK_SECONDS: Final = 0.2
"""Between two looks at whether this replica leads, and at what is due."""
_GATHER_SECONDS: Final = 0.01
"""What changes together is decided together."""
_TOLERATIONS: Final = DefaultTolerations()

log = logging.getLogger(__name__)


class WorkloadController:
    """Owns its thread. `start` and `stop` once."""

    def __init__(
        self,
        endpoints: Sequence[str],
        keys: Keys,
        epoch: Callable[[], int | None],
        tolerations: DefaultTolerations = _TOLERATIONS,
        wall_clock: Callable[[], float] = time.time,
        changes: ClusterChanges | None = None,
        may_create: Callable[[], bool] = lambda: True,
        may_tell: Callable[[], bool] = lambda: True,
    ) -> None:
        """`epoch` gives the epoch to write under now; None on a standby. Without `changes` it follows etcd itself.

        `may_create`: whether the store has room for new objects; `may_tell`: for Events.
        """
        self._endpoints = kept(endpoints)
        self._keys = keys
        self._epoch = epoch
        self._tolerations = tolerations
        self._wall_clock = wall_clock
        self._changes = changes or OwnWatches(endpoints)
        self._may_create = may_create
        self._may_tell = may_tell
        self._loop = LoopThread("workloads", self._run)
        self._stopped, self._wake = self._loop.stopped, self._loop.wake
        self.start, self.stop, self.problem = self._loop.start, self._loop.stop, self._loop.problem

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            epoch = self._epoch()
            if epoch is not None:
                with open_channel(self._endpoints) as channel:
                    self._lead(StoreClient(channel), epoch)

    def _lead(self, store: StoreClient, epoch: int) -> None:
        events = WorkloadEventSender(store, self._keys, epoch, self._may_tell)
        while not self._stopped.is_set() and self._epoch() == epoch:
            self._wait_for_a_workload(events, epoch)
            self._follow(store, events, epoch)

    def _goes_on(self, epoch: int, *following: Following) -> bool:
        return not self._stopped.is_set() and self._epoch() == epoch and all(one.alive for one in following)

    def _wait_for_a_workload(self, events: WorkloadEventSender, epoch: int) -> None:
        """Until there is one, or pods of one that is gone."""
        presence, found = WorkloadPresence(self._keys, self._changes.decode), threading.Event()

        def look(delivery: Delivery) -> None:
            presence.deliver(delivery)
            if presence.is_there:
                found.set()

        following = self._changes.follow(self._keys.cluster_prefix, look)
        try:
            while self._goes_on(epoch, following) and not found.wait(_LOOK_SECONDS):
                events.send(epoch, time.monotonic())
        finally:
            following.stop()

    def _follow(self, store: StoreClient, events: WorkloadEventSender, epoch: int) -> None:
        """Until the lead, or the last workload and its pods are gone."""
        reconciler = WorkloadReconciler(
            self._keys, uuid.uuid4().hex[:12], Random(uuid.uuid4().int), self._tolerations, self._changes.decode
        )
        lock = threading.Lock()

        def take(delivery: Delivery) -> None:
            with lock:
                if reconciler.deliver(delivery):
                    self._wake.set()

        following = self._changes.follow(self._keys.cluster_prefix, take)
        try:
            while self._goes_on(epoch, following):
                with lock:
                    due = reconciler.seconds_until_due(time.monotonic())
                    behind = reconciler.is_behind
                if not behind:
                    self._wake.wait(_LOOK_SECONDS if due is None else min(due, _LOOK_SECONDS))
                self._wake.clear()
                began = time.monotonic()
                self._turn(store, reconciler, lock, epoch)
                with lock:
                    news, revision = reconciler.take_news(), reconciler.view.revision
                events.tell(news, time.monotonic(), self._wall_clock())
                events.send(revision, time.monotonic())
                # The replica has its processor for itself half of the time.
                self._stopped.wait(max(_GATHER_SECONDS, time.monotonic() - began))
                with lock:
                    if reconciler.view.complete and reconciler.view.revision >= epoch and reconciler.view.is_idle:
                        return
        finally:
            following.stop()

    def _turn(self, store: StoreClient, reconciler: WorkloadReconciler, lock: threading.Lock, epoch: int) -> None:
        with lock:
            now, wall = time.monotonic(), self._wall_clock()
            plans = reconciler.decide(self._epoch(), now, wall, may_create=self._may_create())
        if not plans:
            return
        done: dict[int, list[tuple[Write, Outcome]]] = {id(plan): [] for plan in plans}
        guard = Guard(self._keys.epoch, epoch)

        def send(asked: Sequence[tuple[WorkloadPlan, Sequence[Write]]]) -> None:
            writes = [write for _, some in asked for write in some]
            outcomes = iter(store.commit(guard, writes))
            for plan, some in asked:
                results = list(zip(some, outcomes, strict=False))
                done[id(plan)] += results
                plan.stopped |= not all(isinstance(outcome, Committed) for _, outcome in results)

        send([(plan, plan.pods) for plan in plans])
        for plan in plans:
            plan.stopped = False
        for found in slow_start(plans):
            send(found)
        send([(plan, plan.last) for plan in plans])
        with lock:
            for plan in plans:
                reconciler.settle(plan, done[id(plan)], time.monotonic())
        self._tell([pair for pairs in done.values() for pair in pairs])

    def _tell(self, done: Sequence[tuple[Write, Outcome]]) -> None:
        count_committed(done)
        outcomes = [outcome for _, outcome in done]
        failed = [outcome for outcome in outcomes if isinstance(outcome, OutcomeUnknown | TransactionRefused)]
        if failed:
            FAILED_TURNS.inc()
            log.warning("workloads: %d of %d writes were not done, tried again: %s", len(failed), len(outcomes), failed[0])
        if count_fenced_among("workload", outcomes) and not any(isinstance(one, Committed | Conflict) for one in outcomes):
            self._stopped.wait(_LOOK_SECONDS)

"""A workload's cluster in a store in memory: its objects, its pods, the nodes' agents, and what is to be said of it afterwards.

Agents do what they do in kube-scheduler's own measurement: who is told to end for another pod is gone at once.

Owner: whoever follows the store hands each delivery to `seen` after the cache has absorbed it.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from benchmarks import shapes
from benchmarks.memory_store import MemoryStore
from benchmarks.validity import Judge
from benchmarks.workloads import Churn, Ending, Workload
from rayched.api import kinds
from rayched.api.kinds import AnyObject
from rayched.store.codec import encode
from rayched.store.entries import Change, Entry
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import Stored

EPOCH: Final = 2
"""The revision of the epoch's key: the first thing that the store holds."""
_PREEMPTED: Final = b"PreemptionByScheduler"
"""Stands in the condition of a pod that was told to end for another one."""

Pair = tuple[bytes, bytes]


class MemoryCluster:
    """The store is written by whoever binds and by whoever calls; `seen` and `await_pods` belong to one thread each."""

    def __init__(self, workload: Workload, keys: Keys) -> None:
        self.workload = workload
        self._keys = keys
        self.memory = MemoryStore()
        self.memory.put_all([(keys.epoch, b"")])
        self.memory.put_all([self.pair(item) for item in (*workload.objects, *workload.make_nodes(workload.nodes))])
        self.bound: dict[bytes, float] = {}
        """When awaited pods were seen on a node, by perf_counter."""
        self._awaited: tuple[set[bytes], threading.Event] = set(), threading.Event()
        """Pods to be seen on a node, and what is set then. Both at once: `seen` may be under way when others are awaited."""
        self._ended: set[bytes] = set()

    def pair(self, item: AnyObject) -> Pair:
        kind = kinds.of_message(item)
        key = self._keys.object_key(kind, item.metadata.namespace if kind.namespaced else "", item.metadata.name)
        return key, encode(kinds.wrap(item))

    def pairs(self, pods: Iterable[Pod]) -> list[Pair]:
        return [self.pair(pod) for pod in pods]

    def await_pods(self, keys: Iterable[bytes]) -> None:
        """Nothing of them has been written yet."""
        self.bound.clear()
        self._awaited = set(keys), threading.Event()

    @property
    def all_bound(self) -> threading.Event:
        """Set when all awaited pods were seen on a node."""
        return self._awaited[1]

    @property
    def n_awaited(self) -> int:
        return len(self._awaited[0])

    def seen(self, changes: Sequence[Change]) -> None:
        """The cache has absorbed these."""
        now, preempts = time.perf_counter(), self.workload.preempts
        is_told = preempts or self.workload.measured.gang > 0
        awaited, all_bound = self._awaited
        for change in changes:
            if not isinstance(change, Entry) or change.mod_revision == change.create_revision:
                continue
            if preempts and _PREEMPTED in change.value and change.key not in self._ended:
                self._ended.add(change.key)
                self.memory.delete(change.key)
            # Where nobody preempts or waits for others, the first thing that is written of a measured pod is its node.
            if change.key in awaited and (not is_told or _pod(change).spec.node_name):
                awaited.remove(change.key)
                self.bound[change.key] = now
        if not awaited:
            all_bound.set()

    # --------------------------------------------------------------------------------------------------------- meanwhile

    def meanwhile(self) -> list[Meanwhile]:
        """What happens beside the measured pods, ready to be started."""
        found: list[Meanwhile] = []
        if self.workload.churn is not None:
            found.append(_Churning(self.workload.churn, self))
        if self.workload.ending is not None:
            found.append(_Ending(self.workload.ending, self))
        return found

    def put(self, item: AnyObject) -> bytes:
        key, value = self.pair(item)
        self.memory.put_all([(key, value)])
        return key

    # ----------------------------------------------------------------------------------------------------------- judging

    def judged(self, templates: int) -> Judge:
        """Replays all that happened."""
        workload = self.workload
        judge = judge_of(workload)
        uids: dict[bytes, str] = {}
        victims: dict[bytes, str] = {}
        for change in self.memory.history:
            if not isinstance(change, Entry):
                judge.end(uids.pop(change.key, ""))
            elif b"/pods/" in change.key:
                pod = _pod(change) if change.key not in uids or _PREEMPTED in change.value else None
                if pod is None or not pod.spec.node_name:
                    continue
                if change.key not in uids:
                    uids[change.key] = pod.metadata.uid
                    judge.place(pod, pod.spec.node_name)
                if _PREEMPTED in change.value and change.key not in victims:
                    victims[change.key] = pod.spec.node_name
                    judge.preempted(pod, workload.highest_priority)
        if workload.victims_each and templates == 1:
            _judge_victims(judge, workload, Counter(victims.values()))
        return judge


def judge_of(workload: Workload) -> Judge:
    return Judge(workload.make_nodes(workload.nodes), workload.namespaces)


def _judge_victims(judge: Judge, workload: Workload, by_node: Counter[str]) -> None:
    each, total = workload.victims_each, by_node.total()
    if total != each * workload.measured_pods or set(by_node.values()) - {each}:
        judge.n_wrong += 1
        judge.wrong.append(f"{total} victims on {len(by_node)} nodes for {workload.measured_pods} pods, each needs {each} on one")


def _pod(entry: Entry) -> Pod:
    return Stored.FromString(entry.value).object.pod


class Meanwhile(ABC):
    """Something that goes on until it is stopped, on a thread of its own."""

    def __init__(self, period_seconds: float) -> None:
        self._period = period_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meanwhile", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    @abstractmethod
    def steps(self) -> Iterator[None]:
        """What is done at each period; ends when there is nothing left to do."""

    def _run(self) -> None:
        due = time.monotonic()
        for _ in self.steps():
            due += self._period
            if self._stopped.wait(max(0.0, due - time.monotonic())):
                return


class _Churning(Meanwhile):
    def __init__(self, churn: Churn, cluster: MemoryCluster) -> None:
        super().__init__(churn.period_seconds)
        self._churn = churn
        self._cluster = cluster

    def steps(self) -> Iterator[None]:
        cluster, number = self._cluster, 0
        made: list[bytes] = []
        while True:
            for key in made:
                cluster.memory.delete(key)
            made = [cluster.put(shapes.a_pod(self._churn.pod, "churn", f"churn-{number}"))]
            if self._churn.recreates:
                node = shapes.a_node("churn-node", amounts={"cpu": "0", "memory": "0", "pods": "0"})
                made += [cluster.put(node), cluster.put(shapes.a_service("churn", "churn-service"))]
            else:
                made = []
            number += 1
            yield


class _Ending(Meanwhile):
    def __init__(self, ending: Ending, cluster: MemoryCluster) -> None:
        super().__init__(1 / ending.per_second)
        self._ending = ending
        self._cluster = cluster

    def steps(self) -> Iterator[None]:
        cluster = self._cluster
        for group, pod in cluster.workload.pods_before():
            if group.ends:
                key, _ = cluster.pair(pod)
                if self._ending.stays:
                    cluster.memory.alter(key, _told_to_end)
                else:
                    cluster.memory.delete(key)
                yield


def _told_to_end(value: bytes) -> bytes:
    stored = Stored.FromString(value)
    stored.object.pod.metadata.deletion_timestamp.GetCurrentTime()
    return stored.SerializeToString()

"""What a cluster's own workload controllers and a sceptic do meanwhile: pods are replaced, and every revision is counted.

`Apps` stands in for the ReplicaSets' controller: a pod that is being deleted, or is gone, gets a successor at once. It also
is the witness: it follows the API's watch in the order of revisions, and counts for each app how many pods are available
(ready and not being deleted) after each revision. Nothing of the cluster's own counting is used.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rayched.api.kinds import AnyObject
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.client.watch import EventType, StreamClosed, WatchStream
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import PodDisruptionBudget, ReplicaSet

_LABEL = "app"


@dataclass(slots=True)
class Seen:
    """What the witness has seen."""

    available: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Uids by app."""
    ended: set[str] = field(default_factory=set)
    """Pods that were deleted, or asked to stop."""
    lowest: dict[str, int] = field(default_factory=dict)
    """The fewest available pods of each app at any revision since `armed`."""
    breaches: list[str] = field(default_factory=list)


class Apps:
    """Apps of equal size, each with a controller and a budget of one unavailable pod. Start and stop it once."""

    def __init__(self, client: Client, apps: Sequence[str], pods_each: int) -> None:
        self._client = client
        self._apps = tuple(apps)
        self._pods_each = pods_each
        self._numbers = itertools.count(1)
        self._armed = False
        self._due: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._watch: WatchStream | None = None
        self._threads = [
            threading.Thread(target=self._follow, name="witness", daemon=True),
            threading.Thread(target=self._replace, name="apps", daemon=True),
        ]
        self.seen = Seen()
        self.failure = ""
        """What ended the witness, if something did."""

    def objects(self) -> Iterator[AnyObject]:
        """Controllers and budgets."""
        for app in self._apps:
            owner = ReplicaSet(api_version="apps/v1", kind="ReplicaSet")
            owner.metadata.name, owner.metadata.namespace, owner.metadata.uid = app, "default", _uid(app)
            owner.spec.replicas = self._pods_each
            owner.spec.selector.match_labels[_LABEL] = app
            yield owner
            budget = PodDisruptionBudget(api_version="policy/v1", kind="PodDisruptionBudget")
            budget.metadata.name, budget.metadata.namespace = app, "default"
            budget.spec.max_unavailable.int_value = 1
            budget.spec.selector.match_labels[_LABEL] = app
            yield budget

    def start(self) -> None:
        """Follows from here, and submits the first pods."""
        start = self._client.list_all("pods").revision + 1
        self._watch = self._client.watch("pods", start_revision=start)
        for thread in self._threads:
            thread.start()
        for app in self._apps * self._pods_each:
            self._due.put(app)

    def stop(self) -> None:
        self._due.put(None)
        if self._watch is not None:
            self._watch.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(10.0)

    def wait_until_available(self, seconds: float) -> bool:
        """Whether every app is complete within the time."""
        deadline = time.monotonic() + seconds
        while any(len(self.seen.available[app]) < self._pods_each for app in self._apps):
            if self.failure or time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def arm(self) -> None:
        """From now on each revision is judged."""
        self._armed = True

    # ---------------------------------------------------------------------------------------------------------- following

    def _follow(self) -> None:
        assert self._watch is not None
        revision = 0
        try:
            for event in self._watch:
                if event.revision != revision:
                    self._judge(revision)
                    revision = event.revision
                if isinstance(event.object, Pod):
                    self._take(event.type, event.object)
        except StreamClosed:
            return
        except ApiError as error:
            self.failure = str(error)

    def _take(self, kind: EventType, pod: Pod) -> None:
        app, uid = pod.metadata.labels.get(_LABEL, ""), pod.metadata.uid
        ends = kind is EventType.DELETED or pod.metadata.HasField("deletion_timestamp")
        ready = any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)
        if ready and not ends:
            self.seen.available[app].add(uid)
        else:
            self.seen.available[app].discard(uid)
        if ends and uid not in self.seen.ended:
            self.seen.ended.add(uid)
            self._due.put(app)

    def _judge(self, revision: int) -> None:
        if not self._armed:
            return
        for app in self._apps:
            count = len(self.seen.available[app])
            self.seen.lowest[app] = min(count, self.seen.lowest.get(app, count))
            if count < self._pods_each - 1:
                self.seen.breaches.append(f"revision {revision}: {app} has {count} of {self._pods_each} pods")

    # ---------------------------------------------------------------------------------------------------------- replacing

    def _replace(self) -> None:
        while (app := self._due.get()) is not None:
            batch = [app]
            while not self._due.empty():
                more = self._due.get()
                if more is None:
                    self._due.put(None)
                    break
                batch.append(more)
            for outcome in self._client.submit_many([self._pod(one) for one in batch], timeout_seconds=30.0):
                if outcome.error is not None:
                    self.failure = f"a pod was refused: {outcome.error}"

    def _pod(self, app: str) -> Pod:
        pod = Pod(api_version="v1", kind="Pod")
        pod.metadata.name, pod.metadata.namespace = f"{app}-{next(self._numbers)}", "default"
        pod.metadata.labels[_LABEL] = app
        pod.metadata.owner_references.add(api_version="apps/v1", kind="ReplicaSet", name=app, uid=_uid(app), controller=True)
        container = pod.spec.containers.add(name="main", image="registry.example/web:1")
        container.resources.requests["cpu"].string = "500m"
        container.resources.requests["memory"].string = "256Mi"
        return pod


def _uid(app: str) -> str:
    return f"replicaset-{app}"

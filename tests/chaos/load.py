"""Load that goes on for ever without growing: pods of many kinds come at a steady rate, and the oldest are deleted.

Every promise that the API gives is kept for the auditor: acknowledged submissions, deletions asked for, deletions acknowledged.
Some submissions are sent several times under one uid, some are broken off and sent again; each has to have the same answer.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Pod
from tests.chaos.gangs import gang_of, gangs_in, group_for, members_missing, with_gangs

_DUPLICATES = 3
_BREAK_OFF_SECONDS = 0.003
_GROUP_PODS = 8


HIGH_CLASS = "chaos-high"
"""Of the pods that may preempt."""


def crowding_pods(prefix: str, draw: random.Random) -> Iterator[Pod]:
    """Endless pods, three of ten with a higher priority; some live together are more than small nodes take."""
    for pod in pods_of_many_kinds(prefix, draw):
        pod.spec.containers[0].resources.requests["cpu"].string = f"{draw.choice((100, 200, 500))}m"
        if draw.random() < 0.3:
            pod.spec.priority_class_name = HIGH_CLASS
        yield pod


def pods_of_many_kinds(prefix: str, draw: random.Random) -> Iterator[Pod]:
    """Endless feasible pods: half of them plain, the others with hard constraints on nodes and on one another."""
    for number in itertools.count():
        pod = Pod(api_version="v1", kind="Pod")
        pod.metadata.namespace, pod.metadata.name, pod.metadata.uid = (
            "default",
            f"{prefix}-{number}",
            str(uuid.UUID(int=draw.getrandbits(128))),
        )
        container = pod.spec.containers.add(name="main", image="registry.example/load:1")
        container.resources.requests["cpu"].string = "10m"
        container.resources.requests["memory"].string = "16Mi"
        group = f"{prefix}-{number // (6 * _GROUP_PODS)}"
        match draw.randrange(12):
            case 0:
                _label(pod, "spread", group)
                constraint = pod.spec.topology_spread_constraints.add(
                    max_skew=1, topology_key="topology.kubernetes.io/zone", when_unsatisfiable="DoNotSchedule"
                )
                constraint.label_selector.match_labels["spread"] = group
            case 1:
                _label(pod, "alone", group)
                anti = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
                anti.add(topology_key="kubernetes.io/hostname").label_selector.match_labels["alone"] = group
            case 2:
                _label(pod, "together", group)
                near = pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution
                near.add(topology_key="topology.kubernetes.io/zone").label_selector.match_labels["together"] = group
            case 3:
                pod.spec.node_selector["disktype"] = "ssd"
            case 4:
                container.ports.add(container_port=80, host_port=20_000 + number % 5_000, protocol="TCP")
            case 5:
                pod.spec.tolerations.add(key="reserved", operator="Exists")
        yield pod


def _label(pod: Pod, key: str, value: str) -> None:
    pod.metadata.labels[key] = value


class ChurningLoad:
    """A thread that submits `rate` pods a second and keeps at most `live_max`. What is late is not made up for."""

    def __init__(
        self,
        client: Client,
        prefix: str,
        rate: float,
        live_max: int,
        seed: int,
        *,
        crowded: bool = False,
        batch: int = 5,
        phase: float = 0.0,
        odd_share: float = 0.05,
        gangs: bool = False,
    ) -> None:
        """`phase`: the part of the time between two batches to wait before the first.

        `odd_share` of the batches are sent twice and more, or broken off at first. `gangs`: there are gangs among the pods.
        """
        self._client = client
        self._draw = random.Random(seed)
        self._pods = (crowding_pods if crowded else pods_of_many_kinds)(prefix, self._draw)
        if gangs:
            self._pods = with_gangs(self._pods, prefix, self._draw)
        self._gangs: set[str] = set()
        """Those whose PodGroup is there, as far as the API has said."""
        self._batch = batch
        self._period = batch / rate
        self._first_seconds = phase * self._period
        self._live_max = live_max
        self._odd_share = odd_share
        self._live: deque[tuple[str, str, str]] = deque()
        """Name, uid and gang of pods that were acknowledged, the oldest first."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.acknowledged: list[str] = []
        self.deletions_asked: list[str] = []
        self.deletions_acknowledged: list[str] = []
        self.names: dict[str, str] = {}
        """Of the pods that were acknowledged, by uid."""
        self.unanswered: list[str] = []
        """Uids that the API gave no answer about in time, or refused; with the last error in `errors`."""
        self.errors: list[str] = []
        self.wrong_answers: list[str] = []
        self.repeated = 0
        """Submissions that were sent more than once on purpose."""
        self.longest_call_seconds = 0.0

    def start(self) -> ChurningLoad:
        self._thread.start()
        return self

    def ask_to_stop(self) -> None:
        self._stopped.set()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(90.0)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def describe(self) -> str:
        return f"{len(self.acknowledged)} acknowledged, {len(self.unanswered)} unanswered, {self.errors[-1:] or 'no error'}"

    def _run(self) -> None:
        self._stopped.wait(self._first_seconds)
        due = time.monotonic()
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                pods = list(itertools.islice(self._pods, self._batch))
                # A gang comes as a whole: one whose other members never come would wait for ever.
                pods += itertools.islice(self._pods, members_missing(pods))
                self._make_groups(gangs_in(pods))
                self._submit(pods)
                self._delete_oldest(len(pods))
            except Exception as error:
                # A bug of the load itself makes the run void, whatever else it shows.
                self.wrong_answers.append(f"the load ended: {type(error).__name__}: {error}")
                raise
            self.longest_call_seconds = max(self.longest_call_seconds, time.monotonic() - began)
            due = max(due + self._period, time.monotonic() - self._period)
            self._stopped.wait(max(0.0, due - time.monotonic()))

    def _make_groups(self, gangs: list[str]) -> None:
        """One that is not answered for is tried again with its next members; those that there are wait for it."""
        wanted = [name for name in gangs if name not in self._gangs]
        made = self._client.submit_many(map(group_for, wanted), timeout_seconds=30.0) if wanted else ()
        for name, outcome in zip(wanted, made, strict=True):
            if outcome.error is None:
                self._gangs.add(name)
            else:
                self.errors.append(str(outcome.error))

    def _submit(self, pods: list[Pod]) -> None:
        sendings = 1
        if self._draw.random() < self._odd_share:
            self.repeated += len(pods)
            if self._draw.random() < 0.5:
                self._client.submit_many(pods, timeout_seconds=_BREAK_OFF_SECONDS)
            else:
                sendings = _DUPLICATES
        for sending in range(sendings):
            for pod, outcome in zip(pods, self._client.submit_many(pods, timeout_seconds=30.0), strict=True):
                uid = pod.metadata.uid
                if outcome.error is not None:
                    self.unanswered.append(uid)
                    self.errors.append(str(outcome.error))
                elif outcome.uid != uid:
                    self.wrong_answers.append(f"{pod.metadata.name} was submitted as {uid} and acknowledged as {outcome.uid}")
                elif sending == 0:
                    self.acknowledged.append(uid)
                    self.names[uid] = pod.metadata.name
                    self._live.append((pod.metadata.name, uid, gang_of(pod)))

    def _delete_oldest(self, most: int) -> None:
        for _ in range(min(most, len(self._live) - self._live_max)):
            name, uid, gang = self._live.popleft()
            self.deletions_asked.append(uid)
            try:
                self._client.delete("pods", name, uid=uid, timeout_seconds=30.0)
                if gang and not any(other == gang for _, _, other in itertools.islice(self._live, _GROUP_PODS)):
                    self._gangs.discard(gang)
                    self._client.delete("podgroups", gang, timeout_seconds=30.0)
            except ApiError as error:
                self.errors.append(str(error))
            else:
                self.deletions_acknowledged.append(uid)


class SpreadLoad:
    """Several loads as one, each with a client of its own: a replica that hangs holds up those alone that talk to it."""

    def __init__(self, loads: Sequence[ChurningLoad]) -> None:
        self._loads = loads

    def start(self) -> SpreadLoad:
        for load in self._loads:
            load.start()
        return self

    def stop(self) -> None:
        for load in self._loads:
            load.ask_to_stop()
        for load in self._loads:
            load.stop()

    @property
    def alive(self) -> bool:
        return any(load.alive for load in self._loads)

    @property
    def acknowledged(self) -> list[str]:
        return [uid for load in self._loads for uid in load.acknowledged]

    @property
    def deletions_asked(self) -> list[str]:
        return [uid for load in self._loads for uid in load.deletions_asked]

    @property
    def deletions_acknowledged(self) -> list[str]:
        return [uid for load in self._loads for uid in load.deletions_acknowledged]

    def names_of(self, uids: Iterable[str]) -> list[str]:
        """Of pods that were acknowledged."""
        names = {uid: name for load in self._loads for uid, name in load.names.items()}
        return [names[uid] for uid in uids]

    @property
    def unanswered(self) -> list[str]:
        return [uid for load in self._loads for uid in load.unanswered]

    @property
    def wrong_answers(self) -> list[str]:
        return [words for load in self._loads for words in load.wrong_answers]

    @property
    def repeated(self) -> int:
        return sum(load.repeated for load in self._loads)

    def describe(self) -> str:
        return "; ".join(load.describe() for load in self._loads)

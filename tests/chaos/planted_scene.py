"""The scene of a planted bug's session: real replicas whose links, clocks and schedulers it holds in its hands.

A stage with one switch for each process; what has to happen is waited for, and what goes wrong and has no rule of the auditor's
is told by the session itself.
"""

from __future__ import annotations

import contextlib
import time
import urllib.request
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from leader.channel import open_channel
from leader.etcd_requests import LockKeys
from leader.etcd_shim import rpc
from leader.record import LeaderRecord
from rayched.api.kinds import AnyObject
from rayched.audit.auditor import Binding
from rayched.audit.findings import INVARIANTS
from rayched.client.client import Client
from rayched.replica.cluster.local_cluster import ReplicaProcess
from rayched.replica.etcd.etcd_binary import EtcdBinary
from rayched.store.keys import Keys
from rayched.v1.core_pb2 import Pod
from tests.chaos.stage import LinkedCluster, StageFailed
from tests.chaos.switchboard import Switchboard
from tests.chaos.trap_stage import TrapStage
from tests.chaos.traps import TrapLink

SECONDS_MAX: Final = 30.0
"""For what must happen. Most of it takes milliseconds."""
QUIET_SECONDS: Final = 2.0
"""How long a session looks on where, without its bug, nothing happens."""
EARLY_SECONDS: Final = 1.0
"""A lease lasts 2 s from its last renewal. What is seen here may be seen a little later than it happened, but not by so much."""
LOOK_SECONDS: Final = 0.02
KEYS: Final = Keys()
LOCK: Final = LockKeys(KEYS.record, KEYS.epoch)

Plant = Callable[[], AbstractContextManager[None]]
Sessions = Mapping[str, Callable[["Scene", Plant], None]]
"""By bug."""


class _SwitchedCluster(LinkedCluster):
    """Replicas that follow a switchboard."""

    def __init__(self, directory: Path, ways: Sequence[Sequence[str]], options: Sequence[str], board: Switchboard) -> None:
        super().__init__(directory, ways, (), options)
        self._board = board

    def _command(self, number: int, address: str, http_address: str) -> list[str]:
        variables = [f"{name}={value}" for name, value in self._board.environment(number).items()]
        return ["/usr/bin/env", *variables, *super()._command(number, address, http_address)]


class SwitchedStage(TrapStage):
    """Two replicas and one etcd, with traps between them and a switchboard for their rules."""

    def __init__(self, directory: Path, binary: EtcdBinary, operations: int) -> None:
        super().__init__(directory, binary, replicas=2, operations=operations)
        self.board = Switchboard(directory / "switchboard")

    def _new_cluster(self, ways: Sequence[Sequence[str]]) -> LinkedCluster:
        return _SwitchedCluster(self.directory, ways, self._options, self.board)

    def close(self) -> None:
        super().close()
        self.board.close()


class Scene:
    """A stage while one session is played on it."""

    def __init__(self, stage: SwitchedStage, *, planted: bool) -> None:
        self.stage = stage
        self.patience = SECONDS_MAX if planted else QUIET_SECONDS
        """For what only the bug does."""
        self.violations: dict[str, list[str]] = {}
        stage.heal()
        stage.wait_until_standing(2)
        self.leader = stage.leader()
        (self.standby,) = stage.standbys()
        self.epoch = self._epoch()
        self._found_before = self._counts()
        self._client = Client([self.standby.address], timeout_seconds=SECONDS_MAX)

    def close(self) -> None:
        """Everything is well again, and what the auditor found is among the violations."""
        self._client.close()
        self.stage.heal()
        before = self._found_before
        first = self.stage.ask(lambda auditor: dict(auditor.findings.first))
        for kind, count in self._counts().items():
            if count > before[kind]:
                self.violate(INVARIANTS[kind], f"{kind}: {first[kind]}")

    def violate(self, invariant: str, words: str) -> None:
        self.violations.setdefault(invariant, []).append(words)

    def link(self, replica: ReplicaProcess) -> TrapLink:
        """Its way to etcd."""
        return self.stage.link(replica)

    def submit(self, *objects: AnyObject, through: ReplicaProcess | None = None, seconds: float = SECONDS_MAX) -> list[str]:
        """The uids of those that were acknowledged."""
        client = self._client if through is None else Client([through.address], timeout_seconds=seconds)
        try:
            outcomes = client.submit_many(objects, timeout_seconds=seconds)
        finally:
            if through is not None:
                client.close()
        return [outcome.uid for outcome in outcomes if outcome.error is None]

    def apply(self, item: AnyObject) -> None:
        """As a user does, through the replica that stands by. Raises ApiError."""
        self._client.apply(item)

    def binding(self, uid: str, seconds: float = SECONDS_MAX) -> Binding | None:
        """How the pod got its node; None: it did not in time."""

        def found() -> Binding | None:
            return self.stage.ask(lambda auditor: next((one for one in auditor.bindings if one.uid == uid), None))

        return found() if self.until(lambda: found() is not None, seconds) else None

    def until(self, condition: Callable[[], Any], seconds: float = SECONDS_MAX) -> bool:
        """Whether it came true in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def must(self, condition: Callable[[], Any], what: str) -> None:
        """Raises StageFailed."""
        if not self.until(condition):
            raise StageFailed(f"{what}: not within {SECONDS_MAX:.0f} s")

    def await_later_epoch(self) -> int:
        self.must(lambda: self._epoch() > self.epoch, "a later epoch")
        return self._epoch()

    def settled(self) -> None:
        """What has reached etcd by now has been judged."""
        pod = a_pod("settled", gated=True)
        self.submit(pod)
        self.must(lambda: self.stage.ask(lambda auditor: pod.metadata.uid in auditor.pods), "the auditor's next revision")

    def metric(self, replica: ReplicaProcess, name: str) -> float | None:
        """Of one series, as the replica shows it now; None: it does not."""
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{replica.http_address}/metrics", timeout=5.0) as answer,
        ):
            for line in answer.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return float(line.rpartition(" ")[2])
        return None

    def has_read(self, replica: ReplicaProcess, revision: int) -> bool:
        """Whether the replica's scheduler has seen this revision of etcd."""
        return (self.metric(replica, "rayched_cache_revision") or 0) >= revision

    def found(self, kind: str) -> bool:
        return self._counts()[kind] > self._found_before[kind]

    def has_found(self) -> bool:
        """Whether the auditor has found anything in this session."""
        return self._counts() != self._found_before

    def put_record(self, record: LeaderRecord) -> None:
        with open_channel(self.stage.etcd.endpoints) as channel:
            rpc.KVStub(channel).Put(rpc.PutRequest(key=KEYS.record, value=record.to_json()), timeout=5.0)

    def delete_record(self) -> None:
        with open_channel(self.stage.etcd.endpoints) as channel:
            rpc.KVStub(channel).DeleteRange(rpc.DeleteRangeRequest(key=KEYS.record), timeout=5.0)

    def _epoch(self) -> int:
        return self.stage.ask(lambda auditor: auditor.epoch)

    def _counts(self) -> Mapping[str, int]:
        return self.stage.ask(lambda auditor: auditor.findings.counts())


def play(stage: SwitchedStage, bug: str, sessions: Sessions, *, planted: bool) -> dict[str, list[str]]:
    """What was violated in the bug's session, by invariant. Raises StageFailed where the session cannot be played."""
    scene = Scene(stage, planted=planted)
    try:
        sessions[bug](scene, lambda: stage.board.broken(bug) if planted else contextlib.nullcontext())
    finally:
        scene.close()
    return scene.violations


def a_pod(name: str, *, cpu: str = "10m", node: str = "", gated: bool = False) -> Pod:
    """Its name begins with this one."""
    pod = Pod(api_version="v1", kind="Pod")
    pod.metadata.uid = str(uuid.uuid4())
    pod.metadata.namespace, pod.metadata.name = "default", f"{name}-{pod.metadata.uid[:8]}"
    container = pod.spec.containers.add(name="main", image="registry.example/main:1")
    container.resources.requests["cpu"].string = cpu
    if node:
        pod.spec.node_selector["kubernetes.io/hostname"] = node
    if gated:
        pod.spec.scheduling_gates.add(name="never")
    return pod

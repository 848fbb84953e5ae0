"""A rehearsal: a cluster on this host, hollow nodes, load, faults, and an auditor that reads etcd's history beside it.

The demo and the benchmarks are rehearsals. This module knows how to set one up, how to hurt it and how to judge it; what is
submitted and when something dies is theirs.

Owner of all that it starts: cluster, agents, follower. Leaving the `with` ends everything, by pid.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rayched.api.kinds import AnyObject
from rayched.audit.auditor import Auditor, Binding
from rayched.audit.follower import AuditFollower
from rayched.cli.printing import note
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.nodes.hollow import HollowNodes
from rayched.replica.cluster.local_cluster import LocalCluster, ReplicaProcess
from rayched.replica.cluster.local_start import wait_until_up
from rayched.replica.cluster.session import ClusterSession
from rayched.replica.ray.processes import alive, descendants
from rayched.v1.core_pb2 import Node

if TYPE_CHECKING:
    from rayched.replica.cluster.local_pki import LocalPki

_ENDED_SECONDS_MAX = 60.0
"""A killed replica's processes are gone after a tenth of a second; on a busy host its scheduler binds until its guardian runs."""
_TOLD_SECONDS = 15.0
"""Between two words on what is waited for."""
_SETTLED_SECONDS_MAX = 120.0
_LOOK_SECONDS = 0.1
_SETTLE_SECONDS = 0.5
"""What the auditor may lag behind the last answer."""


class RehearsalFailed(Exception):
    """The rehearsal could not go on: one line."""


class StillWaiting:
    """Tells a person, now and then, what something waits for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told = clock()

    def tell(self, what: str) -> None:
        """Says it if that has not been said for a while."""
        now = self._clock()
        if now - self._told > _TOLD_SECONDS:
            self._told = now
            note(f"still waiting: {what}")


@contextmanager
def scratch_directory(name: str) -> Iterator[Path]:
    """A directory that goes when all went well; after a failure it stays, for its logs, and standard error says where."""
    path = Path(tempfile.mkdtemp(prefix=f"rayched-{name}-"))
    try:
        yield path
    except (KeyboardInterrupt, SystemExit):
        shutil.rmtree(path, ignore_errors=True)
        raise
    except BaseException:
        note(f"the replicas' logs stay in {path}")
        raise
    shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Kill:
    """A fault: which epoch was in force when it struck, and when, on the monotonic clock."""

    kind: str
    epoch: int
    seconds: float


@dataclass(slots=True)
class Verdict:
    """What the auditor found, in figures."""

    bound: int = 0
    zones: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    bound_twice: int = 0
    over_capacity: int = 0
    other_violations: int = 0
    words: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.bound_twice or self.over_capacity or self.other_violations)


_NOBODY_IS_MISSED = ("--node-monitor-grace-period", "24h")
"""Nodes without agents send no heartbeat after the first."""


class Rehearsal(ClusterSession):
    """A context manager; `start` happens on entering."""

    def __init__(
        self,
        directory: Path,
        nodes: Sequence[Node],
        replicas: int = 3,
        *,
        first_port: int | None = None,
        first_gateway_port: int = 0,
        options: Sequence[str] = (),
        agents: bool = True,
        audit_later: bool = False,
        pki: LocalPki | None = None,
        cluster: LocalCluster | None = None,
    ) -> None:
        """Without `agents` the nodes are registered, and no agent reports the pods on them.

        `audit_later`: the auditor reads nothing until `audit` is called, and takes no time from what is measured; nor does what a
        leader starts after all else, which is waited for.

        `cluster`: in place of one that is made here, which what is before `agents` and `pki` are for.
        """
        if not agents:
            options = [*options, *_NOBODY_IS_MISSED]
        self.cluster = cluster or LocalCluster(
            directory, replicas, first_port=first_port, first_gateway_port=first_gateway_port, options=options, pki=pki
        )
        self.client = self.cluster.client(timeout_seconds=30.0)
        self._agents = HollowNodes(self.client, nodes)
        self._with_agents = agents
        self._audit_later = audit_later
        self._follower: AuditFollower | None = None
        self.acknowledged: list[str] = []
        """Uids of submissions that were answered."""
        self.deletions_asked: list[str] = []
        self._killed: list[ReplicaProcess] = []

    def open(self) -> None:
        self.cluster.start()
        wait_until_up(self.cluster, self.client, tell=note)
        if self._audit_later:
            self.settle()
        else:
            self.audit()
        self._agents.register()
        if self._with_agents:
            self._agents.start()

    def close(self) -> None:
        """Ends all of it. Idempotent."""
        self._agents.stop()
        if self._follower is not None:
            self._follower.stop()
        self.client.close()
        self.cluster.stop()

    def settle(self) -> None:
        """Returns when the leader's workers and its spare process run. Raises RehearsalFailed."""
        deadline = time.monotonic() + _SETTLED_SECONDS_MAX
        while True:
            # Whoever leads may change.
            with suppress(ApiError):
                status = self.client.scheduler_status()
                if "spare" in status.pids and sum(name.startswith("worker-") for name in status.pids) == status.workers:
                    return
            if time.monotonic() > deadline:
                raise RehearsalFailed(f"the leader has no spare process, or not all workers, after {_SETTLED_SECONDS_MAX:.0f} s")
            time.sleep(_LOOK_SECONDS)

    def audit(self) -> None:
        """Has the auditor read the history, from the first revision on. Nothing may have been compacted yet."""
        self._follower = AuditFollower(self.cluster.etcd_endpoints, Auditor()).start()

    # --------------------------------------------------------------------------------------------------------------- load

    def submit(self, objects: Iterable[AnyObject], done: Callable[[int], None] | None = None) -> None:
        """Submits, and remembers what was acknowledged. Raises RehearsalFailed where a submission is refused."""
        for outcome in self.client.submit_many(objects, timeout_seconds=30.0, progress=done):
            if outcome.error is not None:
                raise RehearsalFailed(f"a submission was refused: {outcome.error}")
            self.acknowledged.append(outcome.uid)

    # -------------------------------------------------------------------------------------------------------------- faults

    def leader(self) -> ReplicaProcess:
        """The leading replica's process. Raises RehearsalFailed."""
        found = self.client.leader(timeout_seconds=10.0)
        if not found.address:
            raise RehearsalFailed("nobody leads")
        return self.cluster.replica_at(found.address)

    def kill_leader(self, number: signal.Signals = signal.SIGKILL, *, whole_tree: bool = False) -> Kill:
        """Sends the leader's process a signal; after SIGKILL returns when all below it has ended too.

        Until its guardian has ended it, its scheduler may still bind, as its epoch holds. `whole_tree`: SIGKILL of all below as
        well and first, so that no guardian is left that could tell of it.
        """
        leader = self.leader()
        tree = descendants(leader.pid)
        kill = Kill("tree" if whole_tree else "replica", self.ask(lambda auditor: auditor.epoch), time.monotonic())
        for pid in tree if whole_tree else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        leader.signal(number)
        self._killed.append(leader)
        deadline = kill.seconds + _ENDED_SECONDS_MAX
        while number == signal.SIGKILL and any(map(alive, tree)) and time.monotonic() < deadline:
            time.sleep(0.005)
        return kill

    def revive(self) -> None:
        """Starts the replicas again that were killed and have ended."""
        for replica in self._killed:
            replica.wait(10.0)
            replica.start()
        self._killed.clear()

    # ------------------------------------------------------------------------------------------------------------- judging

    def ask(self, question: Callable[[Auditor], int]) -> int:
        """A number from the auditor."""
        return self.follower.ask(question)

    @property
    def follower(self) -> AuditFollower:
        assert self._follower is not None
        return self._follower

    def wait_until_bound(self, pods: int, seconds: float, done: Callable[[int], None] | None = None) -> bool:
        """Whether so many pods are bound within the time; `done` is told how many more are, and a person now and then."""
        deadline = time.monotonic() + seconds
        waiting = StillWaiting()
        told = 0
        while True:
            bound = self.ask(lambda auditor: auditor.bound_pods())
            # Others that will have ended may be bound as well.
            wanted = min(bound, pods)
            if done is not None and wanted > told:
                done(wanted - told)
                told = wanted
            if bound >= pods:
                return True
            if self.follower.error is not None or time.monotonic() > deadline:
                return False
            waiting.tell(f"{bound} of {pods} pods are bound")
            time.sleep(0.02)

    def first_binding_after(self, kill: Kill, seconds: float) -> Binding | None:
        """The first binding under a later epoch than the one in force at the kill, once there is one within the time."""

        def found(auditor: Auditor) -> Binding | None:
            return next((b for b in bindings_since(auditor.bindings, kill.seconds) if b.epoch > kill.epoch), None)

        self.follower.wait_for(lambda auditor: found(auditor) is not None, seconds)
        return self.follower.ask(found)

    def verdict(self) -> Verdict:
        """All that the auditor knows, after it had a moment to catch up."""
        time.sleep(_SETTLE_SECONDS)

        def judge(auditor: Auditor) -> Verdict:
            auditor.settle()
            findings = auditor.findings
            lost = auditor.lost(self.acknowledged, self.deletions_asked)
            verdict = Verdict(
                bound=auditor.bound_pods(),
                zones=auditor.zones(),
                lost=len(lost),
                bound_twice=findings.bound_twice,
                over_capacity=findings.over_capacity,
                other_violations=findings.total - findings.bound_twice - findings.over_capacity,
                words=list(findings.first.values()),
            )
            if lost:
                verdict.words.append(f"lost: {', '.join(lost[:3])}")
            return verdict

        verdict = self.follower.ask(judge)
        if self.follower.error is not None:
            verdict.other_violations += 1
            verdict.words.append(self.follower.error)
        return verdict


def bindings_since(bindings: Sequence[Binding], since: float) -> list[Binding]:
    """The bindings seen at or after a time, oldest first, without looking at the rest."""
    start = len(bindings)
    while start and bindings[start - 1].seconds >= since:
        start -= 1
    return list(bindings[start:])


def apply_all(client: Client, objects: Iterable[AnyObject]) -> None:
    """Applies objects one by one; raises RehearsalFailed with the first that is refused."""
    for item in objects:
        try:
            client.apply(item)
        except ApiError as error:
            raise RehearsalFailed(f"{item.kind} {item.metadata.name}: {error}") from error

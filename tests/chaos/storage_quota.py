"""An etcd that fills: by a client of the API, which is refused while there is room, and by somebody who writes to etcd itself.

* `filled_by_a_client`: large legal pods as fast as they are taken, for minutes. Whenever nothing has been taken for a while most
  of them are deleted, and it begins again. The lead stays, deletions and bindings go on.
* `filled_by_somebody_else`: until etcd refuses every write. The replicas say so and what helps; deletions bring it back.
* `left_to_an_administrator`: the same with replicas that do not compact, until the runbook's commands are executed as they stand.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from benchmarks.load import small_pods
from leader.channel import open_channel
from rayched.audit.auditor import Auditor
from rayched.client.errors import ApiError
from rayched.store.errors import StoreFull
from rayched.store.io.client import StoreClient
from rayched.v1.core_pb2 import Pod
from tests.chaos.demands import Demands
from tests.chaos.probes import judge_findings, readiness, wait_until_ready
from tests.chaos.space_watch import SpaceWatch
from tests.chaos.stage import NODES, Stage, StageFailed
from tests.runbook import execute, look, steps

QUOTA_BYTES: Final = 64 << 20
RENEWAL_SECONDS_MAX: Final = 2.0
"""The lease of the default profile."""
DELETION_SECONDS_MAX: Final = 10.0
BOUND_SECONDS_MAX: Final = 30.0
AGAIN_SECONDS_MAX: Final = 60.0
"""From deletions to room again: history is kept for seconds, compaction and defragmentation take some more."""
TOLD_SECONDS_MAX: Final = 15.0
_LARGE_BYTES: Final = 150_000
_BATCH: Final = 5
_CALL_SECONDS: Final = 3.0
_PATIENCE_SECONDS: Final = 15.0
"""Of the writer: so long it is refused before it deletes. Also the time in which history that is in the way is forgotten."""
_FULL_SHARE: Final = 0.75
"""Of the quota: below it something is taken again by and by."""
_FIRST_FILL_SECONDS_MAX: Final = 300.0
"""The nearer to the limit, the less is taken at a time."""
_FILL_SECONDS_MAX: Final = 60.0
_KEPT_SHARE: Final = 4
"""One in so many is not deleted."""
_NODE_CPU: Final = "40"
"""More than half of a node: one of these on each."""
_FREED: Final = 5
_FOREIGN_BYTES: Final = 100_000
_FOREIGN_PREFIX: Final = b"/somebody/"


@dataclass(slots=True)
class _Writer:
    """What the writer was told."""

    live: list[str] = field(default_factory=list)
    uids: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    """Refusals of another kind."""
    longest_deletion: float = 0.0
    undeleted: list[str] = field(default_factory=list)


def filled_by_a_client(stage: Stage, demands: Demands, seconds: float, quota_bytes: int = QUOTA_BYTES) -> None:
    """Raises StageFailed and ApiError where the cluster does not even begin."""
    name = "client"
    seats = [outcome.uid for outcome in stage.client.submit_many(itertools.islice(small_pods("seat", _NODE_CPU), NODES))]
    _wait_until_bound(stage, seats)
    waiting = [outcome.uid for outcome in stage.client.submit_many(itertools.islice(small_pods("waiting", _NODE_CPU), _FREED))]
    epochs = stage.ask(lambda auditor: len(auditor.epochs))
    writer, pods, rounds, slow_rounds = _Writer(), _large_pods("large"), 0, list[str]()
    ends = time.monotonic() + seconds
    with SpaceWatch(stage.etcd.endpoints) as watch:
        while time.monotonic() < ends or rounds == 0:
            most = _FILL_SECONDS_MAX if rounds else _FIRST_FILL_SECONDS_MAX
            _fill(stage, writer, pods, most=most, full=lambda: watch.in_use >= _FULL_SHARE * quota_bytes)
            if rounds == 0:
                _judge_tight(stage, demands, name, waiting)
            began, before = time.monotonic(), len(writer.uids)
            _delete(stage, writer)
            while len(writer.uids) == before and time.monotonic() - began < AGAIN_SECONDS_MAX:
                _submit(stage, writer, pods)
            if len(writer.uids) == before:
                slow_rounds.append(f"round {rounds + 1}, {watch.in_use >> 20} MiB in use")
            rounds += 1
        demands.none(f"{name}: rounds after whose deletions nothing new was taken for {AGAIN_SECONDS_MAX:.0f} s", slow_rounds)
        _delete(stage, writer)
        demands.at_most(f"{name}: longest time without a renewal of the lead", RENEWAL_SECONDS_MAX, watch.longest_pause(), " s")
        demands.none(f"{name}: alarms of etcd", sorted(watch.alarms))
        demands.at_most(f"{name}: largest file of etcd, of the quota", 100, 100 * watch.largest_file / quota_bytes, " %")
    demands.at_least(f"{name}: times that etcd was filled and emptied", 1, rounds)
    demands.at_least(f"{name}: pods refused with RESOURCE_EXHAUSTED and a delay", 1, writer.refused)
    demands.none(f"{name}: pods refused otherwise", writer.wrong)
    demands.none(f"{name}: new epochs", stage.ask(lambda auditor: auditor.epochs[epochs:]))
    demands.none(f"{name}: deletions that failed", writer.undeleted)
    demands.at_most(f"{name}: longest deletion", DELETION_SECONDS_MAX, writer.longest_deletion, " s")
    _judge_bound(stage, demands, f"{name}: of {len(writer.uids)} pods taken, not bound", writer.uids, writer.deleted)
    judge_findings(stage, demands, f"{name}: ")
    _delete_all(stage)


def filled_by_somebody_else(stage: Stage, demands: Demands, *, patience: float = _PATIENCE_SECONDS, stays: bool = True) -> None:
    """`patience`: of the client that fills it before. Where what somebody has written does not stay, it goes last.

    Raises StageFailed.
    """
    name = "foreign"
    writer, pods = _Writer(), _large_pods("foreign")
    _fill(stage, writer, pods, patience)
    demands.at_least(f"{name}: pods refused before the quota, with a delay", 1, writer.refused)
    demands.none(f"{name}: pods refused otherwise", writer.wrong)
    _fill_the_rest(stage)
    _judge_full(stage, demands, name)
    _delete(stage, writer)
    demands.none(f"{name}: deletions that failed at the quota", writer.undeleted)
    demands.at_most(f"{name}: longest deletion at the quota", DELETION_SECONDS_MAX, writer.longest_deletion, " s")
    if not stays:
        _clear_the_rest(stage)
    _judge_back(stage, demands, name)
    _delete_all(stage)


def left_to_an_administrator(stage: Stage, demands: Demands) -> None:
    """The stage's replicas do not compact. Raises StageFailed."""
    name = "runbook"
    _wait_until_bound(stage, [one.uid for one in stage.client.submit_many(itertools.islice(small_pods("before"), _BATCH))])
    _fill_the_rest(stage)
    _judge_full(stage, demands, name)
    _clear_the_rest(stage)
    try:
        execute(steps("RaychedEtcdFull"), stage.etcd.binary, stage.etcd.endpoints[0])
        said = "yes"
    except (subprocess.SubprocessError, OSError) as error:
        said = f"{error}: {getattr(error, 'stderr', '')}"
    demands.holds(f"{name}: its commands can be executed as they stand", said == "yes", said)
    _judge_back(stage, demands, name)


# ---------------------------------------------------------------------------------------------------------------- writers


def _large_pods(prefix: str) -> Iterator[Pod]:
    for pod in small_pods(prefix, cpu="1m", memory="1Mi"):
        pod.metadata.annotations["notes"] = "n" * _LARGE_BYTES
        yield pod


def _fill(
    stage: Stage,
    writer: _Writer,
    pods: Iterator[Pod],
    patience: float = _PATIENCE_SECONDS,
    most: float = _FILL_SECONDS_MAX,
    full: Callable[[], bool] = lambda: True,
) -> None:
    """Until nothing has been taken for a while, and it is full; for `most` seconds."""
    began = taken_at = time.monotonic()
    while time.monotonic() - began < most and (time.monotonic() - taken_at < patience or not full()):
        if _submit(stage, writer, pods):
            taken_at = time.monotonic()


def _submit(stage: Stage, writer: _Writer, pods: Iterator[Pod]) -> bool:
    """One batch; whether any of it was taken. A refused one is not asked for again: the writer has others."""
    batch = list(itertools.islice(pods, _BATCH))
    taken = False
    for pod, outcome in zip(batch, stage.client.submit_many(batch, timeout_seconds=_CALL_SECONDS), strict=True):
        if outcome.error is None:
            writer.live.append(pod.metadata.name)
            writer.uids.append(outcome.uid)
            taken = True
        elif outcome.error.code.name == "RESOURCE_EXHAUSTED" and outcome.error.retry_after_seconds:
            writer.refused += 1
        else:
            writer.wrong.append(str(outcome.error))
    if not taken:
        time.sleep(0.2)
    return taken


def _delete(stage: Stage, writer: _Writer) -> None:
    """Most of what there is."""
    going = [one for number, one in enumerate(writer.live) if number % _KEPT_SHARE]
    writer.live = [one for number, one in enumerate(writer.live) if not number % _KEPT_SHARE]
    _delete_live(stage, writer, going)


def _delete_live(stage: Stage, writer: _Writer, names: list[str]) -> None:
    for name in names:
        began = time.monotonic()
        try:
            stage.client.delete("pods", name, grace_period_seconds=0, timeout_seconds=DELETION_SECONDS_MAX)
            writer.deleted.append(name)
        except ApiError as error:
            writer.undeleted.append(f"{name}: {error}")
        writer.longest_deletion = max(writer.longest_deletion, time.monotonic() - began)


def _fill_the_rest(stage: Stage) -> None:
    """Somebody who knows nothing of refusals, until etcd refuses. Raises StageFailed."""
    with open_channel(stage.etcd.endpoints) as channel:
        store = StoreClient(channel)
        try:
            for number in range(100_000):
                store.put(_FOREIGN_PREFIX + b"%d" % number, bytes(_FOREIGN_BYTES))
        except StoreFull:
            return
    raise StageFailed("etcd took 10 GB")


def _clear_the_rest(stage: Stage) -> None:
    with open_channel(stage.etcd.endpoints) as channel:
        store = StoreClient(channel)
        for entry in store.list_all(_FOREIGN_PREFIX, keys_only=True).entries:
            store.delete(entry.key)


# ----------------------------------------------------------------------------------------------------------------- judging


def _judge_tight(stage: Stage, demands: Demands, name: str, waiting: list[str]) -> None:
    """While nothing new is taken: what is wrong is told, the runbook's command to look works, and bindings go on."""
    said = _command_says(stage, "nearly used up")
    demands.holds(f"{name}: `rayched leader` says what is wrong", "nearly used up" in said, said)
    demands.none(f"{name}: replicas that are not ready while others' bindings go on", wait_until_ready(stage, TOLD_SECONDS_MAX))
    try:
        seen = execute(look("RaychedEtcdTight"), stage.etcd.binary, stage.etcd.endpoints[0])
    except (subprocess.SubprocessError, OSError) as error:
        seen = str(error)
    demands.holds(f"{name}: the runbook's command shows what fills etcd", "cluster/pods" in seen, seen)
    for number in range(len(waiting)):
        stage.client.delete("pods", f"seat-{number}", grace_period_seconds=0, timeout_seconds=DELETION_SECONDS_MAX)
    _judge_bound(stage, demands, f"{name}: pods that waited for room and are not bound while nothing new is taken", waiting)


def _judge_full(stage: Stage, demands: Demands, name: str) -> None:
    """etcd refuses writes: every replica says so and what helps."""
    deadline = time.monotonic() + TOLD_SECONDS_MAX
    silent = ["nobody was asked"]
    while silent and time.monotonic() < deadline:
        found = {replica.address: readiness(replica) for replica in stage.cluster.replicas}
        silent = [address for address, (ready, words) in found.items() if ready or "[-]storage" not in words]
        time.sleep(0.2)
    demands.none(f"{name}: replicas whose readyz does not name the storage", silent)
    said = _command_says(stage, "NOSPACE")
    commands = ("etcdctl compact", "etcdctl defrag", "etcdctl alarm disarm")
    demands.holds(f"{name}: `rayched leader` names alarm and commands", all(one in said for one in ("NOSPACE", *commands)), said)


def _judge_back(stage: Stage, demands: Demands, name: str) -> None:
    began = time.monotonic()
    demands.none(f"{name}: replicas that are not ready afterwards", wait_until_ready(stage, AGAIN_SECONDS_MAX))
    uids, pods = list[str](), small_pods(f"{name}-after")
    while not uids and time.monotonic() - began < AGAIN_SECONDS_MAX:
        outcomes = stage.client.submit_many(itertools.islice(pods, _BATCH), timeout_seconds=_CALL_SECONDS)
        uids = [outcome.uid for outcome in outcomes if outcome.error is None]
    demands.at_least(f"{name}: pods taken afterwards", 1, len(uids))
    _judge_bound(stage, demands, f"{name}: of these, not bound", uids)
    demands.at_most(f"{name}: seconds until then", AGAIN_SECONDS_MAX, time.monotonic() - began, " s")


def _judge_bound(stage: Stage, demands: Demands, what: str, uids: list[str], deleted: list[str] | None = None) -> None:
    """Those deleted by name may never have been bound."""
    gone = set(deleted or ())
    stage.follower.wait_for(lambda auditor: not _unbound(auditor, uids, gone), BOUND_SECONDS_MAX)
    demands.none(what, stage.ask(lambda auditor: _unbound(auditor, uids, gone)))


def _unbound(auditor: Auditor, uids: list[str], deleted: set[str]) -> list[str]:
    pods = [auditor.pods.get(uid) for uid in uids if uid not in auditor.deleted]
    return [
        "unknown" if pod is None else pod.metadata.name
        for pod in pods
        if pod is None or not (pod.spec.node_name or pod.metadata.name in deleted)
    ]


def _command_says(stage: Stage, words: str) -> str:
    """What `rayched leader` prints, once one of the replicas has these words."""
    deadline, said = time.monotonic() + TOLD_SECONDS_MAX, ""
    while words not in said and time.monotonic() < deadline:
        for address in stage.cluster.addresses:
            command = [sys.executable, "-m", "rayched.cli.main", "leader", "--server", address]
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            said = done.stdout + done.stderr
            if words in said:
                break
    return said


def _wait_until_bound(stage: Stage, uids: list[str]) -> None:
    if not stage.follower.wait_for(lambda auditor: not _unbound(auditor, uids, set()), BOUND_SECONDS_MAX):
        raise StageFailed(f"pods are not bound after {BOUND_SECONDS_MAX:.0f} s, with nothing wrong")


def _delete_all(stage: Stage) -> None:
    for pod in stage.client.list("pods"):
        stage.client.delete("pods", pod.metadata.name, grace_period_seconds=0, timeout_seconds=DELETION_SECONDS_MAX)

"""An etcd that loses its history: killed and wiped, or restored from a snapshot, under replicas that run or are paused.

Whatever the replicas remember then never was. Pods are bound by what etcd has, and nothing of the other history comes into it.
After each change a foreign writer makes etcd's revision pass those that the replicas know, so that no number tells the two apart.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks.load import small_pods
from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.audit.auditor import Auditor
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Pod
from tests.chaos.demands import Demands
from tests.chaos.probes import judge_findings, wait_until_ready
from tests.chaos.stage import NODES, Stage, StageFailed

CPU: Final = "4"
"""Of each of the stage's nodes."""
USABLE_SECONDS_MAX: Final = 60.0
"""From etcd's new start until a pod is bound that was submitted since; a replica may have to start its scheduler anew."""
SAME_SECONDS_MAX: Final = 20.0
"""Until the API of each replica shows what etcd has."""
PAUSE_SECONDS: Final = 3.0
"""At least: longer than a lease of the default profile."""
_BOUND_SECONDS_MAX: Final = 60.0
_PUTS_AT_ONCE: Final = 200
_LOOK_SECONDS: Final = 0.1


def wipe(stage: Stage, demands: Demands, *, paused: bool) -> None:
    """Everything is lost; agents register their nodes again. Raises StageFailed, EtcdDown."""
    name = "paused" if paused else "running"
    old = _submit(stage, itertools.islice(small_pods(f"{name}-old", "100m"), 200))
    _wait_until_bound(stage, 100)
    # The rest is being bound while etcd dies.
    before = _replaced(stage, stage.etcd.wipe, paused=paused)
    old_uids = set(before.pods) | set(old)
    new = _judge_usable(stage, demands, name)
    demands.none(f"{name}: bindings of the old history in the new", _foreign(stage, old_uids))
    demands.none(
        f"{name}: objects of the old history in the new", stage.ask(lambda auditor: sorted(old_uids & set(auditor.pods)))
    )
    demands.none(f"{name}: submissions lost", stage.ask(lambda auditor: auditor.lost(new)))
    _judge_sameness(stage, demands, name)
    judge_findings(stage, demands, f"{name}: ")
    _clear(stage)


def restore(stage: Stage, demands: Demands, snapshot: Path, *, paused: bool) -> None:
    """The past comes back, and with it pods whose room others had taken meanwhile. Raises StageFailed, EtcdDown."""
    name = "paused" if paused else "running"
    room = NODES * int(CPU)
    kept = _submit(stage, itertools.islice(small_pods(f"{name}-kept", "1"), room * 5 // 8))
    _wait_until_bound(stage, len(kept))
    stage.etcd.snapshot(snapshot)
    for number in range(len(kept) * 2 // 3):
        stage.client.delete("pods", f"{name}-kept-{number}", grace_period_seconds=0)
    future = _submit(stage, itertools.islice(small_pods(f"{name}-future", "1"), room * 5 // 8))
    _wait_until_bound(stage, len(kept) - len(kept) * 2 // 3 + len(future))
    # Each of these wants a whole node: they wait while etcd dies.
    future += _submit(stage, itertools.islice(small_pods(f"{name}-waiting", CPU), 40))
    _replaced(stage, lambda: stage.etcd.restore(snapshot), paused=paused)
    began = time.monotonic()
    later = _submit(stage, itertools.islice(small_pods(f"{name}-later", "1"), room * 5 // 8), USABLE_SECONDS_MAX)
    fit = room - len(kept)
    # On its way through the past the auditor may see all room taken, too.
    filled = stage.follower.wait_for(
        lambda auditor: all(uid in auditor.pods for uid in later) and auditor.bound_pods() >= room, _BOUND_SECONDS_MAX
    )
    bound = stage.ask(lambda auditor: sum(binding.uid in set(later) for binding in auditor.bindings))
    demands.judge(f"{name}: pods bound in the room that is left", f"{fit}", bound, filled and bound == fit)
    demands.at_most(f"{name}: seconds until then", USABLE_SECONDS_MAX, time.monotonic() - began, " s")
    back = stage.ask(lambda auditor: sum(uid in auditor.pods for uid in kept))
    demands.judge(f"{name}: pods of the snapshot that are there", f"{len(kept)}", back, back == len(kept))
    lost = set(future)
    demands.none(f"{name}: bindings of the lost future", _foreign(stage, lost))
    demands.none(f"{name}: objects of the lost future", stage.ask(lambda auditor: sorted(lost & set(auditor.pods))))
    demands.none(f"{name}: pods that their nodes refused", stage.ask(_failed))
    _judge_sameness(stage, demands, name)
    judge_findings(stage, demands, f"{name}: ")
    _clear(stage)


# ------------------------------------------------------------------------------------------------------------- the change


def _replaced(stage: Stage, change: Callable[[], object], *, paused: bool) -> Auditor:
    """Etcd's history is another one, and longer than what the replicas know of theirs. Gives back the judge of the former one."""

    def act() -> None:
        if paused:
            stage.pause(stage.pids())
            paused_at = time.monotonic()
        revision = stage.etcd.revision()
        change()
        outgrow(stage, revision)
        if paused:
            time.sleep(max(0.0, paused_at + PAUSE_SECONDS - time.monotonic()))
            stage.resume()

    return stage.change_history(act)


def outgrow(stage: Stage, revision: int) -> None:
    """A foreign writer's small puts, until etcd's revision is above that."""
    with open_channel(stage.etcd.endpoints) as channel:
        put = rpc.KVStub(channel).Put
        missing = revision + 1 - stage.etcd.revision()
        while missing > 0:
            count = min(missing, _PUTS_AT_ONCE)
            for call in [put.future(rpc.PutRequest(key=b"/somebody/else", value=b"1"), timeout=30.0) for _ in range(count)]:
                call.result()
            missing -= count


# --------------------------------------------------------------------------------------------------------------- judging


def _judge_usable(stage: Stage, demands: Demands, name: str) -> list[str]:
    """Uids of what was submitted since. Until pods are bound again no replica that lacks its namespaces says that it is ready."""
    began = time.monotonic()
    deadline = began + USABLE_SECONDS_MAX
    _retried(stage.register_nodes, deadline)
    new = _submit(stage, itertools.islice(small_pods(f"{name}-new", "100m"), 50), USABLE_SECONDS_MAX)
    usable = stage.follower.wait_for(
        lambda auditor: sum(one.uid in new for one in auditor.bindings) == len(new), max(0.1, deadline - time.monotonic())
    )
    bound = stage.ask(lambda auditor: sum(one.uid in new for one in auditor.bindings))
    demands.judge(f"{name}: pods submitted since that are bound", f"{len(new)}", bound, usable)
    demands.at_most(f"{name}: seconds until then", USABLE_SECONDS_MAX, time.monotonic() - began, " s")
    unready = wait_until_ready(stage, max(1.0, deadline - time.monotonic()))
    demands.none(f"{name}: replicas that are not ready at last", unready)
    return new


def _judge_sameness(stage: Stage, demands: Demands, name: str) -> None:
    """Each replica's API shows what etcd has: its watches have begun anew."""
    deadline = time.monotonic() + SAME_SECONDS_MAX
    wrong = ["nobody was asked"]
    while wrong and time.monotonic() < deadline:
        there = stage.ask(_placed)
        wrong = [address for address in stage.cluster.addresses if _shown(address) != there]
        if wrong:
            time.sleep(_LOOK_SECONDS)
    demands.none(f"{name}: replicas whose API shows other pods than etcd has", wrong)


def _placed(auditor: Auditor) -> dict[str, str]:
    return {uid: pod.spec.node_name for uid, pod in auditor.pods.items()}


def _shown(address: str) -> dict[str, str]:
    with suppress(ApiError), Client([address], timeout_seconds=10.0) as client:
        return {pod.metadata.uid: pod.spec.node_name for pod in client.list("pods") if isinstance(pod, Pod)}
    return {"no": "answer"}


def _foreign(stage: Stage, uids: set[str]) -> list[str]:
    """Pods of these that were bound in the history that is followed now."""
    return stage.ask(lambda auditor: [one.pod for one in auditor.bindings if one.uid in uids])


def _failed(auditor: Auditor) -> list[str]:
    return [pod.metadata.name for pod in auditor.pods.values() if pod.status.phase == "Failed"]


# ---------------------------------------------------------------------------------------------------------------- helpers


def _submit(stage: Stage, items: Iterator[Pod], seconds: float = 30.0) -> list[str]:
    """Uids of those acknowledged. Raises StageFailed where one is not."""
    outcomes = stage.client.submit_many(list(items), timeout_seconds=seconds)
    refused = [str(outcome.error) for outcome in outcomes if outcome.error is not None]
    if refused:
        raise StageFailed(f"{len(refused)} pods were refused; the first: {refused[0]}")
    return [outcome.uid for outcome in outcomes]


def _wait_until_bound(stage: Stage, count: int) -> None:
    if not stage.follower.wait_for(lambda auditor: auditor.bound_pods() >= count, _BOUND_SECONDS_MAX):
        bound = stage.ask(lambda auditor: auditor.bound_pods())
        raise StageFailed(f"{bound} pods are bound after {_BOUND_SECONDS_MAX:.0f} s, {count} were waited for")


def _retried(work: Callable[[], object], deadline: float) -> None:
    """Until it succeeds. Raises StageFailed."""
    while True:
        try:
            work()
            return
        except ApiError as error:
            if time.monotonic() > deadline:
                raise StageFailed(str(error)) from error
        time.sleep(_LOOK_SECONDS)


def _clear(stage: Stage) -> None:
    """No pod is left."""
    for pod in stage.client.list("pods"):
        with suppress(ApiError):
            stage.client.delete("pods", pod.metadata.name, grace_period_seconds=0)
    if not stage.follower.wait_for(lambda auditor: not auditor.pods, _BOUND_SECONDS_MAX):
        raise StageFailed("pods that were deleted are still there")

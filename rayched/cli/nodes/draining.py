"""Draining one node: which of its pods go, and how they are made to, until none is left. Printing is the command's.

    choose:  all pods of the node ──▶ those to be evicted, warnings, and what stands against it (then nothing happens)
    Drain:   waiting ──evicted──▶ stopping ──object gone──▶ gone
               ▲  │ refused by a budget: again when the budget says
               └──┘

A pod is known by its uid: another one of its name, which its controller made, is none of the drain's business.

Source: kubectl drain 1.34. Differs from it: pods that one budget holds back are told of together, with what it waits for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import grpc

from rayched.api import kinds
from rayched.api.disruption import controller_of
from rayched.api.termination import FINAL_PHASES
from rayched.cli.options import DryRunBy
from rayched.cli.verbosity import words_of
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.core_pb2 import Pod

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_DAEMON_SET = "DaemonSet"
_LOOK_SECONDS = 0.1
_TOLD_SECONDS = 30.0
"""How often it is told again what is waited for."""
_CONFLICT_RETRY_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Ways:
    """How to drain, as the command's options say."""

    force: bool = False
    ignore_daemonsets: bool = False
    disable_eviction: bool = False
    dry_run_by: DryRunBy = DryRunBy.none
    grace_period_seconds: int | None = None
    timeout_seconds: float = 0.0
    """0: no limit."""
    skip_wait_seconds: int = 0
    """A pod that has been ending for longer is not waited for; 0: all are."""

    @property
    def dry_run(self) -> bool:
        return self.dry_run_by is not DryRunBy.none


@dataclass(slots=True)
class Choice:
    """The pods that are to go. Where there are errors, none may."""

    pods: list[Pod] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def choose(pods: Iterable[Pod], ways: Ways, now_seconds: float) -> Choice:
    """Which pods of a node go. Pods without a controller are lost for good, and those of a DaemonSet come back at once."""
    choice = Choice()
    daemons: list[Pod] = []
    alone: list[Pod] = []
    for pod in pods:
        ended = pod.status.phase in FINAL_PHASES
        controller = controller_of(pod)
        if MIRROR_ANNOTATION in pod.metadata.annotations:
            continue
        if controller is not None and controller.kind == _DAEMON_SET and not ended:
            daemons.append(pod)
            continue
        if controller is None and not ended:
            alone.append(pod)
        if not _is_long_ending(pod, ways, now_seconds):
            choice.pods.append(pod)
    if daemons and ways.ignore_daemonsets:
        choice.warnings.append(f"ignoring DaemonSet-managed Pods: {_names(daemons)}")
    elif daemons:
        choice.errors.append(f"cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore): {_names(daemons)}")
    if alone and ways.force:
        choice.warnings.append(f"deleting Pods that declare no controller: {_names(alone)}")
    elif alone:
        choice.errors.append(f"cannot delete Pods that declare no controller (use --force to override): {_names(alone)}")
    return choice


def _is_long_ending(pod: Pod, ways: Ways, now_seconds: float) -> bool:
    if not ways.skip_wait_seconds or not pod.metadata.HasField("deletion_timestamp"):
        return False
    return now_seconds - pod.metadata.deletion_timestamp.seconds > ways.skip_wait_seconds


class NodeDrain:
    """One node's pods on their way out."""

    def __init__(self, client: Client, ways: Ways, pods: Sequence[Pod], out: Callable[[str], None], note: Callable[[str], None]):
        """`out` takes results, `note` what a person may want to know meanwhile; both a line at a time."""
        self._client = client
        self._ways = ways
        self._out = out
        self._note = note
        self._waiting: dict[str, Pod] = {pod.metadata.uid: pod for pod in pods}
        self._not_before: dict[str, float] = dict.fromkeys(self._waiting, 0.0)
        self._stopping: dict[str, Pod] = {}
        self._refusals: dict[str, tuple[str, str]] = {}
        """By uid: the budget that holds a pod back, and what is said of it."""
        self._told: dict[str, float] = {}
        """When it was last told what a budget holds back."""
        self.failures: list[str] = []
        """One line for each pod that will not go."""

    def run(self, gone: Callable[[], None]) -> bool:
        """Whether all pods went; `gone` is called for each. Raises ApiError when no replica answers."""
        ends_at = time.monotonic() + self._ways.timeout_seconds if self._ways.timeout_seconds else float("inf")
        next_summary = time.monotonic() + _TOLD_SECONDS
        for pod in self._waiting.values():
            verb = "deleting" if self._ways.disable_eviction else "evicting"
            self._out(f"{verb} pod {_name(pod)}{self._ways.dry_run_by.suffix}")
        while True:
            now = time.monotonic()
            for uid in [uid for uid in self._waiting if self._not_before[uid] <= now]:
                self._try(uid, gone)
            self._tell_of_budgets()
            if self._ways.dry_run:
                self.failures += self._stuck()
                return not self.failures
            for uid in list(self._stopping):
                self._look(uid, gone)
            if not self._waiting and not self._stopping:
                return not self.failures
            if time.monotonic() >= ends_at:
                self.failures += self._stuck()
                return False
            if time.monotonic() >= next_summary:
                next_summary += _TOLD_SECONDS
                for line in self._stuck():
                    self._note(f"still waiting: {line}")
            time.sleep(min(_LOOK_SECONDS, max(ends_at - time.monotonic(), 0.0)))

    def _try(self, uid: str, gone: Callable[[], None]) -> None:
        pod = self._waiting[uid]
        try:
            asked = self._ask(pod)
        except ApiError as error:
            match error.code:
                case grpc.StatusCode.NOT_FOUND:
                    self._went(uid, gone)
                case grpc.StatusCode.RESOURCE_EXHAUSTED if error.retry_after_seconds is not None and not error.budget:
                    # Too much is under way: nothing that the pod or its budget could help.
                    self._not_before[uid] = time.monotonic() + error.retry_after_seconds
                case grpc.StatusCode.RESOURCE_EXHAUSTED if error.retry_after_seconds is not None:
                    why = error.message.partition("its disruption budget: ")[2] or error.message
                    self._refusals[uid] = f"{pod.metadata.namespace}/{error.budget}", why
                    self._not_before[uid] = time.monotonic() + error.retry_after_seconds
                case grpc.StatusCode.ABORTED:
                    # Either the pod is another one by now, which a look tells, or the writers of its budget are many.
                    self._not_before[uid] = time.monotonic() + _CONFLICT_RETRY_SECONDS
                    self._look(uid, gone)
                case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise
                case _:
                    self.failures.append(f"pod {_name(pod)}: {words_of(error)}")
                    self._refusals.pop(uid, None)
                    del self._waiting[uid]
            return
        self._refusals.pop(uid, None)
        del self._waiting[uid]
        self._stopping[uid] = asked if asked.metadata.uid else pod

    def _ask(self, pod: Pod) -> Pod:
        """The pod as it was left; an empty one where that is not known."""
        name, namespace, uid = pod.metadata.name, pod.metadata.namespace, pod.metadata.uid
        grace = self._ways.grace_period_seconds
        if not self._ways.disable_eviction:
            return self._client.evict(name, namespace, uid=uid, grace_period_seconds=grace, dry_run=self._ways.dry_run).pod
        if self._ways.dry_run:
            return pod
        return self._client.delete(kinds.POD, name, namespace, uid=uid, grace_period_seconds=grace).object.pod

    def _look(self, uid: str, gone: Callable[[], None]) -> None:
        pod = self._stopping.get(uid) or self._waiting[uid]
        try:
            if self._client.get(kinds.POD, pod.metadata.name, pod.metadata.namespace).metadata.uid == uid:
                return
        except ApiError as error:
            if error.code is not grpc.StatusCode.NOT_FOUND:
                raise
        self._went(uid, gone)

    def _went(self, uid: str, gone: Callable[[], None]) -> None:
        pod = self._waiting.pop(uid, None) or self._stopping.pop(uid)
        self._refusals.pop(uid, None)
        self._out(f"pod/{pod.metadata.name} {'deleted' if self._ways.disable_eviction else 'evicted'}")
        gone()

    # ------------------------------------------------------------------------------------------------------- what is stuck

    def _tell_of_budgets(self) -> None:
        """Once when a budget begins to hold pods back."""
        now = time.monotonic()
        for budget, line in self._held_back().items():
            if budget not in self._told:
                self._note(line)
            self._told[budget] = now
        for budget in [budget for budget in self._told if now - self._told[budget] > _TOLD_SECONDS]:
            del self._told[budget]

    def _held_back(self) -> dict[str, str]:
        """A line for each budget that holds pods back."""
        pods: dict[str, list[Pod]] = {}
        reasons: dict[str, str] = {}
        for uid, (budget, why) in self._refusals.items():
            pods.setdefault(budget, []).append(self._waiting[uid])
            reasons[budget] = why
        return {budget: f"{_counted(found)} cannot go yet: {reasons[budget]}" for budget, found in pods.items()}

    def _stuck(self) -> list[str]:
        """What has not gone, and why, a line each."""
        lines = list(self._held_back().values())
        now = time.time()
        for pod in self._stopping.values() if not self._ways.dry_run else ():
            grace = self._ways.grace_period_seconds
            wanted = pod.spec.termination_grace_period_seconds if grace is None else grace
            asked = "was asked to stop"
            if pod.metadata.HasField("deletion_timestamp"):
                began = pod.metadata.deletion_timestamp.seconds - pod.metadata.deletion_grace_period_seconds
                asked = f"was asked to stop {max(now - began, 0):.0f} s ago"
            lines.append(f"pod {_name(pod)} {asked}, with a grace of {wanted} s, and is still there")
        return lines


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _names(pods: Iterable[Pod]) -> str:
    return ", ".join(sorted(map(_name, pods)))


def _counted(pods: Sequence[Pod]) -> str:
    return f"pod{'' if len(pods) == 1 else 's'} {_names(pods)}"

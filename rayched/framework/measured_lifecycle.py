"""A Lifecycle with a stopwatch: how long the extension points of a profile take, and each of their plugins.

It is used for one attempt in ATTEMPTS_SAMPLED_EVERY, in place of the plain one; the others do not notice. Filter is measured by
whoever evaluates: here it means the evaluation of all nodes, PreFilter, Filter and scores in one, as these are not done one after
the other (engine.py).

Source: framework_extension_point_duration_seconds and plugin_execution_duration_seconds of kube-scheduler 1.34, which measures
the extension points of every attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from rayched.framework.cycle_state import CycleState
from rayched.framework.durations import EXTENSION_POINT_BUCKETS, PLUGIN_BUCKETS, Durations
from rayched.framework.lifecycle import Lifecycle, PermitOutcome
from rayched.framework.plugin import Plugin, PostFilterResult
from rayched.framework.profile import Profile
from rayched.framework.status import CODE_LABELS, SUCCESS, Code, Status
from rayched.v1.core_pb2 import Pod

Stopwatch = Callable[[], float]
"""Seconds of any clock."""

FILTER: Final = "Filter"
ATTEMPTS_SAMPLED_EVERY: Final = 32
"""A measured attempt costs some 5 µs more than the others."""
_T = TypeVar("_T")


class PointDurations:
    """What was measured for all profiles. It outlives the attempts."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self.stopwatch = stopwatch
        self.points = Durations(EXTENSION_POINT_BUCKETS)
        """By extension point, status and profile."""
        self.plugins = Durations(PLUGIN_BUCKETS)
        """By plugin, extension point and status."""

    def note(self, point: str, code: Code, profile: str, began: float) -> None:
        self.points.observe((point, CODE_LABELS[code], profile), self.stopwatch() - began)


class MeasuredLifecycle(Lifecycle):
    """Does what the plain one does, and notes down how long it took."""

    def __init__(self, profile: Profile, durations: PointDurations) -> None:
        def timed(plugins: tuple[Any, ...], point: str, method: str) -> tuple[Any, ...]:
            return tuple(_Timed(plugin, point, method, durations) for plugin in plugins)

        super().__init__(
            post_filter=timed(profile.post_filter, "PostFilter", "post_filter"),
            reserve=timed(profile.reserve, "Reserve", "reserve"),
            permit=timed(profile.permit, "Permit", "permit"),
            pre_bind=timed(profile.pre_bind, "PreBind", "pre_bind"),
            bind=timed(profile.bind, "Bind", "bind"),
            post_bind=timed(profile.post_bind, "PostBind", "post_bind"),
        )
        self._durations = durations
        self._profile = profile.scheduler_name

    def post_filter(self, state: CycleState, pod: Pod) -> tuple[PostFilterResult | None, Status]:
        began = self._durations.stopwatch()
        found = super().post_filter(state, pod)
        return self._noted("PostFilter", self._post_filter, found, found[1].code, began)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        began = self._durations.stopwatch()
        found = super().reserve(state, pod, node_name)
        return self._noted("Reserve", self._reserve, found, found.code, began)

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, ...]:
        began = self._durations.stopwatch()
        found = super().unreserve(state, pod, node_name)
        return self._noted("Unreserve", self._reserve, found, _first(found), began)

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitOutcome:
        began = self._durations.stopwatch()
        found = super().permit(state, pod, node_name)
        return self._noted("Permit", self._permit, found, found.status.code, began)

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        began = self._durations.stopwatch()
        found = super().pre_bind(state, pod, node_name)
        return self._noted("PreBind", self._pre_bind, found, found.code, began)

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        began = self._durations.stopwatch()
        found = super().bind(state, pod, node_name)
        return self._noted("Bind", self._bind, found, found.code, began)

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, ...]:
        began = self._durations.stopwatch()
        found = super().post_bind(state, pod, node_name)
        return self._noted("PostBind", self._post_bind, found, _first(found), began)

    def _noted(self, point: str, plugins: Sequence[Plugin], found: _T, code: Code, began: float) -> _T:
        """An extension point without plugins takes no time worth telling."""
        if plugins:
            self._durations.note(point, code, self._profile, began)
        return found


class _Timed:
    """A plugin with a stopwatch around the one method that its extension point calls; `unreserve` goes with `reserve`."""

    def __init__(self, plugin: Plugin, point: str, method: str, durations: PointDurations) -> None:
        self.name = plugin.name
        setattr(self, method, self._around(getattr(plugin, method), point, durations))
        if method == "reserve":
            self.unreserve = self._around(plugin.unreserve, "Unreserve", durations)  # type: ignore[attr-defined]

    def _around(self, call: Callable[..., Any], point: str, durations: PointDurations) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            code, began = Code.ERROR, durations.stopwatch()
            try:
                answer = call(*arguments)
                code = _code_in(answer)
            finally:
                durations.plugins.observe((self.name, point, CODE_LABELS[code]), durations.stopwatch() - began)
            return answer

        return timed


def _first(raised: tuple[Status, ...]) -> Code:
    return raised[0].code if raised else SUCCESS.code


def _code_in(answer: Any) -> Code:
    """Of what a plugin gave back: a status, or a pair with one in it, or nothing."""
    for part in answer if isinstance(answer, tuple) else (answer,):
        if isinstance(part, Status):
            return part.code
    return SUCCESS.code

"""The per-pod extension points of one profile: PostFilter, Reserve, Permit, PreBind, Bind, PostBind, each run in its order.

Rules:

* Reserve is all or nothing: the first plugin that does not answer SUCCESS ends it, and whoever runs the attempt then calls
  `unreserve`, which reaches every Reserve plugin in reverse order, also those whose `reserve` was not called.
* Permit asks every plugin until one rejects. One or more WAIT make the attempt wait, each plugin for its own time.
* PreBind ends at the first plugin that does not answer SUCCESS. Bind, begun after all of PreBind succeeded, ends at the first
  that does not answer SKIP. PostBind only informs.
* A plugin that raises, or answers a code that its extension point does not know, ends the attempt with Code.ERROR. It never ends
  the loop: `unreserve` and `post_bind` go on with the next plugin and report what was raised.

The plugins are stateless to this module; it keeps nothing of a pod.

Source: RunPostFilterPlugins, RunReservePluginsReserve, RunReservePluginsUnreserve, RunPermitPlugins, RunPreBindPlugins,
RunBindPlugins, RunPostBindPlugins of kube-scheduler 1.34.
Cost: nothing for an extension point without plugins, nor for a Bind plugin that is known to take every pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rayched.framework.cycle_state import CycleState
from rayched.framework.plugin import (
    BindPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    ReservePlugin,
)
from rayched.framework.raised import Raised
from rayched.framework.status import SUCCESS, Code, Status, error
from rayched.v1.core_pb2 import Pod

PERMIT_TIMEOUT_SECONDS_MAX = 15 * 60.0
"""No plugin may keep a pod waiting longer than this (kube-scheduler's maxTimeout)."""

_P = TypeVar("_P", bound=Plugin)
_REJECTIONS = (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING)


@dataclass(frozen=True, slots=True)
class PermitOutcome:
    """SUCCESS, a rejection, an error, or WAIT with the seconds that each waiting plugin grants."""

    status: Status
    timeouts: Mapping[str, float] = field(default_factory=dict)


PERMITTED = PermitOutcome(SUCCESS)


class Lifecycle:
    """Runs what one profile has at the per-pod extension points after Filter."""

    def __init__(
        self,
        *,
        post_filter: Sequence[PostFilterPlugin] = (),
        reserve: Sequence[ReservePlugin] = (),
        permit: Sequence[PermitPlugin] = (),
        pre_bind: Sequence[PreBindPlugin] = (),
        bind: Sequence[BindPlugin] = (),
        post_bind: Sequence[PostBindPlugin] = (),
    ) -> None:
        self._post_filter = tuple(post_filter)
        self._reserve = tuple(reserve)
        self._permit = tuple(permit)
        self._pre_bind = tuple(pre_bind)
        self._bind = tuple(bind)
        self._post_bind = tuple(post_bind)
        self.raised = Raised()
        """Where tracebacks go. Whoever runs several lifecycles gives them one."""
        self.takes_at_once = not self._reserve and not self._permit
        """Nobody is asked at Reserve and Permit."""
        self.binds_at_once = not self._pre_bind and bool(self._bind) and _takes_every_pod(self._bind[0])
        """Nobody is asked at PreBind, and what Bind answers is known."""
        self.tells_nobody = not self._post_bind
        """Nobody is told at PostBind."""

    @property
    def has_post_filter(self) -> bool:
        return bool(self._post_filter)

    # ------------------------------------------------------------------------------------------- scheduling cycle

    def post_filter(self, state: CycleState, pod: Pod) -> tuple[PostFilterResult | None, Status]:
        """Asks until one answers SUCCESS, UNSCHEDULABLE_AND_UNRESOLVABLE or fails; else UNSCHEDULABLE with all reasons."""
        result: PostFilterResult | None = None
        reasons: list[str] = []
        rejector = ""
        for plugin in self._post_filter:
            try:
                answer, status = plugin.post_filter(state, pod)
            except Exception as raised:
                return None, self._raised(plugin, "PostFilter", raised)
            if status.ok or status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return answer, status.by(plugin.name)
            if status.code not in _REJECTIONS:
                return None, _failed(plugin, "PostFilter", status)
            result = answer if answer is not None else result
            reasons.extend(status.reasons)
            rejector = rejector or plugin.name
        return result, Status(Code.UNSCHEDULABLE, tuple(reasons), rejector)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        if not self._reserve:
            return SUCCESS
        return self._until_refused(self._reserve, "Reserve", lambda plugin: plugin.reserve(state, pod, node_name))

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, ...]:
        """Reaches all Reserve plugins, last one first. What plugins raised comes back; it changes nothing about the rollback."""
        return self._inform(reversed(self._reserve), "Unreserve", lambda plugin: plugin.unreserve(state, pod, node_name))

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> PermitOutcome:
        if not self._permit:
            return PERMITTED
        timeouts: dict[str, float] = {}
        for plugin in self._permit:
            try:
                status, timeout_seconds = plugin.permit(state, pod, node_name)
            except Exception as raised:
                return PermitOutcome(self._raised(plugin, "Permit", raised))
            if status.ok:
                continue
            if status.code is Code.WAIT:
                timeouts[plugin.name] = min(timeout_seconds, PERMIT_TIMEOUT_SECONDS_MAX)
            else:
                return PermitOutcome(_refusal(plugin, "Permit", status))
        return PermitOutcome(Status(Code.WAIT), timeouts) if timeouts else PERMITTED

    # ---------------------------------------------------------------------------------------------- binding cycle

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        if not self._pre_bind:
            return SUCCESS
        return self._until_refused(self._pre_bind, "PreBind", lambda plugin: plugin.pre_bind(state, pod, node_name))

    def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """SUCCESS of the plugin that took the binding; SKIP where none did."""
        for plugin in self._bind:
            try:
                status = plugin.bind(state, pod, node_name)
            except Exception as raised:
                return self._raised(plugin, "Bind", raised)
            if status.code is not Code.SKIP:
                return SUCCESS if status.ok else _refusal(plugin, "Bind", status)
        return Status(Code.SKIP)

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, ...]:
        """Tells all PostBind plugins. What they raised comes back; the pod is bound all the same."""
        if not self._post_bind:
            return ()
        return self._inform(self._post_bind, "PostBind", lambda plugin: plugin.post_bind(state, pod, node_name))

    def _until_refused(self, plugins: Sequence[_P], point: str, call: Callable[[_P], Status]) -> Status:
        """SUCCESS, or the first other answer with its plugin's name."""
        for plugin in plugins:
            try:
                status = call(plugin)
            except Exception as raised:
                return self._raised(plugin, point, raised)
            if not status.ok:
                return _refusal(plugin, point, status)
        return SUCCESS

    def _inform(self, plugins: Iterable[_P], point: str, call: Callable[[_P], None]) -> tuple[Status, ...]:
        raised: list[Status] = []
        for plugin in plugins:
            try:
                call(plugin)
            except Exception as problem:
                raised.append(self._raised(plugin, point, problem))
        return tuple(raised)

    def _raised(self, plugin: Plugin, point: str, raised: Exception) -> Status:
        text = f'running {point} plugin "{plugin.name}": {type(raised).__name__}: {raised}'
        self.raised.note(text, raised)
        return error(text).by(plugin.name)


def _takes_every_pod(plugin: BindPlugin) -> bool:
    """Its own class says that `bind` answers SUCCESS and does nothing; one derived from it may do otherwise."""
    return vars(type(plugin)).get("takes_every_pod") is True


def _refusal(plugin: Plugin, point: str, status: Status) -> Status:
    return status.by(plugin.name) if status.code in _REJECTIONS else _failed(plugin, point, status)


def _failed(plugin: Plugin, point: str, status: Status) -> Status:
    """An ERROR, or a code that the extension point does not know."""
    text = status.message() or f"answered {status.code.name}"
    return error(f'running {point} plugin "{plugin.name}": {text}').by(plugin.name)

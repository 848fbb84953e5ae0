"""Which events are worth another attempt of which pod: registrations of plugins and their queueing hints.

Where the registrations come from: what a filter plugin `reads` of the cluster gives them (`default_events`); a plugin with a
method `registrations` states its own. A PreEnqueue plugin that says nothing depends on the pod alone; a plugin that says nothing
and may reject at Reserve, Permit or PreBind is asked about every event, so that nothing is lost. Other plugins reject no pod.

What a hint function is given and what it may read stands in `framework.queueing_hints`. This room never imports a concrete
plugin; whoever builds a queue hands the table in. Immutable once built.

`judge` asks about one pod; a whole class of them is asked through its indexes (`queue.requeue_matcher`).

Source: fwk.EnqueueExtensions, buildQueueingHintMap, isPodWorthRequeuing of kube-scheduler 1.34. One rule of 1.34 looks odd and is
kept: a plugin registered for Node/Add but not for changed taints is woken by changed taints, whatever its hint would say.
Cost: a dictionary look-up an event once an event was seen, plus the hint functions asked.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from rayched.framework.cluster_event import (
    ASSIGNED_POD_DELETE,
    EVERY_EVENT,
    NODE_ADD,
    NODE_TAINT_UPDATE,
    UNSCHEDULABLE_POD_UPDATE,
    Action,
    ClusterEvent,
    Resource,
)
from rayched.framework.contract import has_form
from rayched.framework.plugin import (
    ColumnPlugin,
    FilterPlugin,
    NarrowingPlugin,
    PermitPlugin,
    Plugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    RegisteringPlugin,
    ReservePlugin,
)
from rayched.framework.profile import Profile
from rayched.framework.queueing_hints import Hint, HintFunction, PreparedHint, Registration
from rayched.queue.hint_index import TemplateHints
from rayched.queue.queued_pod import QueuedPodInfo
from rayched.snapshot.columns import Log


class Requeue(enum.Enum):
    """What an event means for a pod."""

    SKIP = "skip"
    AFTER_BACKOFF = "after backoff"
    IMMEDIATELY = "immediately"


HintFailure = Callable[[str, Exception], None]
"""Told which plugin's hint function raised, and what."""
TimedHint = Callable[[str, ClusterEvent, Callable[..., Hint]], Callable[..., Hint]]
"""Puts a stopwatch around a plugin's hint function for an event."""

# ----------------------------------------------------------------------------------------------------- registrations

_EVENTS_OF_LOG: Final[Mapping[Log, tuple[ClusterEvent, ...]]] = {
    Log.USAGE: (
        ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE),
        ClusterEvent(Resource.POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN),
    ),
    Log.LABELS: (ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),),
    Log.TAINTS: (
        ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT),
        ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_TOLERATION),
    ),
    Log.UNSCHEDULABLE: (
        ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT),
        ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_TOLERATION),
    ),
    Log.PORTS: (NODE_ADD, ASSIGNED_POD_DELETE),
}
"""What changes each aspect. An aspect without an entry (images) changes with nothing that is an event, beyond new nodes."""


def default_events(reads: Log) -> frozenset[ClusterEvent]:
    """The events after which a plugin with these `reads` may decide differently."""
    events = [event for log, of_log in _EVENTS_OF_LOG.items() if log in reads for event in of_log]
    return frozenset(events or (NODE_ADD,))


def registrations_of(plugin: Plugin) -> tuple[Registration, ...]:
    """What the plugin says, or what follows from its kind and its `reads`."""
    if isinstance(plugin, RegisteringPlugin) and has_form(plugin, RegisteringPlugin):
        return tuple(plugin.registrations())
    if any(has_form(plugin, form) for form in (ReservePlugin, PermitPlugin, PreBindPlugin)):
        return (Registration(EVERY_EVENT),)
    events: set[ClusterEvent] = set()
    if isinstance(plugin, ColumnPlugin) and (has_form(plugin, FilterPlugin) or has_form(plugin, NarrowingPlugin)):
        events |= default_events(plugin.reads)
    if has_form(plugin, PreEnqueuePlugin):
        events.add(UNSCHEDULABLE_POD_UPDATE)
    return tuple(Registration(event) for event in sorted(events, key=lambda event: event.label))


# ------------------------------------------------------------------------------------------------------------- table


Asked = tuple[tuple[str, HintFunction | None], ...]
"""Plugins, each with its hint function or None for always QUEUE."""
ASKED_MAX: Final = 4_096
"""Combinations of rejecting plugins and events that are remembered."""


class HintTable:
    """Per profile: cluster event -> the plugins to ask, each with its hint function or None for always QUEUE."""

    __slots__ = ("_asked", "_held", "_interested", "_of_interest", "_profiles", "_timed")

    def __init__(self, profiles: Mapping[str, Mapping[str, Sequence[Registration]]]) -> None:
        """scheduler name -> plugin name -> its registrations."""
        self._profiles: dict[str, dict[str, tuple[Registration, ...]]] = {
            profile: {plugin: _with_taints_of_new_nodes(tuple(found)) for plugin, found in plugins.items()}
            for profile, plugins in profiles.items()
        }
        self._interested: dict[tuple[str, ClusterEvent], tuple[tuple[str, HintFunction | None], ...]] = {}
        self._of_interest: dict[ClusterEvent, bool] = {}
        self._timed: TimedHint = _untimed
        self._asked: dict[tuple[str, ClusterEvent, frozenset[str]], Asked] = {}
        self._held: dict[tuple[str, frozenset[str]], tuple[PreparedHint, ...]] = {}

    def time_with(self, timed: TimedHint) -> None:
        """Hint functions are called through what `timed` makes of them. Before the first event."""
        self._timed = timed

    @classmethod
    def of_profiles(cls, profiles: Iterable[Profile]) -> HintTable:
        return cls(
            {
                profile.scheduler_name: {plugin.name: registrations_of(plugin) for plugin in profile.plugins()}
                for profile in profiles
            }
        )

    def is_of_interest(self, event: ClusterEvent) -> bool:
        """Whether any plugin of any profile registered for it. Nothing happens to an event of no interest."""
        known = self._of_interest.get(event)
        if known is None:
            known = event.is_wildcard or any(
                registration.event.matches(event)
                for plugins in self._profiles.values()
                for found in plugins.values()
                for registration in found
            )
            self._of_interest[event] = known
        return known

    def asked(self, scheduler_name: str, event: ClusterEvent, rejectors: frozenset[str]) -> Asked:
        """Those of `rejectors` that registered for the event, with their hint functions."""
        found = self._asked.get((scheduler_name, event, rejectors))
        if found is None:
            if len(self._asked) >= ASKED_MAX:
                self._asked.clear()
            found = tuple(pair for pair in self._registered(scheduler_name, event) if pair[0] in rejectors)
            self._asked[scheduler_name, event, rejectors] = found
        return found

    def _registered(self, scheduler_name: str, event: ClusterEvent) -> Asked:
        known = self._interested.get((scheduler_name, event))
        if known is None:
            known = self._interested[scheduler_name, event] = tuple(
                (plugin, None if registration.hint is None else self._measured(plugin, event, registration.hint))
                for plugin, found in self._profiles.get(scheduler_name, {}).items()
                for registration in found
                if registration.event.matches(event)
            )
        return known

    def _measured(self, plugin: str, event: ClusterEvent, hint: HintFunction) -> HintFunction:
        if isinstance(hint, PreparedHint):
            return replace(hint, ask=self._timed(plugin, event, hint.ask))
        return self._timed(plugin, event, hint)

    def prepared(self, scheduler_name: str, rejectors: frozenset[str]) -> tuple[PreparedHint, ...]:
        """The prepared hints of these plugins, each once."""
        found = self._held.get((scheduler_name, rejectors))
        if found is None:
            if len(self._held) >= ASKED_MAX:
                self._held.clear()
            registered = self._profiles.get(scheduler_name, {})
            hints = (one.hint for plugin in sorted(rejectors) for one in registered.get(plugin, ()))
            found = tuple(dict.fromkeys(hint for hint in hints if isinstance(hint, PreparedHint)))
            self._held[scheduler_name, rejectors] = found
        return found

    def knows(self, scheduler_name: str) -> bool:
        return scheduler_name in self._profiles

    def gate_reacts(self, scheduler_name: str, gating_plugin: str, event: ClusterEvent) -> bool:
        """Whether the plugin that gates a pod registered for the event. A wildcard event reaches wildcard registrations only."""
        registrations = self._profiles.get(scheduler_name, {}).get(gating_plugin, ())
        return any(registration.event.matches(event) for registration in registrations)

    def waking_events(self, scheduler_name: str, rejectors: frozenset[str]) -> tuple[str, ...]:
        """Labels of what the plugins that hold a pod wait for, for people."""
        plugins = self._profiles.get(scheduler_name, {})
        registrations = (registration for plugin in rejectors for registration in plugins.get(plugin, ()))
        return tuple(sorted({part.label for registration in registrations for part in registration.event.parts()}))

    def may_wake(self, pod: QueuedPodInfo, event: ClusterEvent) -> bool:
        """Whether `judge` may say anything but SKIP, whatever the objects are."""
        if not pod.rejectors or event.is_wildcard or not self.knows(pod.scheduler_name):
            return True
        return bool(self.asked(pod.scheduler_name, event, pod.rejectors))

    def judge(
        self,
        pod: QueuedPodInfo,
        event: ClusterEvent,
        old: object,
        new: object,
        failed: HintFailure,
        questions: TemplateHints | None = None,
    ) -> Requeue:
        """What the event means for a pod whose last attempt was rejected. A hint function that raises counts as QUEUE.

        `questions`: where those of prepared hints are kept.
        """
        rejectors = pod.rejectors
        if not rejectors or event.is_wildcard or not self.knows(pod.scheduler_name):
            return Requeue.AFTER_BACKOFF
        verdict = Requeue.SKIP
        for plugin, hint in self.asked(pod.scheduler_name, event, rejectors):
            pending = plugin in pod.pending_plugins
            if verdict is Requeue.AFTER_BACKOFF and not pending:
                continue
            if hint is not None and _answer(hint, plugin, pod, old, new, failed, questions) is Hint.SKIP:
                continue
            if pending:
                return Requeue.IMMEDIATELY
            verdict = Requeue.AFTER_BACKOFF
            if not pod.pending_plugins:
                break
        return verdict


def _answer(
    hint: HintFunction,
    plugin: str,
    pod: QueuedPodInfo,
    old: object,
    new: object,
    failed: HintFailure,
    questions: TemplateHints | None,
) -> Hint:
    try:
        if questions is not None and isinstance(hint, PreparedHint):
            return hint.ask(questions.of(pod, hint), hint.look(old, new))
        return hint(pod.pod, old, new)
    except Exception as problem:
        # A pod must not be stuck because somebody's hint is broken.
        failed(plugin, problem)
        return Hint.QUEUE


def _untimed(_: str, __: ClusterEvent, hint: Callable[..., Hint]) -> Callable[..., Hint]:
    return hint


def _with_taints_of_new_nodes(registrations: tuple[Registration, ...]) -> tuple[Registration, ...]:
    """1.34's remedy for nodes that were added while tainted; wildcard registrations cover it already."""
    of_nodes = [one.event.action for one in registrations if one.event.resource is Resource.NODE]
    adds = any(action & Action.ADD for action in of_nodes)
    taints = any(action & Action.UPDATE_NODE_TAINT for action in of_nodes)
    return (*registrations, Registration(NODE_TAINT_UPDATE)) if adds and not taints else registrations

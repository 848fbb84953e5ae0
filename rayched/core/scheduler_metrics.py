"""The scheduler's metrics, under kube-scheduler's names. They leave the process as those of the queue do (queue_metrics.py).

| metric | labels |
|---|---|
| scheduler_schedule_attempts_total | result: scheduled, unschedulable, error; profile |
| scheduler_scheduling_attempt_duration_seconds | result; profile |
| scheduler_scheduling_algorithm_duration_seconds | |
| scheduler_pod_scheduling_sli_duration_seconds | attempts: 1 to 14, 15+ |
| scheduler_pod_scheduling_attempts | |
| scheduler_framework_extension_point_duration_seconds | extension_point; status; profile |
| scheduler_plugin_execution_duration_seconds | plugin; extension_point; status |
| scheduler_plugin_evaluation_total | plugin; extension_point: PreFilter, Filter, Score; profile |
| scheduler_permit_wait_duration_seconds | result |
| scheduler_preemption_attempts_total, scheduler_preemption_victims | |
| scheduler_preemption_goroutines_execution_total, ..._duration_seconds | result: success, error |
| scheduler_podgroup_schedule_attempts_total | result: those of pods, waiting_on_preemption; profile |
| scheduler_podgroup_scheduling_attempt_duration_seconds, ..._algorithm_duration_seconds | result; profile |
| scheduler_pending_pods | queue: incomplete, and members of groups in the others |
| scheduler_workload_preemption_attempts_total, scheduler_workload_preemption_victims | result |
| scheduler_preemption_evaluation_duration_seconds, ..._execution_duration_seconds | preemptor: podgroup; result |
| scheduler_preemption_workload_disruptions, scheduler_preemption_pdb_violations_total | preemptor: podgroup |
| scheduler_generated_placements_total, scheduler_placement_evaluations_total | result; profile |
| scheduler_placement_evaluation_duration_seconds | result: feasible, infeasible; profile |
| scheduler_cache_size | type: nodes, pods, assumed_pods |
| scheduler_goroutines | operation: binding |
| scheduler_event_handling_duration_seconds | event |
| scheduler_async_api_call_execution_total, ..._duration_seconds | call_type: pod_binding, pod_status_patch; result |
| scheduler_pending_async_api_calls | call_type |
| rayched_store_txn_duration_seconds | op; outcome: ok, conflict, fenced, unknown, error |
| rayched_cache_revision | |
| rayched_group_plans, rayched_group_plan_age_seconds, rayched_group_incomplete | |
| rayched_group_commits_total | path: one, recorded |
| rayched_events_total | outcome: written, dropped, given_up |
| rayched_shadow_decisions_total | profile; result: same, other, pending, error; where there are shadow plugins |
| rayched_worker_evaluations_total, rayched_worker_rows_total, rayched_worker_seconds_total | |
| rayched_worker_local_evaluations_total | |

What only a leader does is missing until this process has led. Owner: the SchedulerActor's loop.
Source: pkg/scheduler/metrics of kube-scheduler 1.34. Cost: about a millisecond when asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from rayched.core.attempt_metrics import AttemptMeasures
from rayched.core.groups.group_measures import PREEMPTOR, GroupMeasures
from rayched.core.scheduler_core import SchedulerCore
from rayched.core.writes.pod_patches import OP_BIND, OP_STATUS
from rayched.engine.shards import PoolCounts
from rayched.framework.durations import Durations, Histogram

_CALL_TYPES: Final = {OP_BIND: "pod_binding", OP_STATUS: "pod_status_patch"}
"""Writes that kube-scheduler has as asynchronous API calls, too."""


def scheduler_metrics(core: SchedulerCore, pool: PoolCounts) -> list[Metric]:
    """As of now."""
    measures = core.measures
    measures.fold()
    shadows = [((profile, result.value), count) for (profile, result), count in core.scheduler.shadows.counts.items()]
    return [
        *_attempts(measures),
        _over_budget(core),
        *_plugins(core),
        *_preemptions(core),
        *_groups(measures.groups),
        *_group_preemptions(measures.groups),
        *_state(core),
        *_writes(measures),
        *_group_state(core),
        _counter("rayched_events", "Events written, dropped and given up.", ("outcome",), core.events.counts.items()),
        _counter("rayched_shadow_decisions", "Decisions that shadow plugins were asked about.", ("profile", "result"), shadows),
        _counter("rayched_worker_evaluations", "Evaluations that workers took part in.", (), [((), pool.evaluations)]),
        _counter("rayched_worker_rows", "Rows of the columns that workers answered with.", (), [((), pool.rows)]),
        _counter("rayched_worker_seconds", "What workers computed.", (), [((), pool.seconds)]),
        _counter("rayched_worker_local_evaluations", "Evaluations in the place of workers.", (), [((), pool.local_evaluations)]),
    ]


def _attempts(measures: AttemptMeasures) -> list[Metric]:
    return [
        _counter("scheduler_schedule_attempts", "Attempts to schedule pods.", ("result", "profile"), measures.attempts.items()),
        _histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "From the begin of a cycle to the commit of the binding, or to the failure.",
            ("result", "profile"),
            measures.durations,
        ),
        _histogram("scheduler_scheduling_algorithm_duration_seconds", "Time of a scheduling cycle.", (), measures.algorithm),
        _histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From the begin of a pod's first attempt to its binding.",
            ("attempts",),
            measures.sli,
        ),
        _histogram("scheduler_pod_scheduling_attempts", "Attempts that a bound pod took.", (), measures.tries),
        _histogram(
            "scheduler_permit_wait_duration_seconds", "Time that a pod waited at Permit.", ("result",), measures.permit_waits
        ),
    ]


def _plugins(core: SchedulerCore) -> list[Metric]:
    durations = core.scheduler.durations
    evaluations = (((plugin, point, profile), count) for plugin, point, profile, count in core.scheduler.evaluations())
    return [
        _histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Time that the plugins of an extension point took together.",
            ("extension_point", "status", "profile"),
            durations.points,
        ),
        _histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Time that a plugin took at an extension point; sampled.",
            ("plugin", "extension_point", "status"),
            durations.plugins,
        ),
        _counter(
            "scheduler_plugin_evaluation",
            "Pods that a plugin was asked about.",
            ("plugin", "extension_point", "profile"),
            evaluations,
        ),
    ]


def _over_budget(core: SchedulerCore) -> Metric:
    return _counter(
        "rayched_attempts_over_budget",
        "Attempts that took more of the scheduler's time than one may, and were given up.",
        ("profile",),
        sorted(core.scheduler.over_budget.items()),
    )


def _preemptions(core: SchedulerCore) -> list[Metric]:
    measures = core.measures
    return [
        _counter(
            "scheduler_preemption_attempts",
            "Attempts that asked for preemption.",
            (),
            [((), core.scheduler.post_filter.runs)],
        ),
        _histogram("scheduler_preemption_victims", "Pods that have to go for one other.", (), measures.victims),
        *_counted(
            "scheduler_preemption_goroutines_execution",
            "scheduler_preemption_goroutines_duration_seconds",
            "Preemptions carried out",
            ("result",),
            measures.rooms,
        ),
    ]


def _groups(groups: GroupMeasures) -> list[Metric]:
    by_result = "result", "profile"
    return [
        _counter("scheduler_podgroup_schedule_attempts", "Attempts to schedule pod groups.", by_result, groups.attempts.items()),
        _histogram(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "From the begin of a group's cycle to the commit of its placement, or to the failure.",
            by_result,
            groups.durations,
        ),
        _histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds", "Time of a group's cycle.", by_result, groups.algorithm
        ),
        _gauge("scheduler_pending_pods", "Pods without a node, by the queue they wait in.", ("queue",), dict(groups.pending())),
        _counter(
            "scheduler_generated_placements",
            "Domains that came into question for groups with a topology.",
            ("profile",),
            groups.placements.items(),
        ),
        _counter("scheduler_placement_evaluations", "Domains that groups were tried in.", by_result, groups.trials.items()),
        _histogram(
            "scheduler_placement_evaluation_duration_seconds", "Time of the attempt in a domain.", by_result, groups.trial_times
        ),
    ]


def _group_preemptions(groups: GroupMeasures) -> list[Metric]:
    by_result = "preemptor", "result"
    return [
        _counter(
            "scheduler_workload_preemption_attempts",
            "Searches for pods that have to go for a group.",
            ("result",),
            groups.preemptions.items(),
        ),
        _histogram("scheduler_workload_preemption_victims", "Pods that have to go for one group.", (), groups.victims),
        _histogram(
            "scheduler_preemption_workload_disruptions",
            "Units that have to go for one group: pods, and groups that end as a whole.",
            ("preemptor",),
            groups.disruptions,
        ),
        _histogram(
            "scheduler_preemption_evaluation_duration_seconds",
            "Time of a search for pods that have to go.",
            by_result,
            groups.searches,
        ),
        _histogram(
            "scheduler_preemption_execution_duration_seconds",
            "From the decision until all pods that have to go were told to end.",
            by_result,
            groups.executions,
        ),
        _counter(
            "scheduler_preemption_pdb_violations",
            "Pods that had to go against a budget.",
            ("preemptor",),
            [((PREEMPTOR,), groups.violations)],
        ),
    ]


def _group_state(core: SchedulerCore) -> list[Metric]:
    n_plans, n_incomplete, oldest_seconds = core.groups.counts()
    return [
        _gauge("rayched_group_plans", "Pod groups that are bound by a plan.", (), {"": n_plans}),
        _gauge("rayched_group_plan_age_seconds", "Age of the oldest plan.", (), {"": oldest_seconds}),
        _gauge("rayched_group_incomplete", "Gangs of which fewer members run than are needed.", (), {"": n_incomplete}),
        _counter("rayched_group_commits", "Pod groups that were bound.", ("path",), core.measures.groups.commits.items()),
    ]


def _state(core: SchedulerCore) -> list[Metric]:
    occupancy = core.scheduler.occupancy
    sizes = {"nodes": core.snapshot.n_nodes, "pods": occupancy.n_observed, "assumed_pods": occupancy.n_assumed}
    return [
        _gauge("scheduler_cache_size", "Objects in the scheduler's cache.", ("type",), sizes),
        _gauge("scheduler_goroutines", "Bindings under way.", ("operation",), {"binding": core.bindings.n_under_way}),
        _histogram(
            "scheduler_event_handling_duration_seconds", "Time to take in a change; sampled.", ("event",), core.measures.events
        ),
        _gauge("rayched_cache_revision", "The revision of etcd that the scheduler has read.", (), {"": core.cache.revision}),
    ]


def _writes(measures: AttemptMeasures) -> list[Metric]:
    under_way = measures.under_way()
    of_pods = [
        ((_CALL_TYPES[op], result), buckets, seconds)
        for (op, result), buckets, seconds in measures.writes.histograms()
        if op in _CALL_TYPES
    ]
    return [
        *_counted(
            "scheduler_async_api_call_execution",
            "scheduler_async_api_call_duration_seconds",
            "Writes of the scheduler",
            ("call_type", "result"),
            of_pods,
        ),
        _gauge(
            "scheduler_pending_async_api_calls",
            "Writes without an answer yet.",
            ("call_type",),
            {name: under_way[op] for op, name in _CALL_TYPES.items()},
        ),
        _histogram(
            "rayched_store_txn_duration_seconds",
            "Time until etcd answered a transaction of the scheduler.",
            ("op", "outcome"),
            measures.transactions,
        ),
    ]


def _counted(
    count_name: str, duration_name: str, text: str, labels: tuple[str, ...], durations: Durations | Sequence[Histogram]
) -> list[Metric]:
    """A histogram, and its counts as a counter of their own."""
    found = durations if not isinstance(durations, Durations) else list(durations.histograms())
    counts = ((values, buckets[-1][1]) for values, buckets, _ in found)
    return [_counter(count_name, f"{text}.", labels, counts), _histogram(duration_name, f"{text}: time.", labels, found)]


def _histogram(name: str, text: str, labels: tuple[str, ...], durations: Durations | Sequence[Histogram]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, buckets, total in durations if not isinstance(durations, Durations) else durations.histograms():
        family.add_metric(values, buckets, total)
    return family


def _counter(name: str, text: str, labels: tuple[str, ...], counts: Iterable[tuple[str | tuple[str, ...], float]]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in sorted(counts):
        family.add_metric((values,) if isinstance(values, str) else values, count)
    return family


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for label, value in values.items():
        family.add_metric((label,) if labels else (), value)
    return family

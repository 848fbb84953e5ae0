"""What the queue counts, as a scrape would show it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rayched.api import kinds
from rayched.configuration.configuration import Configuration
from rayched.core.exchange.queue_core import QueueCore, queue_factory
from rayched.core.exchange.queue_metrics import queue_metrics
from rayched.framework.cluster_event import NODE_ADD
from rayched.framework.queueing_hints import Registration
from rayched.framework.status import SUCCESS, Code, Status
from rayched.queue.audit import Invariant
from rayched.replica.families import merged
from rayched.v1.core_pb2 import Pod
from tests.core.builders import a_node, a_pod, stored
from tests.core.model_store import ModelStore
from tests.core.replica import KEYS, Clock, Replica, default_profiles

Scrape = dict[str, dict[tuple[str, ...], float]]


class _Given:
    def __init__(self, families: list[Metric]) -> None:
        self.families = families

    def collect(self) -> Iterable[Metric]:
        return self.families


def scraped(families: list[Metric]) -> Scrape:
    """Through the text that is served, and read again: sample name → values of its labels, sorted by name → value."""
    registry = CollectorRegistry()
    registry.register(_Given(families))  # type: ignore[arg-type]
    found: Scrape = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def scrape(core: QueueCore) -> Scrape:
    return scraped(queue_metrics(core))


def put(replica: Replica, name: str, **fields: Any) -> None:
    replica.store.put(KEYS.object_key(kinds.POD, "default", name), stored(a_pod(name, **fields)))


def put_node(store: ModelStore, name: str, cpu: str) -> None:
    store.put(KEYS.object_key(kinds.NODE, "", name), stored(a_node(name, cpu=cpu)))


def a_leader(**options: Any) -> Replica:
    store = ModelStore()
    put_node(store, "n1", "4")
    replica = Replica(store, Clock(), **options)
    replica.list()
    replica.lead()
    replica.settle()
    return replica


@pytest.mark.row("D14", "Q25")
def test_pending_pods_are_counted_by_the_queue_they_wait_in() -> None:
    replica = a_leader()
    put(replica, "gated", gates=["wait"])
    for number in range(3):
        put(replica, f"large-{number}", cpu="8")
    put(replica, "small")
    replica.settle()
    pending = {"active": 0, "backoff": 0, "unschedulable": 3, "gated": 1}
    found = scrape(replica.queue)
    assert found["scheduler_pending_pods"] == {(queue,): count for queue, count in pending.items()}
    assert found["scheduler_unschedulable_pods"] == {
        ("NodeResourcesFit", "default-scheduler"): 3,
        ("SchedulingGates", "default-scheduler"): 1,
    }
    replica.belief = None
    replica.settle()
    found = scrape(replica.queue)
    assert not any(found["scheduler_pending_pods"].values()), "a standby's queue is empty"


@pytest.mark.row("D15", "Q63")
def test_entries_are_counted_by_queue_and_event_through_all_sessions() -> None:
    replica = a_leader()
    put(replica, "large", cpu="6")
    put(replica, "gated", gates=["wait"])
    replica.settle()
    put_node(replica.store, "n2", "5")
    put_node(replica.store, "n3", "8")
    replica.settle()
    replica.clock.now += 3.0
    replica.settle()
    came = {
        ("UnschedulablePodAdd", "active"): 1,
        ("UnschedulablePodAdd", "unschedulable"): 1,
        ("ScheduleAttemptFailure", "unschedulable"): 1,
        ("NodeAdd", "backoff"): 1,
        ("PopFromBackoffQ", "active"): 1,
    }
    assert scrape(replica.queue)["scheduler_queue_incoming_pods_total"] == came
    replica.belief = None
    replica.settle()
    assert scrape(replica.queue)["scheduler_queue_incoming_pods_total"] == came
    replica.lead()
    replica.settle()
    came["UnschedulablePodAdd", "unschedulable"] += 1
    assert scrape(replica.queue)["scheduler_queue_incoming_pods_total"] == came


class Gatekeeper:
    """A PreEnqueue plugin; whatever else a profile might ask of it, it is not asked here."""

    name = "Gatekeeper"

    def __init__(self) -> None:
        self.asked = 0

    def pre_enqueue(self, pod: Pod) -> Status:
        self.asked += 1
        if "broken" in pod.metadata.labels:
            raise RuntimeError("broken")
        return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("closed",)) if "closed" in pod.metadata.labels else SUCCESS


@pytest.mark.row("Q36")
def test_the_time_of_pre_enqueue_is_a_histogram_by_outcome_and_its_plugins_are_sampled() -> None:
    (profile,) = default_profiles().values()
    profiles = {profile.scheduler_name: replace(profile, pre_enqueue=(Gatekeeper(),))}
    replica = a_leader(profiles=profiles)
    ticks = iter(range(10_000))
    replica.queue = QueueCore(queue_factory(Configuration(), profiles), lambda: next(ticks) * 0.0003)
    replica.core.queue_lost()
    for number in range(11):
        put(replica, f"p{number}", cpu="10m")
    put(replica, "closed", labels={"closed": "yes"})
    put(replica, "broken", labels={"broken": "yes"})
    replica.settle()
    (told,) = replica.core.problems.take()
    assert told.startswith('running PreEnqueue plugin "Gatekeeper": RuntimeError: broken\nTraceback') and "in pre_enqueue" in told
    found = scrape(replica.queue)
    point = "scheduler_framework_extension_point_duration_seconds"
    assert found[f"{point}_count"] == {
        ("PreEnqueue", "default-scheduler", "Success"): 11,
        ("PreEnqueue", "default-scheduler", "UnschedulableAndUnresolvable"): 1,
        ("PreEnqueue", "default-scheduler", "Error"): 1,
    }
    # Each reading of the stopwatch is 0.3 ms after the last: one between for most, three where the plugin is measured, too.
    assert found[f"{point}_sum"]["PreEnqueue", "default-scheduler", "Success"] == pytest.approx(0.0003 * (9 + 2 * 3))
    buckets = {labels[1]: value for labels, value in found[f"{point}_bucket"].items() if "Success" in labels}
    assert (buckets["0.0002"], buckets["0.0004"], buckets["0.0016"], buckets["+Inf"]) == (0, 9, 11, 11)
    assert found["scheduler_plugin_execution_duration_seconds_count"] == {("PreEnqueue", "Gatekeeper", "Success"): 2}


class Elsewhere:
    """A plugin of all the other extension points; the queue may ask it for its registrations and for nothing else."""

    name = "Elsewhere"

    def registrations(self) -> list[Registration]:
        return [Registration(NODE_ADD)]

    def refuse(self, *_: object) -> Any:
        raise AssertionError("called by the queue")

    key = prepare = pre_filter = filter = post_filter = score = normalize = refuse
    reserve = unreserve = permit = pre_bind = bind = post_bind = refuse


@pytest.mark.row("Q37", "D16")
def test_the_queue_calls_pre_enqueue_and_queue_sort_and_no_other_extension_point() -> None:
    (profile,) = default_profiles().values()
    gatekeeper = Gatekeeper()
    sorted_by: list[str] = []

    class ByName:
        name = "ByName"

        def sort_key(self, pod: Any) -> str:
            sorted_by.append(pod.key)
            return str(pod.key)

    points = "pre_filter", "filter", "post_filter", "score", "reserve", "permit", "pre_bind", "bind", "post_bind"
    elsewhere: Any = dict.fromkeys(points, (Elsewhere(),))
    changed = replace(profile, queue_sort=ByName(), pre_enqueue=(gatekeeper,), **elsewhere)
    replica = a_leader()
    replica.queue = QueueCore(queue_factory(Configuration(), {changed.scheduler_name: changed}))
    replica.core.queue_lost()
    for name in ("b", "a"):
        put(replica, name)
    put(replica, "large", cpu="6")
    replica.settle()
    put_node(replica.store, "n2", "8")
    replica.clock.now += 301.0
    replica.settle()
    assert set(replica.bound()) == {"a", "b", "large"}
    assert gatekeeper.asked >= 3 and set(sorted_by) == {"default/a", "default/b", "default/large"}


def test_violations_are_there_for_an_alert_before_the_first_one() -> None:
    found = scrape(a_leader().queue)["rayched_queue_invariant_violations_total"]
    assert found == {(invariant.value,): 0 for invariant in Invariant}


def test_families_of_several_processes_become_one_of_each_name() -> None:
    queue = queue_metrics(a_leader().queue)
    other = [Metric("scheduler_pending_pods", "", "gauge"), Metric("scheduler_other", "", "gauge")]
    other[0].add_sample("scheduler_pending_pods", {"queue": "elsewhere"}, 5)
    found = merged(queue, other)
    assert len({family.name for family in found}) == len(found) == len(queue) + 1
    assert scraped(found)["scheduler_pending_pods"]["elsewhere",] == 5

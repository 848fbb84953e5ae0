"""When pods would start at the latest: by the ends of others, and not where nobody knows an end."""

from __future__ import annotations

from rayched.core.groups.planning import planner_of
from rayched.v1.core_pb2 import Node, Pod
from rayched.v1.workloads_pb2 import Job
from rayched.whatif.cluster import Cluster
from rayched.whatif.starts import EstimatedStart, estimated_starts
from tests.whatif.test_plan import node, pod, profiles

NOW = 10_000.0


def running(name: str, cpu: str = "4", *, since: int = 9_000, deadline: int | None = None, on: str = "a") -> Pod:
    made = pod(name, cpu, on)
    made.metadata.uid = name
    made.status.phase = "Running"
    made.status.start_time.seconds = since
    if deadline is not None:
        made.spec.active_deadline_seconds = deadline
    return made


def starts(*objects: Node | Pod, jobs: tuple[Job, ...] = ()) -> list[tuple[str, str, float]]:
    found = estimated_starts(planner_of(Cluster(objects, profiles())), jobs, NOW)
    assert all(isinstance(one, EstimatedStart) for one in found)
    return [(one.pod.removeprefix("default/"), one.node_name, one.seconds - NOW) for one in found]


def test_where_there_is_room_it_is_now() -> None:
    assert starts(node("a"), pod("waits")) == [("waits", "a", 0.0)]


def test_a_pod_starts_when_one_that_has_a_deadline_is_over() -> None:
    assert starts(node("a"), running("first", deadline=1_500), pod("waits")) == [("waits", "a", 500.0)]


def test_nothing_is_said_where_no_end_is_known_or_none_makes_room() -> None:
    assert starts(node("a"), running("first"), pod("waits")) == []
    assert starts(node("a"), running("first", "1", deadline=1_500), running("other", "3"), pod("waits", "2")) == []


def test_a_deadline_that_is_over_is_that_of_now_and_one_that_has_not_begun_begins_now() -> None:
    assert starts(node("a"), running("first", deadline=10), pod("waits")) == [("waits", "a", 0.0)]
    bound = running("first", deadline=300)
    bound.status.ClearField("start_time")
    assert starts(node("a"), bound, pod("waits")) == [("waits", "a", 300.0)]


def test_the_ends_of_those_that_start_count_too_and_priority_comes_first() -> None:
    second, third = pod("second", "4", priority=5), pod("third", "4")
    second.spec.active_deadline_seconds = 60
    first = running("first", deadline=1_500)
    first.spec.priority = 5
    assert starts(node("a"), first, third, second) == [("second", "a", 500.0), ("third", "a", 560.0)]
    first.spec.priority = 0
    assert starts(node("a"), first, third, second) == [("second", "a", 0.0), ("third", "a", 60.0)], "it has to leave"


def test_each_end_has_its_moment() -> None:
    ends = running("first", "2", deadline=1_500), running("other", "2", deadline=1_700)
    assert starts(node("a"), *ends, pod("one", "2"), pod("two", "2")) == [("one", "a", 500.0), ("two", "a", 700.0)]


def test_a_pod_that_is_deleted_gives_its_room_back_and_one_that_is_replaced_does_not() -> None:
    gone = running("first")
    gone.metadata.deletion_timestamp.seconds = int(NOW) + 30
    assert starts(node("a"), gone, pod("waits")) == [("waits", "a", 30.0)]
    for one in (gone, running("second", deadline=1_500)):
        one.metadata.owner_references.add(kind="ReplicaSet", name="web", uid="set", controller=True)
        assert starts(node("a"), one, pod("waits")) == []


def test_the_pods_of_a_job_end_with_the_job() -> None:
    job = Job(metadata={"name": "count", "uid": "job"}, spec={"active_deadline_seconds": 1_100})
    one = running("count-0", deadline=1_050)
    one.metadata.owner_references.add(kind="Job", name="count", uid="job", controller=True)
    assert starts(node("a"), one, pod("waits"), jobs=(job,)) == []
    job.status.start_time.seconds = 9_000
    assert starts(node("a"), one, pod("waits"), jobs=(job,)) == [("waits", "a", 100.0)]

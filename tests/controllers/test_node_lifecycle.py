"""The leader's decisions on nodes and pods as one machine: a cluster in memory whose seconds pass one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rayched.api.kinds import NODE
from rayched.controllers import node_lifecycle
from rayched.controllers.node_lifecycle import PODS_AT_ONCE_MAX
from rayched.controllers.node_settings import NodeSettings, NodeSettingsError
from rayched.controllers.node_taints import is_out_of_service
from rayched.controllers.pod_garbage import Circumstances, Fate, fate_of
from rayched.controllers.zones import ZoneChange
from rayched.store.entries import Entry
from rayched.store.list_watch_effects import Changed, ListedAll
from rayched.store.revision_clock import SPAN_SECONDS
from rayched.v1.core_pb2 import Node, Toleration
from rayched.v1.workloads_pb2 import Object
from tests.controllers.memory_world import KEYS, MemoryWorld

PERIOD, GRACE = 5, 20
FAST = NodeSettings(node_monitor_period=PERIOD, node_monitor_grace_period=GRACE, node_eviction_rate=10)
LOST = {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
UNSCHEDULABLE = {("unreachable", "NoSchedule")}


def for_seconds(seconds: int | None) -> list[Toleration]:
    return [
        Toleration(key=f"node.kubernetes.io/{key}", operator="Exists", effect="NoExecute", toleration_seconds=seconds)
        for key in ("not-ready", "unreachable")
    ]


def _nothing() -> None:
    """Nothing happens."""


def a_world(nodes: int = 4, zones: int = 2, options: NodeSettings = FAST) -> MemoryWorld:
    world = MemoryWorld(options)
    for number in range(nodes):
        world.add_node(f"n{number}", "ab"[number % zones])
    return world


def live(world: MemoryWorld, seconds: int, silent: set[str]) -> None:
    """Time passes; all nodes but the silent ones speak every second."""
    names = [name for name in world.heartbeats if name not in silent]
    for _ in range(seconds):
        world.speak(names)
        world.pass_second()


def test_a_node_is_lost_after_its_grace_and_no_pod_of_it_before_its_time() -> None:
    world = a_world()
    world.add_pod("at-once", "n0")
    world.add_pod("brief", "n0", for_seconds(30), grace=10)
    world.add_pod("for-ever", "n0", for_seconds(None))
    live(world, GRACE, {"n0"})
    assert world.taints("n0") == set()
    live(world, PERIOD + 1, {"n0"})
    assert world.taints("n0") == LOST
    live(world, 1, {"n0"})
    assert world.pod("at-once") is None
    brief = world.pod("brief")
    assert brief is not None
    assert not brief.metadata.HasField("deletion_timestamp")
    live(world, 30, {"n0"})
    brief = world.pod("brief")
    assert brief is not None
    assert brief.metadata.deletion_grace_period_seconds == 10
    live(world, 10 + 20 + 1, {"n0"})
    assert world.pod("brief") is None
    assert world.pod("for-ever") is not None


def test_pods_of_a_lost_node_are_not_ready_and_those_of_others_are() -> None:
    world = a_world()
    world.add_pod("here", "n0", for_seconds(300))
    world.add_pod("there", "n1", for_seconds(300))
    live(world, GRACE + PERIOD + 2, {"n0"})
    ready = {name: pod.status.conditions[0].status for name in ("here", "there") if (pod := world.pod(name)) is not None}
    assert ready == {"here": "False", "there": "True"}


def test_lost_nodes_of_a_zone_are_emptied_one_after_the_other_by_name_where_they_are_lost_at_once() -> None:
    world = a_world(20, 2, replace(FAST, node_eviction_rate=0.1))
    silent = {"n0", "n2", "n4", "n6"}
    live(world, GRACE + PERIOD + 1, silent)
    emptied = []
    for _ in range(4):
        emptied.append({name for name in silent if world.taints(name) == LOST})
        live(world, 10, silent)
    assert emptied == [{"n0"}, {"n0", "n2"}, {"n0", "n2", "n4"}, silent]
    assert all(world.taints(name) >= UNSCHEDULABLE for name in silent)


@pytest.mark.parametrize(
    ("silent", "emptied"),
    [
        ({"n0", "n2", "n4"}, 0),  # three of the five of zone a: most of a small zone
        ({"n0", "n2"}, 2),
        ({"n0", "n2", "n4", "n6", "n8"}, 5),  # all of zone a, and zone b works
        ({f"n{number}" for number in range(10)}, 0),
    ],
)
def test_the_more_of_a_zone_is_lost_the_less_it_is_believed(silent: set[str], emptied: int) -> None:
    world = a_world(10)
    live(world, GRACE + 3 * PERIOD, silent)
    assert sum(world.taints(name) == LOST for name in silent) == emptied
    assert all(world.taints(name) >= UNSCHEDULABLE for name in silent)


def test_when_the_last_node_falls_silent_the_taints_of_the_others_are_withdrawn_until_one_is_back() -> None:
    world = a_world(2, 1)
    world.add_pod("web", "n0", for_seconds(60))
    live(world, GRACE + PERIOD + 1, {"n0"})
    assert world.taints("n0") == LOST
    live(world, GRACE + PERIOD + 60, {"n0", "n1"})
    assert world.taints("n0") == UNSCHEDULABLE
    assert world.pod("web") is not None
    live(world, PERIOD + 2, {"n0"})
    assert world.taints("n1") == set()
    assert world.taints("n0") == LOST
    live(world, 50, {"n0"})
    assert world.pod("web") is not None
    live(world, 15, {"n0"})
    assert world.pod("web") is None


def test_a_node_that_speaks_while_it_is_judged_is_not_tainted() -> None:
    for spoke_in_time in (True, False):
        world = a_world()
        live(world, GRACE + PERIOD, {"n0"})
        assert world.taints("n0") == set()
        world.speak(["n1", "n2", "n3"])
        # The reading that finds it silent for too long; its heartbeat arrives before the write does.
        world.pass_second(meanwhile=(lambda world=world: world.speak(["n0"])) if spoke_in_time else _nothing)  # type: ignore[misc]
        assert world.taints("n0") == (set() if spoke_in_time else LOST)


def test_when_the_first_node_is_heard_again_the_others_are_given_time_before_they_count_as_lost() -> None:
    world = a_world()
    live(world, GRACE, {"n0", "n1", "n2", "n3"})
    # Nothing of what this observer decided could be written: it was cut off itself.
    world.ages.observed(world.heartbeats, 25.0)
    assert world.lifecycle.judge(25.0) is ZoneChange.ALL_LOST
    world.speak(["n0"])
    world.ages.observed(world.heartbeats, 30.0)
    assert world.lifecycle.judge(30.0) is ZoneChange.FOUND_AGAIN
    for now in (30.0, 35.0, 40.0, 45.0, 50.0):
        world.speak(["n0"])
        world.ages.observed(world.heartbeats, now)
        world.lifecycle.judge(now)
        assert world.lifecycle.edits_of_nodes(now, now) == []
    world.ages.observed(world.heartbeats, 55.0)
    world.lifecycle.judge(55.0)
    assert {edit.name for edit in world.lifecycle.edits_of_nodes(55.0, 55.0)} == {"n1", "n2", "n3"}


def a_repair(world: MemoryWorld, name: str) -> Node:
    """The node with a taint that nobody tolerates."""
    node = world.node(name)
    node.spec.taints.add(key="repair", effect="NoExecute").time_added.seconds = world.wall
    world.put(KEYS.object_key(NODE, "", name), Object(node=node))
    return node


@pytest.mark.parametrize("repaired", [True, False])
def test_a_pod_whose_node_changes_while_its_eviction_is_decided_is_judged_by_the_new_one(repaired: bool) -> None:
    world = a_world()
    world.add_pod("web", "n0")
    node = a_repair(world, "n0")

    def changed() -> None:
        node.metadata.labels["changed"] = "yes"
        if repaired:
            del node.spec.taints[:]
        world.put(KEYS.object_key(NODE, "", "n0"), Object(node=node))

    world.pass_second(meanwhile=changed)
    assert world.pod("web") is not None
    live(world, 10, set())
    assert (world.pod("web") is not None) is repaired


def test_a_toleration_that_a_running_pod_is_given_counts() -> None:
    world = a_world()
    for name in ("plain", "given"):
        world.add_pod(name, "n0")
    pod = world.pod("given")
    assert pod is not None
    pod.spec.tolerations.add(key="repair", operator="Exists")
    world.put(world.pod_key("given"), Object(pod=pod))
    a_repair(world, "n0")
    live(world, 2, set())
    assert world.pod("plain") is None
    assert world.pod("given") is not None


def test_a_pod_that_comes_to_a_tainted_node_is_evicted_as_well() -> None:
    world = a_world()
    a_repair(world, "n0")
    live(world, 10, set())
    world.add_pod("web", "n0")
    live(world, 1, set())
    assert world.pod("web") is None


def test_an_ended_pod_whose_node_returns_while_its_removal_is_decided_stays() -> None:
    world = a_world()
    world.add_pod("web", "n0")
    pod = world.pod("web")
    assert pod is not None
    pod.status.phase = "Succeeded"
    world.put(world.pod_key("web"), Object(pod=pod))
    key, node = KEYS.object_key(NODE, "", "n0"), Object(node=world.node("n0"))
    world.remove(key)
    for _ in range(40):
        world.pass_second()
    assert world.pod("web") is not None
    world.pass_second(meanwhile=lambda: world.put(key, node))
    assert world.pod("web") is not None


def test_a_pod_whose_node_returns_while_its_fate_is_decided_stays() -> None:
    world = a_world()
    world.add_pod("web", "n0", for_seconds(300))
    key, node = KEYS.object_key(NODE, "", "n0"), Object(node=world.node("n0"))
    world.remove(key)
    for _ in range(40):
        world.pass_second()
    pod = world.pod("web")
    assert pod is not None
    assert pod.status.phase == "Running"
    world.pass_second(meanwhile=lambda: world.put(key, node))
    live(world, 10, set())
    pod = world.pod("web")
    assert pod is not None
    assert pod.status.phase == "Running"


def test_nodes_that_are_excluded_do_not_count_for_their_zone() -> None:
    world = a_world(0)
    for number in range(4):
        world.add_node(f"x{number}", "a", exclude_disruption="")
    for number in range(4):
        world.add_node(f"n{number}", "ab"[number % 2])
    live(world, GRACE + 2 * PERIOD, {"x0", "x1", "x2", "x3"})
    assert all(world.taints(f"x{number}") == LOST for number in range(4))


def test_more_pods_than_one_answer_holds_are_all_evicted() -> None:
    world = a_world()
    count = PODS_AT_ONCE_MAX + 20
    for number in range(count):
        world.add_pod(f"p{number}", "n0")
    live(world, GRACE + PERIOD + 3, {"n0"})
    assert not any(world.pod(f"p{number}") for number in range(count))


def test_an_object_that_cannot_be_read_is_set_aside_and_stops_nothing() -> None:
    world = a_world()
    world.add_pod("web", "n0")
    for number, key in enumerate((KEYS.object_key(NODE, "", "poison"), world.pod_key("poison"))):
        world.view.deliver(Changed((Entry(key, b"\xff\xff", 900 + number, 900 + number),), 900 + number))
    live(world, GRACE + PERIOD + 2, {"n0"})
    assert world.pod("web") is None


def test_pods_of_a_node_that_is_gone_go_after_the_quarantine_and_stay_when_it_returns_in_time() -> None:
    world = a_world()
    world.add_pod("web", "n0", for_seconds(300), grace=600)
    key = KEYS.object_key(NODE, "", "n0")
    node = world.node("n0")
    for returns in (True, False):
        world.remove(key)
        world.pass_second()
        for _ in range(38):
            world.pass_second()
        assert world.pod("web") is not None
        if returns:
            world.put(key, Object(node=node))
            world.pass_second()
    live(world, 5, {"n0", "n1", "n2", "n3"})
    assert world.pod("web") is None


def test_what_is_ending_on_a_node_that_is_out_of_service_need_not_be_waited_for() -> None:
    world = a_world()
    world.add_pod("web", "n0", for_seconds(5), grace=600)
    live(world, GRACE + PERIOD + 10, {"n0"})
    pod = world.pod("web")
    assert pod is not None
    assert pod.metadata.HasField("deletion_timestamp")
    node = world.node("n0")
    node.spec.taints.add(key="node.kubernetes.io/out-of-service", effect="NoExecute")
    world.put(KEYS.object_key(NODE, "", "n0"), Object(node=node))
    live(world, 1, {"n0"})
    assert world.pod("web") is None


def test_of_too_many_pods_that_have_ended_the_evicted_go_first_and_then_the_oldest() -> None:
    world = a_world(options=replace(FAST, terminated_pod_gc_threshold=3))
    for number in range(4):
        world.add_pod(f"old-{number}", "n0")
        live(world, 1, set())
    for name in ("evicted", "new", "runs"):
        world.add_pod(name, "n1" if name != "new" else "")
    for name in ("old-2", "old-1", "new"):
        world.end_pod(name)
    live(world, 3, set())
    assert len(world.pods()) == 7, "as many as are kept"
    world.end_pod("old-0", "Failed")
    live(world, 1, set())
    assert world.pod("old-0") is None
    world.end_pod("evicted", "Failed", "Evicted")
    live(world, 1, set())
    assert world.pod("evicted") is None
    world.change_leader()
    world.end_pod("old-3")
    live(world, 1, set())
    assert [pod.metadata.name for pod in world.pods()] == ["new", "old-2", "old-3", "runs"]


def test_a_removal_of_one_too_many_that_is_refused_is_decided_again() -> None:
    world = a_world(options=replace(FAST, terminated_pod_gc_threshold=1))
    for name in ("a", "b"):
        world.add_pod(name, "n0")
        world.end_pod(name)

    now = float(world.now)
    (first,) = world.lifecycle.ends_of_pods(now)
    assert first.facts.key == world.pod_key("a")
    assert world.lifecycle.ends_of_pods(now) == [], "it is under way"
    world.lifecycle.not_done(first.facts.key, "n0")
    assert world.lifecycle.ends_of_pods(now) == [first]


def test_all_that_have_ended_are_kept_where_the_threshold_is_0() -> None:
    world = a_world(options=replace(FAST, terminated_pod_gc_threshold=0))
    for number in range(20):
        world.add_pod(f"p{number}", "n0")
        world.end_pod(f"p{number}")
    live(world, 5, set())
    assert len(world.pods()) == 20


def test_pods_that_end_are_looked_at_when_they_change_and_when_their_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    world, looked = a_world(), list[Circumstances]()

    def seen(pod: Circumstances, settings: NodeSettings, now: float) -> Fate:
        looked.append(pod)
        return fate_of(pod, settings, now)

    monkeypatch.setattr(node_lifecycle, "fate_of", seen)
    for number in range(100):
        world.add_pod(f"p{number}", f"n{number % 4}", grace=600)
        world.delete_pod(f"p{number}", 60 + number)
    live(world, 1, set())
    assert len(looked) == 100
    live(world, 60 + int(FAST.termination_margin) - 1, set())
    assert len(looked) == 100
    live(world, 10, set())
    assert len(looked) <= 100 + 2 * 11 and len(world.pods()) == 100 - 10


AHEAD = [0, -1, -51, -100_000, 30, 100_000]
"""Seconds by which the clock of whoever wrote a time is ahead of the leader's."""
LEADERS = [("stays", 0), ("stood by", PERIOD), ("is new", 7)]
"""Who leads after 7 s, and by how much later it may come to the end of a time."""


def lead_on(world: MemoryWorld, leader: str) -> None:
    """Who leads reads all anew."""
    if leader == "stays":
        entries = tuple(sorted(world.entries.values(), key=lambda entry: entry.key))
        world.view.deliver(ListedAll(entries, world.revision))
    else:
        world.change_leader(stood_by=leader == "stood by")


@pytest.mark.parametrize("ahead", AHEAD)
@pytest.mark.parametrize(("leader", "later"), LEADERS)
def test_grace_is_as_long_whatever_the_clock_says_of_who_wrote_the_deletion(ahead: int, leader: str, later: int) -> None:
    """Grace of 30 s and a margin of 20."""
    world = a_world(options=replace(FAST, termination_margin=20))
    world.add_pod("web", "n0", grace=30)
    live(world, 2, set())
    world.delete_pod("web", 30, ahead)
    live(world, 7, set())
    # That it changes begins nothing anew for who sees it change.
    if leader == "stays":
        world.end_pod("web", "Running")
    lead_on(world, leader)
    seconds = 7
    while world.pod("web") is not None and seconds < 200:
        live(world, 1, set())
        seconds += 1
    # The deletion is seen at the first look after it.
    assert 50 <= seconds <= 50 + 1 + later


@pytest.mark.parametrize("ahead", AHEAD)
@pytest.mark.parametrize(("leader", "later"), LEADERS)
def test_a_toleration_is_as_long_whatever_the_clock_says_of_who_set_the_taint(ahead: int, leader: str, later: int) -> None:
    world = a_world()
    world.add_pod("web", "n0", [Toleration(key="repair", operator="Exists", toleration_seconds=30)], grace=600)
    live(world, 200, set())
    node = world.node("n0")
    node.spec.taints.add(key="repair", effect="NoExecute").time_added.seconds = world.wall + ahead
    world.put(KEYS.object_key(NODE, "", "n0"), Object(node=node))
    live(world, 7, set())
    lead_on(world, leader)
    live(world, 1, set())
    # A change of something else begins nothing anew.
    node = world.node("n0")
    node.metadata.labels["changed"] = ""
    world.put(KEYS.object_key(NODE, "", "n0"), Object(node=node))
    seconds = 8
    while (pod := world.pod("web")) is not None and not pod.metadata.HasField("deletion_timestamp") and seconds < 200:
        live(world, 1, set())
        seconds += 1
    assert 30 <= seconds <= 30 + 1 + later


@pytest.mark.parametrize("tolerated", [30, 3 * int(SPAN_SECONDS)])
@pytest.mark.parametrize("leader", ["stays", "stood by"])
def test_a_pod_that_comes_to_a_tainted_node_has_its_whole_toleration(leader: str, tolerated: int) -> None:
    """Also one that is longer than revisions are remembered for."""
    world = a_world()
    node = world.node("n0")
    node.spec.taints.add(key="repair", effect="NoExecute").time_added.seconds = world.wall
    world.put(KEYS.object_key(NODE, "", "n0"), Object(node=node))
    live(world, 20, set())
    world.add_pod("web", "n0", [Toleration(key="repair", operator="Exists", toleration_seconds=tolerated)], grace=600)
    live(world, 7, set())
    lead_on(world, leader)
    seconds = 7
    while (pod := world.pod("web")) is not None and not pod.metadata.HasField("deletion_timestamp"):
        live(world, 1, set())
        seconds += 1
        assert seconds <= tolerated + 1 + PERIOD
    assert seconds >= tolerated


def test_of_another_history_of_the_store_nothing_is_older_than_its_list() -> None:
    world = a_world()
    world.add_pod("web", "n0", [Toleration(key="repair", operator="Exists", toleration_seconds=30)], grace=600)
    a_repair(world, "n0")
    live(world, 20, set())
    # The pod comes later than the taint, in a history of lower revisions.
    world.revision = 1
    entries = tuple(entry._replace(mod_revision=1) for _, entry in sorted(world.entries.items()))
    world.entries = {entry.key: entry for entry in entries}
    world.view.deliver(ListedAll(entries, 1))
    live(world, 28, set())
    pod = world.pod("web")
    assert pod is not None and not pod.metadata.HasField("deletion_timestamp")
    live(world, 3, set())
    pod = world.pod("web")
    assert pod is not None and pod.metadata.HasField("deletion_timestamp")


def test_a_deletion_that_is_shortened_is_over_at_the_earliest_when_it_was() -> None:
    world = a_world(options=replace(FAST, termination_margin=20))
    world.add_pod("web", "n0", grace=600)
    world.delete_pod("web", 600, ahead=-10_000)
    live(world, 10, set())
    world.delete_pod("web", 5, ahead=-10_000)
    # It was over 5 s ago, so now; from then on the margin counts.
    live(world, 19, set())
    assert world.pod("web") is not None
    live(world, 2, set())
    assert world.pod("web") is None


def test_a_pod_that_has_the_name_of_one_that_was_ending_has_its_own_time() -> None:
    world = a_world(options=replace(FAST, termination_margin=20))
    world.add_pod("web", "n0", grace=30)
    world.delete_pod("web", 30)
    live(world, 49, set())
    world.remove(world.pod_key("web"))
    world.add_pod("web", "n0", grace=30)
    pod = world.pod("web")
    assert pod is not None
    pod.metadata.uid = "another"
    world.put(world.pod_key("web"), Object(pod=pod))
    live(world, 30, set())
    pod = world.pod("web")
    assert pod is not None
    world.delete_pod("web", 30)
    live(world, 49, set())
    assert world.pod("web") is not None
    live(world, 2, set())
    assert world.pod("web") is None


OPERATIONS = ["add", "add unbound", "end", "evict", "delete", "wait", "out of service", "lead"]


@given(steps=st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 5)), max_size=40), kept=st.integers(0, 4))
@example([("add", 0), ("delete", 2), ("lead", 0), ("add", 0), ("end", 0)], 0)
@example([("add", 0), ("delete", 2), ("delete", 1), ("add", 0), ("add", 0)], 0)
@settings(deadline=None)
def test_whatever_happens_those_are_removed_that_a_look_at_all_of_them_would_find(
    steps: list[tuple[str, int]], kept: int
) -> None:
    options = replace(FAST, terminated_pod_gc_threshold=kept, termination_margin=2)
    world = a_world(options=options)
    # Of pods that are ending, as the present leader saw it: since when, and until when.
    asked, ends = dict[str, int](), dict[str, int]()
    for number, (what, n) in enumerate(steps):
        look = world.now + 1
        names = [pod.metadata.name for pod in world.pods()]
        match what:
            case "add" | "add unbound":
                world.add_pod(f"p{number}", "" if what == "add unbound" else f"n{n % 4}", for_seconds(None))
            case "end" | "evict" if names:
                world.end_pod(names[n % len(names)], "Failed", "Evicted" if what == "evict" else "")
            case "delete" if names:
                name = names[n % len(names)]
                world.delete_pod(name, n)
                ends[name] = max(look, asked.setdefault(name, look) + n)
            case "out of service":
                node = world.node(f"n{n % 4}")
                node.status.conditions[0].status = "False"
                node.spec.taints.add(key="node.kubernetes.io/out-of-service", effect="NoSchedule")
                world.put(KEYS.object_key(NODE, "", f"n{n % 4}"), Object(node=node))
            case "lead":
                world.change_leader()
                for pod in world.pods():
                    if pod.metadata.HasField("deletion_timestamp"):
                        asked[pod.metadata.name] = look
                        ends[pod.metadata.name] = look + pod.metadata.deletion_grace_period_seconds
        ended = [pod for pod in world.pods() if pod.status.phase in ("Succeeded", "Failed")]
        ended.sort(key=lambda pod: (pod.status.reason != "Evicted", pod.metadata.creation_timestamp.seconds, pod.metadata.name))
        too_many = [pod.metadata.name for pod in ended[: max(0, len(ended) - kept)]] if kept else []
        expected = set[str]()
        for pod in world.pods():
            circumstances = Circumstances(
                bool(pod.spec.node_name),
                pod in ended,
                ends.get(pod.metadata.name),
                node_out_of_service=bool(pod.spec.node_name) and is_out_of_service(world.node(pod.spec.node_name)),
                too_many=pod.metadata.name in too_many,
            )
            if fate_of(circumstances, options, look) is Fate.STAY:
                expected.add(pod.metadata.name)
        world.pass_second()
        assert {pod.metadata.name for pod in world.pods()} == expected, (number, what)


steps = st.lists(st.tuples(st.sampled_from(["speak", "silence", "lead", "wait"]), st.integers(1, 25)), max_size=12)


@given(steps=steps, tolerated=st.integers(0, 40))
@settings(max_examples=60)
def test_whatever_happens_a_pod_is_evicted_only_from_a_node_silent_for_grace_and_tolerance_and_then_it_is(
    steps: list[tuple[str, int]], tolerated: int
) -> None:
    """Against the agent's own memory of when it last spoke. Leaders change at any time."""
    world = a_world(6)
    world.add_pod("web", "n0", for_seconds(tolerated))
    silent = False
    for what, seconds in [*steps, ("wait", 1)]:
        if what == "lead":
            world.change_leader()
        elif what != "wait":
            silent = what == "silence"
        for _ in range(seconds):
            live(world, 1, {"n0"} if silent else set())
            quiet = world.now - world.last_spoke["n0"]
            if world.pod("web") is None:
                assert quiet >= GRACE + tolerated
                return
            # Two readings more than the grace, two seconds for writes that follow one another, and one that times are cut off by.
            watched = min(quiet, world.now - world.leader_since)
            assert watched <= GRACE + 2 * PERIOD + tolerated + 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"node_eviction_rate": -1}, "--node-eviction-rate -1: allowed are numbers from 0 on"),
        ({"termination_margin": float("nan")}, "--termination-margin nan: allowed are numbers from 0 on"),
        ({"node_monitor_period": 0.01}, "--node-monitor-period 0.01: allowed are 0.05 s and more"),
        (
            {"node_monitor_grace_period": 9},
            "--node-monitor-grace-period 9: allowed is twice --node-monitor-period (5) and more",
        ),
        ({"unhealthy_zone_threshold": 1.5}, "--unhealthy-zone-threshold 1.5: allowed are 0 to 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused_with_their_flag(changes: dict[str, float], message: str) -> None:
    with pytest.raises(NodeSettingsError) as caught:
        replace(NodeSettings(), **changes)  # type: ignore[arg-type]
    assert str(caught.value) == message

"""Queueing hints: an answer SKIP is a promise that this occurrence does not change the plugin's mind about this pod."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from rayched.api.node_difference import node_difference
from rayched.framework import names
from rayched.framework.cluster_event import ASSIGNED_POD_DELETE, NODE_ADD, Action, ClusterEvent, Resource
from rayched.framework.plugin import FilterPlugin
from rayched.framework.plugin_args import NodeAffinityArgs, NodeResourcesFitArgs
from rayched.framework.queueing_hints import Hint, Registration
from rayched.framework.status import Code
from rayched.plugins.in_tree import IN_TREE
from rayched.plugins.inter_pod_affinity import hints as inter_pod_affinity_hints
from rayched.plugins.node_affinity import NodeAffinity
from rayched.plugins.node_resources.fit import NodeResourcesFit
from rayched.plugins.pod_topology_spread import hints as pod_topology_spread_hints
from rayched.queue.changes import node_change_events, pod_change_events
from rayched.queue.hints import HintTable, registrations_of
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import Namespace, Node, Pod, Service, TopologySpreadConstraint
from rayched.v1.core_pb2 import NodeAffinity as NodeAffinityTerms
from tests.plugins.builders import PodBuilder, a_node, a_pod, a_term
from tests.plugins.clusters import World, random_node
from tests.plugins.random_worlds import seeds, world_of
from tests.sampling import part_of

NODE_LOCAL = (
    names.NODE_UNSCHEDULABLE,
    names.NODE_NAME,
    names.TAINT_TOLERATION,
    names.NODE_AFFINITY,
    names.NODE_PORTS,
    names.NODE_RESOURCES_FIT,
)


def answers(registrations: Sequence[Registration], event: ClusterEvent, pod: Pod, old: Any, new: Any) -> set[Hint]:
    """What a queue with this one plugin would hear of the event."""
    table = HintTable({"s": {"P": registrations}})
    return {Hint.QUEUE if hint is None else hint(pod, old, new) for _, hint in table.asked("s", event, frozenset({"P"}))}


def may_be_rejected(plugin: FilterPlugin, pods: Sequence[Pod]) -> list[tuple[int, Pod]]:
    """Those that the plugin does not skip; it will never be asked about the others."""
    return [(i, pod) for i, pod in enumerate(pods) if plugin.key(pod) is not None]


def passes(plugin: FilterPlugin, pod: Pod, world: World, node: str) -> bool:
    row = world.snapshot.row_of(node)
    if row is None:
        return False
    codes = plugin.filter(plugin.prepare(pod), Rows(world.snapshot, np.array([row], np.intp)))
    return codes is None or codes[0] == Code.SUCCESS


def changed_node(world: World) -> tuple[str, Node | None, Node]:
    """A node that comes, or one whose labels, taints, cordon or room change, several of them at times."""
    random = world.random
    drawn = random_node(random, "new")
    if not world.naive.nodes or random.random() < 0.2:
        world.snapshot.add_node(drawn)
        world.naive.add_node(drawn)
        return "new", None, drawn
    name = random.choice(sorted(world.naive.nodes))
    old, node = world.naive.nodes[name], Node()
    node.CopyFrom(old)
    if random.random() < 0.5:
        node.metadata.labels.clear()
        node.metadata.labels.update(drawn.metadata.labels)
    if random.random() < 0.5:
        del node.spec.taints[:]
        node.spec.taints.extend(drawn.spec.taints)
    if random.random() < 0.5:
        node.spec.unschedulable = not node.spec.unschedulable
    if random.random() < 0.5:
        node.status.allocatable.clear()
        node.status.allocatable.MergeFrom(drawn.status.allocatable)
    world.snapshot.update_node(node)
    world.naive.nodes[name] = node
    return name, old, node


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.row("Q53", "D1")
@given(seed=seeds)
@settings(max_examples=part_of(80), deadline=None, derandomize=True)
def test_no_change_of_a_node_that_makes_a_filter_pass_is_skipped(seed: int) -> None:
    world, profile = world_of(seed)
    plugins = [plugin for plugin in profile.filter if plugin.name in NODE_LOCAL]
    pods = [template.pod for _, template in (world.incoming() for _ in range(6))]
    for _ in range(6):
        before = {name: world.naive.nodes[name] for name in world.naive.nodes}
        passed = {
            (p.name, i, n): passes(p, pod, world, n) for p in plugins for i, pod in may_be_rejected(p, pods) for n in before
        }
        name, old, new = changed_node(world)
        events = (NODE_ADD,) if old is None else node_change_events(node_difference(old, new))
        for plugin in plugins:
            for i, pod in may_be_rejected(plugin, pods):
                if passes(plugin, pod, world, name) and not passed.get((plugin.name, i, name), False):
                    heard = set[Hint]().union(*(answers(registrations_of(plugin), e, pod, old, new) for e in events))
                    assert Hint.QUEUE in heard, f"seed {seed}: {plugin.name} would pass {name} after {events}"


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.row("Q53", "Q56")
@given(seed=seeds)
@settings(max_examples=part_of(80), deadline=None, derandomize=True)
def test_no_departure_and_no_shrinking_of_a_pod_that_makes_a_filter_pass_is_skipped(seed: int) -> None:
    world, profile = world_of(seed)
    plugins = [plugin for plugin in profile.filter if plugin.name in NODE_LOCAL]
    pods = [template.pod for _, template in (world.incoming() for _ in range(6))]
    for uid in sorted(world.naive.pods)[:8]:
        other, name = world.naive.pods[uid]
        passed = {(p.name, i): passes(p, pod, world, name) for p in plugins for i, pod in may_be_rejected(p, pods)}
        old, new = on(other, name), None
        world.snapshot.unbind(uid)
        events: tuple[ClusterEvent, ...] = (ASSIGNED_POD_DELETE,)
        if world.random.random() < 0.5:
            smaller = shrunken(world.random, other)
            new = on(smaller, name)
            world.snapshot.bind(uid, world.templates.intern(smaller), name)
            events = pod_change_events(old, new)
        for plugin in plugins:
            for i, pod in may_be_rejected(plugin, pods):
                if passes(plugin, pod, world, name) and not passed[plugin.name, i]:
                    heard = set[Hint]().union(*(answers(registrations_of(plugin), e, pod, old, new) for e in events))
                    assert Hint.QUEUE in heard, f"seed {seed}: {plugin.name} would pass {name} after {events}"


def on(pod: Pod, node: str) -> Pod:
    there = Pod()
    there.CopyFrom(pod)
    there.spec.node_name = node
    return there


def shrunken(random: Random, pod: Pod) -> Pod:
    """Asks for less of one thing; host ports and all else stay."""
    smaller = Pod()
    smaller.CopyFrom(pod)
    container = random.choice(smaller.spec.containers)
    if container.resources.requests:
        container.resources.requests[random.choice(sorted(container.resources.requests))].string = "0"
    return smaller


# --------------------------------------------------------------------------------------- what templates leave of a pod


def a_template(pod: PodBuilder) -> Pod:
    found = pod.pod
    found.metadata.ClearField("name")
    found.metadata.ClearField("uid")
    return found


TOLERATIONS = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_TOLERATION)
LAST_GATE = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
SMALLER = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
SMALLER_ITSELF = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_SCALE_DOWN)


@pytest.mark.parametrize(
    ("plugin", "event"),
    [
        (names.TAINT_TOLERATION, TOLERATIONS),
        (names.NODE_UNSCHEDULABLE, TOLERATIONS),
        (names.SCHEDULING_GATES, LAST_GATE),
        (names.NODE_RESOURCES_FIT, SMALLER_ITSELF),
    ],
)
def test_a_pods_own_update_is_recognised_where_only_templates_are_known(plugin: str, event: ClusterEvent) -> None:
    new = a_template(a_pod().tolerating("node.kubernetes.io/unschedulable", operator="Exists"))
    assert answers(registrations_of(IN_TREE[plugin](None)), event, new, a_template(a_pod()), new) == {Hint.QUEUE}


def test_a_bound_pod_is_never_taken_for_the_pending_one() -> None:
    pod = a_template(a_pod().requesting(cpu="1"))
    larger, smaller = on(a_template(a_pod().requesting(memory="2Gi")), "n"), on(a_template(a_pod().requesting(memory="1Gi")), "n")
    registered = registrations_of(IN_TREE[names.NODE_RESOURCES_FIT](None))
    assert answers(registered, SMALLER, pod, larger, smaller) == {Hint.SKIP}
    wants_memory = a_template(a_pod().requesting(memory="1Gi"))
    assert answers(registered, SMALLER, wants_memory, larger, smaller) == {Hint.QUEUE}


# ------------------------------------------------------------------------------------------------------ single answers


@pytest.mark.parametrize(
    ("pod", "gone", "hint"),
    [
        (a_pod().on_host_port(80), a_pod().on_host_port(80), Hint.QUEUE),
        (a_pod().on_host_port(80), a_pod().on_host_port(81), Hint.SKIP),
        (a_pod().on_host_port(80, "10.0.0.1"), a_pod().on_host_port(80, "10.0.0.2"), Hint.SKIP),
        (a_pod().on_host_port(80, "10.0.0.1"), a_pod().on_host_port(80), Hint.QUEUE),
        (a_pod().on_host_port(80), a_pod().on_host_port(80, protocol="UDP"), Hint.SKIP),
    ],
)
def test_a_departure_helps_where_it_frees_a_port_that_is_wanted(pod: PodBuilder, gone: PodBuilder, hint: Hint) -> None:
    registered = registrations_of(IN_TREE[names.NODE_PORTS](None))
    assert answers(registered, ASSIGNED_POD_DELETE, pod.pod, on(gone.pod, "n"), None) == {hint}
    assert answers(registered, ASSIGNED_POD_DELETE, pod.pod, gone.pod, None) == {Hint.SKIP}, "it held no port anywhere"
    gone.pod.status.nominated_node_name = "n"
    assert answers(registered, ASSIGNED_POD_DELETE, pod.pod, gone.pod, None) == {hint}, "its port was held for it"


def test_a_node_that_added_affinity_kept_out_helps_when_it_is_let_in() -> None:
    added = NodeAffinityTerms()
    required = added.required_during_scheduling_ignored_during_execution
    required.node_selector_terms.append(a_term(("pool", "In", ("batch",))))
    registered = registrations_of(NodeAffinity(NodeAffinityArgs(added)))
    event = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
    old, new = a_node("n").node, a_node("n").labelled(pool="batch").node
    assert answers(registered, event, a_pod().pod, old, new) == {Hint.QUEUE}
    assert answers(registered, event, a_pod().pod, new, old) == {Hint.SKIP}


def test_resources_that_a_profile_ignores_keep_no_node_from_helping() -> None:
    registered = registrations_of(NodeResourcesFit(NodeResourcesFitArgs(ignored_resources=("example.com/foo",))))
    pod = a_pod().requesting_of({"cpu": "2", "example.com/foo": "1"}).pod
    assert answers(registered, NODE_ADD, pod, None, a_node("n").offering(cpu="4").node) == {Hint.QUEUE}
    assert answers(registered, NODE_ADD, pod, None, a_node("n").offering(cpu="1").node) == {Hint.SKIP}


# ----------------------------------------------------------------------------------------------------- pods and domains


def labelled(pod: Pod, **labels: str) -> Pod:
    pod.metadata.labels.update(labels)
    return pod


def needing(app: str, *, anti: bool = False, namespaces: Sequence[str] = (), selecting: dict[str, str] | None = None) -> Pod:
    pod = a_pod().pod
    affinity = pod.spec.affinity.pod_anti_affinity if anti else pod.spec.affinity.pod_affinity
    term = affinity.required_during_scheduling_ignored_during_execution.add(topology_key="zone", namespaces=namespaces)
    term.label_selector.match_labels["app"] = app
    if selecting is not None:
        term.namespace_selector.SetInParent()
        term.namespace_selector.match_labels.update(selecting)
    return pod


def bound(app: str, namespace: str = "default") -> Pod:
    pod = on(labelled(a_pod().pod, app=app), "n")
    pod.metadata.namespace = namespace
    return pod


ASSIGNED_ADD = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)


@pytest.mark.row("Q55", "D13")
@pytest.mark.parametrize(
    ("pod", "assigned", "hint"),
    [
        (needing("db"), bound("db"), Hint.QUEUE),
        (needing("db"), bound("web"), Hint.SKIP),
        (needing("db"), bound("db", "other"), Hint.SKIP),
        (needing("db", namespaces=("other",)), bound("db", "other"), Hint.QUEUE),
        (needing("db", selecting={}), bound("db", "other"), Hint.QUEUE),
        (needing("db", anti=True), bound("db"), Hint.SKIP),
        (a_pod().pod, bound("db"), Hint.SKIP),
    ],
)
def test_a_pod_that_comes_helps_those_whose_affinity_it_meets(pod: Pod, assigned: Pod, hint: Hint) -> None:
    assert answers(inter_pod_affinity_hints.registrations(), ASSIGNED_ADD, pod, None, assigned) == {hint}


@pytest.mark.parametrize(("pod", "hint"), [(needing("db", anti=True), Hint.QUEUE), (needing("db"), Hint.SKIP)])
def test_a_pod_that_goes_helps_those_that_keep_away_from_it(pod: Pod, hint: Hint) -> None:
    assert answers(inter_pod_affinity_hints.registrations(), ASSIGNED_POD_DELETE, pod, bound("db"), None) == {hint}


@pytest.mark.parametrize(
    ("pod", "old", "new", "hint"),
    [
        (needing("db"), bound("web"), bound("db"), Hint.QUEUE),
        (needing("db"), bound("db"), labelled(bound("db"), other="new"), Hint.SKIP),
        (needing("db"), bound("db"), bound("web"), Hint.SKIP),
        (needing("db", anti=True), bound("db"), bound("web"), Hint.QUEUE),
        (needing("db", anti=True), bound("db"), labelled(bound("db"), other="new"), Hint.SKIP),
        (needing("db", anti=True), bound("web"), bound("db"), Hint.SKIP),
    ],
)
def test_new_labels_of_a_pod_help_where_they_make_a_difference_to_a_term(pod: Pod, old: Pod, new: Pod, hint: Hint) -> None:
    relabelled = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)
    assert answers(inter_pod_affinity_hints.registrations(), relabelled, pod, old, new) == {hint}


@pytest.mark.parametrize(
    ("pod", "hint"), [(needing("db", selecting={"team": "a"}), Hint.QUEUE), (needing("db"), Hint.SKIP), (a_pod().pod, Hint.SKIP)]
)
def test_labels_of_namespaces_help_those_who_select_by_them(pod: Pod, hint: Hint) -> None:
    event = ClusterEvent(Resource.NAMESPACE, Action.UPDATE)
    assert answers(inter_pod_affinity_hints.registrations(), event, pod, Namespace(), Namespace()) == {hint}


def spread(when: str = "DoNotSchedule", match_label_keys: Sequence[str] = ()) -> TopologySpreadConstraint:
    constraint = TopologySpreadConstraint(
        max_skew=1, topology_key="zone", when_unsatisfiable=when, match_label_keys=match_label_keys
    )
    constraint.label_selector.match_labels["app"] = "web"
    return constraint


def spreading(constraint: TopologySpreadConstraint) -> Pod:
    pod = labelled(a_pod().pod, app="web", version="1")
    pod.spec.topology_spread_constraints.append(constraint)
    return pod


@pytest.mark.parametrize(
    ("pod", "assigned", "hint"),
    [
        (spreading(spread()), bound("web"), Hint.QUEUE),
        (spreading(spread()), bound("db"), Hint.SKIP),
        (spreading(spread()), bound("web", "other"), Hint.SKIP),
        (spreading(spread("ScheduleAnyway")), bound("web"), Hint.SKIP),
        (spreading(spread(match_label_keys=("version",))), bound("web"), Hint.SKIP),
        (spreading(spread(match_label_keys=("version",))), labelled(bound("web"), version="1"), Hint.QUEUE),
    ],
)
def test_a_pod_that_is_counted_helps_those_that_spread(pod: Pod, assigned: Pod, hint: Hint) -> None:
    registered = pod_topology_spread_hints.registrations(())
    assert answers(registered, ASSIGNED_ADD, pod, None, assigned) == {hint}
    assert answers(registered, ASSIGNED_POD_DELETE, pod, assigned, None) == {hint}


def test_hard_default_constraints_make_every_pod_and_service_of_the_namespace_count() -> None:
    registered = pod_topology_spread_hints.registrations((spread(), spread("ScheduleAnyway")))
    plain = a_pod().pod
    service: Callable[[str], Service] = lambda namespace: Service(metadata={"namespace": namespace})  # noqa: E731
    gone = ClusterEvent(Resource.SERVICE, Action.DELETE)
    assert answers(registered, ASSIGNED_ADD, plain, None, bound("anything")) == {Hint.QUEUE}
    assert answers(registered, gone, plain, service("default"), None) == {Hint.QUEUE}
    assert answers(registered, gone, plain, service("other"), None) == {Hint.SKIP}
    assert answers(registered, gone, spreading(spread()), service("default"), None) == {Hint.SKIP}
    assert answers(pod_topology_spread_hints.registrations((spread("ScheduleAnyway"),)), gone, plain, None, None) == set()


NODE_LABELS = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
NODE_TAINTS = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
NODE_GONE = ClusterEvent(Resource.NODE, Action.DELETE)
NO_KEY, IN_A, IN_B = a_node("n").node, a_node("n").labelled(zone="a").node, a_node("n").labelled(zone="b").node
TAINTED_IN_A = a_node("n").labelled(zone="a").with_taint("gpu").node
LABELLED_IN_A = a_node("n").labelled(zone="a", disktype="ssd").node


@pytest.mark.parametrize(
    ("event", "old", "new", "hint"),
    [
        (NODE_ADD, None, IN_A, Hint.QUEUE),
        (NODE_ADD, None, NO_KEY, Hint.SKIP),
        (NODE_GONE, IN_A, None, Hint.QUEUE),
        (NODE_GONE, NO_KEY, None, Hint.SKIP),
        (NODE_LABELS, NO_KEY, IN_A, Hint.QUEUE),
        (NODE_LABELS, IN_A, NO_KEY, Hint.QUEUE),
        (NODE_LABELS, IN_A, IN_B, Hint.QUEUE),
        (NODE_LABELS, IN_A, LABELLED_IN_A, Hint.SKIP),
        (NODE_TAINTS, TAINTED_IN_A, IN_A, Hint.QUEUE),
        (NODE_TAINTS, a_node("n").with_taint("gpu").node, NO_KEY, Hint.SKIP),
    ],
)
def test_a_node_helps_those_that_spread_where_it_changes_their_domains(
    event: ClusterEvent, old: Node | None, new: Node | None, hint: Hint
) -> None:
    assert answers(pod_topology_spread_hints.registrations(()), event, spreading(spread()), old, new) == {hint}


@pytest.mark.parametrize(
    ("pod", "event", "old", "new", "hint"),
    [
        (needing("db"), NODE_ADD, None, IN_A, Hint.QUEUE),
        (needing("db"), NODE_ADD, None, NO_KEY, Hint.SKIP),
        (needing("db"), NODE_LABELS, NO_KEY, IN_A, Hint.QUEUE),
        (needing("db"), NODE_LABELS, IN_A, IN_B, Hint.QUEUE),
        (needing("db"), NODE_LABELS, IN_A, NO_KEY, Hint.SKIP),
        (needing("db", anti=True), NODE_ADD, None, NO_KEY, Hint.QUEUE),
        (needing("db", anti=True), NODE_LABELS, IN_A, NO_KEY, Hint.QUEUE),
        (needing("db", anti=True), NODE_LABELS, IN_A, IN_B, Hint.QUEUE),
        (needing("db", anti=True), NODE_LABELS, NO_KEY, IN_A, Hint.SKIP),
        (needing("db", anti=True), NODE_LABELS, IN_A, LABELLED_IN_A, Hint.SKIP),
    ],
)
def test_a_node_helps_those_with_affinity_where_it_changes_their_domains(
    pod: Pod, event: ClusterEvent, old: Node | None, new: Node, hint: Hint
) -> None:
    assert answers(inter_pod_affinity_hints.registrations(), event, pod, old, new) == {hint}

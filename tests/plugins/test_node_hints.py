"""Hints of the plugins that look at one node: they say QUEUE where the node would pass now and did not before, and else SKIP."""

from __future__ import annotations

from random import Random

import pytest

from rayched.framework import names
from rayched.framework.cluster_event import ASSIGNED_POD_DELETE, NODE_ADD, Action, ClusterEvent, Resource
from rayched.framework.plugin import FilterPlugin
from rayched.framework.queueing_hints import Hint, PreparedHint
from rayched.framework.status import Code
from rayched.plugins.in_tree import IN_TREE
from rayched.queue.hints import registrations_of
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.v1.core_pb2 import Node, Pod
from tests.plugins.builders import NodeBuilder, PodBuilder, a_node, a_pod
from tests.plugins.clusters import random_node, random_pod
from tests.plugins.test_hints import answers, on

QUEUE, SKIP = Hint.QUEUE, Hint.SKIP
NODE_EVENTS = {
    names.TAINT_TOLERATION: Action.UPDATE_NODE_TAINT,
    names.NODE_UNSCHEDULABLE: Action.UPDATE_NODE_TAINT,
    names.NODE_AFFINITY: Action.UPDATE_NODE_LABEL,
}


def passes(plugin: FilterPlugin, pod: Pod, node: Node) -> bool:
    snapshot = Snapshot()
    snapshot.add_node(node)
    codes = plugin.filter(plugin.prepare(pod), Rows(snapshot, slice(0, 1)))
    return codes is None or int(codes[0]) == Code.SUCCESS


@pytest.mark.parametrize("name", NODE_EVENTS)
def test_a_node_helps_exactly_where_it_passes_and_did_not_before(name: str) -> None:
    plugin, said = IN_TREE[name](None), {QUEUE: 0, SKIP: 0}
    assert isinstance(plugin, FilterPlugin)
    registered = registrations_of(plugin)
    for seed in range(80):
        random = Random(f"{name} {seed}")
        new, old = random_node(random, "n3"), random_node(random, "n3") if random.random() < 0.8 else None
        event = NODE_ADD if old is None else ClusterEvent(Resource.NODE, NODE_EVENTS[name])
        for _ in range(6):
            pod = random_pod(random)
            if plugin.key(pod) is None:
                continue
            helps = passes(plugin, pod, new) and (old is None or not passes(plugin, pod, old))
            hint = QUEUE if helps else SKIP
            assert answers(registered, event, pod, old, new) == {hint}, seed
            said[hint] += 1
    assert min(said.values()) > 10


TOLERATIONS = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_TOLERATION)


def pending(uid: str, tolerates: str = "") -> Pod:
    pod = a_pod().pod
    pod.metadata.uid = uid
    if tolerates:
        pod.spec.tolerations.add(key=tolerates, operator="Exists")
    return pod


@pytest.mark.parametrize(
    ("name", "new", "hint"),
    [
        (names.TAINT_TOLERATION, pending("own", "gpu"), QUEUE),
        (names.TAINT_TOLERATION, pending("another", "gpu"), SKIP),
        (names.TAINT_TOLERATION, on(pending("own", "gpu"), "n"), SKIP),
        (names.NODE_UNSCHEDULABLE, pending("own", "node.kubernetes.io/unschedulable"), QUEUE),
        (names.NODE_UNSCHEDULABLE, pending("own", "gpu"), SKIP),
        (names.NODE_UNSCHEDULABLE, pending("another", "node.kubernetes.io/unschedulable"), SKIP),
        (names.NODE_UNSCHEDULABLE, on(pending("own", "node.kubernetes.io/unschedulable"), "n"), SKIP),
    ],
)
def test_tolerations_help_the_pod_that_got_them(name: str, new: Pod, hint: Hint) -> None:
    registered = registrations_of(IN_TREE[name](None))
    assert answers(registered, TOLERATIONS, pending("own"), pending("own"), new) == {hint}


@pytest.mark.parametrize("name", [names.TAINT_TOLERATION, names.NODE_UNSCHEDULABLE])
def test_tolerations_of_all_pods_that_have_a_node_look_the_same(name: str) -> None:
    """So each of them is asked about once."""
    (hint,) = [one.hint for one in registrations_of(IN_TREE[name](None)) if one.event.matches(TOLERATIONS)]
    assert isinstance(hint, PreparedHint)
    looks = [hint.look(on(pending(uid), "n"), on(pending(uid, "gpu"), "n")) for uid in "ab"]
    assert looks[0] == looks[1] != hint.look(pending("a"), pending("a", "gpu"))


# -------------------------------------------------------------------------------------------------------------- resources


def offering(cpu: str = "2", memory: str = "4Gi", pods: str = "10", **others: str) -> NodeBuilder:
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, **{f"a.com/{name}": amount for name, amount in others.items()}}
    return a_node("n").offering_of({name: amount for name, amount in amounts.items() if amount})


def wanting(cpu: str = "2", memory: str = "1Gi", **others: str) -> PodBuilder:
    amounts = {"cpu": cpu, "memory": memory, **{f"a.com/{name}": amount for name, amount in others.items()}}
    return a_pod().requesting_of({name: amount for name, amount in amounts.items() if amount})


@pytest.mark.parametrize(
    ("pod", "old", "new", "hint"),
    [
        (wanting(), None, offering(), QUEUE),
        (wanting(), None, offering(cpu="1999m"), SKIP),
        (wanting(), None, offering(memory="1Mi"), SKIP),
        (wanting(), None, offering(pods="0"), SKIP),
        (wanting(), None, offering(pods="1"), QUEUE),
        (wanting(), offering(cpu="1"), offering(), QUEUE),
        (wanting(), offering(), offering(), SKIP),
        (wanting(), offering(cpu="8"), offering(cpu="4"), SKIP),
        (wanting(), offering(memory="2Gi"), offering(), QUEUE),
        (wanting(), offering(memory="2Gi", cpu="1"), offering(cpu="1"), SKIP),
        (wanting(), offering(pods="9"), offering(), QUEUE),
        (wanting(), offering(), offering(gpu="1"), SKIP),
        (wanting(memory=""), offering(memory="2Gi"), offering(), SKIP),
        (wanting(gpu="1"), None, offering(), SKIP),
        (wanting(gpu="1"), offering(), offering(gpu="1"), QUEUE),
        (wanting(gpu="1"), offering(gpu="1"), offering(gpu="1"), SKIP),
        (wanting(gpu="1"), offering(gpu="2"), offering(), SKIP),
        (wanting(cpu="0", memory="0"), offering(cpu="1"), offering(), SKIP),
    ],
)
def test_a_node_gives_room_where_it_suffices_and_offers_more_of_what_is_asked_for(
    pod: PodBuilder, old: NodeBuilder | None, new: NodeBuilder, hint: Hint
) -> None:
    event = NODE_ADD if old is None else ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE)
    registered = registrations_of(IN_TREE[names.NODE_RESOURCES_FIT](None))
    assert answers(registered, event, pod.pod, None if old is None else old.node, new.node) == {hint}


SMALLER = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)


@pytest.mark.parametrize(
    ("pod", "old", "new", "hint"),
    [
        (wanting(), wanting(cpu="3"), wanting(), QUEUE),
        (wanting(), wanting(), wanting(), SKIP),
        (wanting(), wanting(), wanting(cpu="3"), SKIP),
        (wanting(), wanting(gpu="2"), wanting(gpu="1"), SKIP),
        (wanting(gpu="1"), wanting(gpu="1"), wanting(), QUEUE),
        (wanting(gpu="1"), wanting(), wanting(gpu="1"), SKIP),
        (wanting(memory=""), wanting(memory="2Gi"), wanting(), SKIP),
    ],
)
def test_a_bound_pod_gives_room_where_it_takes_less_of_what_is_asked_for(
    pod: PodBuilder, old: PodBuilder, new: PodBuilder, hint: Hint
) -> None:
    registered = registrations_of(IN_TREE[names.NODE_RESOURCES_FIT](None))
    assert answers(registered, SMALLER, pod.pod, on(old.pod, "n"), on(new.pod, "n")) == {hint}
    waiting = Pod()
    waiting.CopyFrom(new.pod)
    waiting.metadata.uid = "another"
    assert answers(registered, SMALLER, pod.pod, waiting, waiting) == {SKIP}, "that one waits, too"


def test_a_pod_that_goes_gives_room_where_it_had_some() -> None:
    registered = registrations_of(IN_TREE[names.NODE_RESOURCES_FIT](None))
    gone = a_pod().pod
    assert answers(registered, ASSIGNED_POD_DELETE, wanting().pod, on(gone, "n"), None) == {QUEUE}
    assert answers(registered, ASSIGNED_POD_DELETE, wanting().pod, gone, None) == {SKIP}
    gone.status.nominated_node_name = "n"
    assert answers(registered, ASSIGNED_POD_DELETE, wanting().pod, gone, None) == {QUEUE}

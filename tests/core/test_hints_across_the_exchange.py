"""Feed and queue over the exchange, with the hints of the in-tree plugins: a pod wakes when it can be helped, and not before."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from rayched.api import kinds
from rayched.api.stages import stage_of
from rayched.configuration.configuration import Configuration
from rayched.configuration.profile_building import build_profiles
from rayched.core.cache.records import CacheChange, KeptPod, NodeChanged, ObjectChanged, PodChanged, PodRecord
from rayched.core.exchange.messages import AttemptFailed, ExchangeRequest, LogEntry
from rayched.core.exchange.queue_core import QueueCore, queue_factory
from rayched.core.exchange.queue_events import QueueFeed, Told
from rayched.framework import names
from rayched.plugins.in_tree import IN_TREE
from rayched.queue.hints import HintTable
from rayched.queue.queued_pod import Place
from rayched.snapshot.templates import TemplateTable
from rayched.store.codec import encode
from rayched.v1.core_pb2 import Namespace, Pod
from tests.core.builders import a_node, a_pod, stored
from tests.core.model_store import ModelStore
from tests.core.replica import KEYS, Clock, Replica

PROFILES = build_profiles(Configuration(), IN_TREE).profiles


class Exchanged:
    """Feed and queue of the default profile, joined by messages alone. `waits_for` is rejected by one plugin."""

    def __init__(self, waiting: Pod, rejected_by: str) -> None:
        self._templates = TemplateTable()
        self._feed = QueueFeed(HintTable.of_profiles(PROFILES.values()), PROFILES.__contains__)
        self._core = QueueCore(queue_factory(Configuration(), PROFILES))
        self._position = itertools.count(1)
        self._ended = 0
        self.waiting = self.record(waiting)
        self.happens(PodChanged(None, self.waiting), want=1)
        self._exchange([(AttemptFailed(self.waiting.uid, self._ended, frozenset({rejected_by})), ())])
        assert self.place is Place.UNSCHEDULABLE

    def record(self, pod: Pod, node: str = "") -> PodRecord:
        there = Pod()
        there.CopyFrom(pod)
        there.spec.node_name = node
        uid, name = pod.metadata.uid, f"default/{pod.metadata.name}"
        template = self._templates.intern(there)
        kept = None if node else KeptPod(b"", 1, there.status.nominated_node_name)
        return PodRecord(uid, name, name.encode(), 1, 1, stage_of(there), node, template, "", kept)

    def nominated(self, name: str, node: str, *, priority: int = 0) -> PodRecord:
        pod = a_pod(name, priority=priority)
        pod.status.nominated_node_name = node
        return self.record(pod)

    def happens(self, change: CacheChange, want: int = 0) -> bool:
        """Whether the pod is worth another attempt now."""
        self._exchange(self._feed.told(change, 0.0), want)
        return self.place is not Place.UNSCHEDULABLE

    @property
    def place(self) -> Place:
        pod = self._core.queue.find(self.waiting.name)
        return Place.NOWHERE if pod is None else pod.place

    def _exchange(self, told: Iterable[Told], want: int = 0) -> None:
        entries: list[LogEntry] = []
        contents: dict[int, bytes] = {}
        for entry, templates in told:
            entries.append(entry)
            contents |= {template.id: template.content for template in templates}
        first = self._ended + 1
        self._ended += len(entries)
        self._core.exchange(ExchangeRequest(1, first, tuple(entries), 1.0, want, contents))


def needing(app: str) -> Pod:
    pod = a_pod("p")
    term = pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add(topology_key="zone")
    term.label_selector.match_labels["app"] = app
    term.namespace_selector.match_labels["team"] = "a"
    term.namespaces.append("default")
    return pod


@pytest.mark.row("Q55", "D13")
@pytest.mark.parametrize(("app", "helps"), [("db", True), ("web", False)])
def test_a_binding_wakes_the_pod_whose_affinity_it_meets_and_no_other(app: str, helps: bool) -> None:
    queue = Exchanged(needing("db"), names.INTER_POD_AFFINITY)
    other = a_pod("other", labels={"app": app})
    assert queue.happens(PodChanged(queue.record(other), queue.record(other, "n1"))) is helps


@pytest.mark.row("D11")
def test_labels_of_a_namespace_wake_pods_that_select_namespaces() -> None:
    queue = Exchanged(needing("db"), names.INTER_POD_AFFINITY)
    assert queue.happens(ObjectChanged("Namespace", None, Namespace()))


@pytest.mark.row("Q56")
@pytest.mark.parametrize(("plugin", "helps"), [(names.NODE_RESOURCES_FIT, True), (names.NODE_AFFINITY, False)])
def test_room_given_back_wakes_pods_that_lacked_room(plugin: str, helps: bool) -> None:
    for smaller in ("500m", None):
        queue = Exchanged(a_pod("p", cpu="2"), plugin)
        old = queue.record(a_pod("other", cpu="3"), "n1")
        new = queue.record(a_pod("other", cpu=smaller), "n1") if smaller is not None else None
        assert queue.happens(PodChanged(old, new)) is helps


def test_the_port_of_a_departing_pod_wakes_who_wants_it() -> None:
    for port, helps in ((80, True), (81, False)):
        wanting, holding = a_pod("p"), a_pod("other")
        wanting.spec.containers[0].ports.add(host_port=80)
        holding.spec.containers[0].ports.add(host_port=port)
        queue = Exchanged(wanting, names.NODE_PORTS)
        assert queue.happens(PodChanged(queue.record(holding, "n1"), None)) is helps


@pytest.mark.parametrize(("cpu", "helps"), [("8", True), ("1", False)])
def test_a_new_node_wakes_pods_that_fit_it(cpu: str, helps: bool) -> None:
    queue = Exchanged(a_pod("p", cpu="2"), names.NODE_RESOURCES_FIT)
    assert queue.happens(NodeChanged(None, a_node("n1", cpu=cpu))) is helps


def test_a_pods_own_new_toleration_wakes_it() -> None:
    queue = Exchanged(a_pod("p"), names.TAINT_TOLERATION)
    tolerant = a_pod("p")
    tolerant.spec.tolerations.add(key="gpu", operator="Exists")
    assert queue.happens(PodChanged(queue.waiting, queue.record(tolerant)))


@pytest.mark.parametrize(("priority", "helps"), [(5, True), (4, True), (3, False)])
def test_a_nominated_pod_that_goes_wakes_those_that_made_room_for_it(priority: int, helps: bool) -> None:
    """Pods of a higher priority did not reckon with it."""
    queue = Exchanged(a_pod("p", cpu="2", priority=4), names.NODE_RESOURCES_FIT)
    assert queue.happens(PodChanged(None, nominated := queue.nominated("preemptor", "n1", priority=priority))) is False
    assert queue.happens(PodChanged(nominated, None)) is helps


@pytest.mark.parametrize(
    ("to", "bound", "helps"), [("", "", True), ("n2", "", True), ("n1", "", False), ("", "n1", False), ("", "n2", True)]
)
def test_a_nomination_that_is_given_up_wakes_others_and_one_that_is_kept_does_not(to: str, bound: str, helps: bool) -> None:
    queue = Exchanged(a_pod("p", cpu="2"), names.NODE_RESOURCES_FIT)
    queue.happens(PodChanged(None, nominated := queue.nominated("preemptor", "n1")))
    after = queue.record(a_pod("preemptor"), bound) if bound else queue.nominated("preemptor", to)
    assert queue.happens(PodChanged(nominated, after)) is helps


def test_the_end_of_a_pod_that_was_not_nominated_wakes_nobody() -> None:
    queue = Exchanged(a_pod("p", cpu="2"), names.NODE_RESOURCES_FIT)
    queue.happens(PodChanged(None, other := queue.record(a_pod("other"))))
    assert queue.happens(PodChanged(other, None)) is False


@pytest.mark.row("Q57")
def test_affinity_is_matched_with_the_namespaces_labels_and_their_change_wakes_the_pod() -> None:
    store = ModelStore()
    store.put(KEYS.object_key(kinds.NODE, "", "n1"), stored(a_node("n1")))
    namespace = Namespace()
    namespace.metadata.name = "shop"
    store.put(KEYS.object_key(kinds.NAMESPACE, "", "shop"), encode(kinds.wrap(namespace)))
    db = a_pod("db", labels={"app": "db"})
    db.metadata.namespace, db.spec.node_name = "shop", "n1"
    store.put(KEYS.object_key(kinds.POD, "shop", "db"), stored(db))
    wanting = needing("db")
    (term,) = wanting.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution
    term.topology_key = "kubernetes.io/hostname"
    del term.namespaces[:]
    store.put(KEYS.object_key(kinds.POD, "default", "p"), stored(wanting))
    replica = Replica(store, Clock())
    replica.list()
    replica.lead()
    replica.settle()
    assert replica.queue.queue.pending().unschedulable == 1
    namespace.metadata.labels["team"] = "a"
    store.put(KEYS.object_key(kinds.NAMESPACE, "", "shop"), encode(kinds.wrap(namespace)))
    replica.settle()
    assert replica.bound()["p"] == "n1"

"""Counters of bound pods: whatever happens, they say what a walk over the pods would say."""

from __future__ import annotations

import itertools
from functools import partial
from random import Random

import numpy as np
import pytest

from rayched.api.selectors import Operator, Requirement
from rayched.snapshot import carried_terms, pod_counts
from rayched.snapshot.carried_terms import TermShape, TermTarget
from rayched.snapshot.domains import DomainSums
from rayched.snapshot.pod_selection import CarriedTerm, PodSelector, terms_of_bound
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.snapshot.verification import verify
from rayched.v1.core_pb2 import Namespace, Node, Pod, Service

ZONE = "topology.kubernetes.io/zone"


def a_node(name: str, zone: str = "") -> Node:
    node = Node()
    node.metadata.name = name
    if zone:
        node.metadata.labels[ZONE] = zone
    return node


def a_pod(app: str, namespace: str = "default") -> Pod:
    pod = Pod()
    pod.metadata.namespace = namespace
    pod.metadata.labels["app"] = app
    return pod


def pods_of(app: str, *, terminating: bool = True) -> tuple[PodSelector, ...]:
    return (PodSelector(frozenset(("default",)), (Requirement("app", Operator.IN, frozenset((app,))),), terminating),)


def column(snapshot: Snapshot, what: tuple[PodSelector, ...]) -> list[int]:
    return snapshot.pod_counts.counter(what).column[: snapshot.n_rows].tolist()


def test_a_counter_begins_with_the_pods_that_are_there_and_follows_the_others() -> None:
    snapshot, templates = Snapshot(), TemplateTable()
    snapshot.add_node(a_node("a"))
    snapshot.add_node(a_node("b"))
    web, db = templates.intern(a_pod("web")), templates.intern(a_pod("db"))
    snapshot.bind("1", web, "a")
    snapshot.bind("2", db, "a")
    assert column(snapshot, pods_of("web")) == [1, 0]
    snapshot.bind("3", web, "b")
    snapshot.bind("4", templates.intern(a_pod("web", "other")), "b")
    assert column(snapshot, pods_of("web")) == [1, 1]
    snapshot.unbind("1")
    snapshot.bind("3", db, "b")
    assert column(snapshot, pods_of("web")) == [0, 0]


def test_a_pod_whose_deletion_begins_leaves_the_counters_that_leave_such_pods_out() -> None:
    snapshot, templates = Snapshot(), TemplateTable()
    snapshot.add_node(a_node("a"))
    web = templates.intern(a_pod("web"))
    snapshot.bind("1", web, "a")
    assert column(snapshot, pods_of("web", terminating=False)) == [1]
    snapshot.bind("1", web, "a", terminating=True)
    assert column(snapshot, pods_of("web", terminating=False)) == [0]
    assert column(snapshot, pods_of("web")) == [1]
    verify(snapshot)


def test_pods_of_a_node_that_goes_count_again_when_it_comes_back() -> None:
    snapshot, templates = Snapshot(), TemplateTable()
    snapshot.add_node(a_node("a", "east"))
    snapshot.add_node(a_node("b", "west"))
    snapshot.bind("1", templates.intern(a_pod("web")), "a")
    sums = DomainSums(partial(snapshot.pod_counts.counter, pods_of("web")), snapshot.topology(ZONE))
    sums.refresh()
    assert sums.total == 1
    snapshot.remove_node("a")
    snapshot.bind("2", templates.intern(a_pod("web")), "a")
    snapshot.topology(ZONE)
    sums.refresh()
    assert (sums.total, column(snapshot, pods_of("web"))) == (0, [0, 0])
    snapshot.add_node(a_node("a", "west"))
    topology = snapshot.topology(ZONE)
    sums.refresh()
    assert sums.sums[topology.column[: snapshot.n_rows]].tolist() == [2, 2], "both rows are in one zone now"
    verify(snapshot)


def test_a_node_that_changes_its_zone_takes_its_pods_along() -> None:
    snapshot, templates = Snapshot(), TemplateTable()
    for name, zone in (("a", "east"), ("b", "west"), ("c", "")):
        snapshot.add_node(a_node(name, zone))
        snapshot.bind(name, templates.intern(a_pod("web")), name)
    sums = DomainSums(partial(snapshot.pod_counts.counter, pods_of("web")), snapshot.topology(ZONE))
    for zones, expected in (
        (("east", "west", ""), [1, 1, 0]),
        (("west", "west", ""), [2, 2, 0]),
        (("", "north", "north"), [0, 2, 2]),
    ):
        for name, zone in zip("abc", zones, strict=True):
            snapshot.update_node(a_node(name, zone))
        topology = snapshot.topology(ZONE)
        sums.refresh()
        assert sums.sums[topology.column[:3]].tolist() == expected, zones


@pytest.mark.parametrize("seed", range(5))
def test_counters_that_had_to_go_are_counted_anew(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_counts, "BYTES_MAX", 0)
    monkeypatch.setattr(pod_counts, "COUNTERS_MIN", 3)
    monkeypatch.setattr(pod_counts, "TEMPLATES_MIN", 2)
    random, snapshot, templates = Random(seed), Snapshot(), TemplateTable()
    apps = [f"app-{number}" for number in range(8)]
    for name in "abc":
        snapshot.add_node(a_node(name, random.choice(("east", "west"))))
    sums = {app: DomainSums(partial(snapshot.pod_counts.counter, pods_of(app)), snapshot.topology(ZONE)) for app in apps}
    bound: dict[str, tuple[str, str]] = {}
    for step in range(120):
        if bound and random.random() < 0.4:
            uid = random.choice(sorted(bound))
            del bound[uid]
            snapshot.unbind(uid)
        else:
            app, name = random.choice(apps), random.choice("abc")
            bound[str(step)] = app, name
            snapshot.bind(str(step), templates.intern(a_pod(app)), name)
        app = random.choice(apps)
        assert column(snapshot, pods_of(app)) == [sum(one == (app, name) for one in bound.values()) for name in "abc"]
        sums[app].refresh()
        assert sums[app].total == sum(where == app for where, _ in bound.values())
        assert len(snapshot.pod_counts.counters()) <= 3
        verify(snapshot)


def kept_apps(snapshot: Snapshot) -> list[str]:
    """Whom the counters count that are kept, in their order."""
    conditions = [(counter.what[0].conditions or ())[0] for counter in snapshot.pod_counts.counters()]
    return [next(iter(condition.values)) for condition in conditions]


def test_counters_that_were_not_asked_for_longest_go_first_a_quarter_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_counts, "BYTES_MAX", 0)
    monkeypatch.setattr(pod_counts, "COUNTERS_MIN", 8)
    snapshot = Snapshot()
    snapshot.add_node(a_node("a"))
    for number in range(8):
        column(snapshot, pods_of(f"{number}"))
    column(snapshot, pods_of("0"))
    column(snapshot, pods_of("8"))
    assert kept_apps(snapshot) == list("3456708")
    column(snapshot, pods_of("9"))
    column(snapshot, pods_of("10"))
    assert kept_apps(snapshot) == ["5", "6", "7", "0", "8", "9", "10"]


def test_counters_go_by_no_more_conditions_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_counts, "CONDITIONS_MAX", 8)
    snapshot, templates = Snapshot(), TemplateTable()
    snapshot.add_node(a_node("a"))
    tier = Requirement("tier", Operator.EXISTS, frozenset())

    def two(app: str) -> tuple[PodSelector, ...]:
        [selector] = pods_of(app)
        return (PodSelector(selector.namespaces, (*(selector.conditions or ()), tier)),)

    for app in "abcd":
        column(snapshot, two(app))
    assert kept_apps(snapshot) == list("abcd")
    column(snapshot, two("e"))
    assert kept_apps(snapshot) == list("bcde"), "as many as a quarter of the conditions have"
    column(snapshot, pods_of("f"))
    assert kept_apps(snapshot) == list("cdef")
    nobody = (PodSelector(None, None),)
    assert column(snapshot, nobody) == [0]
    snapshot.bind("1", templates.intern(a_pod("f")), "a")
    assert column(snapshot, pods_of("f")) == [1] and column(snapshot, nobody) == [0]


@pytest.mark.parametrize("seed", range(5))
def test_templates_that_come_while_there_are_counters_count_by_all_that_these_go_by(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pod is of a template of its own; of all their labels the counters go by some, and by more as they come."""
    monkeypatch.setattr(pod_counts, "BYTES_MAX", 0)
    monkeypatch.setattr(pod_counts, "COUNTERS_MIN", n_counters_max := 6 + seed)
    random, snapshot, templates = Random(seed), Snapshot(), TemplateTable()
    snapshot.add_node(a_node("a"))
    wanted: list[tuple[PodSelector, ...]] = []
    for key, value, namespace, terminating in itertools.product(("app", "tier"), "xy", ("default", "other"), (True, False)):
        wanted.append((PodSelector(frozenset((namespace,)), (Requirement(key, Operator.IN, frozenset(value)),), terminating),))
    wanted.append((PodSelector(None, (Requirement("app", Operator.NOT_IN, frozenset("x")),)),))
    bound: list[tuple[str, dict[str, str], bool]] = []
    for step in range(60):
        if not step % 6:
            snapshot.pod_counts.counter(random.choice(wanted))
        pod = a_pod(random.choice("xyz"), random.choice(("default", "other")))
        pod.metadata.labels["tier"] = random.choice("xyz")
        pod.metadata.labels["own"] = f"{step}"
        is_ending = random.random() < 0.3
        bound.append((pod.metadata.namespace, dict(pod.metadata.labels), is_ending))
        snapshot.bind(f"{step}", templates.intern(pod), "a", terminating=is_ending)
        for counter in snapshot.pod_counts.counters():
            assert isinstance(counter.what, tuple)
            (selector,) = counter.what
            expected = [one for one in bound if selector.matches(*one[:2]) and (selector.terminating or not one[2])]
            assert counter.column[0] == len(expected), f"step {step}, {selector}"
    assert len(snapshot.pod_counts.counters()) <= n_counters_max
    for step in range(60):
        snapshot.unbind(f"{step}")
    assert not any(counter.column[0] for counter in snapshot.pod_counts.counters())


def test_pods_that_came_before_the_first_counter_count_once_however_many_templates_were_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pod_counts, "TEMPLATES_MIN", 2)
    snapshot, templates = Snapshot(), TemplateTable()
    snapshot.pod_counts._empty_looked_at = 2
    snapshot.add_node(a_node("a"))
    for number in range(20):
        snapshot.bind(str(number), templates.intern(a_pod(f"app-{number}")), "a")
        if number % 3:
            snapshot.unbind(str(number))
    assert [column(snapshot, pods_of(f"app-{number}")) for number in range(20)] == [[int(not number % 3)] for number in range(20)]
    verify(snapshot)


def test_counters_grow_with_the_table() -> None:
    snapshot, templates = Snapshot(), TemplateTable()
    web = templates.intern(a_pod("web"))
    assert column(snapshot, pods_of("web")) == []
    for number in range(200):
        snapshot.add_node(a_node(f"n{number}"))
        snapshot.bind(str(number), web, f"n{number}")
    assert np.count_nonzero(column(snapshot, pods_of("web"))) == 200
    verify(snapshot)


def test_terms_that_nobody_carries_any_more_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_counts, "TEMPLATES_MIN", 4)
    snapshot, templates = Snapshot(), TemplateTable()
    snapshot.add_node(a_node("a"))
    for number in range(100):
        pod = a_pod(f"app-{number}")
        term = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution.add(topology_key=ZONE)
        term.label_selector.match_labels["app"] = f"app-{number}"
        snapshot.bind("1", templates.intern(pod), "a")
        verify(snapshot)
    assert len(snapshot.pod_counts.terms.carriers()) < 20


def test_only_what_scheduling_reads_of_other_objects_counts_as_a_change() -> None:
    snapshot = Snapshot()
    namespace, service = Namespace(), Service()
    namespace.metadata.labels["team"] = "a"
    service.spec.selector["app"] = "web"
    for message in (namespace, service):
        kind = type(message).__name__
        revisions = [snapshot.pod_counts.revision]
        for given in (message, message, None, None):
            snapshot.set_object(kind, "default", "x", given)
            revisions.append(snapshot.pod_counts.revision)
        assert [later - earlier for earlier, later in itertools.pairwise(revisions)] == [1, 0, 1, 0], kind
    snapshot.set_object("PriorityClass", "", "x", None)
    assert snapshot.surroundings.namespaces_revision == 2


@pytest.mark.parametrize("seed", range(8))
def test_counters_follow_pods_with_labels_of_their_own_as_counters_and_pods_come_and_go(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups are made anew whenever a counter goes by a label that nobody asked for before, and conditions are bounded."""
    monkeypatch.setattr(pod_counts, "CONDITIONS_MAX", 6)
    monkeypatch.setattr(pod_counts, "FOLLOWED_MAX", 25)
    monkeypatch.setattr(pod_counts, "TEMPLATES_MIN", 5)
    monkeypatch.setattr(carried_terms, "PLACEMENTS_MIN", 3)
    monkeypatch.setattr(carried_terms, "ONE_BY_ONE_MAX", 2)
    random, snapshot, templates = Random(seed), Snapshot(), TemplateTable()
    for name in "abc":
        snapshot.add_node(a_node(name))
    bound: list[str] = []
    targets: dict[str, TermTarget[int]] = {}
    generations: dict[str, int] = {}

    def role(term: CarriedTerm | TermShape) -> tuple[int, int]:
        """One role counts, the other adds up."""
        return (1, 1) if term.topology_key == ZONE else (2, 7)

    for step in range(150):
        if bound and random.random() < 0.4:
            uid = bound.pop(random.randrange(len(bound)))
            if random.random() < 0.3:
                known = snapshot.known(uid)
                snapshot.bind(uid, known.template, known.node_name, terminating=not known.terminating)
                bound.append(uid)
            else:
                snapshot.unbind(uid)
        else:
            pod = a_pod(random.choice(("web", "db")), random.choice(("default", "other")))
            pod.metadata.labels["own"] = str(step)
            for _ in range(random.choice((0, 0, 1, 3))):
                term = pod.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution.add()
                term.topology_key = random.choice((ZONE, "rack"))
                expression = term.label_selector.match_expressions.add(key="own", operator=random.choice(("In", "NotIn")))
                expression.values.append(str(random.randrange(5)))
            snapshot.bind(str(step), templates.intern(pod), random.choice("abcd"))
            bound.append(str(step))
        if random.random() < 0.5:
            operator = random.choice((Operator.IN, Operator.NOT_IN, Operator.EXISTS))
            values = (
                frozenset(str(random.randrange(step + 1)) for _ in range(2)) if operator is not Operator.EXISTS else frozenset()
            )
            key = random.choice(("own", "app", f"nobody-{step}"))
            snapshot.pod_counts.counter((PodSelector(None, (Requirement(key, operator, values),), random.random() < 0.5),))
        own = str(random.randrange(5))
        target = targets.get(own)
        if target is None or target.carried.generation != generations[own]:
            target = targets[own] = TermTarget(snapshot.pod_counts.terms, "default", {"own": own}, {})
            generations[own] = target.carried.generation
        target.refresh(role, snapshot.capacity, snapshot.work)
        for name in "abc":
            row = snapshot.row_of(name)
            terms = [term for template in snapshot.pods_on(name).values() for term in terms_of_bound(template.pod)]
            for one in (1, 2) if row is not None else ():
                counter = target.counters.get(one)
                found = 0 if counter is None else counter.column.item(row)
                told = [role(term) for term in terms if term.matches("default", {"own": own}, {})]
                assert found == sum(amount for number, amount in told if number == one)
        if random.random() < 0.05:
            snapshot.remove_node("a") if snapshot.row_of("a") is not None else snapshot.add_node(a_node("a"))
        verify(snapshot)

"""Pods of very many templates: they share what makes no difference, and what is kept stays bounded.

Whatever is shared or kept, an engine that keeps nothing says the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from rayched.engine import plans, usage_values
from rayched.engine.cached_columns import CachedColumn, FilterColumn
from rayched.engine.domain_state import DomainRejection, DomainState
from rayched.engine.engine import Engine
from rayched.engine.prepared import PreparedPlugin
from rayched.engine.signature import SeenPod
from rayched.engine.usage_values import UsageSum
from rayched.framework.plugin import PodPart
from rayched.plugins.node_ports import NodePorts
from rayched.snapshot import present_taints as known_taints
from rayched.snapshot import referenced_labels as mentioned_labels
from rayched.snapshot.change_log import CHANGES_MAX
from rayched.snapshot.columns import CodeColumn, Log
from rayched.snapshot.rows import Rows
from rayched.snapshot.templates import PodTemplate
from rayched.v1.core_pb2 import Pod, PodAffinityTerm, Service
from rayched.v1.meta_pb2 import ObjectMeta
from tests.plugins.builders import PodBuilder, a_node, a_pod, a_term, pods_with
from tests.plugins.engine_case import Case

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
APPS = "pqrstuv"


def a_case(n_nodes: int = 12, **args: object) -> Case:
    labels = [{HOST: f"n{number}", ZONE: "abc"[number % 3]} for number in range(n_nodes)]
    return Case(*(a_node(f"n{number}").labelled(**labels[number]) for number in range(n_nodes)), **args)


def template_of(case: Case, pod: PodBuilder) -> PodTemplate:
    return case.templates.intern(pod.pod, with_node_name=True)


def assert_as_from_nothing(
    case: Case, template: PodTemplate, where: object = "", nominated: Sequence[tuple[PodTemplate, int]] = ()
) -> None:
    """The other engine keeps nothing and heeds all labels and tolerations; it is second, lest it mention any for the first."""
    found = case.engine.evaluate(template, nominated=nominated)
    feasible, total = found.feasible.tolist(), found.total.tolist()
    fresh = Engine(case.snapshot, case.engine._planner._profile)
    fresh._planner._facts = {name: replace(one, reads_pod=PodPart(0)) for name, one in fresh._planner._facts.items()}
    expected = fresh.evaluate(template, nominated=nominated)
    assert feasible == expected.feasible.tolist(), where
    assert expected.n_feasible < 2 or total == expected.total.tolist(), where


def entries_of(case: Case, kind: type) -> list[object]:
    return [entry for entry in case.engine._store._entries.values() if isinstance(entry, kind)]


# ------------------------------------------------------------------------------------------------- labels that count


def test_pods_that_differ_in_labels_that_nobody_mentions_ask_the_same() -> None:
    case = a_case()
    for number in range(300):
        pod = a_pod().requesting(cpu="100m").named(app="db", pod_name=f"db-{number}").spreading(ZONE, selector={"app": "db"})
        template = template_of(case, pod)
        assert case.engine.evaluate(template).is_feasible
        case.snapshot.bind(f"u{number}", template, f"n{number % 12}")
        case.engine._account(None)
        if number == 20:
            n_bytes = case.engine._store.n_bytes
    assert len(entries_of(case, DomainState)) == 2, "one of each counting plugin"
    assert len(entries_of(case, DomainRejection)) == 2
    assert len(entries_of(case, UsageSum)) <= 2
    assert case.engine._store.n_bytes <= 1.1 * n_bytes


@pytest.mark.parametrize("seed", range(3))
def test_labels_count_from_when_somebody_mentions_them(seed: int) -> None:
    """Services, terms of pods that are bound and terms of pods that are nominated come at any time."""
    random, case = Random(seed), a_case()
    pods = [a_pod().requesting(cpu="100m").named(app=app, tier=tier, run=run) for app in "xy" for tier in "12" for run in "ab"]
    for pod in pods[::3]:
        pod.spreading(random.choice((ZONE, HOST)), soft=random.random() < 0.5, selector={"app": "x"})
    templates = [template_of(case, pod) for pod in pods]
    carriers = [
        template_of(case, a_pod().named(role=key).away(HOST, pods_with(**{key: value}), weight))
        for key, value, weight in (("tier", "1", 0), ("app", "y", 5), ("run", "a", 0), ("app", "x", 0))
    ]
    for step in range(40):
        match random.randrange(5):
            case 0:
                case.snapshot.bind(f"c{step}", random.choice(carriers), f"n{random.randrange(12)}")
            case 1:
                service = Service()
                service.metadata.name, service.metadata.namespace = f"s{random.randrange(2)}", "default"
                key = random.choice(("app", "tier", "run"))
                service.spec.selector[key] = {"app": "x", "tier": "2", "run": "b"}[key]
                case.snapshot.set_object("Service", "default", service.metadata.name, service)
            case _:
                case.snapshot.bind(f"u{step}", random.choice(templates), f"n{random.randrange(12)}")
        nominated = ((random.choice(carriers), random.randrange(12)),) if random.random() < 0.3 else ()
        for template in random.sample(templates, 4):
            assert_as_from_nothing(case, template, f"seed {seed}, step {step}", nominated)


def by_parts(case: Case, pod: Pod) -> PodTemplate:
    """The template as of a waiting pod whose stored bytes are cut into parts."""
    metadata = ObjectMeta(namespace=pod.metadata.namespace, labels=pod.metadata.labels)
    unlabelled = ObjectMeta(namespace=pod.metadata.namespace)
    texts = [one.SerializeToString(deterministic=True) for one in (metadata, unlabelled, pod.spec)]
    return case.templates.intern_parts(pod.metadata.namespace.encode(), dict(pod.metadata.labels), *texts)


@pytest.mark.parametrize("seed", range(4))
def test_plans_of_pods_in_parts_have_the_keys_that_plugins_give_for_them(seed: int) -> None:
    random, case = Random(seed), a_case()
    case.snapshot.bind("web", template_of(case, a_pod().named(app="x").away(HOST, pods_with(app="y"), 5)), "n0")
    tainted = a_node("n11").labelled(**{HOST: "n11", ZONE: "c"}).with_taint("x", effect="NoSchedule")
    case.snapshot.update_node(tainted.node)
    planner = case.engine._planner
    for number in range(60):
        pod = (
            a_pod().requesting(cpu=f"{random.randrange(1, 9)}00m", memory="1Mi").named(app=random.choice("xyz"), own=f"{number}")
        )
        for change in random.sample(
            [
                lambda one: one.with_images(random.choice(("a:1", "b:1"))),
                lambda one: one.on_host_port(random.randrange(80, 83)),
                lambda one: one.selecting(zone=random.choice("ab")),
                lambda one: one.near(ZONE, pods_with(app="x"), random.choice((0, 3))),
                lambda one: one.spreading(ZONE, selector={"app": "x"}),
                lambda one: one.tolerating(random.choice("xy")),
            ],
            random.randrange(3),
        ):
            change(pod)
        template = by_parts(case, pod.pod)
        assert case.engine.evaluate(template).is_feasible is not None
        plan = case.engine._plans.of(template)
        seen = SeenPod(template, case.snapshot)
        for facts, key in zip(planner._facts.values(), plan.keys, strict=True):
            assert key == facts.plugin.key(seen.pod(facts.reads_pod)), f"seed {seed}, {facts.plugin.name}"
        assert_as_from_nothing(case, template, f"seed {seed}, pod {number}")
        case.snapshot.bind(f"u{number}", template, f"n{random.randrange(12)}")


def a_selecting_term(random: Random) -> PodAffinityTerm:
    """With any operator."""
    term = PodAffinityTerm()
    operator = random.choice(("In", "In", "NotIn", "Exists", "DoesNotExist"))
    values = random.sample(APPS, 2) if operator in ("In", "NotIn") else ()
    term.label_selector.match_expressions.add(key=random.choice(("app", "tier")), operator=operator, values=values)
    return term


@pytest.mark.parametrize("seed", range(6))
def test_values_are_told_apart_from_when_somebody_mentions_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Applications of which few are mentioned, by whatever operator, or by the pod's own value."""
    monkeypatch.setattr(mentioned_labels, "VALUES_MAX", 3 if seed % 2 else 64)
    monkeypatch.setattr(plans, "LABELS_MAX", 5 if seed % 3 else 65_536)
    random, case = Random(seed), a_case()
    pods = [a_pod().requesting(cpu="100m").named(app=app, tier=tier) for app in APPS for tier in "12"]
    for pod in pods[::5]:
        pod.spreading(random.choice((ZONE, HOST)), soft=random.random() < 0.5, selector={"tier": "1"})
        if random.random() < 0.5:
            pod.pod.spec.topology_spread_constraints[0].match_label_keys.append("app")
    pods += [a_pod().requesting(cpu="100m"), a_pod().requesting(cpu="100m").named(tier="1")]
    templates = [template_of(case, pod) for pod in pods]
    for step in range(30):
        match random.randrange(4):
            case 0:
                carrier = a_pod().named(role="c").away(HOST, a_selecting_term(random), random.choice((0, 7)))
                case.snapshot.bind(f"c{step}", template_of(case, carrier), f"n{random.randrange(12)}")
            case 1:
                service = Service()
                service.metadata.name, service.metadata.namespace = f"s{random.randrange(3)}", "default"
                service.spec.selector["app"] = random.choice(APPS)
                case.snapshot.set_object("Service", "default", service.metadata.name, service)
            case _:
                case.snapshot.bind(f"u{step}", random.choice(templates), f"n{random.randrange(12)}")
        for template in random.sample(templates, 6):
            assert_as_from_nothing(case, template, f"seed {seed}, step {step}")


def test_pods_that_differ_in_values_that_nobody_mentions_have_one_plan() -> None:
    case = a_case()
    service = Service()
    service.metadata.name, service.metadata.namespace = "s", "default"
    service.spec.selector["app"] = "a3"
    case.snapshot.set_object("Service", "default", "s", service)
    for number in range(20):
        template = template_of(case, a_pod().requesting(cpu="100m").named(app=f"a{number}"))
        assert_as_from_nothing(case, template, number)
    assert len(case.engine._plans) == 2
    assert_as_from_nothing(case, template_of(case, a_pod().requesting(cpu="100m")))
    assert len(case.engine._plans) == 3, "to have no such label is something else"


def test_with_very_many_values_of_a_key_all_of_them_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mentioned_labels, "VALUES_MAX", 2)
    mentioned = a_case().snapshot.mentioned_labels
    mentioned.add_labels({"app": "x"})
    assert mentioned.among({"app": "x"}) == {"app": "x"} and mentioned.among({"app": "y"}) == {"app": mentioned_labels.OTHER}
    mentioned.add_labels({"app": "y"})
    assert mentioned.among({"app": "z"}) == {"app": mentioned_labels.OTHER}
    before = mentioned.revision
    mentioned.add_labels({"app": "v"})
    assert mentioned.among({"app": "z"}) == {"app": "z"} and mentioned.since(before) == [("app", None)]
    mentioned.add_labels({"app": "w"})
    mentioned.add(["app"])
    assert mentioned.revision == before + 1


def test_with_very_many_values_of_all_keys_together_no_more_are_told_apart_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mentioned_labels, "MENTIONS_MAX", 4)
    mentioned = a_case().snapshot.mentioned_labels
    mentioned.add_labels({"app": "x", "tier": "y"})
    assert mentioned.among({"app": "v", "tier": "y"}) == {"app": mentioned_labels.OTHER, "tier": "y"}
    mentioned.add_labels({"app": "w", "zone": "a"})
    assert mentioned.among({"app": "v", "tier": "z", "zone": "b"}) == {"app": "v", "tier": mentioned_labels.OTHER, "zone": "b"}


def test_with_very_many_mentioned_keys_all_labels_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mentioned_labels, "KEYS_MAX", 3)
    case = a_case()
    mentioned = case.snapshot.mentioned_labels
    template = template_of(case, a_pod().named(app="x", other="y"))
    assert_as_from_nothing(case, template)
    mentioned.add(["a", "b", "a"])
    assert mentioned.among({"a": "1", "other": "y"}) == {"a": "1"} and mentioned.since(1) == [("b", None)]
    mentioned.add(["c", "d", "e"])
    assert mentioned.among({"a": "1", "other": "y"}) == {"a": "1", "other": "y"} and mentioned.since(0) is None
    assert mentioned.revision == 4
    assert_as_from_nothing(case, template)


# ------------------------------------------------------------------------------------------------------ plans in common


def test_templates_of_which_all_plugins_read_the_same_have_one_plan() -> None:
    case = a_case()
    found = case.engine._plans
    for number in range(60):
        pod = (
            a_pod()
            .requesting(cpu=f"{100 + number % 3}m")
            .named(run=f"r{number}")
            .tolerating(f"key-{number % 7}", operator="Exists")
        )
        template = template_of(case, pod)
        assert_as_from_nothing(case, template)
        case.snapshot.bind(f"u{number}", template, f"n{number % 12}")
    assert len(found) == 3
    assert_as_from_nothing(case, template_of(case, a_pod().requesting(cpu="100m")))
    assert len(found) == 3
    assert_as_from_nothing(case, template_of(case, a_pod().requesting(cpu="100m").selecting(**{ZONE: "a"})))
    assert len(found) == 4


def test_templates_whose_plan_is_known_consist_of_so_many_bytes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "CONTENT_BYTES_MAX", 2_000)
    case = a_case()
    found = case.engine._plans
    for size in (10, 400, 10, 700, 3_000, 10, 400, 400, 400, 400, 400):
        own = "x" * size + str(len(found._by_template))
        assert_as_from_nothing(case, template_of(case, a_pod().requesting(cpu="100m").named(run=own)))
        known = [template for plan in found._used.values() for template in plan.templates.values()]
        assert sum(len(template.content) for template in known) == found._bytes
        assert found._bytes <= 2_000 or len(known) == 1
    found.drop_all()
    assert found._bytes == 0


def test_the_templates_of_a_plan_are_forgotten_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "TEMPLATES_MAX", 5)
    case = a_case()
    found = case.engine._plans
    templates = [template_of(case, a_pod().requesting(cpu="100m").named(run=f"r{number}")) for number in range(8)]
    other = template_of(case, a_pod().requesting(cpu="200m"))
    case.engine.evaluate(other)
    for template in templates:
        assert_as_from_nothing(case, template)
        assert len(found._by_template) <= 5
    assert len(found) == 1, "the other's plan went with its only template"
    assert_as_from_nothing(case, other)
    assert len(found) == 2
    found.drop_oldest()
    assert len(found) == 1 and list(found._by_template) == [other.id]
    found.drop_all()
    assert len(found) == 0 and not found._by_template and not found._by_keys
    assert len(case.engine._store) == 0, "what nobody uses is gone"


# ------------------------------------------------------------------------------------------------ tolerations that count


@pytest.mark.parametrize("seed", range(3))
def test_tolerations_count_from_when_some_node_has_such_a_taint(seed: int) -> None:
    random, case = Random(seed), a_case()
    tolerations = [
        {"key": "a", "operator": "Exists"},
        {"key": "a", "value": "1"},
        {"key": "b", "value": "1", "effect": "NoSchedule"},
        {"key": "c", "operator": "Exists", "effect": "PreferNoSchedule"},
        {"operator": "Exists", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
    ]
    pods = []
    for number in range(14):
        pod = a_pod().requesting(cpu="100m").named(run=f"r{number}")
        for toleration in random.sample(tolerations, number % 3):
            pod.tolerating(**toleration)
        if number % 2:
            pod.named(app="x").spreading(ZONE, selector={"app": "x"})
            pod.pod.spec.topology_spread_constraints[0].node_taints_policy = "Honor"
        pods.append(template_of(case, pod))
    for step in range(40):
        name = f"n{random.randrange(12)}"
        if random.random() < 0.4:
            node = a_node(name).labelled(**{HOST: name, ZONE: random.choice("abc")})
            for _ in range(random.randrange(3)):
                node.with_taint(
                    random.choice("abcd"), random.choice("12"), random.choice(("NoSchedule", "PreferNoSchedule", "NoExecute"))
                )
            node.node.spec.unschedulable = random.random() < 0.2
            case.snapshot.update_node(node.node)
        else:
            case.snapshot.bind(f"u{step}", random.choice(pods), name)
        for template in random.sample(pods, 5):
            assert_as_from_nothing(case, template, f"seed {seed}, step {step}")


def test_workers_are_asked_with_a_pod_that_stands_for_all_that_share_its_column() -> None:
    """The first template tolerates what no node has; when one has it, the second's column must not tolerate it."""
    case = a_case()
    tolerant = template_of(case, a_pod().tolerating("a", operator="Exists"))
    plain = template_of(case, a_pod().named(run="x"))
    case.engine.evaluate(tolerant)
    case.engine.evaluate(plain)
    (asked,) = [
        one
        for one in entries_of(case, PreparedPlugin)
        if isinstance(one, PreparedPlugin) and one.plugin.name == "TaintToleration"
    ]
    assert not Pod.FromString(asked.content).spec.tolerations
    case.snapshot.update_node(a_node("n0").labelled(**{HOST: "n0", ZONE: "a"}).with_taint("a", "1", "NoSchedule").node)
    assert case.engine.evaluate(tolerant).n_feasible == 12
    assert case.engine.evaluate(plain).n_feasible == 11


def test_with_very_many_taints_all_tolerations_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_taints, "TAINTS_MAX", 3)
    case = a_case()
    known = case.snapshot.known_taints
    pod = a_pod().tolerating("a", operator="Exists").tolerating("z", operator="Exists")
    template, tolerations = template_of(case, pod), pod.pod.spec.tolerations
    assert known.counting(tolerations) == []
    assert_as_from_nothing(case, template)
    for number, key in enumerate("abcdef"):
        node = a_node(f"n{number}").labelled(**{HOST: f"n{number}", ZONE: "a"}).with_taint(key, "", "NoSchedule")
        case.snapshot.update_node(node.node)
        assert_as_from_nothing(case, template, key)
        assert known.counting(tolerations) == list(tolerations[: 1 if number < 2 else 2])
    assert known.revision == 4 and known.since(0) is None


# --------------------------------------------------------------------------------------------- keys unique to one pod


def test_pods_for_one_node_each_make_no_columns() -> None:
    case = a_case(60)
    for number in range(60):
        pod = a_pod().requesting(cpu="100m").named(app="agent").requiring(a_term(name=f"n{number}"))
        template = template_of(case, pod)
        assert case.engine.evaluate(template).best_rows.tolist() == [number]
        case.snapshot.bind(f"u{number}", template, f"n{number}")
    case.engine._account(None)
    assert entries_of(case, CachedColumn) == []
    assert case.engine._store.n_bytes == 0


# -------------------------------------------------------------------------------------------------------- logs trimmed


def test_logs_of_counters_and_refusals_stay_short_however_many_pods_come() -> None:
    case = a_case()
    spread = a_pod().named(app="x").spreading(ZONE, max_skew=2).spreading(HOST, soft=True).away(HOST, pods_with(app="y"))
    template, other = template_of(case, spread), template_of(case, a_pod().named(app="y"))
    for number in range(4 * CHANGES_MAX):
        case.engine.evaluate(template)
        case.snapshot.bind(f"u{number}", template if number % 2 else other, f"n{number % 11}")
        if number >= 24:
            case.snapshot.unbind(f"u{number - 24}")
    counts = [asked.state for asked in entries_of(case, DomainState) if isinstance(asked, DomainState)]
    refusals = [one for counted in counts for one in counted.refusals]
    logs = [counter.log for counter in case.snapshot.pod_counts.counters()] + [one.log for one in refusals]
    assert len(logs) >= 4
    assert max(log.end for log in logs) > 2 * CHANGES_MAX + 1, "there was something to trim"
    assert all(log.end - log.start <= 2 * CHANGES_MAX + 1 for log in logs)
    assert_as_from_nothing(case, template)


# ---------------------------------------------------------------------------------------------------------- host ports


class WatchedPorts(NodePorts):
    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def filter(self, state: object, rows: Rows) -> CodeColumn:
        self.asked.append(rows.index.tolist())
        return super().filter(state, rows)  # type: ignore[arg-type]


def _clash(one: tuple[int, str, str], other: tuple[int, str, str]) -> bool:
    """(port, address, protocol); no address, or 0.0.0.0, is every address."""
    anywhere = ("", "0.0.0.0")
    if one[0] != other[0] or (one[2] or "TCP") != (other[2] or "TCP"):
        return False
    return one[1] == other[1] or one[1] in anywhere or other[1] in anywhere


@pytest.mark.parametrize("seed", range(4))
def test_host_ports_are_free_where_no_pod_holds_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a walk over the bound pods, while they come and go, with requests of many kinds."""
    monkeypatch.setattr(usage_values, "FEW", 1 if seed % 2 else 7)
    random, case = Random(seed), a_case(6)
    addresses = "", "0.0.0.0", "10.0.0.1", "10.0.0.2"
    wanted = [(port, ip, protocol) for port in (80, 443) for ip in addresses for protocol in ("", "UDP")]
    pods = []
    for number in range(24):
        ports = random.sample(wanted, random.choice((0, 1, 1, 2)))
        pod = a_pod().requesting(cpu=f"{100 + 50 * (number % 5)}m")
        for port, ip, protocol in ports:
            pod.on_host_port(port, ip, protocol)
        pods.append((ports, template_of(case, pod)))
    held: dict[str, tuple[list[tuple[int, str, str]], str]] = {}
    for step in range(150):
        ports, template = random.choice(pods)
        taken = {where for theirs, where in held.values() if any(_clash(one, other) for one in ports for other in theirs)}
        evaluation = case.engine.evaluate(template)
        found = {case.snapshot.name_of(row) for row in evaluation.feasible.nonzero()[0].tolist()}
        assert found == {f"n{number}" for number in range(6)} - taken, f"seed {seed}, step {step}"
        assert_as_from_nothing(case, template, f"seed {seed}, step {step}")
        if found:
            # Not always where it is free: what is bound is bound.
            where = random.choice(sorted(found) if random.random() < 0.8 else [f"n{number}" for number in range(6)])
            case.snapshot.bind(f"u{step}", template, where)
            held[f"u{step}"] = ports, where
        if held and random.random() < 0.5:
            uid = random.choice(sorted(held))
            case.snapshot.unbind(uid)
            del held[uid]


def test_host_ports_are_a_column_that_follows_their_own_log() -> None:
    """Only rows where host ports changed are asked about, and pods with and without host ports share the rest."""
    case = a_case(20)
    watched = WatchedPorts()
    profile = case.engine._planner._profile
    filters = tuple(watched if plugin.name == watched.name else plugin for plugin in profile.filter)
    case.engine = Engine(case.snapshot, replace(profile, filter=filters))
    with_port = template_of(case, a_pod().requesting(cpu="100m").on_host_port(80))
    without = template_of(case, a_pod().requesting(cpu="100m"))
    for _ in range(2):
        assert case.engine.evaluate(with_port).n_feasible == 20
        assert case.engine.evaluate(without).n_feasible == 20
    sums = [one for one in entries_of(case, UsageSum) if isinstance(one, UsageSum) and one.weights[-1]]
    assert len(sums) == 1, "one sum for both"
    assert len([one for one in entries_of(case, FilterColumn) if isinstance(one, FilterColumn) and one.reads == Log.PORTS]) == 1
    watched.asked.clear()
    for number in range(10):
        case.snapshot.bind(f"w{number}", without, f"n{number}")
        case.engine.evaluate(with_port)
    assert watched.asked == []
    case.snapshot.bind("p", with_port, "n7")
    assert case.engine.evaluate(with_port).n_feasible == 19
    assert case.engine.evaluate(without).n_feasible == 20
    assert watched.asked == [[7]]

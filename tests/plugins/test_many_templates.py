"""Pods of very many templates: they share what makes no difference, and what is kept stays bounded.

Whatever is shared or kept, an engine that keeps nothing says the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from rayched.framework import usage_stack
from rayched.framework.counting import CountedAsked, CountedRejection
from rayched.framework.engine import Engine
from rayched.framework.kept_columns import FilterColumn, Kept
from rayched.framework.usage_sum import UsageSum
from rayched.plugins.node_ports import NodePorts
from rayched.snapshot import mentioned_labels
from rayched.snapshot.change_log import CHANGES_MAX
from rayched.snapshot.columns import CodeColumn, Log
from rayched.snapshot.rows import Rows
from rayched.snapshot.templates import PodTemplate
from rayched.v1.core_pb2 import Service
from tests.plugins.builders import PodBuilder, a_node, a_pod, a_term, pods_with
from tests.plugins.engine_case import Case

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def a_case(n_nodes: int = 12, **args: object) -> Case:
    labels = [{HOST: f"n{number}", ZONE: "abc"[number % 3]} for number in range(n_nodes)]
    return Case(*(a_node(f"n{number}").labelled(**labels[number]) for number in range(n_nodes)), **args)


def template_of(case: Case, pod: PodBuilder) -> PodTemplate:
    return case.templates.intern(pod.pod, with_node_name=True)


def assert_as_from_nothing(
    case: Case, template: PodTemplate, where: object = "", nominated: Sequence[tuple[PodTemplate, int]] = ()
) -> None:
    """The other engine keeps nothing and heeds all labels; it comes second, lest it mention any for the first one."""
    found = case.engine.evaluate(template, nominated=nominated)
    feasible, total = found.feasible.tolist(), found.total.tolist()
    fresh = Engine(case.snapshot, case.engine._planner._profile)
    fresh._planner._selecting = frozenset()
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
    assert len(entries_of(case, CountedAsked)) == 2, "one of each counting plugin"
    assert len(entries_of(case, CountedRejection)) == 2
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


def test_with_very_many_mentioned_keys_all_labels_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mentioned_labels, "KEYS_MAX", 3)
    case = a_case()
    mentioned = case.snapshot.mentioned_labels
    template = template_of(case, a_pod().named(app="x", other="y"))
    assert_as_from_nothing(case, template)
    mentioned.add(["a", "b", "a"])
    assert mentioned.among({"a": "1", "other": "y"}) == {"a": "1"} and mentioned.since(1) == ["b"]
    mentioned.add(["c", "d", "e"])
    assert mentioned.among({"a": "1", "other": "y"}) == {"a": "1", "other": "y"} and mentioned.since(0) is None
    assert mentioned.revision == 4
    assert_as_from_nothing(case, template)


# --------------------------------------------------------------------------------------------- keys unique to one pod


def test_pods_for_one_node_each_make_no_columns() -> None:
    case = a_case(60)
    for number in range(60):
        pod = a_pod().requesting(cpu="100m").named(app="agent").requiring(a_term(name=f"n{number}"))
        template = template_of(case, pod)
        assert case.engine.evaluate(template).best_rows.tolist() == [number]
        case.snapshot.bind(f"u{number}", template, f"n{number}")
    case.engine._account(None)
    assert entries_of(case, Kept) == []
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
    counts = [asked.state for asked in entries_of(case, CountedAsked) if isinstance(asked, CountedAsked)]
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
    monkeypatch.setattr(usage_stack, "SUMS_MIN", 2 if seed % 2 else 8)
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

"""Labels that selectors mention tell pods apart, others do not, and with too many mentions all of them count."""

from __future__ import annotations

import pytest

from rayched.api.selectors import Operator, Requirement
from rayched.snapshot import referenced_labels
from rayched.snapshot.referenced_labels import OTHER, ReferencedLabels
from rayched.v1.core_pb2 import Pod


def a_condition(key: str, operator: Operator, *values: str) -> Requirement:
    return Requirement(key, operator, frozenset(values))


@pytest.mark.parametrize(
    ("condition", "counting"),
    [
        (a_condition("app", Operator.IN, "web", "db"), {"web": "web", "db": "db", "cache": OTHER}),
        (a_condition("app", Operator.NOT_IN, "web"), {"web": "web", "db": OTHER}),
        (a_condition("app", Operator.EXISTS), {"web": OTHER, "db": OTHER}),
        (a_condition("app", Operator.DOES_NOT_EXIST), {"web": OTHER}),
        (a_condition("app", Operator.GT, "5"), {"web": "web", "7": "7"}),
    ],
)
def test_values_count_that_a_condition_can_tell_apart(condition: Requirement, counting: dict[str, str]) -> None:
    mentioned = ReferencedLabels()
    mentioned.add_conditions((condition,))
    mentioned.add_conditions(())
    mentioned.add_conditions(None)
    for value, seen in counting.items():
        assert mentioned.among({"app": value, "nobody": "asks"}) == {"app": seen}


def test_what_was_mentioned_is_not_forgotten_and_revisions_tell_what_came() -> None:
    mentioned = ReferencedLabels()
    assert mentioned.revision == 0 and mentioned.among({"app": "web"}) == {}
    mentioned.add_labels({"app": "web"})
    first = mentioned.revision
    assert mentioned.since(0) == [("app", None), ("app", "web")]
    mentioned.add_labels({"app": "web"})
    assert mentioned.revision == first and mentioned.since(first) == [], "nothing new"
    mentioned.add_labels({"app": "db"})
    assert mentioned.since(first) == [("app", "db")]
    mentioned.add(["app"])
    assert mentioned.since(first) == [("app", "db"), (("app", None))]
    assert mentioned.among({"app": "anything"}) == {"app": "anything"}
    last = mentioned.revision
    mentioned.add_labels({"app": "more"})
    mentioned.add(["app"])
    assert mentioned.revision == last, "each value counts already"


def test_with_too_many_values_of_a_key_each_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(referenced_labels, "VALUES_MAX", 2)
    mentioned = ReferencedLabels()
    for value in ("a", "b", "a"):
        mentioned.add_labels({"app": value})
    assert mentioned.among({"app": "z"}) == {"app": OTHER}
    mentioned.add_labels({"app": "c", "tier": "1"})
    assert mentioned.among({"app": "z", "tier": "2"}) == {"app": "z", "tier": OTHER}


def test_with_too_many_mentions_each_value_of_further_keys_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(referenced_labels, "MENTIONS_MAX", 4)
    mentioned = ReferencedLabels()
    mentioned.add_labels({"app": "web"})
    mentioned.add_labels({"tier": "1"})
    assert mentioned.among({"app": "z", "tier": "z"}) == {"app": OTHER, "tier": OTHER}
    mentioned.add_labels({"tier": "2"})
    assert mentioned.among({"app": "z", "tier": "z"}) == {"app": OTHER, "tier": "z"}


def test_with_too_many_keys_every_label_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(referenced_labels, "KEYS_MAX", 2)
    mentioned = ReferencedLabels()
    for key in ("a", "b"):
        mentioned.add_conditions((a_condition(key, Operator.EXISTS),))
    assert not mentioned.are_all and mentioned.among({"a": "1", "c": "1"}) == {"a": OTHER}
    mentioned.add_conditions((a_condition("c", Operator.EXISTS),))
    assert mentioned.are_all and mentioned.among({"a": "1", "d": "1"}) == {"a": "1", "d": "1"}
    assert mentioned.since(0) is None
    mentioned.add_labels({"e": "1"})
    assert mentioned.among({"d": "1"}) == {"d": "1"}


def test_terms_and_constraints_of_a_pod_mention_labels() -> None:
    pod = Pod()
    term = pod.spec.affinity.pod_affinity.required_during_scheduling_ignored_during_execution.add(topology_key="zone")
    term.label_selector.match_labels["app"] = "web"
    constraint = pod.spec.topology_spread_constraints.add(topology_key="zone")
    constraint.label_selector.match_labels["tier"] = "1"
    constraint.label_selector.match_expressions.add(key="track", operator="NotIn", values=["canary"])
    constraint.match_label_keys.append("pod-template-hash")
    mentioned = ReferencedLabels()
    mentioned.add_of(Pod())
    assert mentioned.revision == 0
    mentioned.add_of(pod)
    labels = {"app": "z", "tier": "1", "track": "stable", "pod-template-hash": "123", "version": "7"}
    assert mentioned.among(labels) == {"app": OTHER, "tier": "1", "track": OTHER, "pod-template-hash": "123"}

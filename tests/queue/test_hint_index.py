"""Prepared hints in an index answer what each of them answers about each pod alone, whatever came before."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.framework.queueing_hints import Hint, Look, PreparedHint, ReadsNoLabels
from rayched.plugins.in_tree import IN_TREE
from rayched.queue import hint_index
from rayched.queue.hint_index import REMEMBERED_MIN, HintEntry, HintIndex, TemplateHints
from rayched.queue.hints import registrations_of
from rayched.queue.queued_pod import PendingPod, QueuedPodInfo
from rayched.v1.core_pb2 import Namespace, Node, Pod, Service
from tests.plugins.clusters import random_node, random_pod, tweaked
from tests.queue.builders import pending

APPS = ("web", "db", "cache")


def a_pod(random: Random, number: int) -> Pod:
    """With labels of its own, and terms of affinity about those of others."""
    pod = random_pod(random)
    pod.metadata.name = pod.metadata.uid = f"p{number}"
    pod.metadata.namespace = random.choice(("one", "two"))
    pod.metadata.labels["app"] = random.choice(APPS)
    if random.random() < 0.5:
        pod.metadata.labels["own"] = str(number)
    affinity = pod.spec.affinity
    for terms in (affinity.pod_affinity, affinity.pod_anti_affinity):
        for _ in range(random.choice((0, 0, 1, 2))):
            term = terms.required_during_scheduling_ignored_during_execution.add()
            term.topology_key = random.choice(("zone", "kubernetes.io/hostname"))
            term.namespaces.extend(random.choice(([], ["two"], ["one", "two"])))
            if random.random() < 0.2:
                term.namespace_selector.SetInParent()
            expression = term.label_selector.match_expressions.add(key=random.choice(("app", "own", "nobody")))
            expression.operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
            if expression.operator in ("In", "NotIn"):
                expression.values.extend(random.sample((*APPS, str(random.randrange(20))), random.randint(1, 2)))
    return pod


def bound(random: Random, pod: Pod) -> Pod:
    there = Pod()
    there.CopyFrom(pod)
    there.spec.node_name = random.choice(("n0", "n1"))
    return there


def a_change(random: Random, kind: type, number: int) -> tuple[Any, Any]:
    """An object before and after; None before or after for some."""
    if kind is Node:
        name = f"n{random.randrange(3)}"
        old, new = random_node(random, name), random_node(random, name)
        new.metadata.labels["zone"] = random.choice("ab")
        return (None if random.random() < 0.3 else old), new
    if kind is Pod:
        old = bound(random, a_pod(random, number))
        other = random.choice((a_pod(random, number), tweaked(random, old)))
        new = other if random.random() < 0.2 else bound(random, other)
        return random.choice(((old, new), (None, new), (old, None)))
    thing, before = kind(), kind()
    for one in (thing, before):
        one.metadata.name = random.choice(("one", "two"))
        if isinstance(one, Service):
            one.metadata.namespace = one.metadata.name
            one.spec.selector["app"] = random.choice(APPS)
        else:
            one.metadata.labels["app"] = random.choice(APPS)
    return random.choice(((before, thing), (None, thing), (thing, None)))


ABOUT_ITSELF = ("NodeUnschedulable", "DefaultPreemption")
"""They answer about the pod's own updates, or about pods of one priority, which are not drawn."""

PREPARED = [
    (name, registration.event, registration.hint)
    for name, make in IN_TREE.items()
    for registration in registrations_of(make(None))
    if isinstance(registration.hint, PreparedHint)
]


def kind_of(resource: str) -> type:
    return {"Node": Node, "Namespace": Namespace, "Service": Service}.get(resource, Pod)


def answer(hint: PreparedHint, pod: Pod, change: tuple[Any, Any]) -> str:
    try:
        return hint(pod, *change).value
    except Exception as problem:
        return type(problem).__name__


@pytest.mark.parametrize(("plugin", "event", "hint"), PREPARED, ids=[f"{name} {event.label}" for name, event, _ in PREPARED])
def test_an_index_finds_the_pods_that_a_hint_asked_about_each_finds(
    plugin: str, event: Any, hint: PreparedHint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found pods leave, as they do in the queue, and some others; others come; and the same change comes again.

    In half of the worlds even a small crowd is remembered, and little of that.
    """
    woken = asked = 0
    for seed in range(12):
        if seed == 6:
            monkeypatch.setattr(hint_index, "REMEMBERED_MIN", 1)
            monkeypatch.setattr(hint_index, "LOOKS_MAX", 5)
        random, index, questions = Random(f"{plugin} {event.label} {seed}"), HintIndex(), TemplateHints()
        there: dict[str, tuple[QueuedPodInfo, HintEntry]] = {}
        kind, changes = kind_of(event.resource.value), []
        for step in range(60):
            for _ in range(random.randint(0, 3)):
                pod = a_pod(random, 100 * step + len(there))
                queued = QueuedPodInfo(PendingPod(pod.metadata.uid, pod.metadata.name, pod, template=pod.metadata.name), 0.0)
                there.setdefault(queued.key, (queued, index.add(queued, questions.of(queued, hint))))
            if changes and random.random() < 0.4:
                change = random.choice(changes)
            else:
                change = a_change(random, kind, 1000 + step)
                changes.append(change)
            expected = {
                key: told for key, (queued, _) in there.items() if (told := answer(hint, queued.pod, change)) != Hint.SKIP.value
            }
            try:
                look = hint.look(*change)
            except Exception as problem:
                # Every pod is worth an attempt then; so it is where it is asked about each.
                assert set(expected) == set(there) and set(expected.values()) <= {type(problem).__name__}
                continue
            anew = random.random() < 0.2
            found = set()
            for concerned in index.concerned(look, anew=anew):
                for asking in concerned:
                    asked += 1
                    try:
                        helps = hint.ask(asking.question, look) is not Hint.SKIP
                    except Exception:
                        helps = True
                    if helps:
                        found |= set(asking.pods)
            assert found == set(expected), (seed, step)
            assert sum(len(bucket.skipped) for bucket in index._buckets.values()) <= hint_index.LOOKS_MAX
            woken += len(found)
            if not anew:
                for key in found | ({random.choice(list(there))} if there and random.random() < 0.5 else set()):
                    queued, asking = there.pop(key)
                    index.remove(queued, asking)
    assert (asked and woken) or plugin in ABOUT_ITSELF, "a test of nothing"


@dataclass(frozen=True)
class AsksForLabel(ReadsNoLabels):
    """A question of its own for each number, all about the same label."""

    number: int

    @property
    def keys(self) -> tuple[str, ...]:
        return ("zone",)

    def __call__(self, look: Look) -> Hint:
        return Hint.SKIP


def an_index(questions: int) -> tuple[HintIndex, list[tuple[QueuedPodInfo, HintEntry]]]:
    index = HintIndex()
    pods = [QueuedPodInfo(pending(f"p{number}"), 0.0) for number in range(questions)]
    return index, [(pod, index.add(pod, AsksForLabel(number))) for number, pod in enumerate(pods)]


def asked_about(index: HintIndex, look: Look) -> list[int]:
    return [entry.number for entries in index.concerned(look, anew=False) for entry in entries]


@given(st.lists(st.integers(0, 6), max_size=40), st.integers(1, 4))
def test_as_many_looks_are_remembered_as_may_be_and_a_remembered_one_asks_nobody(zones: list[int], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hint_index, "LOOKS_MAX", most)
        index, there = an_index(REMEMBERED_MIN)
        remembered: set[int] = set()
        for zone in zones:
            expected = [] if zone in remembered else [entry.number for _, entry in there]
            assert asked_about(index, Look(after={"zone": str(zone)})) == expected
            if len(remembered) >= most and zone not in remembered:
                remembered = set()
            remembered.add(zone)


@pytest.mark.parametrize("most", [2, 3])
def test_what_a_handle_remembers_goes_with_its_last_question(most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hint_index, "LOOKS_MAX", most)
        index, there = an_index(REMEMBERED_MIN)
        assert asked_about(index, Look(after={"zone": "a"}))
        for pod, entry in there:
            index.remove(pod, entry)
        for pod, entry in there:
            index.add(pod, entry.question)
        for zone in "cd":
            assert len(asked_about(index, Look(after={"zone": zone}))) == REMEMBERED_MIN
        assert [asked_about(index, Look(after={"zone": zone})) for zone in "cd"] == [[], []], "there was room for both"


def test_few_questions_are_asked_each_time_and_a_new_one_is_asked_alone() -> None:
    few, _ = an_index(REMEMBERED_MIN - 1)
    look = Look(after={"zone": "a"})
    assert len(asked_about(few, look)) == len(asked_about(few, look)) == REMEMBERED_MIN - 1
    many, there = an_index(REMEMBERED_MIN)
    assert len(asked_about(many, look)) == REMEMBERED_MIN
    late = QueuedPodInfo(pending("late"), 0.0)
    entry = many.add(late, AsksForLabel(99))
    assert asked_about(many, look) == [entry.number] and asked_about(many, look) == []
    assert many.holds(late, entry) and not many.holds(there[0][0], entry)

"""Templates of which plugins read the same have one plan; those that were not asked about longest are forgotten."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from rayched.engine import plans
from rayched.engine.engine import Engine
from rayched.framework.plugin import PodPart
from rayched.framework.plugin_error import PluginError
from rayched.snapshot.templates import PodTemplate
from rayched.v1.core_pb2 import Pod
from tests.engine.spies import TEMPLATES, Spy, a_snapshot, a_template
from tests.engine.toy_plugins import a_profile
from tests.snapshot.objects import a_pod


class Asking(Spy):
    """Notes which pods it is asked the key of, by their label "name"."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []

    def key(self, pod: Pod) -> Hashable | None:
        self.keys.append(pod.metadata.labels["name"])
        return pod.metadata.labels["kind"]


class Bench:
    def __init__(self) -> None:
        self.plugin = Asking()
        self.engine = Engine(a_snapshot(), a_profile(filters=(self.plugin,), scores=(self.plugin,)))

    def asked(self, *templates: PodTemplate) -> list[str]:
        """Whose keys are asked for when these are evaluated one after the other."""
        self.plugin.keys.clear()
        for template in templates:
            self.engine.evaluate(template)
        return self.plugin.keys.copy()


def named(name: str, kind: str = "") -> PodTemplate:
    return a_template(name=name, kind=kind or name)


A, B, C, D = (named(name) for name in "abcd")


def test_a_template_is_asked_for_its_keys_once() -> None:
    bench = Bench()
    assert bench.asked(A, B, A, B) == ["a", "b"]
    assert bench.asked(A, B) == []


def test_the_template_that_was_not_asked_about_longest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "TEMPLATES_MAX", 3)
    bench = Bench()
    assert bench.asked(A, B, C, A, D) == ["a", "b", "c", "d"]
    assert bench.asked(C, A, D) == [], "b is the one that went"
    assert bench.asked(B) == ["b"]
    assert bench.asked(A, D, B) == [] and bench.asked(C) == ["c"]


def test_templates_are_kept_by_what_they_consist_of_and_the_last_one_always(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(A.content)
    monkeypatch.setattr(plans, "CONTENT_BYTES_MAX", 2 * size)
    bench = Bench()
    assert bench.asked(A, B, A, B, C) == ["a", "b", "c"]
    assert bench.asked(B, C) == [] and bench.asked(A) == ["a"]
    monkeypatch.setattr(plans, "CONTENT_BYTES_MAX", 1)
    assert bench.asked(B, B, C, C, B) == ["b", "c", "b"]


def test_what_was_forgotten_takes_no_columns_and_no_bytes_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "TEMPLATES_MAX", 2)
    bench = Bench()
    bench.asked(A)
    before, entries = bench.engine._store.n_bytes, len(bench.engine._store)
    assert before and entries
    bench.asked(B, C, D, A, B, C)
    # The sum of no plugins that read usage is one for all.
    assert len(bench.engine._store) == 2 * entries - 1 and before < bench.engine._store.n_bytes < 2 * before
    bench.engine._plans.drop_all()
    assert len(bench.engine._plans) == 0 and len(bench.engine._store) == 0
    assert bench.asked(C) == ["c"]


def test_templates_with_the_same_keys_share_their_columns_as_long_as_any_of_them_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    ones = [named(name, "one kind") for name in "stuv"]
    bench.asked(ones[0])
    bench.plugin.asked_again()
    assert bench.asked(*ones) == ["t", "u", "v"]
    assert bench.plugin.asked_again() == [] and len(bench.engine._plans) == 1
    monkeypatch.setattr(plans, "TEMPLATES_MAX", 1)
    bench.asked(named("w", "one kind"))
    assert bench.plugin.asked_again() == [], "the last one keeps them"
    bench.asked(A, named("s", "one kind"))
    assert bench.plugin.asked_again() != []


def test_an_attempt_that_a_plugin_ended_leaves_no_plan_behind() -> None:
    class Broken(Asking):
        def prepare(self, pod: Pod) -> None:
            raise ValueError("no such pod")

    engine = Engine(a_snapshot(), a_profile(filters=(Spy("Before"), Broken())))
    for _ in range(2):
        with pytest.raises(PluginError, match="no such pod"):
            engine.evaluate(A)
        assert len(engine._plans) == 0 and len(engine._store) == 0


class ReadsParts(Spy):
    """Notes the group of each pod that it is asked about, which is also its key."""

    def __init__(self, name: str, reads: PodPart) -> None:
        super().__init__(name)
        self.reads_pod = reads
        self.groups: list[str] = []

    def key(self, pod: Pod) -> Hashable | None:
        self.groups.append(pod.spec.scheduling_group.pod_group_name)
        return self.groups[-1]


@pytest.mark.parametrize(
    ("reads", "other", "asked"),
    [
        (PodPart.LEAST, PodPart.LEAST, ([""], [""])),
        (PodPart.LEAST, PodPart.LEAST & ~PodPart.NO_POD_GROUP, (["one", "two"], ["one", "two"])),
        (PodPart.LEAST, PodPart(0), (["", ""], ["one", "two"])),
        (PodPart.NO_POD_GROUP, PodPart.NO_POD_GROUP, (["", ""], ["", ""])),
    ],
)
def test_groups_tell_members_apart_where_a_plugin_reads_them(
    reads: PodPart, other: PodPart, asked: tuple[list[str], list[str]]
) -> None:
    first, second = ReadsParts("First", reads), ReadsParts("Second", other)
    engine = Engine(a_snapshot(), a_profile(filters=(first, second), scores=()))
    for name in ("one", "two"):
        pod = a_pod()
        pod.spec.scheduling_group.pod_group_name = name
        engine.evaluate(TEMPLATES.intern(pod))
    assert (first.groups, second.groups) == asked, "a key is asked for where pods are not known to be alike"

"""Labels and annotations of several authors: an apply takes back what it set itself, and nothing else."""

from __future__ import annotations

import pytest

from rayched.api.termination import JOB_TRACKING
from rayched.server.admission.last_applied import NOTE, add_note, merge, renew_note
from rayched.v1.meta_pb2 import ObjectMeta


def meta(labels: str = "", annotations: str = "", uid: str = "") -> ObjectMeta:
    """From texts like "a=1 b=2"."""
    found = ObjectMeta(uid=uid)
    for target, text in ((found.labels, labels), (found.annotations, annotations)):
        target.update(dict(pair.split("=") for pair in text.split()))
    return found


def applied(stored: ObjectMeta, manifest: ObjectMeta) -> ObjectMeta:
    result = ObjectMeta()
    result.CopyFrom(manifest)
    merge(stored, manifest, result)
    equal = (result.labels, result.annotations) == (stored.labels, stored.annotations)
    renew_note(manifest, result, equal)
    return result


def created(manifest: ObjectMeta) -> ObjectMeta:
    found = ObjectMeta()
    found.CopyFrom(manifest)
    add_note(found)
    return found


@pytest.mark.parametrize(
    ("first", "others", "second", "then"),
    [
        ("a=1", "", "a=1", "a=1"),
        ("a=1", "", "a=2", "a=2"),
        ("a=1 b=1", "", "a=1", "a=1"),
        ("a=1", "x=9", "a=1", "a=1 x=9"),
        ("a=1", "x=9", "", "x=9"),
        ("a=1", "a=9", "a=1", "a=1"),
        ("a=1", "a=9", "", ""),
        ("a=1", "x=9", "a=1 x=2", "a=1 x=2"),
    ],
)
def test_what_others_set_stays_and_what_a_manifest_gave_up_goes(first: str, others: str, second: str, then: str) -> None:
    for build in (lambda text: meta(labels=text), lambda text: meta(annotations=text)):
        stored = created(build(first))
        set_by_others = build(others)
        stored.labels.update(set_by_others.labels)
        stored.annotations.update(set_by_others.annotations)
        found = applied(stored, build(second))
        found.annotations.pop(NOTE)
        assert (found.labels, found.annotations) == (build(then).labels, build(then).annotations)


def test_a_label_that_a_manifest_took_over_is_its_own_from_then_on() -> None:
    stored = created(meta("a=1"))
    stored.labels["x"] = "9"
    taken = applied(stored, meta("a=1 x=9"))
    assert dict(applied(taken, meta("a=1")).labels) == {"a": "1"}


@pytest.mark.parametrize("note", ["", "[]", "{", '{"labels": 5}', '{"labels": [1, "b"]}'])
def test_without_a_note_of_ours_nothing_is_taken_away(note: str) -> None:
    stored = meta("a=1")
    if note:
        stored.annotations[NOTE] = note
    assert dict(applied(stored, meta("b=2")).labels) == {"a": "1", "b": "2"}


def test_what_get_gave_changes_nothing_and_keeps_the_note() -> None:
    for stored in (created(meta("a=1", uid="u")), meta("a=1", uid="u")):
        stored.labels["x"] = "9"
        shown = ObjectMeta()
        shown.CopyFrom(stored)
        assert applied(stored, shown) == stored


def with_lists(finalizers: str = "", owners: str = "", controller: str = "") -> ObjectMeta:
    found = ObjectMeta(finalizers=finalizers.split())
    for uid in owners.split():
        found.owner_references.add(api_version="v1", kind="K", name=uid, uid=uid)
    if controller:
        found.owner_references.add(api_version="batch/v1", kind="Job", name="count", uid=controller, controller=True)
    return found


def lists_of(found: ObjectMeta) -> tuple[list[str], list[str]]:
    return list(found.finalizers), [owner.uid for owner in found.owner_references]


@pytest.mark.parametrize(
    ("first", "others", "second", "then"),
    [
        # A pod that a job has adopted.
        (with_lists(), with_lists(JOB_TRACKING, "", "job"), with_lists(), ([JOB_TRACKING], ["job"])),
        (with_lists("a/b", "u"), with_lists("c/d", "v"), with_lists("a/b", "u"), (["a/b", "c/d"], ["u", "v"])),
        (with_lists("a/b", "u"), with_lists("c/d", "v"), with_lists(), (["c/d"], ["v"])),
        (with_lists("a/b", "u"), with_lists(), with_lists("c/d", "v"), (["c/d"], ["v"])),
        # As `get` gave it: what the job wrote has not become the manifest's.
        (with_lists(JOB_TRACKING, "", "job"), with_lists(), with_lists(), ([JOB_TRACKING], ["job"])),
        (with_lists(), with_lists("", "", "job"), with_lists("", "", "another"), ([], ["another"])),
    ],
)
def test_finalizers_and_owners_that_others_set_stay(
    first: ObjectMeta, others: ObjectMeta, second: ObjectMeta, then: tuple[list[str], list[str]]
) -> None:
    stored = created(first)
    stored.finalizers.extend(others.finalizers)
    stored.owner_references.extend(others.owner_references)
    found = applied(stored, second)
    assert lists_of(found) == then
    assert lists_of(applied(found, second)) == then

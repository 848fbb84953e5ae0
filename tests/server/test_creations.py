"""What becomes of objects that are created: results and counts, dry runs, refusals, answers that are given again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

import pytest

from rayched.api.kinds import POD, AnyObject, wrap
from rayched.server.admission.submissions import Created, Creation
from rayched.server.errors import ApiFailure, Code
from rayched.store.space import Space, SpaceState
from rayched.store.transactions import Guard, Outcome, OutcomeUnknown, Write
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import Stored
from rayched.v1.workloads_pb2 import Object
from tests.server.api_over_model import KEYS, ApiOverModel, codes
from tests.server.objects import a_namespace, a_node, a_pod, a_priority_class, a_runtime_class


def created(result: Creation) -> Created:
    assert isinstance(result, Created), result
    return result


def refused(result: Creation) -> ApiFailure:
    assert isinstance(result, ApiFailure), result
    return result


def a_generated_pod(prefix: str = "web-", uid: str = "") -> Pod:
    pod = a_pod("", namespace="default", uid=uid)
    pod.metadata.generate_name = prefix
    return pod


class Names:
    """Suffixes of generated names as they are drawn, in place of chance."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        letters = iter(text)
        monkeypatch.setattr("secrets.choice", lambda _: next(letters))


# ------------------------------------------------------------------------------------------------------- results and counts


def test_each_object_has_a_result_in_order_and_counts() -> None:
    api = ApiOverModel()
    batch: list[AnyObject] = [a_pod("a"), a_pod("b", cpu="much"), Pod(), a_pod("c", namespace="nowhere"), a_node("n"), a_pod("a")]
    assert codes(api.create(*batch)) == ["OK", "INVALID_ARGUMENT", "INVALID_ARGUMENT", "NOT_FOUND", "OK", "ALREADY_EXISTS"]
    assert api.creator.counts == {"OK": 2, "INVALID_ARGUMENT": 2, "NOT_FOUND": 1, "ALREADY_EXISTS": 1}
    assert codes(api.create(a_pod("d"))) == ["OK"] and api.creator.counts["OK"] == 3


def test_an_object_of_no_kind_fails_alone() -> None:
    api = ApiOverModel()
    found = asyncio.run(api.creator.create([Object(), wrap(a_pod("a"))]))
    assert codes(found) == ["INVALID_ARGUMENT", "OK"]


def test_what_is_created_is_what_is_stored() -> None:
    api = ApiOverModel()
    found = created(api.create(a_pod("a", namespace="default", uid="uid-a"))[0])
    stored = api.stored(a_pod("a", namespace="default"))
    assert stored is not None and found.item is not None
    assert (found.uid, found.revision, found.warnings) == ("uid-a", api.store.model.revision, ())
    assert (found.key.kind, found.key.namespace, found.key.name) == ("Pod", "default", "a")
    assert found.item.pod.metadata.resource_version == str(found.revision)
    assert stored.pod.metadata.creation_timestamp.seconds > 0 and stored.pod.metadata.generation == 1
    stored.pod.metadata.resource_version = str(found.revision)
    assert found.item == stored


def test_each_object_without_a_uid_gets_one_of_its_own() -> None:
    api = ApiOverModel()
    uids = [created(one).uid for one in api.create(a_pod("a"), a_pod("b"))]
    assert len(set(uids)) == 2 and all(re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uid) for uid in uids)


def test_classes_and_namespaces_of_a_batch_are_created_first() -> None:
    api = ApiOverModel()
    pod = a_pod("a", namespace="new")
    pod.spec.priority_class_name, pod.spec.runtime_class_name = "high", "kata"
    batch: list[AnyObject] = [pod, a_runtime_class("kata", cpu="10m"), a_priority_class("high", 1000), a_namespace("new")]
    assert codes(api.create(*batch)) == ["OK"] * 4
    stored = api.stored(pod)
    assert stored is not None and stored.pod.spec.priority == 1000 and "cpu" in stored.pod.spec.overhead


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda pod: setattr(pod.metadata, "resource_version", "7"), "metadata.resourceVersion"),
        (lambda pod: setattr(pod.metadata, "name", "Not a name"), "metadata.name"),
    ],
)
def test_an_object_that_is_none_of_a_new_one_is_refused(change: Callable[[Pod], object], message: str) -> None:
    pod = a_pod("a")
    change(pod)
    found = refused(ApiOverModel().create(pod)[0])
    assert [one.field for one in found.violations] == [message] and found.code is Code.INVALID_ARGUMENT


def test_all_that_is_wrong_is_told_at_once() -> None:
    pod = a_pod("a", cpu="much")
    pod.metadata.resource_version = "7"
    assert len(refused(ApiOverModel().create(pod)[0]).violations) == 2


@pytest.mark.parametrize(
    ("stored", "batch", "found"),
    [
        ([], ["a!"], ["OK"]),
        ([], ["a!", "b!"], ["OK", "INVALID_ARGUMENT"]),
        ([], ["a", "b!", "c"], ["OK", "OK", "OK"]),
        (["a!"], ["b!"], ["INVALID_ARGUMENT"]),
        (["a!"], ["b"], ["OK"]),
        ([], ["Wrong!", "b!"], ["INVALID_ARGUMENT", "OK"]),
    ],
)
def test_there_is_one_default_class(stored: list[str], batch: list[str], found: list[str]) -> None:
    classes = [[a_priority_class(name.rstrip("!"), 5, is_default="!" in name) for name in names] for names in (stored, batch)]
    api = ApiOverModel(*classes[0])
    assert codes(api.create(*classes[1])) == found


# ------------------------------------------------------------------------------------------------------------- dry runs


def test_a_dry_run_tells_what_would_be_created_and_writes_nothing() -> None:
    api = ApiOverModel()
    before = dict(api.store.model.now)
    results = api.create(a_pod("a", namespace="default", uid="uid-a"), a_pod("b", cpu="much"), a_node("n"), dry_run=True)
    assert codes(results) == ["OK", "INVALID_ARGUMENT", "OK"]
    found = created(results[0])
    assert found.item is not None and found.item.pod.metadata.resource_version == "" and found.revision == 0
    assert found.item.pod.spec.scheduler_name == "default-scheduler" and found.key.name == "a"
    assert api.store.model.now == before and not api.creator.counts and not api.store.requests


def test_a_dry_run_finds_what_is_there_already() -> None:
    api = ApiOverModel()
    first = created(api.create(a_pod("a", uid="uid-a"))[0])
    again, taken, other = api.create(
        a_pod("a", uid="uid-a"), a_pod("a", uid="uid-b"), a_pod("b", uid="uid-a", cpu="2"), dry_run=True
    )
    assert (created(again).uid, created(again).revision) == ("uid-a", first.revision)
    assert refused(taken).code is Code.ALREADY_EXISTS and "Pod default/a already exists" in refused(taken).message
    assert refused(other).code is Code.ALREADY_EXISTS and "submitted with other content" in refused(other).message


def test_a_dry_run_draws_another_name_where_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ApiOverModel()
    api.create(a_pod("web-bbbbb"))
    Names(monkeypatch, "bbbbbccccc")
    assert created(api.create(a_generated_pod(), dry_run=True)[0]).key.name == "web-ccccc"


# ------------------------------------------------------------------------------------------------------ space in the store


def test_where_space_is_short_nothing_new_is_taken_but_answers_are_given_again() -> None:
    api = ApiOverModel()
    first = created(api.create(a_pod("a", uid="uid-a"))[0])
    api.gate.found(Space(SpaceState.TIGHT, 99, 90, 100))
    again, new = api.create(a_pod("a", uid="uid-a"), a_pod("b"))
    assert created(again).revision == first.revision
    assert refused(new).code is Code.RESOURCE_EXHAUSTED and refused(new).message.startswith("Pod default/b: ")
    assert api.stored(a_pod("b", namespace="default")) is None
    assert codes(api.create(a_pod("b"), dry_run=True)) == ["OK"]


def test_what_is_taken_counts_as_written() -> None:
    api = ApiOverModel()
    api.gate.found(Space(SpaceState.AMPLE, 0, 0, 10_000))
    taken = 0
    while codes(api.create(a_pod(f"pod-{taken}"))) == ["OK"]:
        taken += 1
    # Each is written three times, until four fifths are used up.
    size = len(api.store.model.now[KEYS.object_key(POD, "default", "pod-0")].value)
    assert abs(taken - 8_000 / 3 / size) <= 1


# ---------------------------------------------------------------------------------------------------------- names and marks


def test_another_name_is_drawn_where_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ApiOverModel()
    api.create(a_pod("web-bbbbb"))
    Names(monkeypatch, "bbbbbcccccddddd")
    found = created(api.create(a_generated_pod(uid="uid-1"))[0])
    assert found.key.name == "web-ccccc"
    # The same uid again: the record has the name.
    assert created(api.create(a_generated_pod(uid="uid-1"))[0]).key.name == "web-ccccc"


def test_after_four_names_that_are_taken_the_caller_may_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ApiOverModel()
    api.create(*(a_pod(f"web-{5 * letter}") for letter in "bcdf"))
    Names(monkeypatch, "bbbbbcccccdddddfffffggggg")
    found = refused(api.create(a_generated_pod())[0])
    assert found.code is Code.ABORTED and len(api.store.requests) == 1 + 4


@pytest.mark.parametrize(("prefix", "kept"), [("web-", 4), ("x" * 58, 58), ("x" * 59, 58), ("x" * 300, 58)])
def test_a_generated_name_is_its_prefix_and_five_letters(prefix: str, kept: int) -> None:
    name = created(ApiOverModel().create(a_generated_pod(prefix))[0]).key.name
    assert len(name) == kept + 5 and name.startswith(prefix[:kept])
    assert re.fullmatch("[bcdfghjklmnpqrstvwxz2456789]{5}", name[kept:])


def test_a_name_counts_before_a_prefix() -> None:
    pod = a_generated_pod()
    pod.metadata.name = "own"
    assert created(ApiOverModel().create(pod)[0]).key.name == "own"


def test_a_pod_that_names_its_node_marks_the_room_that_it_takes() -> None:
    api = ApiOverModel()
    before = set(api.store.model.now)
    assert codes(api.create(a_pod("b", uid="uid-b"))) == ["OK"]
    assert set(api.store.model.now) - before == {KEYS.submission("uid-b"), KEYS.object_key(POD, "default", "b")}
    assert KEYS.taken("node-1") not in api.store.model.now
    assert codes(api.create(a_pod("a", node="node-1"))) == ["OK"]
    assert KEYS.taken("node-1") in api.store.model.now


# -------------------------------------------------------------------------------------------------- pods that are known alike


def leave_the_name_open(pod: Pod) -> None:
    pod.metadata.name, pod.metadata.generate_name = "", "web-"


@pytest.mark.parametrize(
    ("change", "is_learnt"),
    [
        (lambda _: None, True),
        (lambda pod: setattr(pod.spec, "node_name", "node-1"), False),
        (leave_the_name_open, False),
    ],
)
def test_which_pods_others_are_known_by(change: Callable[[Pod], object], is_learnt: bool) -> None:
    api = ApiOverModel()
    for number in range(3):
        pod = a_pod(f"web-{number}", uid=f"uid-{number}")
        change(pod)
        assert codes(api.create_many(pod)) == ["OK"]
    pod = a_pod("web-7", uid="uid-7")
    change(pod)
    result = created(api.create_many(pod)[0])
    assert (result.item is None) == is_learnt


def test_bytes_that_say_the_same_in_another_order_are_known_too() -> None:
    api = ApiOverModel()
    labels = {f"label-{number}": "x" for number in range(9)}
    for number in range(3):
        api.create_many(a_pod(f"web-{number}", uid=f"uid-{number}", labels=labels))
    usual = wrap(a_pod("web-7", uid="uid-7", labels=labels)).SerializeToString(deterministic=True)
    # A field that comes twice: the later one counts.
    other = usual + Object(pod=Pod(metadata={"name": "web-7"})).SerializeToString()
    (found,) = asyncio.run(api.creator.create_many([other]))
    assert created(found).item is None and created(found).key.name == "web-7"
    # Its content is what the bytes mean.
    (again,) = asyncio.run(api.creator.create_many([usual]))
    assert created(again).revision == created(found).revision


# ------------------------------------------------------------------------------------------- answers that are given again


class NoAnswer(ApiOverModel):
    """Transactions get no answer."""

    def __init__(self) -> None:
        super().__init__()

        async def send(guard: Guard | None, batch: Sequence[Write]) -> list[Outcome]:
            return [OutcomeUnknown("too late")] * len(batch)

        self.store.send = send  # type: ignore[method-assign]


def test_without_an_answer_nobody_knows_and_the_caller_may_ask_again() -> None:
    found = refused(NoAnswer().create(a_pod("a", uid="uid-a"))[0])
    assert found.code is Code.UNAVAILABLE and "not known whether it was written" in found.message


@pytest.mark.parametrize("uid", ["uid-a", ""])
def test_one_that_is_refused_is_asked_for_only_where_it_may_have_been_accepted(uid: str) -> None:
    api = ApiOverModel()
    api.create(a_pod("b"))
    api.store.reads = 0
    assert codes(api.create(a_pod("b", uid=uid, cpu="much"))) == ["INVALID_ARGUMENT"]
    assert api.store.reads == (1 if uid else 0)
    assert codes(api.create(a_pod("c", uid="uid-c"))) == ["OK"] and api.store.reads == (1 if uid else 0)


def test_an_accepted_pod_is_answered_again_though_its_class_has_gone() -> None:
    api = ApiOverModel(a_priority_class("high", 1000))
    pod = a_pod("a", uid="uid-a")
    pod.spec.priority_class_name = "high"
    first = created(api.create(pod)[0])
    revision = api.store.model.delete(api.key_of(a_priority_class("high", 1000)))
    api.hub.listed(list(api.store.model.now.values()), revision)
    other = a_pod("b", uid="uid-b")
    other.spec.priority_class_name = "high"
    again, new = api.create(pod, other)
    assert created(again)[:4] == first[:4] and created(again).item is None
    assert refused(new).code is Code.INVALID_ARGUMENT


class Answered:
    """One pod that was created, and what its answer is when it is given again."""

    def __init__(self) -> None:
        self.api = ApiOverModel()
        self.pod = a_pod("a", namespace="default", uid="uid-a")
        self.first = created(self.api.create(self.pod)[0])
        self.again = created(self.api.create(self.pod)[0])

    def write(self, uid: str = "uid-a") -> None:
        self.api.put(a_pod("a", namespace="default", uid=uid, labels={"changed": "yes"}))

    def as_created(self) -> Pod:
        return asyncio.run(self.api.creator.as_created(self.again)).pod


def test_an_answer_has_the_object_as_it_was_created() -> None:
    told = Answered()
    assert told.again.item is None and told.first.item is not None
    for happens in (lambda: None, told.write, lambda: told.api.store.model.delete(told.api.key_of(told.pod))):
        happens()
        assert told.as_created() == told.first.item.pod
    reads = told.api.store.reads
    assert asyncio.run(told.api.creator.as_created(told.first)) is told.first.item and told.api.store.reads == reads


@pytest.mark.parametrize(("uid", "is_whole"), [("uid-a", True), ("uid-b", False), (None, False)])
def test_where_its_history_is_gone_an_answer_has_the_object_as_it_is(uid: str | None, is_whole: bool) -> None:
    told = Answered()
    if uid is None:
        told.api.store.model.delete(told.api.key_of(told.pod))
    else:
        told.write(uid)
    told.api.store.compacted = told.api.store.model.revision
    found = told.as_created()
    assert (found.metadata.name, found.metadata.namespace, found.metadata.uid) == ("a", "default", "uid-a")
    assert bool(found.spec.containers) == is_whole == (found.metadata.labels.get("changed") == "yes")


def test_one_whose_name_begins_like_another_is_not_taken_for_it() -> None:
    told = Answered()
    told.api.create(a_pod("a-2", uid="uid-2"))
    told.again = told.again._replace(revision=told.api.store.model.delete(told.api.key_of(told.pod)))
    assert not told.as_created().spec.containers and told.as_created().metadata.uid == "uid-a"


# --------------------------------------------------------------------------------------------------------- what else counts


def test_a_uid_that_cannot_be_a_key_is_refused() -> None:
    assert codes(ApiOverModel().create(a_pod("a", uid="uid/a"), a_pod("b"))) == ["INVALID_ARGUMENT", "OK"]


def test_the_system_namespaces_that_are_not_there_yet_are_waited_for() -> None:
    api = ApiOverModel()
    assert codes(api.create(a_pod("a", namespace="kube-system"), a_pod("b", namespace="nowhere"))) == ["UNAVAILABLE", "NOT_FOUND"]


def test_a_stored_pod_has_no_version_in_it() -> None:
    api = ApiOverModel()
    api.create(a_pod("a", namespace="default"))
    entry = api.store.model.now[api.key_of(a_pod("a", namespace="default"))]
    assert Stored.FromString(entry.value).object.pod.metadata.resource_version == ""

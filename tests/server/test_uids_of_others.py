"""A uid that another namespace had before: the object is created with one of its own, and nothing of the other is told."""

from __future__ import annotations

import time

import pytest

from rayched.api.job_labels import CONTROLLER_UID
from rayched.api.kinds import AnyObject
from rayched.server.admission.submissions import Created, Creation
from rayched.server.errors import Code
from rayched.store.removals import RECORD_KEPT_MS
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import SubmissionRecord
from rayched.v1.workloads_pb2 import Job
from tests.server.api_over_model import KEYS, ApiOverModel, codes
from tests.server.objects import a_namespace, a_node, a_pod
from tests.server.test_creations import a_generated_pod, created, refused

UID = "job-4711"


class TwoTeams(ApiOverModel):
    """team-a's pod `secret-name` has the uid."""

    def __init__(self) -> None:
        super().__init__(a_namespace("team-a"), a_namespace("team-b"))
        self.theirs = created(self.create(a_pod("secret-name", namespace="team-a", uid=UID))[0])

    def record(self, key: bytes) -> SubmissionRecord:
        return SubmissionRecord.FromString(self.store.model.now[key].value)

    def let_expire(self, at_ms: int) -> None:
        """As a deletion writes it."""
        record = self.record(KEYS.submission(UID))
        record.expires_at_ms = at_ms
        self.store.model.put(KEYS.submission(UID), record.SerializeToString())

    def uids(self) -> list[str]:
        """Of all pods."""
        return [pod.metadata.uid for pod in self.store.model.pods().values()]


def ours(name: str = "own") -> Pod:
    return a_pod(name, namespace="team-b", uid=UID)


def job() -> Job:
    found = Job(metadata={"name": "own", "namespace": "team-b", "uid": UID})
    found.spec.template.spec.restart_policy = "Never"
    found.spec.template.spec.containers.add(name="main", image="registry.example/a:1").resources.requests["cpu"].string = "10m"
    return found


def said(result: Creation) -> str:
    return " ".join([*result.warnings, str(result.key)]) if isinstance(result, Created) else result.message


@pytest.mark.row("B70")
def test_it_is_created_with_a_uid_of_its_own_and_nothing_is_said_of_the_other() -> None:
    api = TwoTeams()

    found = created(api.create(ours())[0])

    assert found.uid not in ("", UID) and found.uid in api.uids() and UID in api.uids() and len(set(api.uids())) == 2
    assert f"metadata.uid: is {found.uid}, as the one that was sent was taken" in found.warnings
    assert "team-a" not in said(found) and "secret-name" not in said(found)
    assert api.record(KEYS.submission(UID)).key.name == "secret-name"
    for key in (KEYS.submission_in("team-b", UID), KEYS.submission(found.uid)):
        assert (api.record(key).key.name, api.record(key).uid) == ("own", found.uid)


def test_the_same_again_gets_the_same_answer_in_both_namespaces() -> None:
    api = TwoTeams()
    first = created(api.create(ours())[0])
    for _ in range(2):
        assert created(api.create(ours())[0])[:4] == first[:4]
        assert created(api.create(a_pod("secret-name", namespace="team-a", uid=UID))[0])[:4] == api.theirs[:4]
    other = refused(api.create(a_pod("own", namespace="team-b", uid=UID, cpu="2"))[0])
    assert other.code is Code.ALREADY_EXISTS and "Pod team-b/own" in other.message and len(api.uids()) == 2


@pytest.mark.parametrize("is_alike", [False, True])
def test_whole_batches_are_judged_as_one_by_one(is_alike: bool) -> None:
    """Both namespaces send one uid in one call, twice."""
    api = TwoTeams()
    batch: list[AnyObject] = [a_pod(f"web-{number}", namespace="team-b", uid=f"uid-{number}") for number in range(3)]
    if is_alike:
        for pod in batch:
            api.create_many(pod)
    new = [a_pod("x", namespace="team-a", uid="uid-x"), a_pod("web-x", namespace="team-b", uid="uid-x")]
    found = api.create_many(*new, *new, ours("web-4"))
    assert codes(found) == ["OK"] * 5
    assert created(found[0])[:2] == created(found[2])[:2] and created(found[1])[:2] == created(found[3])[:2]
    assert created(found[0]).uid == "uid-x" and created(found[1]).uid != "uid-x"
    assert len(api.uids()) == len(set(api.uids())) == 4 + 3 * is_alike
    # Nothing was learnt of the one that was drawn.
    assert created(api.create_many(a_pod("web-9", namespace="team-b", uid="uid-9"))[0]).uid == "uid-9"


def test_a_job_knows_its_pods_by_the_uid_that_it_has() -> None:
    api = TwoTeams()
    found = created(api.create(job())[0])
    stored = api.stored(job())
    assert stored is not None and found.uid == stored.job.metadata.uid != UID
    assert dict(stored.job.spec.selector.match_labels) == {CONTROLLER_UID: found.uid}
    assert stored.job.spec.template.metadata.labels[CONTROLLER_UID] == found.uid


def test_kinds_without_a_namespace_have_a_place_of_their_own() -> None:
    api = TwoTeams()
    node = a_node("node-1")
    node.metadata.uid = UID
    found = created(api.create(node)[0])
    assert api.record(KEYS.submission_in("", UID)).uid == found.uid != UID
    assert KEYS.submission_in("", UID) == b"/rayched/submissions/_cluster/job-4711"
    assert created(api.create(node)[0])[:2] == found[:2]
    assert created(api.create(ours())[0]).uid not in (UID, found.uid)


def test_a_dry_run_takes_nothing_and_ends_as_the_creation_would() -> None:
    api = TwoTeams()
    before = dict(api.store.model.now)
    found = created(api.create(ours(), dry_run=True)[0])
    assert found.uid != UID and "as the one that was sent was taken" in said(found)
    assert api.store.model.now == before


@pytest.mark.parametrize("expires_in_ms", [-60_000, 1_000, RECORD_KEPT_MS + 60_000])
def test_the_other_record_is_there_for_as_long_as_somebody_may_ask_again(expires_in_ms: int) -> None:
    """Else the uid that was sent would seem to be new, and one more object would be created."""
    api = TwoTeams()
    now_ms = int(time.time() * 1000)
    api.let_expire(now_ms + expires_in_ms)
    created(api.create(ours())[0])
    left_ms = api.record(KEYS.submission(UID)).expires_at_ms - now_ms
    assert max(RECORD_KEPT_MS, expires_in_ms) - 2_000 < left_ms < max(RECORD_KEPT_MS, expires_in_ms) + 60_000


def test_a_record_that_goes_meanwhile_leaves_the_uid_to_who_asks() -> None:
    api = TwoTeams()
    pod = a_generated_pod(uid=UID)
    pod.metadata.namespace = "team-b"

    def collect_before_the_second_try() -> None:
        api.store.before_next = lambda: api.store.model.delete(KEYS.submission(UID)) and None

    api.store.before_next = collect_before_the_second_try
    found = created(api.create(pod)[0])
    assert created(api.create(pod)[0])[:4] == found[:4]
    assert len(api.uids()) == 2


def test_one_that_is_refused_is_told_its_own_fault() -> None:
    api = TwoTeams()
    failure = refused(api.create(a_pod("own", namespace="team-b", uid=UID, cpu="much"))[0])
    assert failure.code is Code.INVALID_ARGUMENT and "secret-name" not in failure.message
    api.create(ours())
    taken = refused(api.create(a_pod("own", namespace="team-b", uid="uid-other"))[0])
    assert taken.code is Code.ALREADY_EXISTS and "secret-name" not in taken.message

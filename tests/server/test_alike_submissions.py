"""Pods like one that was admitted before are stored as those that go through admission, and answered alike."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from rayched.api.kinds import NAMESPACE, PRIORITY_CLASS, wrap
from rayched.server.admission import creation
from rayched.server.admission.admission import Admission
from rayched.server.admission.creation import Creator
from rayched.server.admission.submissions import Created, Creation
from rayched.server.errors import ApiFailure
from rayched.server.objects import Objects
from rayched.server.watching.changes import EventEncoder
from rayched.server.watching.watch_hub import WatchHub
from rayched.store.codec import encode
from rayched.store.entries import Entry, Reading
from rayched.store.keys import Keys
from rayched.store.transactions import Committed, GuardedPut, Outcome, Write, split
from rayched.v1.core_pb2 import Namespace, Pod
from rayched.v1.storage_pb2 import Stored, SubmissionRecord
from rayched.v1.workloads_pb2 import PriorityClass

KEYS = Keys()
NAMES = ("a", "b", "web-1", "web-2", "web-10", "UPPER", "")
UIDS = ("uid-1", "uid-2", "uid-10", "not a uid", "with/slash", "")


class Recorder:
    """A store that takes every write and has no object."""

    def __init__(self) -> None:
        self.writes: list[GuardedPut] = []

    async def send(self, guard: None, batch: Sequence[Write]) -> list[Outcome]:
        self.writes += [write for write in batch if isinstance(write, GuardedPut)]
        return [Committed(len(self.writes))] * len(batch)

    async def commit(self, guard: None, writes: Sequence[Write]) -> list[Outcome]:
        return [outcome for batch in split(writes) for outcome in await self.send(guard, batch)]

    async def get_many(self, keys: Sequence[bytes]) -> Reading:
        return Reading((None,) * len(keys), 1)


class Api:
    """A Creator over a hub that knows the namespace default."""

    def __init__(self) -> None:
        self.store = Recorder()
        self.hub = WatchHub(KEYS.parse, EventEncoder())
        namespace = Namespace()
        namespace.metadata.name = "default"
        self.hub.listed([Entry(KEYS.object_key(NAMESPACE, "", "default"), encode(wrap(namespace)), 5, 5)], 5)
        ready = asyncio.Event()
        ready.set()
        objects = Objects(self.store, KEYS)  # type: ignore[arg-type]
        self.admission = Admission(self.hub, objects, ready)
        self.creator = Creator(objects, self.admission)

    def submit(self, *pods: Pod, whole: bool = False) -> list[Creation]:
        if not whole:
            return asyncio.run(self.creator.create_many([wrap(pod).SerializeToString() for pod in pods]))
        return asyncio.run(self.creator.create([wrap(pod) for pod in pods]))


def a_pod(name: str, uid: str, app: str = "web", cpu: str = "1", seconds: int = 0, phase: str = "") -> Pod:
    pod = Pod()
    pod.metadata.name, pod.metadata.uid, pod.metadata.labels["app"] = name, uid, app
    if seconds:
        pod.metadata.creation_timestamp.seconds = seconds
    if phase:
        pod.status.phase = phase
    pod.spec.containers.add(name="main", image="image").resources.requests["cpu"].string = cpu
    return pod


PODS = st.builds(
    a_pod,
    st.sampled_from(NAMES),
    st.sampled_from(UIDS),
    st.sampled_from(["web", "web", "db"]),
    st.sampled_from(["1", "1", "1", "2", "not a quantity"]),
    st.sampled_from([0, 0, 0, 1_700_000_000]),
    st.sampled_from(["", "", "", "Running"]),
)


def told(result: Creation) -> object:
    if isinstance(result, ApiFailure):
        return result.code, result.message, result.violations
    return result.warnings, result.key


@pytest.fixture(autouse=True, scope="module")
def at_one_time() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(creation, "timestamp_now", lambda: Timestamp(seconds=1_800_000_000))
    yield
    patch.undo()


@given(st.lists(PODS, max_size=12))
def test_what_is_stored_and_answered_is_that_of_a_server_that_has_seen_nothing_before(pods: list[Pod]) -> None:
    api = Api()
    for pod in pods:
        fresh = Api()
        before = len(api.store.writes)
        (found,), (expected,) = api.submit(pod), fresh.submit(pod, whole=True)
        if not pod.metadata.uid:
            # Each is given another.
            assert isinstance(found, Created) == isinstance(expected, Created)
            continue
        assert told(found) == told(expected)
        assert api.store.writes[before:] == fresh.store.writes


def test_the_third_pod_of_a_kind_does_not_go_through_admission() -> None:
    api = Api()
    for number in range(1, 6):
        (created,) = api.submit(a_pod(f"web-{number}", f"uid-{number}"))
        assert isinstance(created, Created) and (created.item is None) == (number > 2)
    assert api.admission.n_known == 1
    assert len(api.store.writes) == 5


@pytest.mark.parametrize(("name", "uid"), [("UPPER", "uid-3"), ("web-3", "uid 3"), ("web-3", "uid/3")])
def test_a_pod_of_a_known_kind_is_judged_by_its_name_and_its_uid(name: str, uid: str) -> None:
    api = Api()
    for number in range(4):
        api.submit(a_pod(f"web-{number}", f"uid-{number}"))
    (found,), (expected,) = api.submit(a_pod(name, uid)), Api().submit(a_pod(name, uid))
    assert isinstance(found, ApiFailure) and told(found) == told(expected)


def test_a_time_of_another_length_is_not_put_where_another_was() -> None:
    api = Api()
    pod = a_pod("web-3", "uid-3")
    for number in range(3):
        api.submit(a_pod(f"web-{number}", f"uid-{number}"))
    content, time = wrap(pod).SerializeToString(deterministic=True), creation.timestamp_now().SerializeToString()
    assert api.admission.alike.find(content, time) is not None
    assert api.admission.alike.find(content, time[:-1]) is None


def test_a_caller_that_wants_the_object_gets_it() -> None:
    api = Api()
    api.submit(*(a_pod(f"web-{number}", f"uid-{number}") for number in range(1, 6)))
    (created,) = api.submit(a_pod("web-7", "uid-7"), whole=True)
    assert isinstance(created, Created) and created.item is not None
    assert created.item.pod.metadata.name == "web-7" and created.item.pod.metadata.resource_version == str(created.revision)


def test_what_was_admitted_before_is_forgotten_when_a_class_changes() -> None:
    api = Api()
    for number in range(1, 4):
        api.submit(a_pod(f"web-{number}", f"uid-{number}"))
    important = PriorityClass(value=7, global_default=True)
    important.metadata.name = "important"
    api.hub.changed([Entry(KEYS.object_key(PRIORITY_CLASS, "", "important"), encode(wrap(important)), 9, 9)], 9)
    api.submit(a_pod("web-4", "uid-4"))
    priorities = [Stored.FromString(write.value).object.pod.spec.priority for write in api.store.writes]
    assert priorities == [0, 0, 0, 7]


def test_nothing_is_created_of_a_batch_with_bytes_that_are_no_object() -> None:
    api = Api()
    api.submit(a_pod("web-1", "uid-1"), whole=True)
    good = wrap(a_pod("web-2", "uid-2")).SerializeToString()
    with pytest.raises(DecodeError):
        asyncio.run(api.creator.create_many([good, b"\xff"]))
    assert len(api.store.writes) == 1


@pytest.mark.parametrize("name", ["web-1", 25 * "name." + "and-more-of-it"])
def test_the_record_of_a_submission_is_as_protobuf_would_serialise_it(name: str) -> None:
    api = Api()
    pod = a_pod(name, "uid-1", phase="Running")
    namespace = Namespace()
    namespace.metadata.name, namespace.metadata.uid = name.replace(".", "-")[:59], "uid-2"
    content = wrap(pod).SerializeToString(deterministic=True)
    assert all(isinstance(one, Created) for one in asyncio.run(api.creator.create([wrap(pod), wrap(namespace)])))
    expected = SubmissionRecord(digest=hashlib.sha256(content).digest(), uid="uid-1")
    expected.key.kind, expected.key.namespace, expected.key.name = "Pod", "default", name
    expected.warnings.append("status: left out, it is not set by whoever creates the object")
    records = {key: value for write in api.store.writes for key, value in write.with_puts}
    assert records[KEYS.submission("uid-1")] == expected.SerializeToString()
    other = SubmissionRecord.FromString(records[KEYS.submission("uid-2")])
    assert (other.key.kind, other.key.namespace, other.key.name) == ("Namespace", "", namespace.metadata.name)
    assert not other.warnings

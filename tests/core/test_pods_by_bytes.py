"""Pods that are read from their bytes by parts: what is known of them is what a full reading finds."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayched.api import kinds
from rayched.api.wire import framed
from rayched.core.cache.cache import Cache
from rayched.core.cache.records import PodChanged, PodRecord
from rayched.snapshot.templates import PodTemplate
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import LeaderWrite
from tests.api.random_objects import SEEDS, random_pod
from tests.core.builders import a_pod
from tests.core.test_pods_alike import KEYS, a_cache, entry

FACTS = [name for name in PodTemplate.__slots__ if name != "id" and not name.startswith("_")] + ["pod"]


def stored_pod(seed: int) -> Pod:
    """Any pod, but such that most of them are of the usual form."""
    source = random.Random(seed)
    pod = random_pod(source)
    metadata, spec = pod.metadata, pod.spec
    pod.api_version, pod.kind = "v1", "Pod"
    metadata.name, metadata.namespace, metadata.uid = "web-1", source.choice(["default", "d"]), "uid-1"
    metadata.ClearField("resource_version")
    for message, fields in (
        (metadata, ("generate_name", "generation", "deletion_timestamp", "deletion_grace_period_seconds", "finalizers")),
        (spec, ("node_name", "resources", "overhead", "affinity", "init_containers")),
        (pod, ("status", "api_version", "kind")),
    ):
        for field in fields:
            if source.random() < 0.85:
                message.ClearField(field)
    if source.random() < 0.5:
        pod.status.phase = "Pending"
    return pod


def facts(template: PodTemplate) -> dict[str, object]:
    return {name: getattr(template, name) for name in FACTS}


def read_as_a_whole(one: Entry) -> tuple[Cache, PodRecord | None]:
    cache = a_cache()
    changes = list(cache._put(one))
    assert len(changes) <= 1
    return cache, next((change.new for change in changes if isinstance(change, PodChanged)), None)


def assert_read_the_same(one: Entry) -> bool:
    """Whether the pod was read by its parts."""
    cache = a_cache()
    change = cache._quick_pod(one)
    if change is None:
        assert not cache._pods and not cache._revisions
        return False
    other, expected = read_as_a_whole(one)
    found = change.new
    assert not other.poisoned and found is not None and expected is not None
    assert found._replace(template=expected.template) == expected
    assert facts(found.template) == facts(expected.template)
    metadata, *spec = found.template.bare
    assert (framed(3, metadata) + framed(4, b"".join(spec)),) == expected.template.bare
    # Read the other way, it has the very same template.
    assert cache._templates._of(expected.template.pod) is found.template
    return True


@settings(deadline=None, max_examples=300)
@given(SEEDS)
def test_any_pod_is_read_by_its_parts_as_it_is_as_a_whole(seed: int) -> None:
    assert_read_the_same(entry(stored_pod(seed), 3))


@settings(deadline=None, max_examples=300)
@given(SEEDS, st.integers(0, 2**31), st.integers(0, 255))
def test_bytes_that_are_not_what_they_were_are_read_the_same_or_left_to_the_full_reading(seed: int, at: int, byte: int) -> None:
    key, value, created, revision = entry(stored_pod(seed), 3)
    at %= len(value)
    for changed in (value[:at] + bytes([byte]) + value[at + 1 :], value[:at], value[:at] + value[at + 1 :], value + value[at:]):
        assert_read_the_same(Entry(key, changed, created, revision))


def test_most_pods_are_read_by_their_parts() -> None:
    n_read = sum(assert_read_the_same(entry(stored_pod(seed), 3)) for seed in range(200))
    assert n_read > 60


def full(change: Callable[[Pod], object] = lambda _: None) -> Pod:
    pod = a_pod("web-1", labels={"app": "web", "tier": "front"})
    pod.metadata.creation_timestamp.seconds = 7
    pod.metadata.annotations["a"] = "b"
    pod.metadata.owner_references.add(name="web", kind="ReplicaSet", uid="u", controller=True)
    pod.metadata.owner_references.add(name="other", kind="Whatever", uid="v")
    pod.status.phase = "Pending"
    change(pod)
    return pod


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: None,
        lambda pod: pod.metadata.ClearField("labels"),
        lambda pod: pod.metadata.ClearField("owner_references"),
        lambda pod: pod.metadata.ClearField("annotations"),
        lambda pod: pod.metadata.labels.update({"x" * 60: "y" * 63}),
        lambda pod: pod.ClearField("status"),
        lambda pod: setattr(pod.status, "nominated_node_name", "n"),
        lambda pod: pod.status.conditions.add(type="Initialized", status="True"),
        lambda pod: pod.spec.init_containers.add(name="s", restart_policy="Always").ports.add(host_port=9),
        lambda pod: setattr(pod.spec.overhead["cpu"], "string", "10m"),
        lambda pod: setattr(pod.spec.resources.requests["cpu"], "string", "3"),
        lambda pod: pod.spec.affinity.SetInParent(),
        lambda pod: setattr(pod.spec, "priority", -5),
    ],
)
def test_what_clients_send_is_read_by_its_parts(change: Callable[[Pod], object]) -> None:
    assert assert_read_the_same(entry(full(change), 3))


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: pod.metadata.labels.update({"x" * 61: "y" * 63}),
        lambda pod: setattr(pod.spec, "node_name", "n"),
        lambda pod: setattr(pod.status, "phase", "Failed"),
        lambda pod: pod.status.container_statuses.add(name="main"),
        lambda pod: setattr(pod.metadata.deletion_timestamp, "seconds", 9),
        lambda pod: pod.metadata.ClearField("uid"),
        lambda pod: setattr(pod.spec.containers[0].resources.requests["cpu"], "string", "much"),
    ],
)
def test_a_pod_that_does_not_just_wait_or_that_nobody_can_read_is_left_to_the_full_reading(
    change: Callable[[Pod], object],
) -> None:
    assert not assert_read_the_same(entry(full(change), 3))


def test_a_pod_under_a_key_that_is_not_its_name_or_with_a_leaders_write_is_left_to_the_full_reading() -> None:
    value = encode(kinds.wrap(full()))
    for key in (
        KEYS.object_key(kinds.POD, "default", "web-2"),
        KEYS.object_key(kinds.SERVICE, "default", "web-1"),
        b"other" + KEYS.object_key(kinds.POD, "default", "web-1"),
    ):
        assert not assert_read_the_same(Entry(key, value, 3, 3))
    assert not assert_read_the_same(entry(full(), 3, write=LeaderWrite(op="status", epoch=2)))


NAMED = framed(1, b"web-1") + framed(3, b"default") + framed(4, b"uid-1")
LABEL_A, LABEL_B = (framed(10, framed(1, key) + framed(2, b"v")) for key in (b"a", b"b"))
CONTAINER, OTHERS, PENDING = framed(2, framed(1, b"main")), framed(13, b"mine"), framed(5, framed(1, b"Pending"))
LONG_FORM = b"\x52\x86\x00" + LABEL_A[2:]
"""A label whose length is written longer than it has to be."""
OWNER = framed(1, b"v1") + framed(2, b"ReplicaSet") + b"\x28\x01"
UNKNOWN = b"\xfa\x07\x01x"
"""A field whose number no message has."""


def written(metadata: bytes, spec: bytes = CONTAINER + OTHERS, behind: bytes = PENDING, key: bytes = b"default/web-1") -> Entry:
    pod = framed(1, b"v1") + framed(2, b"Pod") + framed(3, metadata) + framed(4, spec) + behind
    return Entry(KEYS.prefix(kinds.POD) + key, framed(1, framed(1, pod)), 3, 3)


def torn(metadata: bytes, field: bytes) -> Entry:
    """A pod whose metadata end within their last field, behind its length."""
    pod = framed(3, metadata + field[:2]) + field[2:]
    return Entry(KEYS.prefix(kinds.POD) + b"default/web-1", framed(1, framed(1, pod)), 3, 3)


@pytest.mark.parametrize(
    ("one", "usual"),
    [
        (written(NAMED + LABEL_A + LABEL_B + framed(12, OWNER)), True),
        (written(NAMED + LABEL_B + LABEL_A), False),
        (written(NAMED + LABEL_A + LABEL_A), False),
        (written(NAMED + framed(10, framed(1, b"a") + framed(2, b"v") + UNKNOWN)), False),
        (written(NAMED + framed(10, framed(1, b"a") + framed(3, b"v"))), False),
        (written(NAMED + LONG_FORM), False),
        (written(NAMED + LABEL_A + UNKNOWN), False),
        (written(NAMED + framed(12, b"\x28\x01" + framed(1, b"v1"))), False),
        (written(NAMED + framed(12, OWNER + b"\x28\x01")), False),
        (written(NAMED + framed(12, OWNER) + framed(11, framed(1, b"a") + framed(2, b"b"))), False),
        (written(NAMED + framed(12, OWNER) + framed(13, b"last")), False),
        (written(NAMED + LABEL_A, OTHERS + CONTAINER), False),
        (written(NAMED + LABEL_A, CONTAINER + OTHERS + CONTAINER), False),
        (written(NAMED + LABEL_A, CONTAINER + UNKNOWN), False),
        (written(NAMED + LABEL_A, behind=PENDING + PENDING), False),
        (written(NAMED + LABEL_A, behind=PENDING + UNKNOWN), False),
        (written(NAMED + LABEL_A, behind=PENDING + framed(4, OTHERS)), False),
        (torn(NAMED, framed(12, framed(4, CONTAINER))), False),
        (written(NAMED.replace(b"\x05web-1", b"\x00"), key=b"default/"), False),
        (written(NAMED.replace(b"\x05uid-1", b"\x00")), False),
        (written(NAMED.replace(b"\x07default", b"\x03a/b"), key=b"a/b/web-1"), False),
    ],
)
def test_only_what_is_written_in_the_usual_form_is_read_by_its_parts(one: Entry, usual: bool) -> None:
    assert assert_read_the_same(one) is usual

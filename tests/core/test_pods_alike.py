"""Pods whose bytes are those of a pod read before: what is known of them is what a full reading finds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rayched.api import kinds
from rayched.core.cache.cache import Cache
from rayched.core.cache.pod_decoder import PodsByBytes
from rayched.core.cache.pods_alike import KnownPod, PodsAlike
from rayched.core.cache.records import nominated_in
from rayched.scheduler.occupancy import Occupancy
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.store.keys import Keys
from rayched.store.list_watch_effects import Changed
from rayched.v1.core_pb2 import Pod
from rayched.v1.storage_pb2 import LeaderWrite
from tests.core.builders import a_pod

KEYS = Keys()


def a_cache() -> Cache:
    snapshot = Snapshot()
    return Cache(KEYS, snapshot, Occupancy(snapshot), lambda: None)


def entry(pod: Pod, revision: int, name: str = "", write: LeaderWrite | None = None) -> Entry:
    key = KEYS.object_key(kinds.POD, pod.metadata.namespace, name or pod.metadata.name)
    return Entry(key, encode(kinds.wrap(pod), write), revision, revision)


def follow(cache: Cache, *entries: Entry) -> None:
    for one in entries:
        cache.changed(Changed((one,), one.mod_revision))


PODS = st.builds(
    lambda name, uid, seconds, labels, priority: _with_time(a_pod(name, uid=uid, labels=labels, priority=priority), seconds),
    st.sampled_from(["a", "b", "ab", "web-1", "ü"]),
    st.sampled_from(["a", "uid-2", "uid-3", "web-1", ""]),
    st.sampled_from([0, 7, 1_700_000_000]),
    st.sampled_from([{}, {"app": "a"}, {"app": "b"}, {"a": "web-1"}]),
    st.sampled_from([0, 5]),
)


def _with_time(pod: Pod, seconds: int) -> Pod:
    if not pod.metadata.uid.startswith("uid-"):
        # Whatever stands in the uid's place must not be mistaken for it.
        pod.metadata.generate_name = pod.metadata.uid
    if seconds:
        pod.metadata.creation_timestamp.seconds = seconds
    return pod


@settings(deadline=None)
@given(st.lists(PODS, max_size=12))
def test_a_cache_that_has_read_like_pods_knows_the_same_as_one_that_reads_each_as_a_whole(pods: list[Pod]) -> None:
    cache = a_cache()
    for revision, pod in enumerate(pods, 1):
        one = entry(pod, revision, f"n{revision}" if revision % 5 == 4 else "")
        there = cache.pod(pod.metadata.uid)
        known = cache.revision_of(one.key)
        follow(cache, one)
        if there is not None or known:
            continue
        alone = a_cache()
        list(alone._put(one))
        found, expected = cache.pod(pod.metadata.uid), alone.pod(pod.metadata.uid)
        assert cache.poisoned.get(one.key) == alone.poisoned.get(one.key)
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            assert found._replace(template=expected.template) == expected
            assert found.template.content == expected.template.content


@pytest.mark.parametrize("seconds", [0, 1_700_000_000])
def test_from_the_third_pod_of_a_kind_on_they_are_alike(seconds: int) -> None:
    templates, alike = TemplateTable(), 0
    pods = PodsByBytes(templates, KEYS.prefix(kinds.POD))
    for revision in range(1, 12):
        pod = _with_time(a_pod(f"web-{revision:02}", uid=f"uid-{revision:02}"), seconds and seconds + revision)
        one = entry(pod, revision)
        alike += pods._alike.find(one.key, one.value) is not None
        assert pods.find(one.key, one.value) is not None
    assert alike == 9 and templates.n_seen == 1


def test_a_pod_under_a_key_that_is_not_its_name_is_set_aside_also_when_it_is_like_others() -> None:
    cache = a_cache()
    follow(cache, *(entry(a_pod(f"web-{number}"), number) for number in range(1, 4)))
    stray = entry(a_pod("web-4"), 4, "other")
    follow(cache, stray)
    assert stray.key in cache.poisoned and cache.pod("uid-web-4") is None


def test_a_uid_that_is_there_already_is_not_taken_again() -> None:
    cache = a_cache()
    follow(cache, *(entry(a_pod(f"web-{number}"), number) for number in range(1, 4)))
    second = entry(a_pod("web-4", uid="uid-web-3"), 4)
    follow(cache, second)
    assert "has the uid of pod" in cache.poisoned[second.key]
    record = cache.pod("uid-web-3")
    assert record is not None and record.name == "default/web-3"


def test_what_a_leader_wrote_is_not_learned_from_nor_found_in_bytes_of_another_form() -> None:
    alike = PodsAlike()
    pod = a_pod("web-1")
    template = TemplateTable().intern(pod)
    plain, by_leader = entry(pod, 1), entry(pod, 1, write=LeaderWrite(op="status", epoch=2))
    known = KnownPod(template, "default", plain.key[: -len("web-1")])
    alike.learn(by_leader.value, known)
    alike.learn(plain.value + plain.value, known)
    alike.learn(b"\xff" * 40, known)
    for value in (plain.value, by_leader.value, plain.value + plain.value, b"\xff" * 40):
        assert alike.find(plain.key, value) is None
    alike.learn(plain.value, known)
    found = alike.find(plain.key, plain.value)
    assert found == (known, "web-1", "uid-web-1")


def test_a_pod_like_another_is_found_only_with_a_time_that_can_be_read() -> None:
    alike = PodsAlike()
    pod = _with_time(a_pod("web-1"), 1_700_000_000)
    stored = entry(pod, 1)
    alike.learn(stored.value, KnownPod(TemplateTable().intern(pod), "default", stored.key[: -len("web-1")]))
    time = pod.metadata.creation_timestamp.SerializeToString()
    assert alike.find(stored.key, stored.value) is not None
    assert alike.find(stored.key, stored.value.replace(time, b"\x09" + time[1:])) is None


def test_the_object_of_a_pod_like_another_is_what_a_full_reading_finds_and_its_nomination_is_known_without() -> None:
    cache = a_cache()
    for number in range(1, 5):
        pod = a_pod(f"web-{number}")
        pod.status.nominated_node_name = "node-7"
        follow(cache, entry(pod, number))
    record = cache.pod("uid-web-4")
    assert record is not None and record.kept is not None
    assert record.kept._pod is None and nominated_in(record) == "node-7"
    pod.metadata.resource_version = "4"
    assert record.pod == pod

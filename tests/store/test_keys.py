"""Keys: one key for each thing, one thing for each key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.api import kinds
from rayched.store.keys import Keys, KeyTextError, ObjectKey, prefix_end

keys = Keys()
parts = st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "key"),
    [
        (kinds.POD, "default", "web-1", b"/rayched/cluster/pods/default/web-1"),
        (kinds.NODE, "", "node-1", b"/rayched/cluster/nodes/node-1"),
        (kinds.NAMESPACE, "", "default", b"/rayched/cluster/namespaces/default"),
        (kinds.REPLICA_SET, "a", "b", b"/rayched/cluster/replicasets/a/b"),
        (kinds.EVENT, "default", "web-1.17", b"/rayched/events/default/web-1.17"),
    ],
)
def test_an_object_has_the_key_that_the_layout_says(kind: kinds.Kind, namespace: str, name: str, key: bytes) -> None:
    assert keys.object_key(kind, namespace, name) == key
    assert keys.parse(key) == ObjectKey(kind.name, namespace, name)


@given(st.sampled_from(kinds.KINDS), parts, parts)
def test_every_object_key_reads_back_as_its_object_and_lies_under_its_prefix(kind: kinds.Kind, namespace: str, name: str) -> None:
    namespace = namespace if kind.namespaced else ""
    key = keys.object_key(kind, namespace, name)
    assert keys.parse(key) == ObjectKey(kind.name, namespace, name)
    assert keys.prefix(kind, namespace) <= key < prefix_end(keys.prefix(kind, namespace))


@pytest.mark.parametrize(
    "key",
    [
        keys.epoch,
        keys.record,
        keys.submission("u"),
        keys.heartbeat("n"),
        b"/rayched/cluster/pods/default",
        b"/rayched/cluster/pods//web",
        b"/rayched/cluster/pods/default/web/x",
        b"/rayched/cluster/nodes/default/n",
        b"/rayched/cluster/nodes/",
        b"/rayched/cluster/nodes//n",
        b"/rayched/cluster/gadgets/default/g",
        b"/rayched/cluster/events/default/e",
        b"/rayched/cluster/nodes/\xff",
        b"/other/cluster/nodes/n",
        b"",
    ],
)
def test_a_key_of_no_object_parses_as_none(key: bytes) -> None:
    assert keys.parse(key) is None


def test_all_that_scheduling_reads_lies_under_the_one_watched_prefix_and_nothing_else_does() -> None:
    watched = [keys.epoch] + [keys.object_key(k, "ns" if k.namespaced else "", "x") for k in kinds.KINDS if k is not kinds.EVENT]
    assert all(key.startswith(keys.cluster_prefix) for key in watched)
    apart = [keys.record, keys.submission("u"), keys.heartbeat("n"), keys.object_key(kinds.EVENT, "ns", "x")]
    assert not any(key.startswith(keys.cluster_prefix) for key in apart)


def test_heartbeats_and_submissions_give_back_what_they_are_of() -> None:
    assert keys.node_of_heartbeat(keys.heartbeat("n-1")) == "n-1"
    assert keys.uid_of_submission(keys.submission("u-1")) == "u-1"
    assert keys.node_of_heartbeat(keys.submission("u-1")) is None
    assert keys.uid_of_submission(keys.submissions_prefix) is None


def test_what_became_of_a_uid_in_a_namespace_is_nobody_elses_key() -> None:
    """No name of a namespace begins with an underscore, and no part of a key has a slash."""
    found = {keys.submission("u"), keys.submission_in("ns", "u"), keys.submission_in("", "u"), keys.submission_in("u", "ns")}
    assert len(found) == 4 and all(key.startswith(keys.submissions_prefix) for key in found)
    assert keys.uid_of_submission(keys.submission_in("ns", "u")) is None
    for namespace in ("_cluster", "a/b", "a\0"):
        with pytest.raises(KeyTextError, match="namespace"):
            keys.submission_in(namespace, "u")
    with pytest.raises(KeyTextError, match="uid"):
        keys.submission_in("ns", "")


@pytest.mark.parametrize("text", ["", "a/b", "a\0", "/", "\ud800"])
def test_a_text_that_would_name_another_key_is_refused(text: str) -> None:
    with pytest.raises(KeyTextError):
        keys.submission(text)
    with pytest.raises(KeyTextError):
        keys.object_key(kinds.NODE, "", text)


def test_a_kind_of_the_cluster_takes_no_namespace_and_the_others_need_one() -> None:
    with pytest.raises(KeyTextError, match="has none"):
        keys.object_key(kinds.NODE, "default", "n")
    with pytest.raises(KeyTextError, match="namespace"):
        keys.object_key(kinds.POD, "", "p")


@pytest.mark.parametrize("root", ["", "rayched", "/rayched/", "/"])
def test_a_root_that_would_make_keys_ambiguous_is_refused(root: str) -> None:
    with pytest.raises(KeyTextError, match="root"):
        Keys(root)


@given(st.binary(min_size=1, max_size=4), st.binary(max_size=4))
def test_the_end_of_a_prefix_comes_after_all_keys_with_it_and_not_after_others(prefix: bytes, other: bytes) -> None:
    end = prefix_end(prefix)
    inside = prefix <= other and (end == b"\0" or other < end)
    assert inside == other.startswith(prefix) or end == b"\0"


@given(st.sampled_from([b"pods/", b"nodes/", b"gadgets/", b""]), st.text("ab/\0.", max_size=6), st.booleans())
def test_only_what_an_objects_key_could_be_parses_and_as_that_object(kind: bytes, rest: str, is_event: bool) -> None:
    key = (keys.events_prefix if is_event else keys.cluster_prefix + kind) + rest.encode()
    found = keys.parse(key)
    if found is not None and "\0" not in rest:
        assert keys.object_key(kinds.by_name(found.kind), found.namespace, found.name) == key
    elif found is None and kind in (b"pods/", b"nodes/") and not is_event:
        parts = rest.split("/")
        assert not all(parts) or len(parts) != (2 if kind == b"pods/" else 1)


def test_a_suspect_is_found_by_its_key_and_by_no_other() -> None:
    assert keys.uid_of_suspect(keys.suspect("u-1")) == "u-1"
    assert keys.uid_of_suspect(keys.suspects_prefix) is None
    assert keys.uid_of_suspect(keys.suspects_prefix + b"a/b") is None
    assert keys.uid_of_suspect(keys.heartbeat("n")) is None

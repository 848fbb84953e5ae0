"""Pods of which there is nothing to keep are not decoded one by one."""

from __future__ import annotations

from rayched.api.kinds import POD, wrap
from rayched.controllers.cluster_view import ClusterView
from rayched.store.codec import decode_entry, encode
from rayched.store.entries import Entry
from rayched.store.keys import Keys
from rayched.store.list_watch import Changed, Listed
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Object

KEYS = Keys()


def a_pod(name: str) -> Pod:
    pod = Pod()
    pod.metadata.namespace, pod.metadata.name, pod.metadata.uid = "default", name, f"uid-{name}"
    return pod


class View:
    """A view that counts what it has decoded."""

    def __init__(self) -> None:
        self.view = ClusterView(KEYS, self._decode)
        self.view.deliver(Listed((), 1))
        self.decoded = 0
        self._revision = 1

    def _decode(self, entry: Entry) -> Object:
        self.decoded += 1
        return decode_entry(entry)

    def put(self, pod: Pod) -> None:
        self._revision += 1
        key = KEYS.object_key(POD, "default", pod.metadata.name)
        entry = Entry(key, encode(wrap(pod)), self._revision, self._revision)
        self.view.deliver(Changed((entry,), self._revision))


def test_a_pod_without_a_node_like_one_before_is_not_decoded() -> None:
    view = View()
    for number in range(5):
        view.put(a_pod(f"web-{number}"))
    assert view.decoded == 1 and not view.view.pods and view.view.revision == 6


def test_pods_that_differ_in_what_matters_are_noticed() -> None:
    view = View()
    for number in range(3):
        view.put(a_pod(f"web-{number}"))
    bound, ending = a_pod("web-3"), a_pod("web-4")
    bound.spec.node_name = "n"
    ending.metadata.deletion_timestamp.seconds = 7
    for pod in (bound, ending):
        view.put(pod)
    assert {facts.uid for facts in view.view.pods.values()} == {"uid-web-3", "uid-web-4"}
    assert set(view.view.pods_on) == {"n"} and len(view.view.ending) == 1


def test_a_pod_that_gives_its_node_up_is_no_longer_on_it() -> None:
    view = View()
    for number in range(3):
        view.put(a_pod(f"web-{number}"))
    bound = a_pod("web-2")
    bound.spec.node_name = "n"
    view.put(bound)
    view.put(a_pod("web-2"))
    assert not view.view.pods and not view.view.pods_on

"""Objects are created only while their namespace is as it was seen; one that they share is compared once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from leader.etcd_shim import rpc
from rayched.api.kinds import NAMESPACE, POD, wrap
from rayched.server.admission.admission import Admission
from rayched.server.admission.creation import Creator
from rayched.server.admission.submissions import Created, Creation
from rayched.server.admission.turns import TURN_SECONDS
from rayched.server.errors import ApiFailure, Code
from rayched.server.objects import Objects
from rayched.server.watching.changes import EventEncoder
from rayched.server.watching.watch_hub import WatchHub
from rayched.store.codec import encode
from rayched.store.entries import Deleted, Reading
from rayched.store.keys import Keys
from rayched.store.transactions import Guard, Outcome, Write, build, read, split
from rayched.v1.core_pb2 import Namespace, Pod
from tests.core.model_store import ModelStore

KEYS = Keys()


def namespace_key(name: str) -> bytes:
    return KEYS.object_key(NAMESPACE, "", name)


class Store:
    """The calls that a Creator makes, on a model of etcd."""

    def __init__(self) -> None:
        self.model = ModelStore()
        self.requests: list[Any] = []
        self.before_next: Callable[[], None] = lambda: None
        """Done once, before the next transaction."""
        self.reads = 0

    async def send(self, guard: Guard | None, batch: Sequence[Write]) -> list[Outcome]:
        happens, self.before_next = self.before_next, lambda: None
        happens()
        request = rpc.TxnRequest.FromString(build(guard, batch))
        self.requests.append(request)
        return read(self.model.txn(request), batch)

    async def commit(self, guard: Guard | None, writes: Sequence[Write]) -> list[Outcome]:
        return [outcome for batch in split(writes) for outcome in await self.send(guard, batch)]

    async def get_many(self, keys: Sequence[bytes]) -> Reading:
        self.reads += 1
        return Reading(tuple(self.model.now.get(key) for key in keys), self.model.revision)


class Api:
    """A Creator, and a hub that knows what it is told of the store."""

    def __init__(self, *namespaces: str) -> None:
        self.store = Store()
        self.hub = WatchHub(KEYS.parse, EventEncoder())
        for name in namespaces:
            self.write(name)
        self.hub.listed(list(self.store.model.now.values()), self.store.model.revision)
        ready = asyncio.Event()
        ready.set()
        objects = Objects(self.store, KEYS)  # type: ignore[arg-type]
        self.creator = Creator(objects, Admission(self.hub, objects, ready))

    def write(self, name: str) -> None:
        namespace = Namespace()
        namespace.metadata.name = name
        self.store.model.put(namespace_key(name), encode(wrap(namespace)))

    def show(self, name: str) -> None:
        """To the hub: the namespace as it is."""
        entry = self.store.model.now.get(namespace_key(name))
        revision = self.store.model.revision
        self.hub.changed([entry or Deleted(namespace_key(name), revision)], revision)

    def submit(self, *pods: Pod) -> list[Creation]:
        return asyncio.run(self.creator.create([wrap(pod) for pod in pods]))

    def names(self) -> list[str]:
        return sorted(pod.metadata.name for pod in self.store.model.pods().values())


def a_pod(name: str, namespace: str = "default") -> Pod:
    pod = Pod()
    pod.metadata.name, pod.metadata.namespace, pod.metadata.uid = name, namespace, f"uid-{name}"
    pod.spec.containers.add(name="main", image="image")
    return pod


def compared(request: Any, name: str) -> int:
    """How often a transaction compares a namespace."""
    requests = [request, *(operation.request_txn for operation in request.success)]
    return sum(compare.key == namespace_key(name) for one in requests for compare in one.compare)


def test_a_namespace_that_all_are_in_is_compared_once() -> None:
    api = Api("default", "other")
    assert all(isinstance(one, Created) for one in api.submit(*(a_pod(f"pod-{number}") for number in range(5))))
    assert [compared(request, "default") for request in api.store.requests] == [1]
    assert all(isinstance(one, Created) for one in api.submit(a_pod("a"), a_pod("b", "other"), a_pod("c")))
    assert [compared(api.store.requests[1], name) for name in ("default", "other")] == [2, 1]


def test_when_the_namespace_has_changed_all_are_created_in_another_round() -> None:
    api = Api("default")

    def change() -> None:
        api.write("default")
        api.show("default")

    api.store.before_next = change
    assert all(isinstance(one, Created) for one in api.submit(a_pod("a"), a_pod("b")))
    assert api.names() == ["a", "b"] and len(api.store.requests) == 2


@pytest.mark.parametrize(
    ("namespace", "code"),
    [("other", Code.NOT_FOUND), ("default", Code.UNAVAILABLE)],
    ids=["deleted", "the system's own, in a store that was wiped"],
)
def test_nothing_is_created_in_a_namespace_that_has_gone(namespace: str, code: Code) -> None:
    api = Api(namespace)

    def go() -> None:
        api.store.model.delete(namespace_key(namespace))
        api.show(namespace)

    api.store.before_next = go
    found = api.submit(a_pod("a", namespace), a_pod("b", namespace))
    assert [one.code for one in found if isinstance(one, ApiFailure)] == [code, code]
    assert api.names() == []


@pytest.mark.parametrize("others", [0, 1], ids=["one namespace", "two"])
def test_a_hub_that_trails_the_store_refuses_nothing(others: int) -> None:
    api = Api("default", "other")
    api.write("default")
    found = api.submit(a_pod("a"), *[a_pod("b", "other")] * others)
    assert all(isinstance(one, Created) for one in found) and api.names() == ["a", "b"][: 1 + others]
    # One refusal, one reading of what the hub does not show, and it is done.
    assert (len(api.store.requests), api.store.reads) == (2, 1)


@pytest.mark.parametrize("unseen", [True, False])
def test_a_namespace_that_is_gone_or_is_not_seen_yet_is_what_the_store_says(unseen: bool) -> None:
    api = Api("other")
    if unseen:
        api.write("new")
        assert all(isinstance(one, Created) for one in api.submit(a_pod("a", "new")))
        return
    api.store.model.delete(namespace_key("other"))
    (found,) = api.submit(a_pod("a", "other"))
    assert isinstance(found, ApiFailure) and found.code is Code.NOT_FOUND and api.names() == []


def test_what_was_accepted_before_is_answered_again_though_the_namespace_changes_at_every_write() -> None:
    api = Api("default")
    (first,) = api.submit(a_pod("a"))

    def change() -> None:
        api.write("default")
        api.store.before_next = change

    api.store.before_next = change
    again, new = api.submit(a_pod("a"), a_pod("b"))
    assert isinstance(first, Created) and isinstance(again, Created)
    assert (again.uid, again.revision) == (first.uid, first.revision)
    assert isinstance(new, ApiFailure) and new.code is Code.ABORTED
    assert KEYS.object_key(POD, "default", "b") not in api.store.model.now


def test_a_batch_of_large_pods_lets_others_have_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api("default")
    pods = [a_pod(f"pod-{number}") for number in range(40)]
    for pod in pods:
        pod.metadata.labels["own"] = pod.metadata.name
    admitted, turns = 0, 0
    admit = api.creator._admission.admit

    def slow(*arguments: Any) -> Any:
        """Takes as long as two turns may."""
        nonlocal admitted
        admitted += 1
        return admit(*arguments)

    monkeypatch.setattr(api.creator._admission, "admit", slow)
    monkeypatch.setattr(api.creator, "_clock", lambda: admitted * 2 * TURN_SECONDS)

    async def submitted() -> list[Creation]:
        nonlocal turns
        creating = asyncio.ensure_future(api.creator.create_many([wrap(pod).SerializeToString() for pod in pods]))
        while not creating.done():
            await asyncio.sleep(0)
            turns += 0 < admitted < len(pods)
        return creating.result()

    assert all(isinstance(one, Created) for one in asyncio.run(submitted()))
    assert turns >= len(pods) - 2

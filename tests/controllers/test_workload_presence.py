"""When the controllers have anything to do: found out without reading pods that no controller made."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from leader.etcd_shim import rpc
from rayched.api.kinds import POD, REPLICA_SET
from rayched.api.termination import JOB_TRACKING
from rayched.controllers.workloads.presence import WorkloadPresence
from rayched.controllers.workloads.workload_view import WorkloadView
from rayched.store.codec import decode_entry
from rayched.store.entries import Change, Deleted, Entry, entry_of
from rayched.store.keys import prefix_end
from rayched.store.list_watch_effects import Changed, ListedAll
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Object
from tests.controllers.workload_world import KEYS, WorkloadWorld, a_job, a_replica_set


class Followed:
    """A world, what is found out about it by the cheap way, and by the whole one."""

    def __init__(self) -> None:
        self.world = WorkloadWorld()
        self.read: list[bytes] = []
        self.presence, self.view = WorkloadPresence(KEYS, self._decode), WorkloadView(KEYS)
        self._revision = self.world.etcd.revision
        self.list()

    def _decode(self, entry: Entry) -> Object:
        self.read.append(entry.key)
        return decode_entry(entry)

    def list(self) -> None:
        entries = tuple(entry_of(pair) for pair in self.world.etcd.under(KEYS.cluster_prefix))
        for one in (self.presence, self.view):
            one.deliver(ListedAll(entries, self.world.etcd.revision))
        self._revision = self.world.etcd.revision

    def see(self) -> bool:
        """Whether there is something to control, by the cheap way. The whole one says the same."""
        prefix = KEYS.cluster_prefix
        events = list(self.world.etcd.events_from(self._revision + 1, prefix, prefix_end(prefix)))
        changes: list[Change] = [
            Deleted(event.kv.key, event.kv.mod_revision) if event.type == 1 else entry_of(event.kv) for event in events
        ]
        self._revision = self.world.etcd.revision
        for one in (self.presence, self.view):
            one.deliver(Changed(tuple(changes), self._revision))
        assert self.presence.is_there is not self.view.is_idle
        return self.presence.is_there


def a_pod(name: str, owner: str = "", *, kind: str = "ReplicaSet", block: bool = True, tracked: bool = False) -> Pod:
    pod = Pod(metadata={"name": name, "namespace": "default"})
    pod.spec.containers.add(name="main")
    if owner:
        pod.metadata.owner_references.add(
            api_version="batch/v1" if kind == "Job" else "apps/v1",
            kind=kind,
            name=owner,
            uid=f"uid-{owner}",
            controller=True,
            block_owner_deletion=block,
        )
    if tracked:
        pod.metadata.finalizers.append(JOB_TRACKING)
    return pod


def test_pods_that_nobody_controls_are_not_even_read() -> None:
    followed = Followed()
    for number in range(20):
        followed.world.create(a_pod(f"alone-{number}"))
    assert not followed.see() and followed.read == []
    followed.list()
    assert not followed.see() and followed.read == []
    followed.world.create(a_pod("left", "gone"))
    assert followed.see() and followed.read == [KEYS.object_key(POD, "default", "left")]
    followed.world.delete(POD, "left")
    assert not followed.see()


@pytest.mark.parametrize(
    ("pod", "is_there"),
    [
        (a_pod("left", "gone", kind="Job", tracked=True), True),
        (a_pod("left", "gone", kind="Job", block=False, tracked=True), True),
        (a_pod("left", "gone", block=False), False),
        (a_pod("left", "gone", kind="Deployment"), False),
        (a_pod("left", tracked=True), False),
    ],
)
@pytest.mark.row("W4")
def test_who_depends_on_one_that_is_gone_is_found_whenever_it_comes(pod: Pod, is_there: bool) -> None:
    followed = Followed()
    assert not followed.see()
    followed.world.create(pod)
    assert followed.see() is is_there
    followed.list()
    assert followed.see() is is_there


def test_a_replica_set_without_a_template_has_its_pods_and_nobody_looks_for_them() -> None:
    followed = Followed()
    bare = a_replica_set(1)
    bare.spec.ClearField("template")
    followed.world.create(a_pod("of-it", "web"))
    assert followed.see()
    followed.world.create(bare)
    assert not followed.see()
    followed.world.delete(REPLICA_SET, "web")
    assert followed.see()


def test_one_whose_selector_cannot_be_read_counts_as_not_there() -> None:
    followed = Followed()
    odd = a_replica_set(1)
    odd.spec.selector.match_expressions.add(key="app", operator="Odd")
    odd.metadata.uid = "uid-web"
    followed.world._put(odd)
    assert not followed.see()
    followed.world._put(a_replica_set(1))
    assert followed.see()
    key = KEYS.object_key(REPLICA_SET, "default", "web")
    followed.world.etcd.put(rpc.PutRequest(key=key, value=b"\xff no object"))
    assert not followed.see()


@pytest.mark.parametrize("seed", range(30))
def test_whatever_comes_and_goes_it_is_what_the_whole_view_says(seed: int) -> None:
    random, followed = Random(seed), Followed()
    world, names = followed.world, ("one", "two")
    seen = set()

    def pod() -> None:
        name, owner = f"pod-{random.randrange(4)}", random.choice(["", *names])
        world.delete(POD, name)
        found = a_pod(name, owner, kind=random.choice(["ReplicaSet", "Job"]), block=random.random() < 0.7)
        if random.random() < 0.4:
            found.metadata.finalizers.append(JOB_TRACKING)
        if random.random() < 0.2:
            found.metadata.deletion_timestamp.seconds = 1
        world._put(found)

    def workload() -> None:
        name = random.choice(names)
        found = a_replica_set(1, name) if random.random() < 0.5 else a_job(name=name)
        found.metadata.uid = random.choice([f"uid-{name}", "another"])
        if random.random() < 0.6:
            found.spec.ClearField("template")
        world._put(found)

    def gone() -> None:
        pairs = list(world.etcd.under(KEYS.cluster_prefix))
        if pairs:
            world.etcd.delete_range(rpc.DeleteRangeRequest(key=random.choice(pairs).key))

    acts: list[Callable[[], None]] = [pod, pod, workload, gone, gone, followed.list]
    for _ in range(120):
        random.choice(acts)()
        seen.add(followed.see())
    assert seen == {True, False}

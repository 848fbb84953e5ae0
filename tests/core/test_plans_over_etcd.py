"""Leaders that are killed between plan, bindings and end: real scheduler cores over a real etcd with its own limits.

A killed core is one that nobody calls any more. What it had sent arrives once its successor leads. An auditor that has read the
history of etcd finds nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import count

import grpc
import pytest

from leader.channel import open_channel
from rayched.replica.etcd import etcd_server
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.store.errors import NotApplied
from rayched.v1.storage_pb2 import GroupPlan, Stored
from tests.core.builders import a_node, a_pod
from tests.core.etcd_store import EtcdStore
from tests.core.grouped import a_group, audited, put_group, put_members, scheduled
from tests.core.leading import put_node, put_pod
from tests.core.replica import KEYS, Clock, Replica
from tests.patience import patient_store

pytestmark = pytest.mark.cluster

PLAN = KEYS.group_plan("default", "train")
MEMBERS = 200
KILLS_MAX = 7
"""Transactions of a group of 200: one that is refused, the plan, two of bindings, the end; and statuses."""


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[grpc.Channel]:
    """To an etcd that takes 128 operations in a transaction, as it does by default."""
    place = etcd_server._FLAGS.index("--max-txn-ops")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(etcd_server, "_FLAGS", etcd_server._FLAGS[:place] + etcd_server._FLAGS[place + 2 :])
        with (
            EtcdServer(tmp_path_factory.mktemp("etcd") / "data", unsafe_no_fsync=True) as server,
            contextlib.closing(open_channel([server.endpoint])) as opened,
        ):
            yield opened


@pytest.fixture
def store(channel: grpc.Channel) -> Iterator[EtcdStore]:
    client = patient_store(channel)
    for entry in client.list_all(KEYS.cluster_prefix).entries:
        client.delete(entry.key)
    store = EtcdStore(channel, KEYS.cluster_prefix)
    with contextlib.closing(store):
        yield store
    findings = audited(store).findings
    assert findings.counts() == dict.fromkeys(findings.counts(), 0), findings.first


def a_leader(store: EtcdStore, name: str) -> Replica:
    replica = Replica(store, Clock(), name)
    replica.list()
    replica.lead()
    return replica


def run_until(replica: Replica, transactions: int) -> None:
    """Until so many transactions have arrived; the answer of the last one is not heard any more."""
    arrived = 0
    for _ in range(10_000):
        moved = [
            replica.watch(),
            replica.answer(),
            replica.exchanged(),
            replica.turn(),
            replica.core.decide(),
            replica.exchange(),
        ]
        if arrived == transactions and replica.to_store:
            return
        if arrived < transactions and replica.arrive():
            arrived += 1
            continue
        if not any(moved):
            return


def plan_in(store: EtcdStore) -> GroupPlan | None:
    entry = store.now.get(PLAN)
    return None if entry is None else Stored.FromString(entry.value).group_plan


def a_cluster(store: EtcdStore, members: int) -> None:
    for number in range(members // 4 + 1):
        put_node(store, a_node(f"n{number}"))
    put_group(store, a_group(least=members))
    put_members(store, members)


@pytest.mark.row("G43", "G44", "G72")
@pytest.mark.parametrize("transactions", range(KILLS_MAX + 1))
def test_whenever_the_leader_is_killed_the_next_one_finishes_what_was_decided(store: EtcdStore, transactions: int) -> None:
    a_cluster(store, MEMBERS)
    first = a_leader(store, "a")
    run_until(first, transactions)
    plan = plan_in(store)
    before = first.bound()
    second = a_leader(store, "b")
    late = first.to_store[:]
    put_pod(store, a_pod("high", cpu="4", priority=1_000))
    second.settle()
    after = second.bound()
    assert len([name for name in after if name.startswith("train-")]) == MEMBERS
    assert before.items() <= after.items()
    if plan is not None:
        assert {one.name: one.node for one in plan.members}.items() <= after.items()
    for send in late:
        answer = first.stored(send)
        assert isinstance(answer, NotApplied) or not answer.succeeded
    assert second.bound() == after
    assert plan_in(store) is None and scheduled(store)[0] == "True"


@pytest.mark.row("G42", "G43", "G73")
def test_a_group_of_a_thousand_is_finished_by_the_last_of_many_leaders(store: EtcdStore) -> None:
    a_cluster(store, 1_000)
    kills = 0
    planned: dict[str, str] = {}
    for number in count():
        leader = a_leader(store, f"r{number}")
        run_until(leader, 3)
        plan = plan_in(store)
        if plan is not None:
            places = {one.name: one.node for one in plan.members}
            assert planned in ({}, places)
            planned = places
        if scheduled(store)[0] == "True":
            break
        kills += 1
    assert kills >= 3, "it was whole before anybody was killed"
    leader.settle()
    assert leader.bound() == planned and len(planned) == 1_000
    assert plan_in(store) is None


@pytest.mark.row("G41", "G46")
def test_a_node_that_goes_while_a_leader_is_killed_costs_its_members_their_places_alone(store: EtcdStore) -> None:
    a_cluster(store, MEMBERS)
    first = a_leader(store, "a")
    run_until(first, 3)
    plan = plan_in(store)
    assert plan is not None
    places = {one.name: one.node for one in plan.members}
    open_ones = places.keys() - first.bound().keys()
    gone = places[max(open_ones)]
    store.delete(KEYS.cluster_prefix + f"nodes/{gone}".encode())
    second = a_leader(store, "b")
    second.settle()
    bound = second.bound()
    assert len(bound) == MEMBERS
    assert {name for name, node in bound.items() if places[name] != node} == {name for name in open_ones if places[name] == gone}
    assert scheduled(store)[0] == "True"

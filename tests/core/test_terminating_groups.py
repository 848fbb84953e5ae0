"""Groups that were deleted, over a model store: they stay while a member lives, and go with the last one."""

from __future__ import annotations

import pytest

from rayched.store.codec import encode
from rayched.v1.storage_pb2 import Stored
from tests.core.grouped import a_group, audited, bound_of, change_pod, group_key, put_group, put_members, stored_group
from tests.core.leading import a_replica, key_of
from tests.core.replica import Replica


def mark(replica: Replica, name: str = "train") -> None:
    """Somebody deletes the group, as the API does it."""
    entry = replica.store.now[group_key(name)]
    item = Stored.FromString(entry.value).object
    item.pod_group.metadata.deletion_timestamp.seconds = 1
    replica.store.put(entry.key, encode(item))


def is_there(replica: Replica, name: str = "train") -> bool:
    return group_key(name) in replica.store.now


def a_gang_at_work(members: int = 2) -> Replica:
    leader = a_replica("n1", "n2")
    put_group(leader.store, a_group(least=members))
    put_members(leader.store, members)
    leader.settle()
    assert len(bound_of(leader)) == members
    return leader


@pytest.mark.row("G7")
def test_a_group_with_living_members_stays_until_the_last_has_ended_or_gone() -> None:
    leader = a_gang_at_work(3)
    mark(leader)
    leader.settle()
    assert stored_group(leader.store).metadata.HasField("deletion_timestamp")
    change_pod(leader.store, "train-0", phase="Succeeded")
    change_pod(leader.store, "train-1", phase="Failed")
    leader.settle()
    assert is_there(leader)
    # Told to end it still runs.
    stored = Stored.FromString(leader.store.now[key_of("train-2")].value)
    stored.object.pod.metadata.deletion_timestamp.seconds = 1
    leader.store.put(key_of("train-2"), stored.SerializeToString())
    leader.settle()
    assert is_there(leader)
    leader.store.delete(key_of("train-2"))
    leader.settle()
    assert not is_there(leader) and audited(leader.store).findings.total == 0


@pytest.mark.row("G7")
def test_a_group_without_members_goes_at_once_and_another_of_its_name_may_come() -> None:
    leader = a_replica("n1")
    put_group(leader.store, a_group(least=1))
    mark(leader)
    leader.settle()
    assert not is_there(leader)
    put_group(leader.store, a_group(least=1, uid="another"))
    put_members(leader.store, 1)
    leader.settle()
    assert bound_of(leader) == ["train-0"]


def test_members_that_wait_are_placed_while_their_group_is_to_go() -> None:
    leader = a_gang_at_work()
    mark(leader)
    put_members(leader.store, 1, first=2)
    leader.settle()
    assert len(bound_of(leader)) == 3 and is_there(leader)


def test_the_next_leader_removes_a_group_whose_last_member_went_while_nobody_led() -> None:
    leader = a_gang_at_work()
    mark(leader)
    leader.settle()
    for number in range(2):
        leader.store.delete(key_of(f"train-{number}"))
    other = Replica(leader.store, leader.clock, "b")
    other.list()
    assert is_there(leader)
    other.lead()
    other.settle()
    assert not is_there(leader)


def test_a_removal_that_lost_a_race_is_sent_again() -> None:
    leader = a_gang_at_work(1)
    mark(leader)
    leader.store.delete(key_of("train-0"))
    leader.watch()
    leader.turn()
    assert leader.to_store
    group = stored_group(leader.store)
    group.metadata.labels["changed"] = "meanwhile"
    put_group(leader.store, group)
    while leader.arrive():
        assert is_there(leader)
    leader.settle()
    assert not is_there(leader)

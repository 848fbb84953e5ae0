"""Members of a group that come, or are bound, one after the other are looked at once, before anything else that happened."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.core.cache.records import PodChanged
from rayched.core.groups.following import GroupFollowing
from tests.core.builders import a_pod
from tests.core.grouped import a_group, a_member, bound_of, later, put_group, put_members
from tests.core.leading import a_replica, key_of, put_pod


class Notes:
    """What is looked at, and at which standing: members that wait, members that are bound, whether one came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, int, int, bool]] = []
        looked = GroupFollowing.group_changed

        def noted(
            following: Any, state: Any, change: PodChanged | None, now: float, *, came: bool = False, eased: bool = False
        ) -> None:
            self.seen.append((state.name, len(state.waiting), len(state.bound), came))
            looked(following, state, change, now, came=came, eased=eased)

        monkeypatch.setattr(GroupFollowing, "group_changed", noted)

    def taken(self) -> list[tuple[str, int, int, bool]]:
        found, self.seen = self.seen, []
        return found


def test_a_gang_is_looked_at_once_when_it_comes_and_once_when_it_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = a_replica("n1", "n2")
    put_group(replica.store, a_group(least=3))
    replica.settle()
    notes = Notes(monkeypatch)
    put_members(replica.store, 3)
    replica.watch()
    assert notes.taken() == [("default/train", 3, 0, True)]
    replica.settle()
    assert len(bound_of(replica)) == 3
    assert ("default/train", 0, 3, False) in notes.taken()


def test_two_gangs_whose_members_come_in_turn_are_looked_at_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = a_replica("n1")
    for name in ("one", "two"):
        put_group(replica.store, a_group(name, 2))
    replica.settle()
    notes = Notes(monkeypatch)
    for member, group in (("a", "one"), ("b", "two"), ("c", "one"), ("d", "two")):
        put_pod(replica.store, a_member(member, group))
    replica.watch()
    names = [name for name, *_ in notes.taken()]
    assert names == ["default/one", "default/two", "default/one", "default/two"]


def test_who_came_before_another_pod_goes_before_it() -> None:
    replica = a_replica("n1")
    put_group(replica.store, a_group(least=2))
    put_members(replica.store, 2, cpu="2")
    put_pod(replica.store, a_pod("after", cpu="2"))
    replica.settle()
    assert sorted(replica.bound()) == ["train-0", "train-1"]


def test_a_member_that_is_lost_is_looked_at_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    replica = a_replica("n1", "n2")
    put_group(replica.store, a_group(least=2))
    put_members(replica.store, 2, cpu="3")
    replica.settle()
    notes = Notes(monkeypatch)
    put_pod(replica.store, a_member("train-2", cpu="3"))
    replica.store.delete(key_of("train-0"))
    replica.store.delete(key_of("train-1"))
    replica.watch()
    standings = [standing for _, *standing in notes.taken()]
    # The one that came is settled with the first loss, which has a look of its own.
    assert standings == [[1, 1, True], [1, 1, False], [1, 0, False]]
    later(replica, 5.0)
    assert bound_of(replica) == []

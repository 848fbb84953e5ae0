"""The store in memory judges transactions as the model of etcd does, those of groups among them."""

from __future__ import annotations

import pytest

from benchmarks.memory_store import MemoryStore
from leader.etcd_shim import rpc
from rayched.store.transactions import Guard, GuardedDelete, GuardedPut, Outcome, TogetherPut, Write, build, read
from tests.core.model_store import ModelStore

EPOCH = b"/t/epoch"
NODES = b"/t/nodes/"
GUARD = Guard(EPOCH, 2)


class Both:
    """The two stores, of which each is told the same."""

    def __init__(self) -> None:
        self.memory, self.model = MemoryStore(), ModelStore()

    def put(self, key: bytes) -> None:
        self.memory.put_all([(key, b"there")])
        self.model.put(key, b"there")

    def txn(self, write: Write, guard: Guard = GUARD) -> Outcome:
        """What both say became of it."""
        request = build(guard, [write])
        (told,) = read(self.memory.txn_future(request).result(0), [write])
        (expected,) = read(self.model.txn(rpc.TxnRequest.FromString(request)), [write])
        assert told == expected
        assert {key: entry for key, entry in self.model.now.items() if self.memory.get(key) != entry} == {}
        assert len(self.memory.listed().entries) == len(self.model.now)
        return expected


@pytest.fixture
def both() -> Both:
    stores = Both()
    for key in (EPOCH, b"/t/nodes/a", b"/t/nodes/b", b"/t/pods/a", b"/t/pods/b"):
        stores.put(key)
    return stores


MEMBERS = ((b"/t/pods/a", 5), (b"/t/pods/b", 6))
BOUND = ((b"/t/pods/a", 7), (b"/t/pods/b", 7))


def of_a_group(nodes_at: int, group_at: int = 0, members: tuple[tuple[bytes, int], ...] = MEMBERS) -> TogetherPut:
    puts = tuple((key, b"bound") for key, _ in members)
    return TogetherPut(b"/t/groups/g", group_at, b"scheduled", (*members, (NODES, nodes_at)), puts)


def test_a_group_is_bound_whole_where_nothing_changed_and_not_at_all_otherwise(both: Both) -> None:
    assert type(both.txn(of_a_group(3))).__name__ == "Conflict"
    assert both.memory.get(b"/t/groups/g") is None
    assert type(both.txn(of_a_group(6))).__name__ == "Committed"
    both.put(b"/t/nodes/b")
    assert type(both.txn(of_a_group(7, 7, BOUND))).__name__ == "Conflict"
    assert type(both.txn(of_a_group(8, 7, BOUND))).__name__ == "Committed"


def test_a_plan_s_end_deletes_it_and_puts_what_goes_with_it(both: Both) -> None:
    both.put(b"/t/plans/g")
    end = GuardedDelete(b"/t/plans/g", 7, ((b"/t/pods/a", 5),), ((b"/t/pods/a", b"told"),))
    assert type(both.txn(end)).__name__ == "Committed"
    assert both.memory.get(b"/t/plans/g") is None
    assert type(both.txn(end)).__name__ == "Conflict"


def test_of_another_epoch_nothing_is_written(both: Both) -> None:
    assert type(both.txn(GuardedPut(b"/t/pods/a", 5, b"late"), Guard(EPOCH, 1))).__name__ == "Fenced"

"""What is shared lives exactly as long as it has users, and its bytes count for as long."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from rayched.engine.column_store import CacheEntry, ColumnStore


class Sized(CacheEntry):
    size = 0

    @property
    def n_bytes(self) -> int:
        return self.size


@pytest.mark.parametrize("seed", range(5))
def test_entries_live_as_long_as_somebody_uses_them_and_bytes_are_those_of_the_last_account(seed: int) -> None:
    random, store = Random(seed), ColumnStore()
    taken: list[Sized] = []
    for _ in range(300):
        match random.randrange(5):
            case 0 | 1:
                key = random.randrange(6)
                known = {one.key: one for one in taken}.get(key)
                found = store.take(key, lambda key=key: Sized(key))  # type: ignore[misc]
                assert known is None or found is known, "one for all"
                taken.append(found)
            case 2 if taken:
                several = [taken.pop(random.randrange(len(taken))) for _ in range(random.randint(1, min(3, len(taken))))]
                store.release(several)
            case 3 if taken:
                random.choice(taken).size = random.randrange(100)
            case _ if taken:
                some = random.sample(taken, random.randint(0, len(taken)))
                store.account(None if random.random() < 0.3 else some)
        users = Counter(one.key for one in taken)
        assert len(store) == len(users)
        assert {one.key: one.users for one in taken} == users
        assert store.n_bytes == sum({one.key: one.accounted_bytes for one in taken}.values())
    store.account()
    assert store.n_bytes == sum({one.key: one.size for one in taken}.values())
    store.release(taken)
    assert len(store) == 0 and store.n_bytes == 0


def test_only_those_that_are_named_are_accounted_anew() -> None:
    store = ColumnStore()
    one, other = store.take("one", lambda: Sized("one")), store.take("other", lambda: Sized("other"))
    one.size, other.size = 10, 200
    assert store.n_bytes == 0
    store.account([one])
    assert store.n_bytes == 10
    store.account([])
    assert store.n_bytes == 10
    one.size = 4
    store.account()
    assert store.n_bytes == 204

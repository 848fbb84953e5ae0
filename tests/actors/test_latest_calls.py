"""What is told again and again counts as it was told last, whatever order calls arrive in."""

from __future__ import annotations

from itertools import permutations

import pytest

from rayched.actors.inbox import LatestCalls


@pytest.mark.parametrize("orders", list(permutations((1, 2, 3))))
def test_the_last_one_told_wins_in_any_order(orders: tuple[int, ...]) -> None:
    latest, said = LatestCalls(), [0]
    for order in orders:
        latest.carry_out("workers", order, lambda order=order: said.append(order))  # type: ignore[misc]
    assert said[-1] == 3 and said == sorted(said)


def test_what_is_told_of_one_thing_does_not_hold_up_another() -> None:
    latest, said = LatestCalls(), list[str]()
    latest.carry_out("workers", 5, lambda: said.append("workers"))
    latest.carry_out("queue", 4, lambda: said.append("queue"))
    latest.carry_out("queue", 4, lambda: said.append("twice"))
    assert said == ["workers", "queue"]

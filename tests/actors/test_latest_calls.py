"""What is told again and again counts as it was told last, whatever order calls arrive in."""

from __future__ import annotations

import select
import socket
from itertools import permutations

import pytest

from rayched.actors.inbox import Inbox, LatestCalls


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


def test_an_inbox_tells_whether_anything_waits_in_it() -> None:
    inbox = Inbox()
    assert not inbox.has_any()
    inbox.put(lambda: None)
    assert inbox.has_any()
    assert inbox.take() is not None and not inbox.has_any()
    here, there = socket.socketpair()
    with here, there:
        inbox.watch(here.fileno(), select.POLLIN, lambda: None)
        assert not inbox.has_any()
        there.send(b"x")
        assert inbox.has_any()
        here.recv(1)
        assert not inbox.has_any()

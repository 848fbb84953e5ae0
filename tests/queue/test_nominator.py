"""Nominations: one node a pod, kept through updates that know nothing of them."""

from __future__ import annotations

import pytest

from rayched.queue.nominator import Nominator
from tests.queue.builders import pending


@pytest.mark.row("Q16")
def test_a_pod_is_nominated_to_one_node_at_a_time() -> None:
    nominator = Nominator()
    nominator.add("a", "n1")
    nominator.add("b", "n1")
    nominator.add("a", "n2")
    assert (nominator.node_of("a"), nominator.node_of("b")) == ("n2", "n1")
    nominator.add("b", "")
    nominator.delete("a")
    nominator.delete("a")
    assert (nominator.node_of("a"), nominator.node_of("b")) == ("", "")


@pytest.mark.row("Q16")
@pytest.mark.parametrize(
    ("known", "old_status", "new_status", "expected"),
    [
        ("n1", "", "", "n1"),
        ("n1", "n1", "n1", "n1"),
        ("n1", "n1", "n2", "n2"),
        ("n1", "n1", "", ""),
        ("n1", "", "n2", "n2"),
        ("", "", "n1", "n1"),
        ("", "", "", ""),
    ],
)
def test_an_update_that_knows_nothing_of_a_nomination_keeps_it(
    known: str, old_status: str, new_status: str, expected: str
) -> None:
    nominator = Nominator()
    nominator.add("uid-a", known)
    nominator.update("uid-a", old_status, pending("a", nominated=new_status))
    assert nominator.node_of("uid-a") == expected

"""Refusals of domains and the rows of a domain, against what the labels say."""

import numpy as np

from rayched.snapshot.domains import BlockedDomains
from rayched.snapshot.snapshot import Snapshot
from tests.snapshot.objects import a_node


def _zones(*zones: str | None) -> Snapshot:
    snapshot = Snapshot()
    for number, zone in enumerate(zones):
        snapshot.add_node(a_node(f"n{number}", labels={} if zone is None else {"zone": zone}))
    return snapshot


def _rows(snapshot: Snapshot, domain: int | None) -> list[int]:
    assert domain is not None
    rows = snapshot.topology("zone").rows_of(domain)
    return [] if rows is None else np.arange(snapshot.capacity)[rows].tolist()


def test_rows_of_a_domain_follow_the_labels() -> None:
    snapshot = _zones("a", "b", "a", None)
    topology = snapshot.topology("zone")
    assert _rows(snapshot, topology.domain_of("a")) == [0, 2]
    assert 3 in _rows(snapshot, -1)
    snapshot.update_node(a_node("n0", labels={"zone": "b"}))
    assert _rows(snapshot, topology.domain_of("a")) == [2]
    assert _rows(snapshot, topology.domain_of("b")) == [0, 1]
    snapshot.remove_node("n2")
    assert _rows(snapshot, topology.domain_of("a")) == []


def test_refusals_log_what_changed_and_nothing_else() -> None:
    refusals = BlockedDomains(_zones("a", "b").topology("zone"))
    refusals.set_all(np.array([True, False, True]))
    assert refusals.log.since(0) is None
    assert refusals.n_refused == 2
    position = refusals.log.end
    refusals.set(0, True)
    refusals.set_all(np.array([True, False, True]))
    assert refusals.log.end == position
    refusals.set(1, True)
    refusals.set_all(np.array([False, True, False]))
    assert refusals.log.since(position) == [1, 0, -1]
    assert (refusals.n_refused, refusals.refused.tolist()) == (1, [False, True, False])

"""Groups that go to one domain of a topology, over a model store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from rayched.core.groups import topology
from rayched.core.groups.topology import Domains, n_domains_to_find
from rayched.snapshot.snapshot import Snapshot
from tests.core.builders import a_node, a_pod
from tests.core.grouped import a_group, a_member, audited, bound_of, put_group, put_members, scheduled
from tests.core.leading import a_replica, assumed, put_node, put_pod
from tests.core.model_store import ModelStore
from tests.core.replica import Replica

ZONE = "topology.kubernetes.io/zone"
NOBODY = "preemption: no pods of lower priority may go."


@pytest.fixture
def leader() -> Iterator[Replica]:
    """A leader without nodes."""
    replica = a_replica()
    yield replica
    assert audited(replica.store).findings.counts() == dict.fromkeys(audited(ModelStore()).findings.counts(), 0)


def put_zones(replica: Replica, sizes: Mapping[str, int], cpu: str = "4") -> None:
    """Nodes a-0, a-1, ... in zone a, and so on; in zone "" they have no label."""
    for zone, count in sizes.items():
        for number in range(count):
            labels = {ZONE: zone} if zone else None
            put_node(replica.store, a_node(f"{zone or 'none'}-{number}", cpu=cpu, labels=labels))


def zones_of(replica: Replica, group: str = "train") -> set[str]:
    bound = replica.bound()
    return {bound[name].partition("-")[0] for name in bound_of(replica, group)}


@pytest.mark.row("G3", "GT1")
def test_all_members_go_to_the_one_zone_that_takes_them(leader: Replica) -> None:
    put_zones(leader, {"a": 2, "b": 4, "c": 3, "": 9})
    put_group(leader.store, a_group(least=4, topology=ZONE))
    put_members(leader.store, 4, cpu="3")
    leader.settle()
    assert len(bound_of(leader)) == 4
    assert zones_of(leader) == {"b"}


@pytest.mark.row("GT1")
def test_of_zones_that_take_all_of_it_the_one_with_the_least_room_left_is_chosen(leader: Replica) -> None:
    put_zones(leader, {"a": 5, "b": 3, "c": 4})
    put_group(leader.store, a_group(least=3, topology=ZONE))
    put_members(leader.store, 3, cpu="3")
    leader.settle()
    assert zones_of(leader) == {"b"}


@pytest.mark.row("GT1")
def test_the_zone_that_takes_most_members_wins_over_the_fuller_one(leader: Replica) -> None:
    put_zones(leader, {"a": 2, "b": 4})
    put_group(leader.store, a_group(least=2, topology=ZONE))
    put_members(leader.store, 4, cpu="3")
    leader.settle()
    assert len(bound_of(leader)) == 4
    assert zones_of(leader) == {"b"}


@pytest.mark.row("GT2")
def test_where_no_zone_takes_it_nobody_is_placed_and_the_message_tells_which_came_closest(leader: Replica) -> None:
    put_zones(leader, {"a": 2, "b": 3, "": 9})
    put_group(leader.store, a_group(least=4, topology=ZONE))
    put_members(leader.store, 4, cpu="3")
    leader.settle()
    assert bound_of(leader) == [] and assumed(leader) == 0
    status, reason, message = scheduled(leader.store)
    assert (status, reason) == ("False", "Unschedulable")
    where = f"0 bound, 3 placed, 4 needed, 4 members in 2 of 2 domains of {ZONE}, closest {ZONE}=b"
    beyond = "11 node(s) were not in the topology domain of the pod group"
    assert message == f"{where}: default/train-3: 0/14 nodes are available: {beyond}, 3 Insufficient cpu. {NOBODY}"
    put_node(leader.store, a_node("b-3", labels={ZONE: "b"}))
    leader.settle()
    assert len(bound_of(leader)) == 4 and zones_of(leader) == {"b"}


@pytest.mark.row("GT2")
def test_a_node_that_moves_to_the_zone_wakes_the_group(leader: Replica) -> None:
    put_zones(leader, {"a": 3, "b": 1})
    put_group(leader.store, a_group(least=4, topology=ZONE))
    put_members(leader.store, 4, cpu="3")
    leader.settle()
    assert bound_of(leader) == []
    put_node(leader.store, a_node("b-0", labels={ZONE: "a"}))
    leader.settle()
    assert len(bound_of(leader)) == 4


@pytest.mark.row("GT2")
def test_without_any_node_that_has_the_label_the_group_waits(leader: Replica) -> None:
    put_zones(leader, {"": 2})
    put_group(leader.store, a_group(least=1, topology=ZONE))
    put_members(leader.store, 1)
    leader.settle()
    assert f"2 node(s) without label {ZONE}, which is the topology of the pod group." in scheduled(leader.store)[2]
    put_zones(leader, {"a": 1})
    leader.settle()
    assert zones_of(leader) == {"a"}


@pytest.mark.row("GT3")
def test_members_that_come_later_go_where_the_others_are(leader: Replica) -> None:
    put_zones(leader, {"a": 3, "b": 3})
    put_group(leader.store, a_group(least=2, topology=ZONE))
    put_members(leader.store, 2, cpu="3")
    leader.settle()
    (zone,) = zones_of(leader)
    other = "b" if zone == "a" else "a"
    put_pod(leader.store, a_pod("filler", cpu="3", selector={ZONE: zone}))
    leader.settle()
    put_members(leader.store, 1, first=2, cpu="3")
    leader.settle()
    # The other zone has three free nodes; this one has none.
    assert len(bound_of(leader)) == 2
    assert f"closest {ZONE}={zone}" in scheduled(leader.store)[2] or scheduled(leader.store)[0] == "True"
    put_node(leader.store, a_node(f"{zone}-9", labels={ZONE: zone}))
    leader.settle()
    assert len(bound_of(leader)) == 3 and zones_of(leader) == {zone} and other not in zones_of(leader)


@pytest.mark.row("GT1")
def test_each_host_can_be_a_domain(leader: Replica) -> None:
    for number in range(8):
        put_node(leader.store, a_node(f"n{number}", cpu="8" if number == 5 else "4"))
    put_group(leader.store, a_group(least=2, topology="kubernetes.io/hostname"))
    put_pod(leader.store, a_member("train-0", cpu="3"))
    put_pod(leader.store, a_member("train-1", cpu="5"))
    leader.settle()
    assert {leader.bound()[name] for name in bound_of(leader)} == {"n5"}


@pytest.mark.parametrize(
    ("n_domains", "n_nodes", "enough"),
    [(3, 9, 3), (40, 0, 40), (100, 2_500, 55), (1_000, 5_000, 100), (1_000, 20_000, 50), (10, 20_000, 4), (1, 20_000, 1)],
)
def test_of_many_domains_a_share_is_enough(n_domains: int, n_nodes: int, enough: int) -> None:
    assert n_domains_to_find(n_domains, n_nodes) == enough


def test_domains_part_the_nodes_that_have_the_label_and_beyond_one_are_all_others() -> None:
    snapshot = Snapshot()
    for number in range(50):
        snapshot.add_node(a_node(f"n{number}", labels={"zone": f"z{number % 7}"} if number % 10 else {}))
    snapshot.remove_node("n13")
    domains = Domains(snapshot).candidates("zone", ())
    alive = set(snapshot.alive.nonzero()[0].tolist())
    rows = [set(domain.rows.tolist()) for domain in domains]
    assert sum(map(len, rows)) == len(set().union(*rows)) == 50 - 5 - 1
    for domain, own in zip(domains, rows, strict=True):
        assert {snapshot.node(snapshot.name_of(row)).metadata.labels["zone"] for row in own} == {domain.value}  # type: ignore[union-attr]
        assert domain.beyond == alive - own
    (held,) = Domains(snapshot).candidates("zone", ["n8"])
    assert held.value == "z1"
    assert Domains(snapshot).candidates("rack", ()) == [] == Domains(Snapshot()).candidates("zone", ())


def test_where_each_host_is_a_domain_rows_beyond_it_are_listed_for_those_alone_that_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []

    def counted(rows: list[int]) -> frozenset[int]:
        sizes.append(len(rows))
        return frozenset(rows)

    monkeypatch.setattr(topology, "frozenset", counted, raising=False)
    snapshot = Snapshot()
    for number in range(300):
        snapshot.add_node(a_node(f"n{number}"))
    domains = Domains(snapshot).candidates("kubernetes.io/hostname", ())
    assert len(domains) == 300 and sizes == []
    assert len(domains[0].beyond) == 299 and sizes == [299]

"""What has to be free and whether it is, against the rule taken word by word, for columns and for single rows."""

from __future__ import annotations

from random import Random

import pytest

from rayched.framework.resource_needs import ResourceNeed, ResourceNeeds
from rayched.framework.status import Code
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.v1.core_pb2 import Node
from rayched.v1.meta_pb2 import ObjectMeta

NAMES = ("cpu", "memory", "pods", "example.com/gpu", "example.com/none")
N_ROWS = 12


def a_table(random: Random) -> Snapshot:
    table = Snapshot()
    for number in range(N_ROWS):
        node = Node(metadata=ObjectMeta(name=f"n{number}"))
        offered = {"cpu": random.randint(0, 4), "memory": random.randint(0, 4), "pods": 3, "example.com/gpu": number % 3}
        for name, amount in offered.items():
            node.status.allocatable[name].string = str(amount)
        table.add_node(node)
    # More may be requested than there is: nodes shrink below what is bound.
    for name, place in table.resources.items():
        for row in range(N_ROWS):
            table.requested[place, row] = random.randint(0, 3) * (1000 if name == "cpu" else 1)
    return table


def some_needs(random: Random) -> list[ResourceNeed]:
    names = ["pods", *(name for name in NAMES if name != "pods" and random.random() < 0.6)]
    return [
        ResourceNeed(name, random.randint(1, 3) * (1000 if name == "cpu" else 1), f"lacks {name}", name != "pods")
        for name in names
    ]


def word(table: Snapshot, needs: list[ResourceNeed], row: int) -> tuple[Code, list[str]]:
    reasons, code = [], Code.SUCCESS
    for need in needs:
        place = table.resources.get(need.resource)
        there = 0 if place is None else int(table.allocatable[place, row])
        taken = 0 if place is None else int(table.requested[place, row])
        if need.amount > there - taken:
            reasons.append(need.reason)
            code = max(code, Code.UNSCHEDULABLE)
        if need.is_final and need.amount > there:
            code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    return code, reasons


@pytest.mark.parametrize("seed", range(20))
def test_columns_and_single_rows_say_what_the_rule_says(seed: int) -> None:
    random = Random(seed)
    table = a_table(random)
    needs = some_needs(random)
    of = ResourceNeeds(needs)
    everything = Rows(table, slice(0, N_ROWS))
    codes, short, lefts = of.codes(everything), of.short(everything), of.left_of(everything)
    for row in range(N_ROWS):
        code, reasons = word(table, needs, row)
        assert codes[row] == code == of.codes(Rows(table, slice(row, row + 1)))[0]
        assert [need.reason for need, lacks in zip(needs, short, strict=True) if lacks[row]] == reasons
        left = of.left(table, row)
        assert [need.reason for need, amount in zip(needs, left, strict=True) if amount < 0] == reasons
        assert left == lefts[:, row].tolist()
        assert of.is_final(table, row) == bool(of.final(everything)[row]) == (code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE)


@pytest.mark.parametrize("seed", range(20))
def test_pods_side_by_side_get_the_codes_that_each_gets_alone(seed: int) -> None:
    random = Random(seed)
    table = a_table(random)
    several = [ResourceNeeds(some_needs(random)) for _ in range(random.randint(2, 9))]
    together = ResourceNeeds.side_by_side(several)
    for row in range(N_ROWS):
        rows = Rows(table, slice(row, row + 1))
        assert together.codes(rows).tolist() == [one.codes(rows)[0] for one in several]
    highest = {need.resource: need.amount for need in together.needs}
    assert highest == {
        name: max(need.amount for one in several for need in one.needs if need.resource == name) for name in highest
    }


def test_a_cluster_without_nodes_gets_no_codes() -> None:
    # The columns of an empty snapshot have room for a row all the same.
    nothing = Rows(Snapshot(), slice(0, 0))
    of = ResourceNeeds(some_needs(Random(1)))
    assert of.codes(nothing).shape == of.final(nothing).shape == (0,)
    assert of.left_of(nothing).shape == (len(of.needs), 0)

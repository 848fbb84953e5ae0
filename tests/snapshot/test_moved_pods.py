"""Rows as they would be: what moved pods add, kept step by step, is what a walk over the moved pods adds up to."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np
import pytest

from rayched.api.selectors import Operator, Requirement
from rayched.engine.trial_rows import TrialRows, numbers_of
from rayched.snapshot.moved_pods import Amounts, MovedPods
from rayched.snapshot.pod_selection import PodSelector
from rayched.snapshot.rows import Rows, WhatIfRows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate, TemplateTable
from rayched.v1.core_pb2 import Node, Pod

WEB = PodSelector(None, (Requirement("app", Operator.IN, frozenset(("web",))),))


def weigh(moved: MovedPods) -> Mapping[str, Amounts]:
    return {"web": moved.selected((WEB,)).astype(np.int64), "number": np.arange(len(moved.templates), dtype=np.int64)}


def a_template(templates: TemplateTable, random: Random, number: int) -> PodTemplate:
    pod = Pod()
    pod.metadata.namespace = "default"
    pod.metadata.labels["app"], pod.metadata.labels["own"] = random.choice(("web", "db")), str(number)
    container = pod.spec.containers.add()
    container.resources.requests["cpu"].string = str(random.randint(0, 3))
    if random.random() < 0.3:
        container.resources.requests["example.com/thing"].string = "1"
    if random.random() < 0.3:
        container.ports.add(host_port=80 + number % 2, protocol="TCP")
    return templates.intern(pod)


def walked(rows: Rows, of: list[PodTemplate]) -> dict[str, list[int]]:
    found = {"web": [0] * rows.n, "number": [0] * rows.n}
    for template, count in rows.changes:
        for place, pods in enumerate(np.broadcast_to(count, rows.n).tolist()):
            found["web"][place] += pods * (template.labels["app"] == "web")
            found["number"][place] += pods * of.index(template)
    return found


def same(rows: Rows, of: list[PodTemplate], what_if: list[dict[PodTemplate, int]]) -> None:
    assert {name: column.tolist() for name, column in rows.differences("key", weigh).items()} == walked(rows, of)
    for place, there in enumerate(what_if):
        one = WhatIfRows(rows.snapshot, rows.index[[place]], *there.items())
        assert rows.requested[:, place].tolist() == one.requested[:, 0].tolist()
        assert rows.non_zero_requested[:, place].tolist() == one.non_zero_requested[:, 0].tolist()
        for port in (80, 81):
            assert rows.port_users("TCP", port, "0.0.0.0").tolist()[place] == one.port_users("TCP", port, "0.0.0.0").tolist()[0]


@pytest.mark.parametrize("seed", range(10))
def test_steps_of_a_trial_add_up_also_in_copies_of_some_rows(seed: int) -> None:
    random, snapshot, table = Random(seed), Snapshot(), TemplateTable()
    for number in range(6):
        node = Node()
        node.metadata.name = f"n{number}"
        node.status.allocatable["cpu"].string = "64"
        snapshot.add_node(node)
    templates = [a_template(table, random, number) for number in range(8)]
    trial = TrialRows.begin(snapshot, numbers_of(range(6)), templates)
    moved: list[dict[PodTemplate, int]] = [{} for _ in range(6)]
    for step in range(25):
        n = random.randint(0, 5)
        places, numbers = [random.randrange(trial.n) for _ in range(n)], [random.randrange(8) for _ in range(n)]
        trial.put(numbers_of(places), numbers_of(numbers), 1)
        for place, number in zip(places, numbers, strict=True):
            there = moved[place]
            there[templates[number]] = there.get(templates[number], 0) + 1
        if random.random() < 0.5:
            same(trial, templates, moved)
        if step % 10 == 9:
            kept = sorted(random.sample(range(trial.n), trial.n - 1))
            whole, trial, moved = trial, trial.only(numbers_of(kept)), [moved[place] for place in kept]
            whole.put(numbers_of([0]), numbers_of([0]), 1)
            same(trial, templates, moved)
    assert trial.would_be and not Rows(snapshot, slice(0, 6)).would_be

"""Labels in columns select what selectors select pod by pod, whatever pods have labels of their own."""

from __future__ import annotations

from random import Random

import pytest

from rayched.api.selectors import LABEL_OPERATORS, Operator, Requirement
from rayched.snapshot import label_columns
from rayched.snapshot.label_columns import LabelColumns
from rayched.snapshot.pod_selection import PodSelector

KEYS = ("app", "tier", "own", "nobody-has-it")
VALUES = ("a", "b", "c", "nobody-has-it")
SPACES = ("one", "two", "three")


def a_selector(random: Random, slots: int) -> PodSelector:
    namespaces = None if random.random() < 0.3 else frozenset(random.sample((*SPACES, "nobody-is-there"), random.randint(0, 2)))
    if random.random() < 0.05:
        return PodSelector(namespaces, None)
    conditions = []
    for _ in range(random.randint(0, 3)):
        operator = random.choice(LABEL_OPERATORS)
        values: frozenset[str] = frozenset()
        if operator in (Operator.IN, Operator.NOT_IN):
            own = [str(random.randint(0, slots)) for _ in range(2)]
            values = frozenset(random.sample((*VALUES, *own), random.randint(1, 3)))
        conditions.append(Requirement(random.choice(KEYS), operator, values))
    return PodSelector(namespaces, tuple(conditions))


@pytest.mark.parametrize("seed", range(20))
def test_columns_select_what_a_look_at_each_pod_selects_also_as_pods_come(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_columns, "COLUMNS_MAX", 2)
    random, columns = Random(seed), LabelColumns()
    slots: list[tuple[str, dict[str, str]]] = []
    for _ in range(12):
        for _ in range(random.randint(0, 8)):
            labels = {key: random.choice(VALUES[:3]) for key in KEYS[:2] if random.random() < 0.6}
            if random.random() < 0.7:
                labels["own"] = str(len(slots))
            slots.append((random.choice(SPACES), labels))
            assert columns.add(*slots[-1]) == len(slots) - 1
        for _ in range(10):
            selectors = [a_selector(random, len(slots)) for _ in range(random.randint(0, 2))]
            expected = [all(one.matches(namespace, labels) for one in selectors) for namespace, labels in slots]
            assert columns.selected(selectors).tolist() == expected, selectors
    assert not columns.has_key("nobody-has-it")

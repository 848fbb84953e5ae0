"""Values of labels, looked at all at once, are judged as one by one."""

from __future__ import annotations

from random import Random

import pytest

from rayched.api.names import LABEL_MAX, are_label_values, label_value_fault

_TEXTS = (
    "",
    "a",
    "A9",
    "a-b_c.d",
    "-",
    "a-",
    ".a",
    "a\nb",
    "\n",
    "a\n",
    "é",
    "a b",
    "a\x00",
    "x" * LABEL_MAX,
    "x" * (LABEL_MAX + 1),
)


@pytest.mark.parametrize(
    "texts", [[], *([text] for text in _TEXTS), *([text, "b"] for text in _TEXTS), *(["b", text] for text in _TEXTS)]
)
def test_values_are_as_valid_together_as_alone(texts: list[str]) -> None:
    assert are_label_values(texts) == all(label_value_fault(text) is None for text in texts)


def test_random_values_are_as_valid_together_as_alone() -> None:
    random, seen = Random(1), set()
    for _ in range(5_000):
        texts = [
            "".join(random.choices("aZ0-_.\n", (9, 9, 9, 1, 1, 1, 0.5), k=random.randrange(6)))
            for _ in range(random.randrange(5))
        ]
        valid = are_label_values(texts)
        assert valid == all(label_value_fault(text) is None for text in texts), texts
        seen.add(valid)
    assert seen == {True, False}

"""`make secured`: what it demands of its pairs, and that it can be missed."""

from __future__ import annotations

import pytest

from benchmarks.measured import Measured
from benchmarks.secured import judged, rows


def run(seconds: float, single_ms: float) -> Measured:
    return Measured(seconds, {"replica": seconds}, single_ms, 2 * single_ms, {})


@pytest.mark.parametrize(
    ("secured", "missed"),
    [
        ((1.1, 1.5), []),
        ((1.3, 1.5), ["0.77 of the rate"]),
        ((1.1, 2.5), ["1.50 ms longer"]),
        ((1.3, 2.5), ["0.77 of the rate", "1.50 ms longer"]),
    ],
)
def test_the_median_of_pairs_is_judged(secured: tuple[float, float], missed: list[str]) -> None:
    pairs = [(run(1.0, 1.0), run(*secured)), (run(1.0, 1.0), run(*secured)), (run(1.0, 1.0), run(9.0, 9.0))]
    told = judged(pairs)
    assert len(told) == len(missed) and all(part in text for part, text in zip(missed, told, strict=True))


def test_each_pair_is_told_and_then_the_median() -> None:
    pairs = [(run(1.0, 1.0), run(2.0, 1.5)), (run(1.0, 1.0), run(1.25, 1.25))]
    assert rows(pairs, 1_000) == [
        ("pair 1", "1,000 and 500 pods/s, 0.50; single pods 1.00 and 1.50 ms"),
        ("pair 2", "1,000 and 800 pods/s, 0.80; single pods 1.00 and 1.25 ms"),
        ("median", "0.65 of the rate, single pods +0.38 ms"),
    ]

"""What `make page-load` demands, and what it says where that was missed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import page
from benchmarks.page import BindingPhase, Visit, judged
from benchmarks.page_rig import NoBrowser

ALONE = BindingPhase(1_000.0, 0.100, 0.05)
SEEN = BindingPhase(1_000.0, 0.105, 0.2, 30.0, 0.5)
COLD, WARM = Visit("cold", 1.5, 400_000), Visit("warm", 0.4, 300_000)


def test_what_is_as_demanded_is_not_told() -> None:
    assert judged([COLD, WARM], [ALONE, SEEN], 8) == []
    assert judged([], [], 8) == []


@pytest.mark.parametrize(
    ("visits", "phases", "words"),
    [
        ([replace(COLD, seconds=1.6), WARM], [], "the overview is there after 1.60 s, allowed are 1.5"),
        ([COLD, replace(WARM, wire_bytes=400_001)], [], "the overview takes 400,001 bytes over the wire, allowed are 400,000"),
        ([], [ALONE, replace(SEEN, frames_a_second=29.4)], "29 frames a second, wanted are 30"),
        ([], [ALONE, replace(SEEN, main_thread=0.51)], "the page's main thread is busy for 51%, allowed are 50%"),
        ([], [ALONE, replace(SEEN, gateway=0.21)], "the gateway takes 0.21 of a processor, allowed are 0.2"),
        (
            [],
            [ALONE, replace(SEEN, slow_seconds=0.12)],
            "99 of 100 bindings take 1.20 times as long while somebody looks, allowed are 1.05",
        ),
    ],
)
def test_each_demand_that_is_missed_is_told(visits: list[Visit], phases: list[BindingPhase], words: str) -> None:
    assert judged(visits, phases, 8) == [words]


def test_one_slow_visit_of_several_is_no_miss() -> None:
    assert judged([COLD, COLD, replace(COLD, seconds=9.0)], [], 8) == []


def test_where_processors_are_few_who_looks_takes_some_and_that_is_told_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert judged([], [ALONE, replace(SEEN, slow_seconds=1.0)], 2) == []
    assert "10.00 times as long" in capsys.readouterr().out.replace("\n", " ")


def test_without_a_browser_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def nothing() -> None:
        raise NoBrowser("there is no Chromium")

    monkeypatch.setattr(page, "browsing", nothing)
    assert page.main([]) == 2
    assert capsys.readouterr().err == "there is no Chromium\n"

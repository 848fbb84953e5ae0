"""Each transcript says what the code does: commands, and what they print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.transcripts.election_machine import ElectionMachine
from tests.transcripts.exchange_machine import ExchangeMachine
from tests.transcripts.queue_machine import QueueMachine
from tests.transcripts.transcript import Machine, TranscriptError, replay

HERE = Path(__file__).parent
MACHINES: dict[str, Callable[[], Machine]] = {
    "election": ElectionMachine,
    "exchange": ExchangeMachine,
    "queue": QueueMachine,
}
TRANSCRIPTS = sorted(HERE.glob("*/*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_transcript_prints_what_it_printed(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text(encoding="utf-8")
    now = replay(text, MACHINES[path.parent.name])
    if request.config.getoption("--rewrite-transcripts"):
        path.write_text(now, encoding="utf-8")
    else:
        assert now == text, "if the new behaviour is right: pytest tests/transcripts --rewrite-transcripts"


def test_there_are_four_transcripts_or_more_of_each_machine_and_each_says_something() -> None:
    by_machine = {name: [path for path in TRANSCRIPTS if path.parent.name == name] for name in MACHINES}
    assert all(len(paths) >= 4 for paths in by_machine.values()), by_machine
    for path in TRANSCRIPTS:
        text = path.read_text(encoding="utf-8")
        assert text.startswith("# ") and text.count("\n----\n") >= 3, path.name


@pytest.mark.parametrize("folder", MACHINES)
def test_a_transcript_notices_a_line_that_is_not_so(folder: str) -> None:
    path = next(path for path in TRANSCRIPTS if path.parent.name == folder)
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    printed = next(at + 1 for at, line in enumerate(lines) if line == "----" and lines[at + 1].strip())
    lines[printed] += " of another kind"
    assert replay("\n".join(lines), MACHINES[folder]) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("add web\n\n", "line 2: a block ends without ----"),
        ("add web\n", "the last block ends without ----"),
        ("# prose\n----\n", "line 2: ---- without a command before it"),
        ("jump\n----\n", '"jump" is no command here: want queue, add'),
    ],
)
def test_a_text_that_is_no_transcript_is_an_error_that_says_where(text: str, problem: str) -> None:
    with pytest.raises(TranscriptError, match=problem):
        replay(text, QueueMachine)

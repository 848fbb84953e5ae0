"""Random changes of inputs, and a session of them: without coverage, but what brings a new outcome is kept and changed further.

Equal seeds give equal inputs. No I/O; the stopwatch is given.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.fuzz.parsers import ParserTarget

BYTES_MAX: Final = 1 << 16
KEPT_MAX: Final = 2_000
INPUT_SECONDS_MAX: Final = 1.0
"""Of one input, on a busy machine: what takes longer grows faster than its length."""
FAULTS_MAX: Final = 20
_SHORT_MAX: Final = 512
_SHOWN_MAX: Final = 200
_CHANGES_MAX: Final = 6
_ODD_BYTES: Final = (0x00, 0x09, 0x0A, 0x20, 0x22, 0x27, 0x2C, 0x2F, 0x5C, 0x7F, 0x80, 0xC3, 0xED, 0xFF)


@dataclass(frozen=True, slots=True)
class ParserFault:
    """An input, and what it led to."""

    target: str
    data: bytes
    said: str

    def __str__(self) -> str:
        more = f" and {len(self.data) - _SHOWN_MAX} more" if len(self.data) > _SHOWN_MAX else ""
        return f"{self.target}: {self.said}: {self.data[:_SHOWN_MAX]!r}{more}"


@dataclass(slots=True)
class ParserReport:
    """What a session has shown."""

    target: str
    inputs: int = 0
    outcomes: set[str] = field(default_factory=set)
    longest_seconds: float = 0.0
    faults: list[ParserFault] = field(default_factory=list)


class MutatedInputs:
    """Inputs without end for one target."""

    def __init__(self, target: ParserTarget, seed: int) -> None:
        # Not hash(): it differs between processes.
        self._random = random.Random(f"{seed}/{target.name}")
        self._words = target.words
        self._kept = list(target.corpus)

    def __iter__(self) -> Iterator[bytes]:
        yield from list(self._kept)
        while True:
            data = self._random.choice(self._kept)
            for _ in range(self._random.randint(1, _CHANGES_MAX)):
                data = self._changed(data)
            yield data[:BYTES_MAX]

    def keep(self, data: bytes) -> None:
        """It led somewhere new. A long one is rarely worth its time."""
        if len(self._kept) < KEPT_MAX and len(data) <= _SHORT_MAX:
            self._kept.append(data)

    def _changed(self, data: bytes) -> bytes:
        draw = self._random
        start, end = sorted((draw.randint(0, len(data)), draw.randint(0, len(data))))
        match draw.randrange(9):
            case 0 if data:
                at = draw.randrange(len(data))
                return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]
            case 1:
                return data[:start] + bytes([draw.choice(_ODD_BYTES)]) + data[start:]
            case 2 if self._words:
                return data[:start] + draw.choice(self._words) + data[start:]
            case 3 if self._words:
                return data[:start] + draw.choice(self._words) + data[end:]
            case 4:
                return data[:start] + data[end:]
            case 5:
                return data[:end] + data[start:end] * draw.choice((1, 2, 10)) + data[end:]
            case 6:
                other = draw.choice(self._kept)
                return data[:start] + other[draw.randint(0, len(other)) :]
            case 7 if not draw.randrange(20):
                # So that what grows faster than its input is seen.
                part = data[start:end] or (draw.choice(self._words) if self._words else b"a")
                return data[:start] + part * (BYTES_MAX // len(part)) + data[end:]
            case _:
                return data[:start] + draw.randbytes(draw.randint(1, 4)) + data[end:]


def fuzz_parser(target: ParserTarget, seed: int, goes_on: Callable[[int], bool], stopwatch: Callable[[], float]) -> ParserReport:
    """`goes_on`: whether there is to be one more input after so many. Ends early after FAULTS_MAX faults."""
    report, inputs = ParserReport(target.name), MutatedInputs(target, seed)
    for data in inputs:
        if not goes_on(report.inputs) or len(report.faults) >= FAULTS_MAX:
            break
        report.inputs += 1
        began = stopwatch()
        try:
            outcome = target.check(data)
        except Exception as error:
            report.faults.append(ParserFault(target.name, data, f"{type(error).__name__}: {error}"[:500]))
            continue
        took = stopwatch() - began
        report.longest_seconds = max(report.longest_seconds, took)
        if took > INPUT_SECONDS_MAX:
            report.faults.append(ParserFault(target.name, data, f"took {took:.1f} s"))
        if outcome not in report.outcomes:
            report.outcomes.add(outcome)
            inputs.keep(data)
    return report

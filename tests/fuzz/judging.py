"""What is demanded of a run, and what became of its calls. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import grpc

from tests.fuzz.calls import FuzzedCall

Code = grpc.StatusCode
NEVER: Final = (Code.INTERNAL, Code.UNKNOWN, Code.DATA_LOSS)
"""What no request may be answered with."""
NO_METHOD: Final = Code.UNIMPLEMENTED
"""Of methods that there are not, and of compressed requests."""
TEMPORARY: Final = (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
"""Of unary calls: nothing is stopped here, so each of them has an answer in its time."""
FROM_AGENTS: Final = ("/rayched.v1.Usage/GetUsage",)
NO_AGENT: Final = "has no stream to this replica"
"""What is said where an agent would have to answer: nodes here have none."""
GROWTH_BYTES_MAX: Final = 64 << 20
KEPT_FAULTS: Final = 20
BACKGROUND: Final = ("/leader/", "/heartbeats/", "/events/", "/compaction", "/templates/", "/records/")
"""What is written without anybody's call."""


@dataclass(frozen=True)
class FuzzOutcome:
    """One call's. `code`: None, a stream that was still open."""

    call: FuzzedCall
    code: grpc.StatusCode | None
    details: str = ""
    seconds: float = 0.0

    @property
    def is_refused(self) -> bool:
        return self.code not in (None, Code.OK)


def fault_of(outcome: FuzzOutcome) -> str:
    """What is wrong with an answer; empty: nothing."""
    call, code = outcome.call, outcome.code
    if code in NEVER:
        return f"answered with {code.name}"
    if code is NO_METHOD and call.is_known and not call.is_compressed:
        return "is a method, and answered as if it were none"
    # A stream that is still open may hear of it later, on a busy machine.
    if not call.is_known and code is Code.OK:
        return "is no method, and was answered"
    if code in TEMPORARY and not call.streams_out and not call.streams_in:
        if code is Code.UNAVAILABLE and call.path in FROM_AGENTS and NO_AGENT in outcome.details:
            return ""
        return f"had no answer: {code.name}"
    return ""


def unasked(keys: Sequence[str]) -> list[str]:
    """Of keys that were written, below the cluster's root, those that are somebody's doing."""
    return [key for key in keys if not any(part in key for part in BACKGROUND)]


@dataclass
class FuzzReport:
    """Counts of a run, and its faults."""

    codes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By method and code."""
    roles: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By role, and whether it was answered, refused or is open."""
    faults: dict[str, list[str]] = field(default_factory=dict)
    """What happened, by what was demanded."""
    checked: int = 0
    """Refused calls before and after which etcd's revision was read."""
    looked_at: int = 0
    """Those of them beside which something was written, so that they were made again."""
    slowest: float = 0.0
    slowest_path: str = ""
    resident: list[int] = field(default_factory=list)
    """Bytes of the replica and what it started, at intervals, each time the cluster had been cleared."""

    def add(self, outcome: FuzzOutcome) -> None:
        code = "open" if outcome.code is None else outcome.code.name
        self.codes[outcome.call.path, code] += 1
        state = "open" if outcome.code is None else "refused" if outcome.is_refused else "answered"
        self.roles[outcome.call.role, state] += 1
        if outcome.seconds > self.slowest:
            self.slowest, self.slowest_path = outcome.seconds, outcome.call.path
        if fault := fault_of(outcome):
            self.miss(
                "codes", f"{outcome.call.path} of {outcome.call.role}, number {outcome.call.number}: {fault}: {outcome.details}"
            )

    def miss(self, demand: str, text: str) -> None:
        self.faults.setdefault(demand, []).append(text)

    def judge_memory(self) -> None:
        """Level: after the first half it grows no more."""
        if len(self.resident) < 4:
            return
        half = len(self.resident) // 2
        before, after = min(self.resident[:half][-max(1, half // 2) :]), min(self.resident[-max(1, half // 2) :])
        if after - before > GROWTH_BYTES_MAX:
            self.miss("memory", f"{before >> 20} MiB at half of the run, {after >> 20} MiB at its end")

    @property
    def requests(self) -> int:
        return self.codes.total()

    def table(self) -> list[str]:
        """Methods and what they were answered with; then the demands."""
        return [*answers([self]), "", *self.demands()]

    def demands(self) -> list[str]:
        memory = " ".join(str(one >> 20) for one in self.resident) or "not looked at"
        """Whether each is met, and what missed it."""
        wanted = {
            "codes": f"{self.requests} calls, none answered with {', '.join(code.name for code in NEVER)} or not at all",
            "revision": f"{self.checked} refused calls, none of which wrote ({self.looked_at} looked at again)",
            "leader": "the leader stays",
            "memory": f"memory is level: {memory} MiB",
        }
        lines = []
        for demand, text in wanted.items():
            faults = self.faults.get(demand, [])
            lines.append(f"{'MISSED' if faults else 'met':<8}{text}")
            lines += [f"        {fault}" for fault in faults[:KEPT_FAULTS]]
            if len(faults) > KEPT_FAULTS:
                lines.append(f"        and {len(faults) - KEPT_FAULTS} more")
        return lines


def answers(reports: Sequence[FuzzReport]) -> list[str]:
    """Methods and what they were answered with in all of them, then how roles fared."""
    totals = sum((report.codes for report in reports), Counter[tuple[str, str]]())
    of_roles = sum((report.roles for report in reports), Counter[tuple[str, str]]())
    codes = sorted({code for _, code in totals})
    paths = sorted({path for path, _ in totals})
    width = max(map(len, paths), default=0)
    lines = ["  ".join([" " * width, *codes])]
    for path in paths:
        cells = [f"{totals[path, code] or '':>{len(code)}}" for code in codes]
        lines.append("  ".join([f"{path:<{width}}", *cells]))
    lines.append("")
    for role in sorted({role for role, _ in of_roles}):
        lines.append(f"{role}: " + ", ".join(f"{of_roles[role, one]} {one}" for one in ("answered", "refused", "open")))
    return lines

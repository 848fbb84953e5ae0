"""How far a run has come: its plan and the verdicts on its sessions, in the directory of its report.

A run that was interrupted goes on, if it has the same plan and the checkout has the same commit: a report is of one commit. One
that came to its end is played anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tests.chaos.plan import Plan

_PLAN: Final = "plan.json"
_SESSIONS: Final = "session-*.json"


def begin_in(directory: Path, plan: Plan, commit: str) -> None:
    """Make the directory; leave of what is there the verdicts that the run goes on with."""
    directory.mkdir(parents=True, exist_ok=True)
    verdicts = list(directory.glob(_SESSIONS))
    goes_on = plan.is_saved_at(directory / _PLAN) and len(verdicts) < len(plan.sessions)
    for verdict in verdicts:
        if not goes_on or json.loads(verdict.read_text()).get("commit") != commit:
            verdict.unlink()
    plan.save(directory / _PLAN)

"""The plays of `make storage` as sessions of `make chaos`: short, several of them in one cluster, with what they demand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from rayched.client.errors import ApiError
from rayched.replica.etcd.etcd_binary import EtcdBinary
from tests.chaos.demands import Demands
from tests.chaos.etcd_members import EtcdDown
from tests.chaos.plan import Session
from tests.chaos.session import SessionReport
from tests.chaos.stage import Stage, StageFailed
from tests.chaos.storage_history import CPU, restore, wipe
from tests.chaos.storage_quota import filled_by_somebody_else
from tests.chaos.storage_slow import slow

_QUOTA_BYTES: Final = 16 << 20
_DELAYS: Final = (0.6,)
_SLOW_SECONDS: Final = 6.0
_PATIENCE_SECONDS: Final = 1.0


def play_storage(
    session: Session, directory: Path, binary: EtcdBinary, tell: Callable[[str], object], *, replicas: int = 2
) -> SessionReport:
    """Plays the session in a cluster of its own. Raises StageFailed and EtcdDown where it cannot begin."""
    report = SessionReport(session.number, binary.version_text, session.members, session.broken_rules)
    fills = "quota" in session.plays
    options, quota = ((), _QUOTA_BYTES) if fills else (("--no-compact",), 0)
    with Stage(directory, binary, members=1, replicas=replicas, cpu=CPU, options=options, quota_bytes=quota) as stage:
        for play in session.plays:
            demands = Demands(play, tell)
            try:
                _play(play, stage, demands)
            except (StageFailed, EtcdDown, ApiError) as failure:
                demands.holds("it can be played to its end", False, str(failure))
            report.demands += demands.as_data()
    return report


def _play(play: str, stage: Stage, demands: Demands) -> None:
    match play:
        case "slow":
            slow(stage, "fast", demands, _DELAYS, _SLOW_SECONDS)
        case "wipe":
            wipe(stage, demands, paused=False)
            wipe(stage, demands, paused=True)
        case "restore":
            restore(stage, demands, stage.directory / "running.db", paused=False)
            restore(stage, demands, stage.directory / "paused.db", paused=True)
        case "quota":
            filled_by_somebody_else(stage, demands, patience=_PATIENCE_SECONDS, stays=False)
        case _:
            raise ValueError(f"no play is called {play}")

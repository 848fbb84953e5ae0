"""A slow etcd: every request of every replica reaches it later, under load. Whoever leads goes on leading, and pods are bound."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from typing import Final

from rayched.audit.auditor import Auditor
from tests.chaos.demands import Demands
from tests.chaos.load import ChurningLoad, SpreadLoad
from tests.chaos.probes import judge_findings
from tests.chaos.stage import Stage, StageFailed

DELAYS: Final = (0.2, 0.6, 1.0)
SECONDS: Final = 40.0
"""Of each delay."""
_WAIT_SECONDS_MAX: Final = 5.0
"""From the creation of a pod to its binding, beyond some trips to etcd: each may just have missed the one before."""
_TRIPS: Final = 5
_AGAIN_SECONDS_MAX: Final = 20.0
"""Until bindings go on when etcd is quick again."""
_READ_SECONDS_MAX: Final = 10.0
"""Until the auditor has read what clients were told."""
_WHY: Final = re.compile(r"cannot take the lead: .*|suspended leading.*|stopped leading.*")
_RATE: Final = 30.0


def steady_load(stage: Stage, prefix: str = "s") -> SpreadLoad:
    """On all of the stage's clients. Nothing is deleted: who waits for the answer to a deletion submits nothing meanwhile."""
    clients = stage.load_clients
    count = len(clients)
    return SpreadLoad(
        [
            ChurningLoad(client, f"{prefix}{number}", _RATE / count, sys.maxsize, number, phase=number / count, odd_share=0.0)
            for number, client in enumerate(clients)
        ]
    )


def slow(stage: Stage, profile: str, demands: Demands, delays: Sequence[float] = DELAYS, seconds: float = SECONDS) -> None:
    """Raises StageFailed and ApiError where the cluster does not even begin to bind."""
    load = steady_load(stage).start()
    try:
        for delay in delays:
            if not stage.wait_for_bindings(_AGAIN_SECONDS_MAX):
                raise StageFailed(f"no binding for {_AGAIN_SECONDS_MAX:.0f} s with nothing wrong; the load: {load.describe()}")
            _one_delay(stage, profile, delay, seconds, demands)
    finally:
        stage.heal()
        load.stop()
    demands.none("submissions without an answer", load.unanswered)
    stage.follower.wait_for(lambda auditor: not auditor.lost(load.acknowledged), _READ_SECONDS_MAX)
    demands.none("submissions lost", stage.ask(lambda auditor: auditor.lost(load.acknowledged)))
    judge_findings(stage, demands)


def _one_delay(stage: Stage, profile: str, delay: float, seconds: float, demands: Demands) -> None:
    sizes = [replica.log_file.stat().st_size for replica in stage.cluster.replicas]
    epochs = stage.ask(lambda auditor: len(auditor.epochs))
    for replica in stage.cluster.replicas:
        for link in stage.etcd_links(replica):
            link.request_delay_seconds = delay
    began = time.monotonic()
    time.sleep(seconds)
    ended = time.monotonic()
    new_epochs = stage.ask(lambda auditor: len(auditor.epochs)) - epochs
    bound, waited = stage.ask(lambda auditor: _bound(auditor, began, ended))
    why = _said(stage, sizes)
    stage.heal()
    what = f"{profile}, {delay:g} s later"
    shown = f"{new_epochs} new epochs{f'; {why[0]}' if why else ''}"
    if profile == "fast" and why:
        # What it says is what is demanded of it then.
        demands.judge(f"{what}: the leader stays", "no new epoch, or the log says why", shown, True)
    else:
        demands.judge(f"{what}: the leader stays", "no new epoch", shown, new_epochs == 0)
        demands.at_least(f"{what}: pods bound in {seconds:.0f} s", _RATE * seconds / 2, bound)
        demands.at_most(f"{what}: longest wait of a pod", _WAIT_SECONDS_MAX + _TRIPS * delay, waited, " s")
    again = stage.wait_for_bindings(_AGAIN_SECONDS_MAX)
    demands.holds(f"{what}: bindings go on afterwards", again)


def _said(stage: Stage, sizes: Sequence[int]) -> list[str]:
    """What the replicas' logs have since then of leads that were not taken or not kept."""
    found = []
    for replica, size in zip(stage.cluster.replicas, sizes, strict=True):
        found += _WHY.findall(replica.log_file.read_bytes()[size:].decode(errors="replace"))
    return found


def _bound(auditor: Auditor, began: float, ended: float) -> tuple[int, float]:
    """How many were bound, and the longest that one of them, or one that still waits, has waited."""
    bound = [one.waited for one in auditor.bindings if began <= one.seconds <= ended]
    waiting = [ended - since for _, since in auditor.pending() if since]
    return len(bound), max([*bound, *waiting], default=0.0)

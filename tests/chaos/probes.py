"""What a stage shows to those who look from outside: readiness, what the command says, what the auditor has found."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from typing import Final

from rayched.replica.cluster.local_cluster import ReplicaProcess
from tests.chaos.demands import Demands
from tests.chaos.stage import Stage

_PROBE_SECONDS_MAX: Final = 5.0
_LOOK_SECONDS: Final = 0.2


def readiness(replica: ReplicaProcess) -> tuple[bool, str]:
    """Whether /readyz says ok, and its words."""
    try:
        with urllib.request.urlopen(f"http://{replica.http_address}/readyz?verbose", timeout=_PROBE_SECONDS_MAX) as answer:
            return True, answer.read().decode()
    except urllib.error.HTTPError as error:
        return False, error.read().decode()
    except OSError as error:
        return False, str(error)


def wait_until_ready(stage: Stage, seconds: float) -> list[str]:
    """Those that are not ready by then, and why."""
    deadline = time.monotonic() + seconds
    while True:
        found = {replica.address: readiness(replica) for replica in stage.cluster.replicas}
        unready = [f"{address}: {words}" for address, (ready, words) in found.items() if not ready]
        if not unready or time.monotonic() > deadline:
            return unready
        time.sleep(_LOOK_SECONDS)


def judge_findings(stage: Stage, demands: Demands, prefix: str = "") -> None:
    """Nothing is bound twice or beyond capacity, and no other invariant is broken."""
    stage.ask(lambda auditor: auditor.settle())
    findings = stage.ask(lambda auditor: auditor.findings)
    demands.none(f"{prefix}violations found by the auditor", [f"{kind}: {words}" for kind, words in findings.first.items()])
    if stage.follower.error is not None:
        demands.holds(f"{prefix}the auditor has seen everything", False, stage.follower.error)
    if stage.agents_failure is not None:
        demands.holds(f"{prefix}the agents of the nodes go on", False, stage.agents_failure)

"""Writes of a leader that lie in its links to etcd until another one leads."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rayched.replica.cluster.local_cluster import ReplicaProcess
from tests.chaos.proxy import Link
from tests.chaos.stage import Stage

_HELD_SECONDS_MAX = 1.2
"""Then the leader itself ceases to believe, and its requests are near their end."""
_FIRST_HELD_SECONDS_MAX = 15.0
"""On a busy machine a leader may be slower than that to write anything at all."""
_LATE_SECONDS = 1.0
"""Within that whoever took over over slow links has bound nothing yet."""
_LOOK_SECONDS = 0.02


def hold_writes(stage: Stage, replica: ReplicaProcess, count: int = 1) -> bool:
    """Lets nothing more of this replica reach etcd. Whether so many writes that it sent as a leader lie in its links now.

    One is waited for longer than several. A write that etcd has committed, and that is sent once more since its answer came
    late, is none: where there are only such ones, the links let them pass and hold what comes next.
    """
    links, epoch = stage.etcd_links(replica), stage.ask(lambda auditor: auditor.epoch)
    began = holding = time.monotonic()
    for link in links:
        link.hold()
    while (held := _uncommitted(stage, links, epoch)) < count:
        now = time.monotonic()
        if now - began > (_HELD_SECONDS_MAX if held else _FIRST_HELD_SECONDS_MAX):
            return False
        if not held and now - holding > _HELD_SECONDS_MAX and any(link.held for link in links):
            for link in links:
                link.heal()
            time.sleep(5 * _LOOK_SECONDS)
            for link in links:
                link.hold()
            holding = time.monotonic()
        time.sleep(_LOOK_SECONDS / 10)
    return True


def hand_over(stage: Stage, replica: ReplicaProcess, seconds: float) -> bool:
    """With an epoch later than that of any write they hold this replica's links are healed, and a second later all others.

    Whether there was one in time.
    """
    held = [epoch for link in stage.etcd_links(replica) for epoch, _ in list(link.held)]
    epoch = max(held, default=stage.ask(lambda auditor: auditor.epoch))
    came = stage.follower.wait_for(lambda auditor: auditor.epoch > epoch, seconds)
    if came:
        for link in stage.etcd_links(replica):
            link.heal()
        time.sleep(_LATE_SECONDS)
        stage.network.heal()
    return came


def _uncommitted(stage: Stage, links: Sequence[Link], epoch: int) -> int:
    """Writes of that epoch that lie in these links, and have not reached etcd before."""
    attempts = {attempt for link in links for one, attempt in list(link.held) if one == epoch}
    return len(attempts) - stage.ask(lambda auditor: auditor.committed(attempts)) if attempts else 0

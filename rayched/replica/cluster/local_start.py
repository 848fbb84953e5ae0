"""When a cluster on this host is up: every replica stands for election, and one of them schedules."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.pki.tls_files import TlsFiles
from rayched.replica.cluster.local_cluster import LocalCluster, ReplicaFailed

START_SECONDS_MAX: Final = 600.0
"""A busy host takes its time; what fails is noticed at once."""
_TOLD_SECONDS: Final = 15.0
"""Between two words on what a start waits for."""
_NAMED_MAX: Final = 2
"""Replicas whose addresses fit into a line of 80 columns."""
_ANSWER_SECONDS_MAX: Final = 5.0
_POLL_SECONDS: Final = 0.1


class NotUpInTime(ReplicaFailed):
    """The time to start is over; all processes run."""


def wait_until_up(
    cluster: LocalCluster,
    client: Client,
    seconds_max: float = START_SECONDS_MAX,
    tell: Callable[[str], None] | None = None,
) -> None:
    """Returns when the cluster is up; tells now and then what is missing.

    Raises ReplicaFailed as soon as a replica has ended, and NotUpInTime with what was waited for; `seconds_max` 0: never.
    """
    began = told = time.monotonic()
    while True:
        cluster.check()
        # On a host that is busy an answer takes longer, and asking more often would not help.
        patience = min(_ANSWER_SECONDS_MAX, 1.0 + (time.monotonic() - began) / 10)
        starting = [address for address in cluster.addresses if not stands_for_election(address, patience, cluster.tls)]
        if not starting and _schedules(client, patience):
            return
        now = time.monotonic()
        missing = "nobody schedules yet"
        if starting:
            n = len(cluster.addresses)
            missing = f"{len(starting)} of {n} {'replica' if n == 1 else 'replicas'} not ready yet"
            missing += f" ({', '.join(starting)})" if len(starting) <= _NAMED_MAX else ""
        if 0 < seconds_max < now - began:
            raise NotUpInTime(f"not up after {now - began:.0f} s: {missing}; logs are in {cluster.directory}")
        if tell is not None and now - told > _TOLD_SECONDS:
            told = now
            tell(f"still starting: {missing}")
        time.sleep(_POLL_SECONDS)


def stands_for_election(address: str, patience_seconds: float, tls: TlsFiles | None = None) -> bool:
    """Whether a replica says so within that time; else False. Without `tls` there are no certificates."""
    try:
        with Client([address], timeout_seconds=patience_seconds, tls=tls, insecure=tls is None) as client:
            return client.leader().stands_for_election
    except ApiError:
        return False


def _schedules(client: Client, patience_seconds: float) -> bool:
    try:
        return bool(client.scheduler_status(timeout_seconds=patience_seconds).epoch)
    except ApiError:
        return False

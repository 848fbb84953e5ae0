"""The wait of a replica that begins for an etcd that somebody else runs.

An etcd that does not answer may start later than its replicas, or come back, so the wait has no end, and each round says whom it
waits for. What is no question of time (an endpoint that cannot be read, a refusal) is told at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final

from leader.channel import open_channel
from rayched.store.calls import Deadlines
from rayched.store.errors import StoreUnavailable
from rayched.store.io.client import StoreClient

ANSWER_SECONDS: Final = 3.0
"""Less than a replica has that is told to stop."""
PAUSE_SECONDS: Final = 2.0

_log = logging.getLogger("rayched.replica")


def ask(endpoints: Sequence[str], seconds: float = ANSWER_SECONDS) -> None:
    """One linearizable read. Raises EndpointError, and StoreErrors: StoreUnavailable where nobody answers in time."""
    with open_channel(endpoints) as channel:
        StoreClient(channel, Deadlines(patience_seconds=seconds)).revision()


def wait_for_etcd(endpoints: Sequence[str], stop: threading.Event) -> bool:
    """Whether it answered before `stop` was set. Raises as `ask`, but for StoreUnavailable."""
    began = time.monotonic()
    waited = False
    while not stop.is_set():
        try:
            ask(endpoints)
        except StoreUnavailable as error:
            waited = True
            seconds = time.monotonic() - began
            _log.warning(
                "no etcd answers at %s (%s); waiting for it, %.0f s so far: look at --etcd-endpoints, and whether it runs",
                ",".join(endpoints),
                error,
                seconds,
            )
            stop.wait(PAUSE_SECONDS)
        else:
            if waited:
                _log.info("etcd answers after %.0f s", time.monotonic() - began)
            return True
    return False

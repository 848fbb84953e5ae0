"""The wait of a replica that begins for an etcd that somebody else runs.

An etcd that does not answer may start later than its replicas, or come back; each round says whom it waits for, and for how long
at most. A replica that is still alone after ten minutes ends with the error: its endpoints may be wrong. What is no question of
time (an endpoint that cannot be read, a refusal) is told at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Final

from leader.channel import open_channel
from rayched.store.calls import ANY_KEY, Deadlines
from rayched.store.errors import StoreUnavailable
from rayched.store.io.client import StoreClient

ANSWER_SECONDS: Final = 3.0
"""Less than a replica has that is told to stop."""
PAUSE_SECONDS: Final = 1.0
PAUSE_SECONDS_MAX: Final = 10.0
"""Each pause is twice the one before, up to this."""
WAIT_SECONDS_MAX: Final = 600.0

_log = logging.getLogger("rayched.replica")


def ask(endpoints: Sequence[str], seconds: float = ANSWER_SECONDS, key: bytes = ANY_KEY) -> None:
    """One linearizable read of a key, which nobody need have.

    Raises EndpointError, and StoreErrors: StoreUnavailable where nobody answers in time.
    """
    with open_channel(endpoints) as channel:
        StoreClient(channel, Deadlines(patience_seconds=seconds)).revision(key)


def wait_for_etcd(
    endpoints: Sequence[str], stop: threading.Event, seconds_max: float = WAIT_SECONDS_MAX, key: bytes = ANY_KEY
) -> bool:
    """Whether it answered before `stop` was set. Raises as `ask`, StoreUnavailable after `seconds_max`."""
    began = time.monotonic()
    pause = 0.0
    while not stop.is_set():
        try:
            ask(endpoints, key=key)
        except StoreUnavailable as error:
            waited = time.monotonic() - began
            if waited >= seconds_max:
                raise StoreUnavailable(f"{error}; waited {waited:.0f} s for it") from error
            pause = min(max(PAUSE_SECONDS, 2 * pause), PAUSE_SECONDS_MAX, seconds_max - waited)
            _log.warning(
                "no etcd answers at %s (%s); waiting for it, %.0f s so far, %.0f s at most: "
                "look at --etcd-endpoints, and whether it runs",
                ",".join(endpoints),
                error,
                waited,
                seconds_max,
            )
            stop.wait(pause)
        else:
            if pause:
                _log.info("etcd answers after %.0f s", time.monotonic() - began)
            return True
    return False

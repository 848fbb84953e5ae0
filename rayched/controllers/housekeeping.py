"""Housekeeping: the leader's duties that come round every few minutes, on one thread with one connection.

A duty is told the epoch under which it may write, or None on a standby. One that fails is tried again at its next turn and
delays no other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from leader.channel import kept, open_channel
from rayched.controllers.loop_thread import LoopThread
from rayched.store.errors import StoreError
from rayched.store.io.client import StoreClient

_LOOK_SECONDS_MAX: Final = 60.0

log = logging.getLogger(__name__)


class Duty(Protocol):
    """Something to be done every `period_seconds`."""

    @property
    def name(self) -> str: ...

    @property
    def period_seconds(self) -> float: ...

    def turn(self, store: StoreClient, epoch: int | None) -> None:
        """One turn. Writes under `epoch` alone; may raise StoreError."""


class Housekeeping:
    """Owns its thread. `start` and `stop` once."""

    def __init__(self, endpoints: Sequence[str], duties: Sequence[Duty], epoch: Callable[[], int | None]) -> None:
        self._endpoints = kept(endpoints)
        self._duties = tuple(duties)
        self._epoch = epoch
        self._loop = LoopThread("housekeeping", self._run)
        self.start, self.stop, self.problem = self._loop.start, self._loop.stop, self._loop.problem

    def _run(self) -> None:
        now = time.monotonic()
        due = {duty.name: now + duty.period_seconds for duty in self._duties}
        with open_channel(self._endpoints) as channel:
            store = StoreClient(channel)
            while not self._loop.stopped.wait(min(_LOOK_SECONDS_MAX, *(at - time.monotonic() for at in due.values()))):
                for duty in self._duties:
                    if time.monotonic() >= due[duty.name]:
                        due[duty.name] = time.monotonic() + duty.period_seconds
                        self._turn(duty, store)

    def _turn(self, duty: Duty, store: StoreClient) -> None:
        try:
            duty.turn(store, self._epoch())
        except StoreError as error:
            log.warning("%s: %s; tried again in %.0f s", duty.name, error, duty.period_seconds)
        except Exception:
            # A bug in one duty shall not end the others.
            log.critical("%s failed; tried again in %.0f s", duty.name, duty.period_seconds, exc_info=True)

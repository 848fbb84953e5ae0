"""Starts an etcd of our own anew whenever it ends by itself, on the same data and the same port.

What it had acknowledged is in its data directory, and all who use it come back by themselves. One that does not start again is
given up after some attempts: `problem` says so, and `given_up` is told, for whoever owns it to end. Meanwhile its log is kept
small.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from rayched.replica.etcd.etcd_binary import EtcdServerError
from rayched.replica.etcd.etcd_server import EtcdServer

PAUSES_SECONDS: Final = (0.0, 0.5, 1.0, 2.0, 5.0)
"""Before the first, second, ... attempt to start it."""
LOG_LOOK_SECONDS: Final = 10.0
"""Between two looks at the size of etcd's log."""
_JOIN_SECONDS_MAX: Final = 10.0

_log = logging.getLogger(__name__)


class EtcdKeeper:
    """Owns an etcd from `start` to `stop`. Its thread starts etcd, so it lives until etcd is to end."""

    def __init__(
        self,
        etcd: EtcdServer,
        given_up: Callable[[], object] = lambda: None,
        pauses_seconds: tuple[float, ...] = PAUSES_SECONDS,
        log_look_seconds: float = LOG_LOOK_SECONDS,
    ) -> None:
        """`given_up` is called on the keeper's thread."""
        self.etcd = etcd
        self.starts = 0
        """Anew."""
        self.gave_up = False
        self._given_up = given_up
        self._pauses = pauses_seconds
        self._log_look_seconds = log_look_seconds
        self._stopping = threading.Event()
        self._problem: str | None = None
        self._first = threading.Event()
        self._failure: EtcdServerError | None = None
        self._thread = threading.Thread(target=self._keep, name="etcd-keeper", daemon=True)

    def start(self) -> None:
        """Returns when etcd is ready. Raises EtcdServerError."""
        self._thread.start()
        self._first.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Ends etcd for good. Idempotent."""
        self._stopping.set()
        self.etcd.stop()
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS_MAX)
        # It may just have been started.
        self.etcd.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def problem(self) -> str | None:
        """None, or why there is no etcd now; from any thread."""
        return None if self._stopping.is_set() else self._problem

    def _keep(self) -> None:
        try:
            self.etcd.start()
        except EtcdServerError as error:
            self._failure = error
            return
        finally:
            self._first.set()
        while not self._stopping.is_set():
            code = self._ended()
            if self._stopping.is_set():
                return
            self._problem = f"its own etcd has ended with code {code}"
            _log.error("%s; starting it anew", self._problem)
            if not self._start_anew():
                return
            self.starts += 1
            self._problem = None

    def _ended(self) -> int | None:
        while True:
            try:
                return self.etcd.wait(self._log_look_seconds)
            except TimeoutError:
                self.etcd.keep_log_small()

    def _start_anew(self) -> bool:
        for pause in self._pauses:
            if self._stopping.wait(pause):
                return False
            try:
                self.etcd.start()
            except EtcdServerError as error:
                self._problem = f"its own etcd does not start: {error}"
                _log.error("%s", self._problem)
                continue
            return True
        _log.critical("giving up: no etcd after %d attempts", len(self._pauses))
        self.gave_up = True
        self._given_up()
        return False

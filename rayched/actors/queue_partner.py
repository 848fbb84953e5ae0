"""The QueueActor as the SchedulerActor uses it: exchanges through a socket, and the end of a queue that does not answer.

A queue that lives but fails an exchange gets a new session after a pause; one that lives but does not answer at all is ended, so
that the replica replaces it as it replaces a dead one and calls `use_queue`.

Owner: the SchedulerActor's loop; only callbacks of Ray's futures come on other threads.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from leader.clock import boottime
from rayched.actors.exchange_socket import ExchangeCaller
from rayched.actors.inbox import Inbox
from rayched.actors.process_handle import ProcessHandle, handle_of
from rayched.core.exchange.messages import ExchangeAnswer, ExchangeRequest, packed, unpacked_answer
from rayched.core.exchange.queue_patience import QueuePatience

PAUSE_SECONDS: Final = 0.2
"""Before a new session with a queue that failed."""
log = logging.getLogger(__name__)


class QueuePartner:
    """One queue at a time. `take` comes first."""

    def __init__(self, directory: Path, inbox: Inbox, answered: Callable[[ExchangeAnswer], None]) -> None:
        """`directory`: for the socket."""
        self._directory, self._inbox, self._answered_to = directory, inbox, answered
        self._caller: ExchangeCaller | None = None
        self.session_at: float | None = None
        """When to begin a new session with the queue, after it failed."""

    def take(self, queue_actor: Any) -> None:
        """This queue takes the place of the one before."""
        if self._caller is not None:
            self._caller.close()
        self._actor = queue_actor
        self._process: ProcessHandle | None = None
        self._patience = QueuePatience(None, boottime())
        self._caller = ExchangeCaller(self._directory, self._inbox, self._answered, self._failed)

        def known(future: Any) -> None:
            if future.exception() is None and self._actor is queue_actor:
                self._process = handle_of(future.result())
                self._patience.knows(self._process)

        queue_actor.pid.remote().future().add_done_callback(known)
        # Whether it goes well shows by the first exchange that is answered, or not.
        queue_actor.attend.remote(self._caller.path)

    def send(self, request: ExchangeRequest) -> None:
        assert self._caller is not None
        self._patience.began()
        self._caller.send(packed(request))

    def wants_session(self) -> bool:
        """The pause after a failure is over. True once."""
        if self.session_at is None or self.session_at > boottime():
            return False
        self.session_at = None
        return True

    def end_if_hung(self) -> None:
        process, why = self._process, self._patience.why_ended(boottime())
        if why and process is not None:
            log.warning("the queue %s, ending process %d", why, process.pid)
            process.send(signal.SIGKILL)

    def _answered(self, answer: bytes) -> None:
        self._patience.ended()
        self._answered_to(unpacked_answer(answer))

    def _failed(self, problem: str) -> None:
        """The queue lives, but an exchange broke it: a new session makes it whole. Not at once, or a lasting fault spins."""
        log.warning("the queue did not answer: %s", problem)
        self._patience.ended()
        self.session_at = boottime() + PAUSE_SECONDS

"""The one request that a candidate waits for, and those whose answers are late and still of use.

A request is waited for until its deadline; then another one may be sent. An answer to a renewal or a new term that comes later is
heard all the same, for as long as its request's timeout lasts: the guard that the store checked says as much as it did in time,
and belief counts from the sending. So whoever leads keeps the lease though its store takes a second for an answer. The answer to
what was given up is no outcome any more; only the keys that it shows count, where they may end a belief (election.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from leader.effects import BeginTerm, Renew, Request


@dataclass(frozen=True, slots=True)
class Sent:
    request: Request
    sent_ns: int
    deadline_ns: int


class Flight:
    """Owned by one Election."""

    __slots__ = ("_last_number", "_late", "sent")

    def __init__(self) -> None:
        self.sent: Sent | None = None
        self._last_number = 0
        self._late: dict[int, Sent] = {}
        """By number, oldest first."""

    @property
    def next_number(self) -> int:
        return self._last_number + 1

    @property
    def empty(self) -> bool:
        """No answer is heard any more."""
        return self.sent is None and not self._late

    def launch(self, request: Request, now_ns: int, patience_ns: int) -> None:
        """`patience_ns`: how long it is waited for."""
        self._last_number = request.number
        self.sent = Sent(request, now_ns, now_ns + patience_ns)

    def land(self, number: int) -> Sent | None:
        """What was answered; None where it is not waited for any more."""
        return self._landed() if self.sent is not None and self.sent.request.number == number else None

    def land_late(self, number: int) -> Sent | None:
        """What was answered after it had been waited for; None where nobody wants to know any more."""
        return self._late.pop(number, None)

    def time_out(self, now_ns: int) -> Sent | None:
        """What has had no answer in time."""
        if self.sent is None or now_ns < self.sent.deadline_ns:
            return None
        sent = self._landed()
        if sent is not None and isinstance(sent.request, Renew | BeginTerm):
            self._late[sent.request.number] = sent
        return sent

    def expire(self, now_ns: int) -> list[Sent]:
        """What will not be heard any more, for it is too late."""
        expired = [sent for sent in self._late.values() if now_ns >= sent.sent_ns + sent.request.timeout_ns]
        for sent in expired:
            del self._late[sent.request.number]
        return expired

    def give_up(self) -> list[Sent]:
        """What had no answer."""
        sent = [*self._late.values(), *([] if self.sent is None else [self.sent])]
        self.sent = None
        self._late.clear()
        return sent

    def _landed(self) -> Sent | None:
        sent, self.sent = self.sent, None
        return sent

    def carries(self, kind: type[Request]) -> bool:
        return self.sent is not None and isinstance(self.sent.request, kind)

"""The one request that a candidate has in flight, and its deadline.

Landing counts only in time and only for the request that is in flight: an answer to one that was given up is not heard.
"""

from __future__ import annotations

from dataclasses import dataclass

from leader.effects import Request


@dataclass(frozen=True, slots=True)
class Sent:
    request: Request
    sent_ns: int
    deadline_ns: int


class Flight:
    """Owned by one Election."""

    __slots__ = ("_last_number", "sent")

    def __init__(self) -> None:
        self.sent: Sent | None = None
        self._last_number = 0

    @property
    def next_number(self) -> int:
        return self._last_number + 1

    def launch(self, request: Request, now_ns: int) -> None:
        self._last_number = request.number
        self.sent = Sent(request, now_ns, now_ns + request.timeout_ns)

    def land(self, number: int) -> Sent | None:
        """What was answered; None where it is not in flight any more."""
        return self.give_up() if self.sent is not None and self.sent.request.number == number else None

    def time_out(self, now_ns: int) -> Sent | None:
        """What has had no answer in time."""
        return self.give_up() if self.sent is not None and now_ns >= self.sent.deadline_ns else None

    def give_up(self) -> Sent | None:
        sent, self.sent = self.sent, None
        return sent

    def carries(self, kind: type[Request]) -> bool:
        return self.sent is not None and isinstance(self.sent.request, kind)

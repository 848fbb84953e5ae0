"""Seats for calls, waited for on the event loop: what fairness.py decides, carried out."""

from __future__ import annotations

import asyncio

from rayched.server.edge.fairness import FairQueues, PriorityLevel, SeatRequest


class TooLate(Exception):
    """There were no seats in time."""


class SeatGate:
    """The seats of one replica. Owner: the event loop."""

    def __init__(self, queues: FairQueues) -> None:
        self.queues = queues
        self._waiting: dict[SeatRequest, asyncio.Future[None]] = {}

    async def seat(self, level: PriorityLevel, caller: str, cost: int, wait_seconds: float, line_max: int) -> SeatRequest:
        """Seats until they are given back. Raises LineFull, and TooLate after `wait_seconds`."""
        request = self.queues.ask(level, caller, cost, line_max)
        if request.is_seated:
            return request
        seated = self._waiting[request] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(wait_seconds):
                await seated
        except BaseException as error:
            self._waiting.pop(request, None)
            # Also where it was seated just when it gave up.
            self.give_back(request)
            if isinstance(error, TimeoutError):
                raise TooLate from None
            raise
        return request

    def give_back(self, request: SeatRequest) -> None:
        for one in self.queues.give_back(request):
            seated = self._waiting.pop(one, None)
            if seated is not None and not seated.done():
                seated.set_result(None)

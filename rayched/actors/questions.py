"""Questions from outside to a thread that has work of its own: answered one at a time, with a share of the thread's time.

A question is somebody else's code with somebody else's input. What it raises goes to its asker and nowhere else. How long it took
decides when the next one is looked at, so that no number of askers keeps the thread from its work; who has waited longer than it
could use the answer is told so, and nothing is computed for it.

Owner: the thread, which alone calls all methods but `ask`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

SHARE: Final = 0.1
"""Of the thread's time, for questions that take long."""
WAIT_SECONDS_MAX: Final = 10.0
"""A question that was not looked at within this time is not answered any more."""


class NotAnswered(Exception):
    """The question waited too long behind others; the text says so."""


class _Question(NamedTuple):
    answer: Callable[[], Any]
    told: Future[Any]
    asked: float


class QuestionQueue:
    """Questions in the order in which they were asked. Times in seconds, of the given clock."""

    def __init__(self, clock: Callable[[], float], share: float = SHARE) -> None:
        self._clock = clock
        self._pause = 1.0 / share - 1.0
        """After a question no other one is answered for so many times as long as it took."""
        self._waiting: deque[_Question] = deque()
        self._next_at = 0.0

    def put(self, answer: Callable[[], Any], told: Future[Any]) -> None:
        """`told` gets what `answer` returns or raises, when its turn comes."""
        self._waiting.append(_Question(answer, told, self._clock()))

    @property
    def due(self) -> float | None:
        """When to answer the next one; None: there is none."""
        return self._next_at if self._waiting else None

    def answer_one(self) -> None:
        """The oldest one, where its time has come."""
        began = self._clock()
        if not self._waiting or began < self._next_at:
            return
        question = self._waiting.popleft()
        if began - question.asked > WAIT_SECONDS_MAX:
            question.told.set_exception(NotAnswered(f"others asked too much: not looked at for {WAIT_SECONDS_MAX:.0f} s"))
            return
        answer_now(question.answer, question.told)
        ended = self._clock()
        self._next_at = ended + self._pause * (ended - began)


def answer_now(answer: Callable[[], Any], told: Future[Any]) -> None:
    """What it returns or raises goes to the caller that waits for it."""
    try:
        found = answer()
    except Exception as problem:
        told.set_exception(problem)
    else:
        told.set_result(found)

"""Questions from outside to a thread that has work of its own: answered one at a time, with a share of the thread's time.

A question is somebody else's code with somebody else's input. What it raises goes to its asker and nowhere else. How long it took
decides when the next one is looked at, so that no number of askers keeps the thread from its work; who has waited longer than it
could use the answer is told so, and nothing is computed for it.

An answer that takes long comes in pieces: the question returns a generator, which rests at each step. Until the next piece the
thread works for itself for PIECE_PAUSE times as long as the piece took.

Owner: the thread, which alone calls all methods but `ask`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

SHARE: Final = 0.1
"""Of the thread's time, for questions that take long."""
PIECE_PAUSE: Final = 3.0
"""Between two pieces of one answer; when all are there its asker has had its share as well."""
WAIT_SECONDS_MAX: Final = 10.0
"""A question that was not looked at within this time is not answered any more."""


class NotAnswered(Exception):
    """The question waited too long behind others; the text says so."""


class _Question(NamedTuple):
    answer: Callable[[], Any]
    told: Future[Any]
    asked: float


class _BegunLook(NamedTuple):
    """A question whose answer comes in pieces."""

    pieces: Generator[None, None, Any]
    told: Future[Any]


class QuestionQueue:
    """Questions in the order in which they were asked. Times in seconds, of the given clock."""

    def __init__(self, clock: Callable[[], float], share: float = SHARE) -> None:
        self._clock = clock
        self._pause = 1.0 / share - 1.0
        """After a question no other one is answered for so many times as long as it took."""
        self._waiting: deque[_Question] = deque()
        self._open: _BegunLook | None = None
        self._took = 0.0
        """By the pieces of the answer so far."""
        self._next_at = 0.0

    def put(self, answer: Callable[[], Any], told: Future[Any]) -> None:
        """`told` gets what `answer` returns or raises, when its turn comes; of a generator what that returns or raises."""
        self._waiting.append(_Question(answer, told, self._clock()))

    @property
    def due(self) -> float | None:
        """When to answer the next one, or its next piece; None: there is none."""
        return self._next_at if self._waiting or self._open is not None else None

    def answer_one(self) -> None:
        """The oldest one, or a piece of it, where its time has come."""
        began = self._clock()
        if began < self._next_at or not (self._waiting or self._open):
            return
        if self._open is None:
            question = self._waiting.popleft()
            if began - question.asked > WAIT_SECONDS_MAX:
                question.told.set_exception(NotAnswered(f"others asked too much: not looked at for {WAIT_SECONDS_MAX:.0f} s"))
                return
            self._open = _begun(question)
        if self._open is not None and _is_told(self._open):
            self._open = None
        ended = self._clock()
        self._took += ended - began
        if self._open is not None:
            self._next_at = ended + PIECE_PAUSE * (ended - began)
            return
        self._next_at, self._took = ended + self._pause * self._took, 0.0


def answer_now(answer: Callable[[], Any], told: Future[Any]) -> None:
    """What it returns or raises goes to the caller that waits for it."""
    try:
        found = answer()
    except Exception as problem:
        told.set_exception(problem)
    else:
        told.set_result(found)


def _begun(question: _Question) -> _BegunLook | None:
    """None: it is answered."""
    try:
        found = question.answer()
    except Exception as problem:
        question.told.set_exception(problem)
        return None
    if isinstance(found, Generator):
        return _BegunLook(found, question.told)
    question.told.set_result(found)
    return None


def _is_told(one: _BegunLook) -> bool:
    """The next piece; True: it was the last one."""
    try:
        next(one.pieces)
    except StopIteration as end:
        one.told.set_result(end.value)
    except Exception as problem:
        one.told.set_exception(problem)
    else:
        return False
    return True

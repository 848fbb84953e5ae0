"""Questions from outside: whatever they raise and however many there are, the thread that is asked goes on with its own work."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

import pytest

from rayched.actors.questions import WAIT_SECONDS_MAX, NotAnswered, QuestionQueue, answer_now


class Asked:
    """Questions to a thread whose time passes only in their answers, and in `works`."""

    def __init__(self) -> None:
        self.now = 100.0
        self.spent = 0.0
        self.questions = QuestionQueue(lambda: self.now, share=0.1)

    def ask(self, seconds: float, answer: Callable[[], Any] = lambda: "told") -> Future[Any]:
        def answered() -> Any:
            self.now += seconds
            self.spent += seconds
            return answer()

        told: Future[Any] = Future()
        self.questions.put(answered, told)
        return told

    def works(self, seconds: float) -> None:
        """At its own, a turn every 5 ms."""
        until = self.now + seconds
        while self.now < until:
            self.questions.answer_one()
            self.now += 0.005


def failing() -> None:
    raise KeyError("a/b")


@pytest.mark.row("B102")
def test_what_a_question_raises_reaches_its_asker_alone() -> None:
    asked = Asked()
    bad, good = asked.ask(0.0, failing), asked.ask(0.0)
    asked.works(0.1)
    with pytest.raises(KeyError, match="a/b"):
        bad.result(0)
    assert good.result(0) == "told"
    told: Future[Any] = Future()
    answer_now(failing, told)
    assert isinstance(told.exception(0), KeyError)


def test_questions_that_take_long_get_their_share_however_many_ask() -> None:
    asked = Asked()
    answers = []
    began = asked.now
    for _ in range(100):
        answers.append(asked.ask(0.2))
        asked.works(0.05)
    assert any(answer.done() for answer in answers)
    # Each but the last has paid for itself by then.
    assert asked.spent - 0.2 <= 0.1 * (asked.now - began) + 1e-9


def test_quick_questions_are_answered_turn_by_turn() -> None:
    asked = Asked()
    answers = [asked.ask(0.0001) for _ in range(20)]
    asked.works(0.25)
    assert all(answer.done() for answer in answers)


def test_a_question_that_has_waited_longer_than_anybody_listens_is_refused_and_not_computed() -> None:
    asked = Asked()
    asked.ask(WAIT_SECONDS_MAX)
    late = asked.ask(1.0)
    asked.works(0.01)
    assert not late.done()
    spent = asked.spent
    asked.now += 10 * WAIT_SECONDS_MAX
    asked.works(0.01)
    with pytest.raises(NotAnswered, match="not looked at for 10 s"):
        late.result(0)
    assert asked.spent == spent and asked.questions.due is None


def in_pieces(asked: Asked, *seconds: float) -> tuple[Future[Any], list[float]]:
    """A question whose answer comes in pieces of these lengths; and when each of them began."""
    began: list[float] = []

    def pieces() -> Generator[None, None, str]:
        for number, piece in enumerate(seconds):
            began.append(asked.now)
            asked.now += piece
            asked.spent += piece
            if number < len(seconds) - 1:
                yield
        return "told in pieces"

    told: Future[Any] = Future()
    asked.questions.put(pieces, told)
    return told, began


def test_between_two_pieces_of_an_answer_the_thread_works_for_itself() -> None:
    asked = Asked()
    told, began = in_pieces(asked, 0.02, 0.02, 0.02)
    behind = asked.ask(0.0)
    asked.works(0.3)
    assert told.result(0) == "told in pieces"
    assert [later - earlier >= 4 * 0.02 - 1e-9 for earlier, later in itertools.pairwise(began)] == [True, True]
    # The next one waits until the whole answer has paid for itself.
    assert not behind.done()
    asked.works(0.5)
    assert behind.result(0) == "told"


def test_a_piece_that_raises_ends_its_own_answer_and_no_other() -> None:
    asked = Asked()

    def breaks() -> Generator[None, None, str]:
        yield
        raise KeyError("a/b")

    told: Future[Any] = Future()
    asked.questions.put(breaks, told)
    good, _ = in_pieces(asked, 0.001, 0.001)
    asked.works(0.2)
    with pytest.raises(KeyError, match="a/b"):
        told.result(0)
    assert good.result(0) == "told in pieces"


def test_an_answer_that_is_open_is_due_though_nobody_else_asks() -> None:
    asked = Asked()
    in_pieces(asked, 0.01, 0.01)
    asked.questions.answer_one()
    assert asked.questions.due == pytest.approx(asked.now + 0.03)

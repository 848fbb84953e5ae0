"""One-time codes: each gets the token that it carries once, within its minute, where it was made."""

from __future__ import annotations

import itertools

import pytest

from rayched.page.sign_in_codes import CODE_SECONDS, CODES_MAX, CodesFull, SignInCodes


class Moment:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def codes(moment: Moment, first: int = 1) -> SignInCodes:
    numbers = itertools.count(first)
    return SignInCodes(moment, lambda: f"code-{next(numbers)}")


@pytest.mark.row("UI35")
def test_a_code_serves_once_within_its_minute_and_where_it_was_made_alone() -> None:
    moment = Moment()
    here, elsewhere = codes(moment), codes(moment, first=100)
    code = here.issue("rt_one")
    assert elsewhere.redeem(code) is None
    moment.seconds += CODE_SECONDS - 0.1
    assert here.redeem("code-2") is None and here.redeem("") is None and here.redeem("\udcff") is None
    assert [here.redeem(code), here.redeem(code)] == ["rt_one", None]
    late = here.issue("rt_one")
    moment.seconds += CODE_SECONDS
    assert here.redeem(late) is None
    moment.seconds -= 1.0
    assert here.redeem(late) is None, "whoever came too late has spent it"


@pytest.mark.row("UI35")
def test_a_token_has_one_code_at_a_time_and_is_in_no_text_of_it() -> None:
    here = codes(Moment())
    first, other, second = here.issue("rt_one"), here.issue("rt_other"), here.issue("rt_one")
    assert [here.redeem(one) for one in (first, other, second)] == [None, "rt_other", "rt_one"]
    here.issue("rt_secret")
    assert "rt_secret" not in repr(vars(here))


def test_so_many_tokens_have_codes_and_another_one_has_to_wait_for_a_minute() -> None:
    moment = Moment()
    here = codes(moment)
    last = [here.issue(f"rt_{number}") for number in range(CODES_MAX)][-1]
    with pytest.raises(CodesFull):
        here.issue("rt_more")
    assert here.issue("rt_0"), "a token that has one gets a new one in its place"
    assert here.redeem(last) == f"rt_{CODES_MAX - 1}"
    assert here.issue("rt_more")
    moment.seconds += CODE_SECONDS
    assert [here.issue(f"rt_later_{number}") for number in range(CODES_MAX)]

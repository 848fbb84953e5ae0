"""What plugins raised reaches the log with its traceback, each place once."""

from __future__ import annotations

from rayched.framework import raised
from rayched.framework.plugin_error import PluginError
from rayched.framework.raised import Raised


def fail(text: str) -> None:
    raise ValueError(text)


def caught(text: str) -> Exception:
    try:
        fail(text)
    except ValueError as problem:
        return problem
    raise AssertionError("nothing was raised")


def caught_elsewhere() -> Exception:
    try:
        raise ValueError("elsewhere")
    except ValueError as problem:
        return problem


def test_a_place_is_told_once_with_its_traceback() -> None:
    found = Raised()
    assert found.note("Fit, Score", caught("first"))
    assert not found.note("Fit, Score", caught("again"))
    assert found.note("Fit, Filter", caught_elsewhere())
    first, second = found.take()
    assert first.splitlines()[:2] == ["Fit, Score", "Traceback (most recent call last):"]
    assert "in fail" in first and first.endswith("ValueError: first")
    assert second.endswith("ValueError: elsewhere")
    assert found.take() == [] and not found.note("Fit, Score", caught("later")) and found.take() == []


def test_of_a_plugins_error_the_plugins_own_exception_is_told() -> None:
    found = Raised()
    wrapped = PluginError("Fit", "Score", "ValueError: deep")
    wrapped.__cause__ = caught("deep")
    assert found.note(str(wrapped), wrapped)
    (told,) = found.take()
    assert told.startswith('plugin "Fit", Score: ValueError: deep\n') and "in fail" in told and "PluginError" not in told
    assert not found.note("wrong shape", PluginError("Fit", "Score", "wrong shape")), "nothing was raised"


def test_what_is_kept_is_bounded() -> None:
    found = Raised()
    for number in range(raised.PLACES_MAX + 50):
        found.note(f"place {number}", ValueError("without a frame"))
    assert len(found.take()) == raised.PLACES_MAX

"""kubectl's `-n=x`: half of the lines in scripts and documents are written so."""

from __future__ import annotations

import pytest

from tests.deploy.commands import WrongCommand, parsed


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("get pods -n=shop -o=yaml -l=app=web", {"namespace": "shop", "output": "yaml", "selector": "app=web"}),
        ("get pods -n shop -o yaml -l app=web", {"namespace": "shop", "output": "yaml", "selector": "app=web"}),
        ("get pods -nshop", {"namespace": "shop"}),
        ("get pods -l=", {"selector": ""}),
        ("get pods -wn=shop", {"namespace": "shop", "watch": True}),
        ("apply -f=web.yaml -f=-", {"filename": ["web.yaml", "-"]}),
        ("label pod web -n=shop -- a=b", {"namespace": "shop"}),
        ("queue -o=json -s=127.0.0.1:1", {"output": "json", "server": "127.0.0.1:1"}),
        ("explain web -n=shop", {"namespace": "shop"}),
    ],
)
def test_an_equals_sign_may_stand_before_the_value_of_a_short_option(line: str, values: dict[str, object]) -> None:
    found = parsed(line.split())
    assert {name: found[name] for name in values} == values


def test_words_after_two_dashes_are_as_they_are() -> None:
    assert parsed(["delete", "pod", "--", "-n=x"])["words"] == ["pod", "-n=x"]


def test_a_flag_takes_no_value() -> None:
    with pytest.raises(WrongCommand):
        parsed(["get", "pods", "-w=yes"])

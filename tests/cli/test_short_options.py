"""kubectl's `-n=x`: half of the lines in scripts and documents are written so."""

from __future__ import annotations

import grpc
import pytest

from rayched.cli.connection import tell
from rayched.cli.verbosity import set_verbosity
from rayched.client.errors import ApiError, Violation
from tests.cli.cluster import run_here
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
        ("-n shop get pods", {"namespace": "shop"}),
        ("-n=shop -A get pods -w", {"namespace": "shop", "all_namespaces": True, "watch": True}),
        ("-v 1 -o yaml get pods", {"output": "yaml"}),
        ("--no-wait -n shop delete pod a", {"wait": False, "namespace": "shop"}),
        ("get pods --watch=true --no-headers=false -A=true", {"watch": True, "no_headers": False, "all_namespaces": True}),
        ("get pods -w --watch=false", {"watch": False}),
        ("get pods --watch=false -w", {"watch": True}),
        ("delete pod a --wait=false --all=false", {"wait": False, "delete_all": False}),
        ("apply -f a --dry-run", {"dry_run": "server"}),
        ("apply -f a --dry-run=client", {"dry_run": "client"}),
        ("apply -f a", {"dry_run": "none"}),
    ],
)
def test_an_equals_sign_may_stand_before_the_value_of_a_short_option(line: str, values: dict[str, object]) -> None:
    found = parsed(line.split())
    assert {name: found[name] for name in values} == values


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("get pod none -s 127.0.0.1:1", "--server"),
        ("-v=0 get pods -s 127.0.0.1:1", "--server"),
    ],
)
def test_codes_of_grpc_are_not_told_unasked(line: str, ends: str) -> None:
    (said,) = run_here(line.split()).errors
    assert said.endswith(ends)


def test_with_v_an_error_names_grpcs_code(capsys: pytest.CaptureFixture[str]) -> None:
    error = ApiError(grpc.StatusCode.NOT_FOUND, "Pod default/web not found")
    refused = ApiError(grpc.StatusCode.INVALID_ARGUMENT, "refused", [Violation("Pod web", "spec.a", "is wrong")])
    for level in (0, 1):
        set_verbosity(level)
        tell(error, "look", "web.yaml")
        tell(refused)
    set_verbosity(0)
    assert capsys.readouterr().err.splitlines() == [
        "error: web.yaml: Pod default/web not found; look",
        "error: Pod web: spec.a: is wrong",
        "error: web.yaml: Pod default/web not found (NOT_FOUND); look",
        "error: Pod web: spec.a: is wrong (INVALID_ARGUMENT)",
    ]


def test_words_after_two_dashes_are_as_they_are() -> None:
    assert parsed(["delete", "pod", "--", "-n=x"])["words"] == ["pod", "-n=x"]


def test_a_flag_takes_no_value() -> None:
    with pytest.raises(WrongCommand):
        parsed(["get", "pods", "-w=yes"])

"""explain: why a pod is where it is, why it is nowhere, and why it is not on a node in particular."""

from __future__ import annotations

import json

import pytest

from tests.cli.cluster import Commands

pytestmark = pytest.mark.cluster


def test_a_bound_pod_shows_every_score_of_its_node_as_if_its_room_were_free(rayched: Commands, web: str) -> None:
    node = rayched.client.get("pods", "web-0", web).spec.node_name
    found = json.loads(rayched("explain", "web-0", "-n", web, "-o", "json").out)
    verdicts = {one["node"]: one for one in found["verdicts"]}
    assert (found["node"], len(verdicts)) == (node, found["nodes"])
    scores = {one["plugin"]: one for one in verdicts[node]["scores"]}
    assert {"NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality", "TaintToleration"} <= set(scores)
    assert all(int(one["weighted"]) == int(one["weight"]) * int(one["normalized"]) for one in scores.values())
    assert int(verdicts[node]["total"]) == sum(int(one["weighted"]) for one in scores.values())
    assert set(found["best"]) == {name for name, one in verdicts.items() if one["total"] == found["verdicts"][0]["total"]}


def test_a_bound_pod_shows_the_decision_as_it_was(rayched: Commands, web: str) -> None:
    found = json.loads(rayched("explain", "web-0", "-n", web, "-o", "json").out)
    then = found["decision"]
    totals = {one["node"]: int(one["total"]) for one in then["best"]}
    assert 0 < int(then["revision"]) <= int(found["revision"]) and int(then["number"]) < int(found["decisions"])
    assert then["node"] == found["node"] and then["ties"] >= 1 and 2 <= len(totals) <= 5
    assert list(totals.values()) == sorted(totals.values(), reverse=True)
    shown = rayched.ok("explain", "web-0", "-n", web)
    (line,) = (line for line in shown if line.startswith("  Best nodes:"))
    assert line.split(":", 1)[1].split()[0] == then["best"][0]["node"]
    assert [line for line in shown if line.startswith("When it was placed (decision ")]
    assert [line for line in shown if line.startswith("If it were placed now (revision ")]
    assert shown[-1] == "Points are scores (0 to 100) times weights; -o wide shows the scores."
    wide = rayched.ok("explain", "web-0", "-n", web, "-o", "wide")
    assert wide[-1] == "Points are scores times weights. In brackets: score (0 to 100), raw score."
    assert max(map(len, (*shown, *wide))) <= 80


def test_a_waiting_pod_shows_what_holds_it_and_what_would_wake_it(rayched: Commands, web: str) -> None:
    lines = rayched.ok("explain", "pod/db", "-n", web)
    shown = {head.strip(): rest.strip() for head, _, rest in (line.partition(":") for line in lines) if rest}
    assert shown["Held by"] == "NodeResourcesFit"
    assert "a node is added" in shown["Retried when"]
    assert shown["Feasible"].startswith("0 of ")
    assert any("Insufficient cpu" in line for line in lines)
    assert "Insufficient" in shown["Result"] and shown["Rejected by"].startswith("NodeResourcesFit ")
    assert max(map(len, lines)) <= 80
    (grouped,) = (line.split() for line in lines if line.startswith("  NodeResourcesFit "))
    assert grouped[2:5] == ["nodes", "cannot", "help"]


def test_one_node_can_be_asked_about(rayched: Commands, web: str, cordoned: str) -> None:
    rayched.ok("cordon", cordoned)
    lines = rayched.ok("explain", "web-0", "-n", web, "--why-not", cordoned)
    line = next(line for line in lines if line.startswith(f"  {cordoned}"))
    assert line.split()[:4] == [cordoned, "NodeUnschedulable", "cannot", "help"]
    assert any(line.endswith("node(s) were unschedulable") for line in lines)
    assert not any("not shown" in line for line in lines), "others were not asked for"


def test_explaining_changes_nothing(rayched: Commands, web: str) -> None:
    with rayched.nothing_changes():
        rayched.ok("explain", "web-0", "-n", web)
        rayched.ok("explain", "db", "-n", web)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nobody",), "error: Pod default/nobody not found"),
        (("podgroup/nobody",), "error: PodGroup default/nobody not found"),
        (("node/node-001",), "only pods and pod groups can be explained"),
        (("nobody", "-o", "yaml"), "'yaml' is not one of 'wide', 'json'"),
    ],
)
def test_what_cannot_be_explained_is_said_in_one_line(rayched: Commands, words: tuple[str, ...], said: str) -> None:
    result = rayched("explain", *words)
    (line,) = result.errors
    assert result.code in (1, 2) and result.out == "" and said in line

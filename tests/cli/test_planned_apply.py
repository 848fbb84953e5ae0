"""apply --at-plan: as planned, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.cluster import Commands, a_pod_text, run_here

pytestmark = pytest.mark.cluster


def some_pods(namespace: str, count: int = 4) -> str:
    big = a_pod_text("too-big", namespace=namespace, cpu="17")
    return "---\n".join([*(a_pod_text(f"web-{number}", namespace=namespace, cpu="3") for number in range(count)), big])


@pytest.fixture
def files(rayched: Commands, namespace: str, tmp_path: Path) -> tuple[str, str]:
    """A manifest and its plan."""
    manifest, plan = tmp_path / "pods.yaml", tmp_path / "plan.json"
    manifest.write_text(some_pods(namespace))
    result = rayched("plan", "-f", str(manifest), "--out", str(plan))
    assert (result.code, result.lines[0].split()) == (1, ["POD", "NODE"])
    return str(manifest), str(plan)


def test_pods_go_exactly_where_the_plan_says(rayched: Commands, namespace: str, files: tuple[str, str]) -> None:
    manifest, plan = files
    wanted = {one["pod"].partition("/")[2]: one["node_name"] for one in json.loads(Path(plan).read_text())["placements"]}
    assert len(wanted) == 4
    lines = rayched.ok("apply", "-f", manifest, "--at-plan", plan)
    assert lines[:4] == [f"pod/web-{number} created on {wanted[f'web-{number}']}" for number in range(4)]
    assert lines[4:] == ["pod/too-big created, pending as planned"]
    assert {name: rayched.pod(name, namespace).spec.node_name for name in wanted} == wanted
    # Once they are there, nothing of the plan is left to be done.
    for name in wanted:
        rayched.running(name, namespace)
    with rayched.nothing_changes():
        again = rayched("apply", "-f", manifest, "--at-plan", plan)
    assert again.code == 1 and "does not hold any more; nothing was created" in again.errors[0]


def test_a_plan_that_does_not_hold_any_more_creates_nothing(rayched: Commands, files: tuple[str, str], cordoned: str) -> None:
    manifest, plan = files
    said = json.loads(Path(plan).read_text())
    said["placements"][0]["node_name"] = "node-elsewhere"
    Path(plan).write_text(json.dumps(said))
    with rayched.nothing_changes():
        result = rayched("apply", "-f", manifest, "--at-plan", plan)
    assert result.code == 1 and result.out == ""
    assert result.errors[0].startswith("error: the plan of revision ") and "nothing was created" in result.errors[0]
    (difference,) = result.errors[1:]
    assert "/web-0: goes to node-" in difference and difference.endswith("the plan says: goes to node-elsewhere")


def test_what_went_elsewhere_is_taken_back(
    rayched: Commands, namespace: str, files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, plan = files
    said = json.loads(Path(plan).read_text())
    real = said["placements"][0]["node_name"]
    said["placements"][0]["node_name"] = "node-elsewhere"
    Path(plan).write_text(json.dumps(said))

    # Somebody else's pod comes between the look and the creation: the plan looked right, and the placement is another one.
    def looked_right(results: object, client: object) -> object:
        from rayched.whatif.plan import Placement, Unplaced, WhatIfPlan

        placements = tuple(Placement(one["pod"], one["node_name"]) for one in said["placements"])
        return WhatIfPlan(placements, (), tuple(Unplaced(one["pod"], one["reason"]) for one in said["unplaced"]))

    monkeypatch.setattr("rayched.cli.objects.planned_apply.planned", looked_right)
    result = rayched("apply", "-f", manifest, "--at-plan", plan)
    assert result.code == 1 and result.out == ""
    assert result.errors[0] == "error: the cluster changed while the pods were created, which were deleted again"
    assert result.errors[1] == f"error: {namespace}/web-0: goes to {real}; the plan says: goes to node-elsewhere"
    assert list(rayched.client.list("pods", namespace=namespace)) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "holds no plan; want one of `rayched plan --out`"),
        ("no", "holds no plan"),
        ("[]", "holds no plan"),
        ('{"revision": 1, "placements": [], "unplaced": [], "preemptions": [{}]}', "pods would be preempted"),
    ],
)
def test_what_is_no_plan_is_told(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    result = run_here(["apply", "-f", "none.yaml", "--at-plan", str(file)])
    assert result.code == 2 and said in result.errors[0]
    assert run_here(["apply", "-f", "a", "--at-plan", "none-such"]).code == 2
    assert run_here(["apply", "-f", "a", "--at-plan", str(file), "--dry-run"]).code == 2


def test_other_objects_than_pods_are_refused(rayched: Commands, files: tuple[str, str]) -> None:
    _, plan = files
    with rayched.nothing_changes():
        text = "{apiVersion: v1, kind: Namespace, metadata: {name: other-objects}}"
        result = rayched("apply", "-f", "-", "--at-plan", plan, stdin=text)
    assert result.code == 2 and "Namespace other-objects: only pods can go exactly as planned" in result.errors[0]

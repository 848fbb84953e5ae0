"""What explain prints: within 80 columns whatever the number of plugins and nodes, and without gaps."""

from __future__ import annotations

import pytest

from rayched.cli.scheduling.explanations import WIDTH, ExplanationPage
from rayched.cli.scheduling.wake_words import in_words
from rayched.v1.services_pb2 import ExplainResponse, PendingPod

PLUGINS = ["NodeResourcesBalancedAllocation", "ImageLocality", "Cheap", *(f"PluginOfSomebody{number}" for number in range(12))]


def an_answer(nodes: int, rejected: int = 0) -> ExplainResponse:
    found = ExplainResponse(node="node-000", revision=132, nodes=nodes + rejected, feasible=nodes)
    for number in range(nodes):
        verdict = found.verdicts.add(node=f"node-{number:03}", total=1000 - number)
        for place, plugin in enumerate(PLUGINS):
            verdict.scores.add(plugin=plugin, weight=place + 1, raw=7, normalized=100, weighted=100 * (place + 1))
    for number in range(rejected):
        verdict = found.verdicts.add(node=f"full-{number:03}")
        verdict.rejections.add(plugin="NodeResourcesFit", reasons=["Insufficient cpu", "Insufficient memory"], resolvable=True)
        verdict.rejections.add(plugin="NodeAffinity", reasons=["node(s) didn't match Pod's node affinity/selector"])
    found.best.extend(verdict.node for verdict in found.verdicts[:7])
    decision = found.decision
    decision.revision, decision.number, decision.node, decision.ties = 119, 3, "node-000", 7
    for number in range(5):
        decision.best.add(node=f"node-{number:03}", total=1000)
    return found


def lines(
    found: ExplainResponse, waiting: PendingPod | None = None, shown: int | None = 10, one_by_one: bool = False
) -> list[str]:
    return list(ExplanationPage(found, waiting, shown=shown, one_by_one=one_by_one).lines("default/web", of=found.nodes))


@pytest.mark.parametrize("wide", [False, True])
def test_no_line_is_longer_than_80_columns_and_every_node_and_plugin_is_there(wide: bool) -> None:
    found = an_answer(10, 20)
    told = list(ExplanationPage(found, None, shown=10, one_by_one=False, wide=wide).lines("default/web", of=found.nodes))
    assert max(map(len, told)) <= WIDTH
    text = "\n".join(told)
    for verdict in found.verdicts[:10]:
        assert verdict.node in text
    for place, plugin in enumerate(PLUGINS):
        assert f"{plugin} x{place + 1}" in text
    assert ("100 (100, raw 7)" in text) is wide


def test_two_headed_blocks_say_when() -> None:
    told = lines(an_answer(2))
    assert "When it was placed (decision 3, seed 0, revision 119)" in told
    assert "If it were placed now (revision 132)" in told
    assert "  Result:      node-000, drawn among 7 with the same total" in told


def test_the_pods_own_node_is_marked_and_comes_before_its_equals() -> None:
    found = an_answer(30)
    for verdict in found.verdicts[:20]:
        verdict.total = 1000
    found.node = "node-017"
    told = lines(found)
    heads = [word for line in told for word in line.split() if word.startswith("node-0")]
    points = next(line.split() for line in told if line.startswith("  POINTS"))
    assert points[1:3] == ["node-017*", "node-000"] and heads.count("node-017*") == 1
    assert "  * The pod is on this node." in told
    # A pod without a node, and one whose node is not among those that are shown.
    for node in ("", "node-029", "elsewhere"):
        found.node = node
        assert not [line for line in lines(found) if "*" in line]


def best_nodes(found: ExplainResponse) -> str:
    told = lines(found)
    first = next(number for number, line in enumerate(told) if line.startswith("  Best nodes:"))
    text = told[first].removeprefix("  Best nodes:").strip()
    for line in told[first + 1 :]:
        if not line.startswith("   "):
            break
        text += f" {line.strip()}"
    return text


@pytest.mark.parametrize(
    ("ties", "more"), [(1, ""), (3, ""), (5, ""), (6, ", 1 more with the same total"), (90, ", 85 more with the same total")]
)
def test_the_best_nodes_say_how_many_more_there_are(ties: int, more: str) -> None:
    found = an_answer(2)
    found.decision.ties = ties
    assert best_nodes(found) == "node-000 1000, node-001 1000, node-002 1000, node-003 1000, node-004 1000" + more


def test_a_name_and_its_number_are_in_one_line() -> None:
    found = an_answer(2)
    found.decision.best[2].node = "node-of-" + "x" * 20
    told = lines(found)
    (line,) = (line for line in told if "node-of-" in line)
    assert f"node-of-{'x' * 20} 1000," in line and max(map(len, told)) <= WIDTH


def test_nodes_that_several_plugins_reject_are_said_to_be_counted_at_each() -> None:
    sentence = "  A node that several plugins reject is counted at each of them, and when it was\n  placed at the first alone."
    found = an_answer(0, 12)
    assert "\n".join(lines(found)[-2:]) == sentence
    for verdict in found.verdicts:
        del verdict.rejections[1]
    assert not [line for line in lines(found) if "several plugins reject" in line]


def test_reasons_are_grouped_unless_nodes_are_asked_for() -> None:
    found = an_answer(0, 12)
    rows = [line.split() for line in lines(found)]
    assert ["NodeResourcesFit", "12", "nodes", "could", "help"] in rows
    assert ["NodeAffinity", "12", "nodes", "cannot", "help"] in rows
    assert not any("full-003" in row for row in rows)
    one_by_one = [line.split() for line in lines(found, one_by_one=True)]
    assert ["full-003", "NodeResourcesFit", "could", "help"] in one_by_one
    assert max(map(len, lines(found, one_by_one=True))) <= WIDTH


def test_what_is_not_shown_is_counted() -> None:
    found = an_answer(30, 12)
    text = lines(found)
    # Beside the points, not behind the nodes that are rejected.
    assert text.index("  20 more feasible nodes not shown; --nodes 0 shows all.") < text.index(
        next(line for line in text if line.startswith("  REJECTED BY"))
    )
    assert not any("not shown" in line for line in lines(found, shown=None))


def test_a_pod_that_waits_says_what_it_waits_for() -> None:
    found = an_answer(0, 3)
    found.node = ""
    found.decision.Clear()
    found.decision.message = "0/3 nodes are available: " + "1 node(s) had an untolerated taint, " * 6
    waiting = PendingPod(
        queue="unschedulable", attempts=1, held_by=["NodeAffinity"], would_wake=["NodeAdd", "NodeUpdateNodeLabel"]
    )
    told = lines(found, waiting)
    assert "Queue:         unschedulable, after 1 attempt" in told
    assert "Retried when:  a node is added; labels of a node change" in told
    assert any(line.startswith("When it was last tried (decision 0") for line in told)
    assert max(map(len, told)) <= WIDTH


def test_events_that_nobody_knows_are_told_as_they_are() -> None:
    assert in_words(["NodeAdd", "NodeAdd", "example.com/QuotaUpdate"]) == "a node is added; example.com/quota update"


def test_hostile_names_stay_in_their_lines() -> None:
    found = an_answer(1, 1)
    found.verdicts[0].node = "a\x1b[2J\nb"
    found.rejected = "x\ny\x1b[2J"
    assert all(line.isprintable() for line in lines(found))

"""What a counting pod wrote, and what the demo says of pods that ran: as tables. The demo itself runs in test_demo.py."""

from __future__ import annotations

import pytest

from rayched.api import kinds
from rayched.cli.cluster.real_work import RUNS_PODS, Count, RealWork, WorkFound, counted
from rayched.cli.manifests.named_manifests import read_manifests
from rayched.client.client import Client
from tests.docs.markdown import ROOT


def _written(*lines: tuple[float, int]) -> str:
    return "".join(f"2026-01-01T00:00:{second:012.9f}Z {number}\n" for second, number in lines)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", Count(0, 0, 0.0)),
        (_written((1.0, 1)), Count(1, 0, 0.0)),
        (_written((1.0, 1), (1.1, 2), (1.35, 3)), Count(3, 0, 0.25)),
        (_written((1.0, 1), (1.1, 3)), Count(3, 1, 0.1)),
        (_written((1.0, 1), (1.1, 2), (1.2, 2)), Count(2, 1, 0.1)),
        (_written((1.0, 1), (1.1, 2), (1.2, 1), (1.3, 2)), Count(2, 1, 0.1)),
        (_written((1.0, 2), (1.1, 3)), Count(3, 1, 0.1)),
    ],
    ids=["nothing", "one", "in order", "left out", "twice", "anew", "without the first"],
)
def test_numbers_are_held_against_the_one_before(text: str, count: Count) -> None:
    found = counted(text)
    assert (found.last, found.skipped) == (count.last, count.skipped)
    assert found.pause_seconds == pytest.approx(count.pause_seconds)


@pytest.mark.parametrize(
    ("failed", "restarts", "count", "wrong"),
    [
        (0, 0, Count(9, 0, 0.1), []),
        (1, 0, Count(9, 0, 0.1), ["of the pods that ran 1 failed, and containers were restarted 0 times"]),
        (0, 2, Count(9, 0, 0.1), ["of the pods that ran 0 failed, and containers were restarted 2 times"]),
        (0, 0, Count(9, 1, 0.1), ["the counter is at 9, and 1 numbers do not follow the one before"]),
        (0, 0, Count(0, 0, 0.0), ["the counter is at 0, and 0 numbers do not follow the one before"]),
    ],
)
def test_what_is_wrong_is_told(failed: int, restarts: int, count: Count, wrong: list[str]) -> None:
    assert WorkFound(3, 22, 20, failed, restarts, count).words == wrong


def test_the_example_runs_on_tainted_nodes_alone_and_what_lasts_of_it_is_counted() -> None:
    objects = [kinds.unwrap(result.object) for result in read_manifests([str(ROOT / "examples" / "work")])]
    with Client("127.0.0.1:1") as client:
        work = RealWork(client, ["real-0"], objects)
        assert work.lasting_pods == 1 + 1
        ports = set()
        for item in work.objects:
            spec = item.spec if item.kind == "Pod" else item.spec.template.spec
            assert [(one.key, one.operator, one.effect) for one in spec.tolerations] == [(RUNS_PODS, "Exists", "NoSchedule")]
            (term,) = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
            assert [(one.key, one.operator) for one in term.match_expressions] == [(RUNS_PODS, "Exists")]
            ports |= {(v.value, c.readiness_probe.http_get.port.int_value) for c in spec.containers for v in c.env}
        ((variable, probed),) = ports
        assert int(variable) == probed != 18765


def test_other_objects_and_none_that_counts_are_refused() -> None:
    objects = [kinds.unwrap(result.object) for result in read_manifests([str(ROOT / "examples" / "work")])]
    with Client("127.0.0.1:1") as client:
        with pytest.raises(ValueError, match="no Pod among the objects: one that counts is wanted"):
            RealWork(client, [], [item for item in objects if item.kind != "Pod"])
        node = kinds.NODE.message(kind="Node", metadata={"name": "n"})
        with pytest.raises(ValueError, match="Node n: want a Pod, a ReplicaSet or a Job"):
            RealWork(client, [], [node])

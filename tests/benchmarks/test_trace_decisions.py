"""`benchmarks.trace_decisions`: a line for each pod, ties to the smallest name, room made where pods have priorities."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import trace_decisions
from benchmarks.trace_objects import NODES_FILE, PODS_FILE

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn2,2000,4096,0,\nn1,2000,4096,0,\n"
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos
a,500,100,0,0,,BE
b,1500,100,0,0,,BE
c,1500,100,0,0,,BE
d,1000,100,0,0,,LS
e,9000,100,0,0,,LS
"""


@pytest.mark.parametrize(
    ("profile", "decided"),
    [
        ("default", ["a n1", "b n2", "c n1", "d -", "e -"]),
        ("most-allocated", ["a n1", "b n1", "c n2", "d -", "e -"]),
        ("priorities", ["a n1", "b n2", "c n1", "d makes room on n1: c", "d n1", "e -"]),
    ],
)
def test_each_pod_has_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], profile: str, decided: list[str]) -> None:
    (tmp_path / NODES_FILE).write_text(NODES)
    (tmp_path / PODS_FILE).write_text(PODS)
    assert trace_decisions.main([str(tmp_path), "--profile", profile]) == 0
    lines = [line.replace("default/", "").partition(" - ") for line in capsys.readouterr().out.splitlines()]
    assert [name + (" -" if why else "") for name, _, why in lines] == decided


def test_a_directory_without_a_trace_is_an_error_that_says_where_it_is_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trace_decisions.main([str(tmp_path)]) == 1
    assert "alibaba/clusterdata" in capsys.readouterr().err

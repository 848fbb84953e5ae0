"""How fast this machine is at the moment.

`seconds`: the CPU time of a loop of what rayched does most, small numpy calls and dictionaries. It never changes, so that
ratios to it can be compared over versions.

`of_processes`: how much of what the pool's workers do several processes do at once, in units of what one does alone; they have
nothing in common. Virtual processors share cores and caches with each other and with strangers, so it is between 1 and the number
of processes, and nothing that computes in several processes can gain more.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import numpy as np

_CHECKOUT: Final = Path(__file__).parents[1]
_ROUNDS: Final = 4_000
_ROWS: Final = 5_000
_LOOP: Final = """
import sys, time
from benchmarks.pool_plugins import SimpleFilter, SimpleScore
from rayched.framework.simple_plugin import NodeView
from rayched.v1.core_pb2 import Node, Pod
pod, filtering, scoring = Pod(), SimpleFilter(None), SimpleScore(None)
sys.stdin.readline()
began = time.perf_counter()
for _ in range(20):
    views = []
    for number in range(5_000):
        node = Node()
        node.metadata.name = f"node-{number}"
        node.metadata.labels["kubernetes.io/hostname"] = node.metadata.name
        views.append(NodeView(node))
    fits = [filtering.filter_node(pod, view) for view in views]
    scores = [scoring.score_node(pod, view) for view in views]
print(time.perf_counter() - began)
"""


def seconds() -> float:
    """CPU time of the loop; the lower of two runs."""
    return min(_once(), _once())


def _once() -> float:
    column = np.arange(_ROWS, dtype=np.int16)
    seen: dict[str, int] = {}
    began = time.process_time()
    for number in range(_ROUNDS):
        column[number % _ROWS] = number % 100
        best = column.max()
        rows = (column == best).nonzero()[0]
        seen[f"pod-{number}"] = rows.item(0)
        for place in range(20):
            seen[f"pod-{place}"] = place
    return time.process_time() - began


def of_processes(n: int) -> float:
    """Between 1 and `n`, mostly; takes some 20 seconds."""
    before, together, after = _at_once(1), _at_once(n), _at_once(1)
    return n * (before + after) / 2 / together


def _at_once(n: int) -> float:
    """Seconds that so many loops take which begin together, on the mean."""
    loops = [
        subprocess.Popen([sys.executable, "-c", _LOOP], cwd=_CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(n)
    ]
    for loop in loops:
        assert loop.stdin is not None
        loop.stdin.write("\n")
        loop.stdin.flush()
    return sum(float(loop.communicate()[0]) for loop in loops) / n

"""Plugins that note what they are asked and answer as a test says; plain clusters and pods for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rayched.snapshot.columns import CodeColumn, Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import PodTemplate, TemplateTable
from rayched.v1.core_pb2 import Pod
from tests.snapshot.objects import a_node, a_pod

TEMPLATES = TemplateTable()


def a_snapshot(n_nodes: int = 10, cpu: str = "4") -> Snapshot:
    snapshot = Snapshot()
    for number in range(n_nodes):
        snapshot.add_node(
            a_node(
                f"n{number}",
                {"cpu": cpu, "memory": "8Gi", "pods": "10"},
                labels={"rank": str(number % 4), "zone": "xy"[number % 2]},
            )
        )
    return snapshot


def a_template(cpu: str = "100m", **labels: str) -> PodTemplate:
    return TEMPLATES.intern(a_pod({"cpu": cpu}, labels=labels))


class Spy:
    """A plugin whose answers are set by the test, and who notes what it is asked."""

    def __init__(self, name: str = "Spy", reads: Log = Log.LABELS) -> None:
        self.name = name
        self.reads = reads
        self.code = 0
        self.value = 50
        self.asked: list[tuple[str, list[int]]] = []
        self.failing_rows: set[int] = set()

    def key(self, pod: Pod) -> Any:
        return pod.metadata.labels.get("key", "")

    def prepare(self, pod: Pod) -> Any:
        return None

    def filter(self, state: Any, rows: Rows) -> CodeColumn | None:
        self.asked.append(("filter", rows.index.tolist()))
        return np.full(rows.n, self.code, np.uint8)

    def reasons(self, state: Any, rows: Rows, codes: CodeColumn) -> Any:
        return [("no", codes != 0)]

    def score(self, state: Any, rows: Rows) -> ScoreColumn | None:
        self.asked.append(("score", rows.index.tolist()))
        if self.failing_rows & set(rows.index.tolist()):
            raise RuntimeError("broken\nfor this row")
        return np.full(rows.n, self.value, np.int64)

    def asked_again(self) -> list[tuple[str, list[int]]]:
        asked, self.asked = self.asked, []
        return asked


class SlowSpy(Spy):
    """Takes so many seconds a row and a call, of a clock of its own."""

    def __init__(self, seconds: float, call_seconds: float = 0.0) -> None:
        super().__init__("Slow")
        self.seconds, self.call_seconds = seconds, call_seconds
        self.now = 0.0

    def filter(self, state: Any, rows: Rows) -> CodeColumn | None:
        self.now += self.call_seconds + self.seconds * rows.n
        return super().filter(state, rows)

    def score(self, state: Any, rows: Rows) -> ScoreColumn | None:
        self.now += self.call_seconds + self.seconds * rows.n
        return super().score(state, rows)


class NormalizingSpy(Spy):
    def normalize(self, raw: ScoreColumn, low: int, high: int) -> ScoreColumn:
        self.asked.append((f"normalize {low}..{high}", []))
        return raw

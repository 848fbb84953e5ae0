"""Plugins that break their contract for pods that ask for it by a label, and decide sensibly for all others."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from rayched.framework.simple_plugin import NodeView
from rayched.snapshot.columns import Log, ScoreColumn
from rayched.snapshot.rows import Rows
from rayched.v1.core_pb2 import Pod

SLEEP_SECONDS = 0.4


class Column:
    """Scores every node alike, or as the pod wants it: raises, wrong shape, out of range, too late."""

    name = "Column"
    reads = Log.LABELS

    def __init__(self, args: Any) -> None:
        pass

    def key(self, pod: Pod) -> str:
        return pod.metadata.labels.get("wants", "")

    def prepare(self, pod: Pod) -> str:
        return self.key(pod)

    def score(self, state: str, rows: Rows) -> ScoreColumn:
        match state:
            case "raises":
                raise RuntimeError("no idea what to do")
            case "shape":
                return np.zeros(rows.n + 1, np.int64)
            case "range":
                return np.full(rows.n, 1000, np.int64)
            case "sleeps":
                time.sleep(SLEEP_SECONDS)
        return np.full(rows.n, 50, np.int64)


class Simple:
    """The same in the simple form, which raises."""

    def __init__(self, args: Any) -> None:
        pass

    def filter_node(self, pod: Pod, node: NodeView) -> bool | str:
        if pod.metadata.labels.get("wants") == "simple":
            raise KeyError(node.metadata.name)
        return True


class Contrary:
    """For a shadow: has another opinion about every pod, or fails."""

    def __init__(self, args: Any) -> None:
        pass

    def filter_node(self, pod: Pod, node: NodeView) -> bool | str:
        if pod.metadata.labels.get("wants") == "raises":
            raise RuntimeError("no opinion")
        return "node(s) were not to my liking"


class Late:
    """Rejects every node, for some pods after a while."""

    reads = Log.LABELS

    def __init__(self, args: Any) -> None:
        pass

    def filter_node(self, pod: Pod, node: NodeView) -> bool | str:
        wanted = pod.metadata.labels.get("wants")
        if wanted == "late":
            time.sleep(SLEEP_SECONDS)
        return wanted not in ("late", "refused")

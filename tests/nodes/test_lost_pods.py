"""A pod that ran here and of which the disk knows nothing is swept once, however often it changes meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from rayched.client.node_agent import NodeAgentClient
from rayched.nodes.agent.agent_metrics import AgentMetrics
from rayched.nodes.agent.disk import NodeDirectory
from rayched.nodes.agent.intake import IntakePorts, PodIntake
from rayched.nodes.agent.leftovers import Leftovers
from rayched.nodes.agent.workers import Workers
from rayched.v1.core_pb2 import Node, Pod


class Later(Executor):
    """Calls that nobody has begun yet."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls.append(lambda: fn(*args, **kwargs))
        return Future()


def test_a_lost_pod_that_changes_while_it_is_swept_is_not_swept_again(tmp_path: Path) -> None:
    later, accepted = Later(), list[str]()
    workers = Workers(later, lambda call: call())
    leftovers = Leftovers(workers, lambda *_: None, None, AgentMetrics("n", "tree"))
    ports = IntakePorts(
        accepted=lambda directory, pod, now, lost: accepted.append(pod.metadata.uid),
        refused=lambda pod, refusal: None,
        someone_ends=lambda: False,
        post=lambda call: call(),
        clock=lambda: 1.0,
        swept=lambda pod: None,
    )
    directory = NodeDirectory(tmp_path / "node", traversable=False)
    directory.open("n")
    node = Node()
    node.metadata.name = "n"
    with NodeAgentClient("127.0.0.1:1", node="n") as client:
        intake = PodIntake(node, client, directory, workers, leftovers, ports)
        pod = Pod(metadata={"name": "a", "namespace": "default", "uid": "u"})
        for _ in range(3):
            intake.take_lost(pod)
        assert len(later.calls) == 1
        later.calls.pop()()
        assert accepted == ["u"]
    directory.close()

"""Carries out probes and hooks: by the shim, over the network, or by waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rayched.nodes.agent.container_life import ContainerLife
from rayched.nodes.agent.network_probes import http_get, tcp_connect
from rayched.nodes.agent.pod_shim import PodShim
from rayched.nodes.agent.runner_context import RunnerContext
from rayched.nodes.agent.shim_link import Answer

Finish = Callable[[bool | None, str], None]


def carry_out(
    context: RunnerContext,
    shim: PodShim,
    one: ContainerLife,
    attempt: int,
    handler: Any,
    seconds: float,
    finish: Finish,
) -> None:
    """`finish` gets success, or None where it could not be made, and what was wrong; in the agent's loop."""
    if handler.HasField("exec"):
        _by_shim(shim, one, attempt, list(handler.exec.command), seconds, finish)
        return
    if handler.DESCRIPTOR.name == "LifecycleHandler" and handler.HasField("sleep"):
        context.post_later(float(handler.sleep.seconds), lambda: finish(True, ""))
        return

    def work() -> None:
        try:
            if handler.HasField("http_get"):
                fault = http_get(handler.http_get, one.spec, context.address, seconds)
            else:
                fault = tcp_connect(handler.tcp_socket, one.spec, context.address, seconds)
        except Exception as error:
            # A host or a header that no request can have; who waits for the answer must get one.
            text = f"{type(error).__name__}: {error}"
            context.post(lambda: finish(None, text))
        else:
            context.post(lambda: finish(not fault, fault))

    context.probers.submit(work)


def _by_shim(shim: PodShim, one: ContainerLife, attempt: int, argv: list[str], seconds: float, finish: Finish) -> None:
    def answered(answer: Answer) -> None:
        if answer.get("kind") == "gone":
            # Whoever finds the shim again asks again, and if it is gone so is the container.
            return
        if not answer["ok"]:
            # The container has ended, or its program is missing, which is its own fault.
            finish(False if answer["kind"] == "start" else None, answer["error"])
        elif answer["timed_out"]:
            finish(False, f"command timed out after {seconds:g}s")
        else:
            finish(answer["code"] == 0, answer["output"].strip() or f"exit code {answer['code']}")

    shim.ask("exec", answered, container=one.name, attempt=attempt, argv=argv, seconds=seconds)

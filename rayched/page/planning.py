"""What-if: `rayched plan` as a process of its own, of low priority, with a time and a memory of its own.

    replica ── pages of lists, asked for in the reader's name ──▶ gateway ── the same, by a socket ──▶ rayched plan

What the page shows is what the command prints, since it is the command. What it starts from is asked for as the reader, so each
of these calls is judged as theirs, and whoever may not plan is refused as by the command. The process reaches no replica: it
needs no secret, and has no rights. Neither the loop nor a replica waits for it, it can be ended at any moment, and it changes
nothing.

Cost: a page of the cluster at a time; the rest is the process's.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from rayched.api.resources import CPU, MEMORY, PODS, is_extended
from rayched.client.async_client import AsyncClient
from rayched.client.plan_handover import handed_over
from rayched.page.usage_columns import EXTENDED_MAX, NOT_OFFERED, thousandths
from rayched.v1.services_pb2 import GetPlanBasisResponse

PLAN_SECONDS: Final = 10.0
ROWS_MAX: Final = 2_000
"""Pods told one by one, of each kind of outcome; all are counted."""
_ADDED_MAX: Final = 10_000
_DRAINED_MAX: Final = 100
_ERRORS_MAX: Final = 50
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_FIELDS: Final = frozenset({"manifest", "add_nodes", "like", "drain", "configuration"})
_PLANNED: Final = (0, 1)
"""Exit codes of the command that come with a plan."""


class PlanRefused(Exception):
    """What is asked for is no plan. The message is one line for a person."""


@dataclass(frozen=True, slots=True)
class PlanWish:
    """What shall be tried, as the page asks for it."""

    manifest: str = ""
    add_nodes: int = 0
    like: str = ""
    drain: tuple[str, ...] = ()
    configuration: str = ""
    """A KubeSchedulerConfiguration in place of the cluster's. Plugins that it names have to be installed where the gateway is."""

    @classmethod
    def of(cls, document: Any) -> PlanWish:
        """Raises PlanRefused."""
        if not isinstance(document, dict):
            raise PlanRefused("the body: want an object")
        if unknown := sorted(set(document) - _FIELDS):
            raise PlanRefused(f"{unknown[0][:40]}: there is no such field; allowed are {', '.join(sorted(_FIELDS))}")
        manifest, like, configuration = (document.get(name, "") for name in ("manifest", "like", "configuration"))
        count, drain = document.get("add_nodes", 0), document.get("drain", [])
        for name, text in (("manifest", manifest), ("configuration", configuration)):
            if not isinstance(text, str):
                raise PlanRefused(f"{name}: want a text")
        if type(count) is not int or not 0 <= count <= _ADDED_MAX:
            raise PlanRefused(f"add_nodes: want a whole number from 0 to {_ADDED_MAX}")
        if not isinstance(like, str) or (like and not _NAME.fullmatch(like)):
            raise PlanRefused("like: want the name of a node")
        if bool(count) != bool(like):
            raise PlanRefused("add_nodes and like belong together: how many nodes, and of which one's shape")
        if not isinstance(drain, list) or len(drain) > _DRAINED_MAX:
            raise PlanRefused(f"drain: want at most {_DRAINED_MAX} names of nodes")
        for name in drain:
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise PlanRefused("drain: want names of nodes")
        return cls(manifest, count, like, tuple(drain), configuration)

    @property
    def options(self) -> list[str]:
        """Of the command, whose manifest comes on its standard input, but for its configuration."""
        found = ["--filename=-"] if self.manifest.strip() else []
        if self.add_nodes:
            found += [f"--add-nodes={self.add_nodes}", f"--like={self.like}"]
        return found + [f"--drain={name}" for name in self.drain]


class PlanRunner:
    """Makes one plan at a time."""

    def __init__(self, seconds: float = PLAN_SECONDS) -> None:
        self._seconds = seconds
        self._busy = False

    async def run(self, wish: PlanWish, client: AsyncClient) -> dict[str, Any]:
        """What the command finds on the cluster as `client` may read it, or the lines of its errors. Raises ApiError, as where
        the reader may not plan, and PlanRefused while another plan is being made."""
        if self._busy:
            raise PlanRefused("another plan is being made; try again when it is done")
        self._busy = True
        told = [option.replace("--filename=-", "-f FILE") for option in wish.options]
        command = " ".join(["rayched plan", *told, *(["--config FILE"] if wish.configuration.strip() else [])])
        try:
            async with asyncio.timeout(self._seconds) as limit:
                # Before anything is started: who may not ask costs no process.
                basis = await client.plan_basis()
                return {"command": command, **await _planned(wish, client, basis)}
        except TimeoutError:
            if not limit.expired():
                raise
            return {"command": command, "errors": [f"the plan took longer than {self._seconds:g} s and was ended"]}
        finally:
            self._busy = False


async def _planned(wish: PlanWish, client: AsyncClient, basis: GetPlanBasisResponse) -> dict[str, Any]:
    """What the process made of it; ended with this, however this ends. Raises ApiError."""
    own, its = socket.socketpair()
    with own, its, tempfile.TemporaryFile() as configuration:
        own.setblocking(False)
        configuration.write(wish.configuration.encode(errors="replace"))
        configuration.seek(0)
        place = f"/dev/fd/{configuration.fileno()}"
        options = [*wish.options, *([f"--config={place}"] if wish.configuration.strip() else [])]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rayched.page.plan_process", "--output=json", f"--handed-over={its.fileno()}", *options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=(its.fileno(), configuration.fileno()),
        )
        # Its end alone: once the process is gone nobody reads, and whoever writes finds out.
        its.close()
        telling = asyncio.create_task(_hand_over(own, client, basis))
        ending = asyncio.create_task(process.communicate(wish.manifest.encode()))
        try:
            await asyncio.wait((telling, ending), return_when=asyncio.FIRST_COMPLETED)
            if telling.done():
                # What the process would say of it is that something is missing.
                telling.result()
            out, errors = await ending
        finally:
            telling.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()
            ending.cancel()
            await asyncio.gather(telling, ending, return_exceptions=True)
    lines = errors.decode(errors="replace").replace(place, "configuration").splitlines()
    if process.returncode not in _PLANNED:
        lines = lines or [f"the plan ended with {process.returncode}"]
        return {"errors": [line.removeprefix("error: ") for line in lines[:_ERRORS_MAX]]}
    return {"exit_code": process.returncode, "notes": lines[:_ERRORS_MAX], **_bounded(json.loads(out))}


async def _hand_over(own: socket.socket, client: AsyncClient, basis: GetPlanBasisResponse) -> None:
    """Writes what the plan starts from, a page after the other. Raises ApiError."""
    loop = asyncio.get_running_loop()
    with own:
        async for piece in handed_over(client, basis):
            try:
                await loop.sock_sendall(own, piece)
            except ConnectionError:
                # The process has ended, and says why.
                return


def _bounded(plan: dict[str, Any]) -> dict[str, Any]:
    """The plan as the command has it, its lists cut to what a page can show, with how long they are."""
    kinds = ("placements", "preemptions", "unplaced", "deleted")
    return {
        "revision": plan["revision"],
        **{kind: plan[kind][:ROWS_MAX] for kind in kinds},
        "counts": {kind: len(plan[kind]) for kind in kinds},
        "by_node": Counter(one["node_name"] for one in plan["placements"]),
        "reasons": Counter(one["reason"] for one in plan["unplaced"]).most_common(_ERRORS_MAX),
        **_nodes(plan["nodes"]),
    }


def _nodes(outlooks: list[dict[str, Any]]) -> dict[str, Any]:
    """The nodes that change, for the heat map: name, zone, cordoned, and thousandths of each resource before and after.

    A node that would be new has None before, and NOT_OFFERED stands where a node offers none of a resource.
    """
    extended = {name for one in outlooks for name in one["allocatable"] if is_extended(name)}
    resources = (CPU, MEMORY, PODS, *sorted(extended)[:EXTENDED_MAX])

    def shares(one: dict[str, Any], amounts: dict[str, int]) -> list[int]:
        offered = one["allocatable"]
        return [
            thousandths(amounts.get(name, 0), offered.get(name, 0)) if name in offered or not is_extended(name) else NOT_OFFERED
            for name in resources
        ]

    rows = []
    for one in outlooks:
        before = None if one["is_new"] else shares(one, one["requested_before"])
        rows.append([one["node_name"], one["zone"], one["unschedulable"], before, shares(one, one["requested"])])
    return {"resources": resources, "nodes": rows}

"""The shim of one pod as its agent has it: started, spoken to, reached again when the connection ends, and swept when it is gone.

    none ─start─▶ swept, starting ─▶ linked ─connection ends─▶ away ─it answers─▶ linked
                                                               ├─its lock is free, or it is silent for too long─▶ swept ─▶ none

A connection ends also where the shim was slow: who waits for a disk answers late. As long as the shim's lock is held it lives,
and is reached again; only one that stays silent is killed. Where the pod has a fence nothing of it is started before the shim has
taken that. The agent's loop owns it; what blocks is done by workers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from rayched.nodes.agent.disk import PodDirectory
from rayched.nodes.agent.fence_guard import ShimProcess
from rayched.nodes.agent.pod_life import PodFence
from rayched.nodes.agent.runner_context import RunnerContext
from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.shim.main import FENCE_PROTOCOL, PROTOCOL, WATCHDOG_PROTOCOL
from rayched.nodes.agent.shim_link import Answer, ShimFault, ShimLink, start_shim

_ANSWER_SECONDS: Final = 5.0
"""So long one that was connected to has for its answer."""
_AGAIN_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 30.0
"""So long one that lives and does not answer is waited for, and no longer than its pod may live."""
_FENCE_BEHIND: Final = (0.1, 30.0)
"""Of a fence's time, and seconds, whichever is less: so far a shim's fence may be behind the agent's while signs of life are
acknowledged. To tell thousands of shims each second that all is well takes whole processors."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShimPorts:
    """Called in the loop."""

    ready: Callable[[], None]
    """It was started; containers may be."""
    failed: Callable[[str], None]
    """It does not start; why."""
    heard: Callable[[Answer], None]
    """An event of it."""
    found: Callable[[list[Answer]], None]
    """It was away; the states of its containers."""
    lost: Callable[[], None]
    """It is gone, and nothing of the pod lives."""
    stuck: Callable[[frozenset[int]], None]
    """It is gone, and these processes do not die."""
    ended_by: Callable[[], float]
    """When nothing of the pod may live any more; infinity: it may."""


class PodShim:
    """Of one pod. One at a time."""

    def __init__(self, context: RunnerContext, directory: PodDirectory, ports: ShimPorts) -> None:
        self._context = context
        self._directory = directory
        self._ports = ports
        self._link: ShimLink | None = None
        self._process: ShimProcess | None = None
        self._fence: PodFence | None = None
        self._told_fence: PodFence | None = None
        """What the shim was told last over the connection that there is."""
        self._is_starting = False
        self._waits_for_fence = False
        self._silent_from = 0.0
        self._quits = False
        self.is_away = False
        """It was there, and nobody knows whether it still is: what it runs goes on, or is being swept."""
        self.is_fence_armed = False
        """It has taken the pod's fence, and keeps it whatever becomes of the agent and of the disk."""
        self.protocol = PROTOCOL

    @property
    def is_linked(self) -> bool:
        return self._link is not None

    @property
    def is_unsure(self) -> bool:
        """Something of the pod may live, and nobody knows."""
        return self.is_away and not self._quits

    @property
    def is_there(self) -> bool:
        """Or may be, or is being started."""
        return self._link is not None or self._is_starting or self.is_away

    @property
    def pid(self) -> int | None:
        """None: it is not there, or has not said it yet."""
        if self._process is not None:
            return self._process.pid
        # One of an older protocol does not say it.
        state = self._directory.shim_state() if self.is_there else None
        return None if state is None else int(state["pid"])

    # ------------------------------------------------------------------------------------------------------------ requests

    def ask(self, verb: str, answered: Callable[[Answer], None], **fields: Any) -> None:
        """`answered` gets an answer of kind "gone" where there is no connection, or none any more."""
        if self._link is None:
            answered({"ok": False, "kind": "gone", "error": "the shim is gone"})
        else:
            self._link.ask(verb, answered, **fields)

    def tell(self, verb: str, **fields: Any) -> None:
        self.ask(verb, lambda _: None, **fields)

    def quit(self) -> None:
        """Ends it, and kills what still runs below it."""
        self._quits = True
        self.tell("quit")

    def fence(self, fence: PodFence) -> None:
        """From now on that one; what has come is not put off. The shim may be told a later one."""
        self._fence = fence
        self._guard()
        behind = float("inf") if self._told_fence is None else fence.at - self._told_fence.at
        if not 0.0 <= behind < min(_FENCE_BEHIND[0] * fence.seconds, _FENCE_BEHIND[1]):
            self.tell_fence()

    def _guard(self) -> None:
        if self._fence is not None:
            self._context.guard.put(self._directory.uid, self._context.boottime_of(self._fence.at), self._process)

    def tell_fence(self) -> None:
        """The shim has it as it is, if it has not already."""
        fence, link = self._fence, self._link
        if fence is None or fence == self._told_fence or link is None or self.protocol < FENCE_PROTOCOL:
            return
        self._told_fence = fence

        def answered(answer: Answer) -> None:
            if answer.get("kind") == "gone":
                # It is told again as soon as the shim is reached.
                return
            if answer["ok"]:
                self.is_fence_armed = self.protocol >= WATCHDOG_PROTOCOL
            else:
                log.warning("pod %s: its shim does not take a fence: %s", self._directory.uid, answer["error"])
            self._may_start()

        link.ask("fence", answered, at=self._context.boottime_of(fence.at), grace=fence.grace)

    # --------------------------------------------------------------------------------------------------------------- start

    def start(self) -> None:
        """Once nothing of the pod is left that ran before."""
        self._is_starting, self.is_away, self._quits = True, True, False
        self._context.leftovers.sweep(self._directory.uid, self._cleared, self._ports.stuck)

    def _cleared(self) -> None:
        self.is_away = False
        self._context.workers.submit(f"start of the shim of pod {self._directory.uid}", self._started, self._was_started)

    def _started(self) -> tuple[ShimLink, Answer]:
        """In a worker. Raises ShimFault and OSError."""
        start_shim(self._directory.path)
        return self._reached()

    def _was_started(self, found: tuple[ShimLink, Answer] | Exception) -> None:
        self._is_starting = False
        if isinstance(found, Exception):
            self._ports.failed(str(found))
            return
        self._waits_for_fence = True
        self._adopt(*found)
        if self._fence is None or self.protocol < FENCE_PROTOCOL:
            self._may_start()

    def _may_start(self) -> None:
        if self._waits_for_fence:
            self._waits_for_fence = False
            self._ports.ready()

    # ----------------------------------------------------------------------------------------------------------- connection

    def recover(self) -> list[Answer] | None:
        """What it says of its containers; None: it is gone, or does not answer. Blocks; before the loop runs."""
        if not self._directory.shim_lives():
            return None
        try:
            link, hello = self._reached()
        except ShimFault as fault:
            log.warning("pod %s: %s", self._directory.uid, fault)
            return None
        self._adopt(link, hello)
        return self._states(hello)

    def _reached(self) -> tuple[ShimLink, Answer]:
        """A connection, and what it said. Raises ShimFault."""
        post = self._context.post
        link = ShimLink(
            self._directory.path, lambda event: post(partial(self._ports.heard, event)), lambda: post(self._connection_ended)
        )
        hello = link.answer("hello", _ANSWER_SECONDS)
        if not hello["ok"]:
            link.close()
            raise ShimFault(f"the shim in {self._directory.path} does not answer: {hello['error']}")
        return link, hello

    def _adopt(self, link: ShimLink, hello: Answer) -> None:
        self._link, self.is_away, self._told_fence = link, False, None
        self.protocol = hello["protocol"]
        pid = hello.get("pid")
        self._process = None if pid is None else ShimProcess(int(pid), proc_table.start_ticks(int(pid)))
        self._guard()
        self._context.watch_link(link, True)
        self.tell_fence()
        if hello.get("fenced", False):
            self._context.post(partial(self._ports.heard, {"event": "fenced"}))
        if self._quits:
            self.tell("quit")

    def _states(self, hello: Answer) -> list[Answer]:
        found: list[Answer] = hello["containers"]
        return found

    def _connection_ended(self) -> None:
        link = self._link
        if link is None or not link.is_closed:
            return
        self._link = None
        self._context.watch_link(link, False)
        self.is_away = True
        self._silent_from = self._context.clock()
        self._look()

    def _look(self) -> None:
        self._context.workers.submit(f"connection to the shim of pod {self._directory.uid}", self._reached_if_alive, self._looked)

    def _reached_if_alive(self) -> tuple[ShimLink, Answer] | ShimFault | None:
        """In a worker. None: it is gone. The fault where it lives and does not answer, as one does that is about to end."""
        if not self._directory.shim_lives():
            return None
        try:
            return self._reached()
        except ShimFault as fault:
            return fault

    def _looked(self, found: tuple[ShimLink, Answer] | Exception | None) -> None:
        if isinstance(found, tuple):
            log.warning("pod %s: its shim was slow, and is reached again", self._directory.uid)
            self._adopt(*found)
            self._ports.found(self._states(found[1]))
            return
        until = min(self._silent_from + SILENT_SECONDS, self._ports.ended_by())
        if found is not None and self._context.clock() < until:
            self._context.post_later(_AGAIN_SECONDS, self._look)
            return
        if found is None and self._quits:
            self._gone()
            return
        log.warning("pod %s: its shim is %s", self._directory.uid, "gone" if found is None else f"given up ({found})")
        self.sweep()

    def sweep(self) -> None:
        """Kills what is left, itself too. Told by `lost`."""
        self.is_away = True
        self._context.leftovers.sweep(self._directory.uid, self._gone, self._ports.stuck)

    def _gone(self) -> None:
        self.is_away = self.is_fence_armed = False
        self._process, self.protocol = None, PROTOCOL
        self._context.guard.forget(self._directory.uid)
        if self._waits_for_fence:
            self._waits_for_fence = False
            self._ports.failed("its shim has gone before anything was started")
        else:
            self._ports.lost()

"""The guard: a small process beside the actor that holds a node's reservation in Ray. What it was taken for ends with it.

    actor ── pipe ── guard ── rayched node ── shims ── pods

It starts the node's agent, and starts it again whenever that ends: pods do not notice. The pipe ends when the actor closes it or
dies, with its raylet or without. Then what was reserved is somebody else's, so the guard shuts the node down in order, as
`rayched node shutdown` does: pods end within their time, the cluster is told, the agent ends. What is left then is killed.

It is no child of Ray's worker and in no group of its, as both are killed with the worker. One guard a node: a second one waits
until the first has ended its pods. A guard that is killed takes the agent with it, and leaves the pods to the next one.

Run as `python -m rayched.raynodes.guard ROOT SECONDS COMMAND...`; standard input is the pipe, a line on standard output is for
whoever holds the other end. The agent's own output is in ROOT.log, 8 MiB and the 8 MiB before. Cost: 25 MB; it sleeps.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rayched.nodes.agent.containment import kill_cgroups, tracking_root
from rayched.nodes.agent.control import Answer, ControlFault, ask_agent
from rayched.nodes.agent.disk import NodeDirectory, PodDirectory
from rayched.nodes.agent.shim import proc_table
from rayched.raynodes.output_file import OutputFile
from rayched.replica.ray.processes import dying_with_us

END_MARGIN_SECONDS: Final = 50.0
"""What the end of a node takes at most beside the time of its pods."""
_PAUSES_SECONDS: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 15.0)
"""Before the first, second, ... start in a row of an agent that does not live for LIFE_SECONDS_MIN."""
_LIFE_SECONDS_MIN: Final = 30.0
_LOOK_SECONDS: Final = 0.2
_PATIENCE_SECONDS: Final = 10.0
"""How much longer than their time pods may take, while somebody sees to their end."""
_REFUSING_SECONDS: Final = 5.0
"""So long an agent without pods still refuses what comes: the scheduler learns a moment late that the node takes no more,
and a pod that is bound to it when nobody is there would wait for ever."""
_STOP_SECONDS: Final = 10.0
_KILL_SECONDS: Final = 10.0
_STARTS_MAX: Final = 3
"""Of an agent that is only to end its pods."""


class NodeGuard:
    """`run` it once, in the main thread of a process of its own."""

    def __init__(self, root: Path, seconds: float, command: list[str]) -> None:
        """`seconds`: what pods have to end."""
        self._root = root
        self._seconds = seconds
        self._command = command
        self._agent: subprocess.Popen[bytes] | None = None
        self._agent_since = 0.0
        self._starts_at = 0.0
        self._failures = 0
        self._output = OutputFile(root.with_name(f"{root.name}.log"))
        self._is_over = False
        self._is_heard = True
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self._actor_spoke)
        self._take_signals()
        with self._turn_taken() as taken:
            if not taken:
                return
            while not self._is_over:
                self._start_if_due()
                self._wait(max(0.0, self._starts_at - time.monotonic()) if self._agent is None else None)
            self._end()

    # --------------------------------------------------------------------------------------------------------------- events

    def _take_signals(self) -> None:
        wake_read, wake_write = os.pipe()
        for end in (wake_read, wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda *_: self._ends())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP):
            # Not SIG_IGN: the agent would inherit that, and pods from it.
            signal.signal(number, lambda *_: None)

        def woken() -> None:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_read, 4096)

        self._selector.register(wake_read, selectors.EVENT_READ, woken)

    def _wait(self, seconds: float | None) -> None:
        """For something to happen, and does what it asks for."""
        for key, _ in self._selector.select(seconds):
            key.data()
        if self._agent is not None and (code := self._agent.poll()) is not None:
            self._agent_ended(self._agent, code)

    def _actor_spoke(self) -> None:
        """It never does: its end of the pipe is closed."""
        if not os.read(sys.stdin.fileno(), 4096):
            self._selector.unregister(sys.stdin.fileno())
            self._ends()

    def _ends(self) -> None:
        self._is_over = True

    def _say(self, text: str) -> None:
        if not self._is_heard:
            return
        try:
            os.write(sys.stdout.fileno(), f"{' '.join(text.split())}\n".encode())
        except OSError:
            # Who would hear it is dead; the file has what the agent says.
            self._is_heard = False

    @contextlib.contextmanager
    def _turn_taken(self) -> Iterator[bool]:
        """Whether this is the node's only guard now; False: the actor went before it was."""
        self._root.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._root.with_name(f"{self._root.name}.guard"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            is_first = True
            while not self._is_over:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if is_first:
                        self._say("the guard before still ends its pods")
                    is_first = False
                    self._wait(_LOOK_SECONDS)
                else:
                    yield True
                    return
            yield False
        finally:
            os.close(lock)

    # ---------------------------------------------------------------------------------------------------------------- agent

    def _start_if_due(self) -> None:
        now = time.monotonic()
        if self._agent is not None or now < self._starts_at:
            return
        # Pods of the same user may read an agent's environment: what lets somebody into Ray is not in it.
        environment = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
        self._agent = agent = subprocess.Popen(
            dying_with_us(self._command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        self._agent_since = now
        assert agent.stdout is not None
        os.set_blocking(agent.stdout.fileno(), False)
        self._selector.register(agent.stdout, selectors.EVENT_READ, lambda: self._take_output(agent))
        self._say(f"its agent is process {agent.pid}")

    def _take_output(self, agent: subprocess.Popen[bytes]) -> bool:
        """Whether there was some."""
        assert agent.stdout is not None
        data = agent.stdout.read(1 << 16)
        if data == b"":
            with contextlib.suppress(KeyError):
                self._selector.unregister(agent.stdout)
        elif data and (fault := self._output.write(data)):
            self._say(fault)
        return bool(data)

    def _agent_ended(self, agent: subprocess.Popen[bytes], code: int) -> None:
        assert agent.stdout is not None
        while self._take_output(agent):
            pass
        with contextlib.suppress(KeyError):
            self._selector.unregister(agent.stdout)
        agent.stdout.close()
        self._agent = None
        now = time.monotonic()
        self._failures = 0 if now - self._agent_since > _LIFE_SECONDS_MIN else self._failures + 1
        pause = _PAUSES_SECONDS[min(self._failures, len(_PAUSES_SECONDS) - 1)]
        self._starts_at = now + pause
        if not self._is_over:
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            self._say(f"its agent {how} ({self._output.last_line or 'it said nothing'}); it is started again in {pause:g} s")

    # ------------------------------------------------------------------------------------------------------------------ end

    def _end(self) -> None:
        """Ends the pods in order, then the agent; within `seconds` and END_MARGIN_SECONDS."""
        left = self._end_pods(time.monotonic() + self._seconds + _PATIENCE_SECONDS)
        self._stop_agent()
        killed = self._kill_left()
        if left or killed:
            self._say(f"{left} of its pods did not end in their time, and {killed} processes were killed")
        else:
            self._say("all its pods have ended")

    def _end_pods(self, until: float) -> int:
        """How many are left when the time is over."""
        verb, left = "shutdown", self._shims()
        self._failures, self._starts_at = 0, 0.0
        empty_since: float | None = None
        # An agent without pods is asked as well: what is bound to its node meanwhile is refused, and so told to have ended.
        while (left or self._agent is not None) and time.monotonic() < until and self._failures < _STARTS_MAX:
            self._start_if_due()
            state = self._ask(verb)
            if state is not None and not state["pods"]:
                empty_since = time.monotonic() if empty_since is None else empty_since
                if time.monotonic() >= empty_since + _REFUSING_SECONDS:
                    return 0
            else:
                empty_since = None
            if state is not None:
                # An agent that was started meanwhile knows of no shutdown.
                verb = "state" if state["shutting_down"] else "shutdown"
                left = state["pods"]
            elif self._agent is None or verb == "state":
                verb, left = "shutdown", self._shims()
            self._wait(_LOOK_SECONDS)
        return left

    def _ask(self, verb: str) -> Answer | None:
        """None: the agent is not there, or not yet."""
        try:
            return ask_agent(self._root, verb)
        except ControlFault:
            return None

    def _shims(self) -> int:
        """Pods that something runs of."""
        directory = self._directory()
        return sum(pod.shim_lives() for pod in directory.pods_there()) if directory.pods.is_dir() else 0

    def _directory(self) -> NodeDirectory:
        return NodeDirectory(self._root, traversable=False)

    def _stop_agent(self) -> None:
        agent = self._agent
        if agent is None:
            return
        # It tells the cluster what it still has to tell.
        agent.terminate()
        until = time.monotonic() + _STOP_SECONDS
        while self._agent is not None and time.monotonic() < until:
            self._wait(_LOOK_SECONDS)
        if self._agent is not None:
            self._say("its agent did not end by itself")
            agent.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._agent_ended(agent, agent.wait(_STOP_SECONDS))

    def _kill_left(self) -> int:
        """SIGKILL to whatever of a pod is still there; how many processes it found."""
        directory = self._directory()
        killed: set[int] = set()
        until = time.monotonic() + _KILL_SECONDS
        for pod in directory.pods_there() if directory.pods.is_dir() else ():
            found = set(proc_table.processes_of_pod(pod.uid))
            if not found and not pod.shim_lives():
                continue
            killed |= found
            killed |= _kill_shim(pod)
            cgroups, in_cgroups = tracking_root(self._root), True
            while time.monotonic() < until and (in_cgroups or any(proc_table.processes_of_pod(pod.uid))):
                in_cgroups = cgroups is not None and bool(kill_cgroups(cgroups / pod.uid))
                killed.update(pid for pid in proc_table.processes_of_pod(pod.uid) if proc_table.kill(pid))
                time.sleep(_LOOK_SECONDS / 10)
        return len(killed)


def _kill_shim(pod: PodDirectory) -> set[int]:
    """The shim with all that descends from it, if it lives; who was killed."""
    state = pod.shim_state()
    if state is None or state["boot_id"] != proc_table.boot_id() or proc_table.start_ticks(state["pid"]) != state["ticks"]:
        return set()
    return {pid for pid in proc_table.tree_of(state["pid"]) if proc_table.kill(pid)}


def main(root: str, seconds: str, *command: str) -> int:
    # Ray's worker kills its children when it ends.
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    with contextlib.suppress(PermissionError):
        # Ray's workers are nice; whoever may not change that runs its pods as nice as they are.
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    NodeGuard(Path(root), float(seconds), list(command)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""The shim's process: `python -I -S`, one a pod, told what to do over a unix socket in lines of JSON.

    {"id": 1, "verb": "start", "container": "main", "attempt": 0}       → {"id": 1, "ok": true, "pid": 4711, ...}
    what happens without being asked                                    → {"event": "ended", "container": "main", ...}

Verbs: hello, start, stop, signal, kill, exec, run, oom, fence, quit. An answer has `ok`, and `error` where it is false. Starting
an attempt that was started is no error and starts nothing. Stop countdowns run on without the agent; nothing is restarted here.
`run` is an exec whose input and output come with it as descriptors, and that is killed when the connection ends.

One thread does all of it in one loop; beside it is only the watchdog of the fence (watchdog.py). The lock that is held while this
process lives tells the agent that it does, whatever became of its pid. The process that the agent starts ends at once, when its
child holds lock and socket: so a shim has never been the agent's child.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from rayched.nodes.agent.shim import proc_table
from rayched.nodes.agent.shim.belonging import orphans_of
from rayched.nodes.agent.shim.boot_timer import BootTimer, boottime
from rayched.nodes.agent.shim.container import ShimContainer, write_json
from rayched.nodes.agent.shim.engine_container import Told, container_of
from rayched.nodes.agent.shim.execution import NOBODY, Execution, engine_command, kept_execution, streamed_execution
from rayched.nodes.agent.shim.fence import ShimFence
from rayched.nodes.agent.shim.listening import listening
from rayched.nodes.agent.shim.peers import DESCRIPTORS_MAX, Peers
from rayched.nodes.agent.shim.spawning import SpawnError, become_subreaper, lower_oom_score
from rayched.nodes.agent.shim.watchdog import FenceWatchdog

PROTOCOL: Final = 3
"""Agents understand older ones, as shims outlive them."""
FENCE_PROTOCOL: Final = 2
"""The first one with the verb fence."""
WATCHDOG_PROTOCOL: Final = 3
"""The first one that keeps a fence though its disk does not answer."""
_SWEEP_SECONDS: Final = 0.05
_PATIENCE_SECONDS: Final = 3600.0
_LAST_WRITES_SECONDS: Final = 10.0
_OWN_SCORE: Final = -998
_FENCED: Final = {"kind": "fenced", "error": "the node was cut off for too long; nothing is started any more"}


class Shim:
    """Owns the containers of the pod whose directory this is."""

    def __init__(self, directory: str, listener: socket.socket, wakeups: socket.socket) -> None:
        self._directory = directory
        self._wakeups = wakeups
        self._selector = selectors.DefaultSelector()
        self._peers = Peers(self._selector, listener, self._ask, self._left)
        self._containers: dict[tuple[str, int], ShimContainer] = {}
        self._executions: dict[int, Execution] = {}
        self._fence = ShimFence()
        self._watchdog = FenceWatchdog()
        self._timer = BootTimer()
        """Of the loop, whose select counts no time in which the host sleeps."""
        self._quits = False
        self._quits_by = 0.0
        self._selector.register(wakeups, selectors.EVENT_READ, self._woken)
        self._selector.register(self._timer, selectors.EVENT_READ, lambda _: self._timer.drain())

    def run(self) -> None:
        """Until it is told to quit and nothing runs any more."""
        self._watchdog.start()
        while not self._is_through():
            patience = self._patience()
            self._timer.set(boottime() + patience)
            for key, _ in self._selector.select(patience):
                self._guarded(partial(key.data, key.fd))
            self._guarded(self._reap)
            self._guarded(self._tick)

    def kill_rest(self) -> None:
        """What still descends from this process: nothing outlives it, unless it cannot be killed."""
        ends_at = time.monotonic() + _LAST_WRITES_SECONDS
        while time.monotonic() < ends_at:
            self._guarded(self._reap)
            left = proc_table.tree_of(os.getpid())[1:]
            if not left:
                return
            for pid in left:
                proc_table.kill(pid)
            time.sleep(_SWEEP_SECONDS)

    def _is_through(self) -> bool:
        containers = self._containers.values()
        if not self._quits or any(one.exit is None for one in containers):
            return False
        return time.monotonic() >= self._quits_by or not any(one.is_unwritten for one in containers)

    def _guarded(self, call: Callable[[], None]) -> None:
        """The shim's end is that of its containers, so a fault that nobody thought of is told, and all goes on."""
        try:
            call()
        except Exception as error:
            self._peers.broadcast({"event": "fault", "error": f"{type(error).__name__}: {error}"})
            # The same may come again at once.
            time.sleep(_SWEEP_SECONDS)

    def _patience(self) -> float:
        now = time.monotonic()
        soonest = min((one.wakes_at() for one in self._containers.values()), default=float("inf"))
        soonest = min([soonest, *(one.ends_at for one in self._executions.values() if not one.timed_out)])
        if not self._fence.is_over:
            soonest = min(soonest, now + self._fence.seconds_left(boottime()))
        # epoll takes no more than some weeks.
        return min(max(soonest - now, _SWEEP_SECONDS if soonest <= now else 0.0), _PATIENCE_SECONDS)

    # ----------------------------------------------------------------------------------------------------------- children

    def _woken(self, _: int) -> None:
        self._wakeups.recv(4096)

    def _reap(self) -> None:
        now = time.monotonic()
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            execution = self._executions.pop(pid, None)
            if execution is not None:
                execution.status = status
                self._executed(execution)
                continue
            for container in self._containers.values():
                if container.child == pid and container.is_running:
                    container.main_ended(status, now)
                    for other in self._executions.values():
                        if other.container is container and other.told is None:
                            other.kill()

    def _executed(self, execution: Execution) -> None:
        pipe = execution.pipe
        if pipe is not None:
            execution.read()
            self._selector.unregister(pipe)
            execution.close()
        if execution.told is not None:
            execution.told(execution.answer())
        else:
            self._peers.send(execution.peer, {"id": execution.request, **execution.answer()})

    def _tick(self) -> None:
        now = time.monotonic()
        self._keep_fence()
        for execution in list(self._executions.values()):
            execution.expire(now)
        for container in self._containers.values():
            pipes = list(container.pipes)
            if container.tick(now, self._orphans_of):
                for fd in pipes:
                    self._selector.unregister(fd)
                self._save()
                self._peers.broadcast({"event": "ended", **container.state()})
            if container.awaiting and container.has_begun:
                self._tell_begun(container)

    def _tell_begun(self, container: ShimContainer) -> None:
        asked, container.awaiting = container.awaiting, []
        self._save()
        for fd, request in asked:
            self._peers.send(fd, {"id": request, "ok": True, **container.state()})

    def _is_fenced(self) -> bool:
        self._keep_fence()
        return self._fence.is_over

    def _keep_fence(self) -> None:
        """Before anything else is done: what was asked for may have waited for a host that slept, or for a disk."""
        if self._fence.check(boottime()):
            self._peers.broadcast({"event": "fenced"})
        if self._fence.is_over:
            for container in self._containers.values():
                container.stop(time.monotonic(), self._fence.grace_left(boottime()), signal.SIGTERM, group=False)

    def _orphans_of(self, container: ShimContainer) -> Iterator[int]:
        return orphans_of(container, self._containers.values(), self._executions)

    def _log_ready(self, container: ShimContainer, fd: int) -> None:
        if not container.read(fd):
            self._selector.unregister(fd)

    # -------------------------------------------------------------------------------------------------------------- verbs

    def _ask(self, fd: int, line: bytes) -> None:
        request: Any = None
        try:
            message = json.loads(line)
            request = message.get("id")
            answer = self._answer(fd, message)
        except SpawnError as error:
            answer = {"ok": False, "kind": "start", "error": str(error)}
        except (KeyError, ValueError, TypeError, OSError) as error:
            answer = {"ok": False, "kind": "bad", "error": f"{type(error).__name__}: {error}"}
        if answer is not None:
            self._peers.send(fd, {"id": request, **answer})

    def _left(self, fd: int) -> None:
        for container in self._containers.values():
            container.awaiting = [one for one in container.awaiting if one[0] != fd]
        for execution in self._executions.values():
            if execution.peer == fd:
                # The next peer may have the same number.
                execution.peer = NOBODY
                if execution.is_streamed:
                    execution.kill()

    def _answer(self, fd: int, message: dict[str, Any]) -> dict[str, Any] | None:
        """None: it comes later."""
        self._keep_fence()
        match message["verb"]:
            case "hello":
                states = [one.state() for one in self._containers.values()]
                own = {"protocol": PROTOCOL, "pid": os.getpid(), "fenced": self._fence.is_over}
                return {"ok": True, **own, "containers": states}
            case "fence":
                at = float(message["at"])
                if not self._fence.is_over and self._watchdog.put(at):
                    self._fence.put(at, float(message["grace"]))
                return {"ok": True, "fenced": self._fence.is_over}
            case "start":
                container = self._start(message["container"], message["attempt"])
                if container is None:
                    return {"ok": False, **_FENCED}
                if not container.has_begun:
                    container.awaiting.append((fd, message.get("id")))
                    return None
                return {"ok": True, **container.state()}
            case "stop":
                container = self._containers[message["container"], message["attempt"]]
                # A stop is never refused for its signal's name: the grace has to run.
                number = signal.Signals.__members__.get(message.get("signal", "SIGTERM"), signal.SIGTERM)
                container.stop(time.monotonic(), message["grace"], number, group=message.get("group", False))
            case "signal":
                self._containers[message["container"], message["attempt"]].signal(signal.Signals[message["signal"]])
            case "oom":
                self._containers[message["container"], message["attempt"]].out_of_memory()
            case "kill":
                for one in self._containers.values():
                    one.stop(time.monotonic(), 0.0, signal.SIGKILL, group=False)
            case "exec":
                self._execute(fd, message)
                return None
            case "run":
                try:
                    self._run_streamed(fd, message)
                finally:
                    self._peers.close_descriptors(fd)
                return None
            case "quit":
                self._quits, self._quits_by = True, time.monotonic() + _LAST_WRITES_SECONDS
                for one in self._containers.values():
                    one.stop(time.monotonic(), 0.0, signal.SIGKILL, group=False)
            case verb:
                return {"ok": False, "kind": "bad", "error": f"verb {verb!r} is not known"}
        return {"ok": True}

    def _start(self, name: str, attempt: int) -> ShimContainer | None:
        """None: nothing is started any more."""
        found = self._containers.get((name, attempt))
        if found is not None or self._is_fenced():
            return found
        directory = os.path.join(self._directory, "containers", name, str(attempt))
        container = container_of(name, attempt, directory, self._engine_command)
        known = (*self._containers.values(), container)
        self._watchdog.cgroups = tuple(one.spec.cgroup for one in known if one.spec.cgroup is not None)
        # The disk may have taken its time.
        if self._is_fenced():
            container.abandon()
            return None
        container.start()
        # Earlier attempts of it have ended, and are on the disk.
        for key in [
            key for key, one in self._containers.items() if key[0] == name and one.exit is not None and not one.is_unwritten
        ]:
            del self._containers[key]
        self._containers[name, attempt] = container
        for pipe in container.pipes:
            self._selector.register(pipe, selectors.EVENT_READ, lambda fd: self._log_ready(container, fd))
        self._save()
        return container

    def _execute(self, fd: int, message: dict[str, Any]) -> None:
        container = self._running(message)
        ends_at = time.monotonic() + message["seconds"]
        self._keep(kept_execution(message.get("id"), fd, container, message["argv"], ends_at))

    def _engine_command(self, container: ShimContainer, argv: list[str], seconds: float, told: Told) -> None:
        try:
            execution = engine_command(container, argv, time.monotonic() + seconds, told)
        except SpawnError as error:
            told({"ok": False, "code": 127, "output": str(error)})
            return
        self._keep(execution)

    def _keep(self, execution: Execution) -> None:
        self._executions[execution.pid] = execution
        assert execution.pipe is not None
        self._selector.register(execution.pipe, selectors.EVENT_READ, lambda _: self._output_ready(execution))

    def _run_streamed(self, fd: int, message: dict[str, Any]) -> None:
        descriptors = self._peers.descriptors(fd)
        if len(descriptors) not in (1, DESCRIPTORS_MAX):
            raise ValueError(f"{len(descriptors)} descriptors came with it, want 1 or {DESCRIPTORS_MAX}")
        execution = streamed_execution(message.get("id"), fd, self._running(message), message["argv"], descriptors)
        self._executions[execution.pid] = execution
        self._peers.send(fd, {"event": "runs", "id": message.get("id"), "pid": execution.pid})

    def _running(self, message: dict[str, Any]) -> ShimContainer:
        container = self._containers[message["container"], message["attempt"]]
        if not container.is_running or not container.has_begun:
            raise ValueError(f"container {container.name!r} does not run")
        return container

    def _output_ready(self, execution: Execution) -> None:
        pipe = execution.pipe
        execution.read()
        if execution.pipe is None and pipe is not None:
            self._selector.unregister(pipe)

    def _save(self) -> None:
        """For who looks at the disk alone; a shim that lives says the same itself, so a disk that is full is no fault."""
        states = [one.state() for one in self._containers.values()]
        own = {"pid": os.getpid(), "ticks": proc_table.start_ticks(os.getpid()), "boot_id": proc_table.boot_id()}
        with contextlib.suppress(OSError):
            write_json(os.path.join(self._directory, "shim", "state.json"), {**own, "containers": states})


def main(directory: str) -> None:
    """Returns at once in the process that the agent started; its child is the shim."""
    shim_directory = os.path.join(directory, "shim")
    lock = os.open(os.path.join(shim_directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("another shim of this pod lives")
    listener = listening(shim_directory)
    if os.fork():
        os._exit(0)
    os.setsid()
    # Whoever started this waits for the end of what it wrote.
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nothing, fd)
    os.close(nothing)
    become_subreaper()
    lower_oom_score(_OWN_SCORE)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    wakeups, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    shim = Shim(directory, listener, wakeups)
    shim._save()
    shim.run()
    shim.kill_rest()

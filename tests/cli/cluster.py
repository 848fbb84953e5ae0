"""The real command against a real cluster: run in this process, or as one of its own.

A command that runs in this process goes through `main()` like any other; only the process start is saved (0.3 s each). Whatever a
test compares in etcd is a full dump of the cluster's keys, taken by etcd's own Range and by nothing of the store.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.api import kinds
from rayched.cli.main import main
from rayched.client import ApiError, Client
from rayched.v1.core_pb2 import Pod

ROOT = b"/rayched/"
UNRELATED = (b"/rayched/heartbeats/", b"/rayched/leader/", b"/rayched/events/", b"/rayched/compaction")
"""Keys that change all the time without anybody's doing."""
PATIENCE_SECONDS = 180.0

Dump = dict[bytes, tuple[int, bytes]]


@dataclass(frozen=True)
class Result:
    """How a command ended. `errors` are the lines on standard error."""

    code: int
    out: str
    errors: list[str]

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Commands:
    """Runs commands in this process and looks at what they left behind."""

    def __init__(self, server: str, etcd_endpoint: str, client: Client) -> None:
        self.server = server
        self.etcd_endpoint = etcd_endpoint
        self.client = client
        self._channel = open_channel([etcd_endpoint])
        self._etcd = rpc.KVStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def __call__(self, *words: str, stdin: str | None = None, server: str | None = None) -> Result:
        return run_here(words, stdin, {"RAYCHED_SERVER": server or self.server})

    def ok(self, *words: str, stdin: str | None = None) -> list[str]:
        """The lines of a command that must go well."""
        result = self(*words, stdin=stdin)
        assert result.code == 0, result.errors
        return result.lines

    def dump(self) -> Dump:
        answer = self._etcd.Range(rpc.RangeRequest(key=ROOT, range_end=b"/rayched0"))
        return {found.key: (found.mod_revision, found.value) for found in answer.kvs if not found.key.startswith(UNRELATED)}

    @contextlib.contextmanager
    def nothing_changes(self) -> Iterator[None]:
        """Asserts that what happens inside leaves every key of the cluster as it was."""
        before = self.quiet_dump()
        yield
        after = self.dump()
        # The names only: a value would bury them.
        assert sorted(after.keys() - before.keys()) == []
        assert sorted(before.keys() - after.keys()) == []
        changed = [key for key in after if after[key] != before[key]]
        assert not changed, changed

    def quiet_dump(self) -> Dump:
        """The keys once nobody is at work on them any more. Pods on their way to a node are the test's to wait for."""
        found = [self.dump()]

        def quiet() -> bool:
            time.sleep(0.02)
            found.append(self.dump())
            return found[-1] == found[-2]

        wait_until(quiet, "etcd is quiet")
        return found[-1]

    def lease_seconds(self, prefix: str) -> list[int]:
        """How long the keys below a prefix still live; -1 of one that lives on."""
        leases = rpc.LeaseStub(self._channel)
        found = self._etcd.Range(rpc.RangeRequest(key=prefix.encode(), range_end=f"{prefix}\x7f".encode())).kvs
        return [leases.LeaseTimeToLive(rpc.LeaseTimeToLiveRequest(ID=key.lease)).TTL if key.lease else -1 for key in found]

    def compact(self, revision: int) -> None:
        self._etcd.Compact(rpc.CompactionRequest(revision=revision, physical=True))

    def revision(self) -> int:
        found: int = self._etcd.Range(rpc.RangeRequest(key=b"/")).header.revision
        return found

    # ------------------------------------------------------------------------------------------------------------- pods

    def pod(self, name: str, namespace: str = "default") -> Pod:
        found = self.client.get(kinds.POD, name, namespace)
        assert isinstance(found, Pod)
        return found

    def pod_when(self, name: str, holds: Callable[[Pod], bool], what: str, namespace: str = "default") -> Pod:
        wait_until(lambda: holds(self.pod(name, namespace)), f"pod {name}: {what}")
        return self.pod(name, namespace)

    def running(self, name: str, namespace: str = "default") -> Pod:
        return self.pod_when(name, lambda pod: pod.status.phase == "Running", "Running", namespace)

    def unschedulable(self, name: str, words: str, namespace: str = "default") -> Pod:
        """The pod, once its status says so for that reason."""

        def waits(pod: Pod) -> bool:
            return any(found.type == "PodScheduled" and words in found.message for found in pod.status.conditions)

        return self.pod_when(name, waits, f"not scheduled: {words}", namespace)

    def gone(self, name: str, namespace: str = "default") -> bool:
        try:
            self.client.get(kinds.POD, name, namespace)
        except ApiError as error:
            return error.code.name == "NOT_FOUND"
        return False


def run_here(words: Sequence[str], stdin: str | None = None, environment: dict[str, str] | None = None) -> Result:
    """`rayched words...` in this process."""
    out, errors = io.StringIO(), io.StringIO()
    saved = {name: os.environ.get(name) for name in environment or {}}
    saved_argv, saved_stdin = sys.argv, sys.stdin
    os.environ.update(environment or {})
    sys.argv = ["rayched", *words]
    sys.stdin = io.StringIO(stdin or "")
    code: object = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            try:
                main()
            except SystemExit as end:
                code = end.code
    finally:
        sys.argv, sys.stdin = saved_argv, saved_stdin
        for name, text in saved.items():
            os.environ.pop(name, None)
            if text is not None:
                os.environ[name] = text
    return Result(code if isinstance(code, int) else 0 if code is None else 1, out.getvalue(), errors.getvalue().splitlines())


@dataclass
class Running:
    """A command as a process of its own; its output comes line by line."""

    process: subprocess.Popen[str]
    errors: Path | None = None
    _lines: SimpleQueue[str | None] = field(default_factory=SimpleQueue)
    """None: it has closed its output."""

    def read(self) -> None:
        """Collects the output from now on."""
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line(self, seconds: float = PATIENCE_SECONDS) -> str:
        """The next line of its output. AssertionError, with what it said on standard error, where there is none any more."""
        try:
            found = self._lines.get(timeout=seconds)
        except Empty:
            raise AssertionError(f"{self.process.args!r} printed nothing within {seconds:.0f} s{self._said()}") from None
        if found is None:
            self._lines.put(None)
            raise AssertionError(f"{self.process.args!r} ended with {self.process.wait(seconds)}{self._said()}")
        return found

    def line_while_it_tells(self, seconds: float) -> str:
        """The next line of its output, for which it may take as long as it goes on telling, on standard error, what it does."""
        assert self.errors is not None
        while True:
            told = self.errors.stat().st_size
            try:
                return self.line(seconds)
            except AssertionError:
                if self.process.poll() is not None or self.errors.stat().st_size == told:
                    raise

    def _said(self) -> str:
        return f"; it said:\n{self.errors.read_text(errors='replace')}" if self.errors is not None else ""

    def line_with(self, words: str, seconds: float = PATIENCE_SECONDS) -> str:
        deadline = time.monotonic() + seconds
        while words not in (line := self.line(max(0.1, deadline - time.monotonic()))):
            pass
        return line

    def end(self, number: signal.Signals = signal.SIGINT, seconds: float = PATIENCE_SECONDS) -> int:
        """Exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(seconds)


@contextlib.contextmanager
def started(
    *words: str,
    environment: dict[str, str] | None = None,
    errors: Path | None = None,
    read: bool = True,
    program: Sequence[str] = (sys.executable, "-m", "rayched.cli.main"),
    where: Path | None = None,
    only: dict[str, str] | None = None,
) -> Iterator[Running]:
    """`rayched words...` as a process; ended with the block, whatever happens in it. `errors` takes its standard error.

    `program`: another installation's command; `only`: all the variables that it has.
    """
    with open(errors or os.devnull, "w") as sink:
        process = subprocess.Popen(
            [*program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            env={**(os.environ if only is None else only), **(environment or {})},
            cwd=where,
        )
    running = Running(process, errors)
    if read:
        running.read()
    try:
        yield running
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until(holds: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.02)


def a_pod_text(
    name: str,
    *,
    namespace: str = "",
    labels: str = "{}",
    cpu: str = "100m",
    spec: str = "",
) -> str:
    """The manifest of a small pod; `spec` is further lines of its spec in flow style, as in `nodeName: n`."""
    place = f", namespace: {namespace}" if namespace else ""
    further = "".join(f"\n  {line}" for line in spec.splitlines())
    return f"""apiVersion: v1
kind: Pod
metadata: {{name: {name}{place}, labels: {labels}}}
spec:
  containers: [{{name: main, image: "registry.example/web:1", resources: {{requests: {{cpu: {cpu}}}}}}}]{further}
"""


def a_gang_text(name: str, count: int, least: int, *, namespace: str = "", cpu: str = "100m") -> str:
    """The manifest of a pod group that needs `least` members, and of `count` of them."""
    place = f", namespace: {namespace}" if namespace else ""
    group = f"""apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {{name: {name}{place}}}
spec: {{schedulingPolicy: {{gang: {{minCount: {least}}}}}}}
"""
    spec = f"schedulingGroup: {{podGroupName: {name}}}"
    return "---\n".join([group, *(a_pod_text(f"{name}-{n}", namespace=namespace, cpu=cpu, spec=spec) for n in range(count))])

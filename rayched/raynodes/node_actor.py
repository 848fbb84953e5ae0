"""The actor of one node of Ray: its resources are the reservation. It runs nothing itself; a guard beside it does (guard.py).

It is detached: the driver may die, and the next one finds it by its name. It ends with its raylet, when it is killed, and after
`end`. Where the replicas want certificates it makes the key of its agent, and starts that once the driver has signed for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Final

from rayched.access.identity import Identity, IdentityError
from rayched.client.contexts import CONTEXT_FILE, NO_CONTEXT, write_context_file
from rayched.nodes.agent.disk import default_root
from rayched.pki.errors import PkiError
from rayched.pki.held_certificate import HeldCertificate
from rayched.raynodes.agent_plan import AgentPlan
from rayched.raynodes.guard import END_MARGIN_SECONDS

TOLD_SECONDS: Final = 20.0
"""How long a question for news waits for some."""
_KEPT_LINES: Final = 200
_PAUSES_SECONDS: Final = (0.0, 1.0, 5.0, 15.0)
_LIFE_SECONDS_MIN: Final = 30.0
_START_SECONDS_MAX: Final = 60.0
_EXIT_SECONDS: Final = 0.5
"""Time for the last answer to leave."""


class NodeReservation:
    """An actor of Ray. Its methods may be called by several threads at once."""

    def __init__(self, plan: AgentPlan) -> None:
        self._plan = plan
        base = Path(plan.root_dir) if plan.root_dir else default_root()
        self._root = base.absolute() / plan.name
        self._told: deque[str] = deque(maxlen=_KEPT_LINES)
        self._count = 0
        """Of all lines that were ever told."""
        self._news = threading.Condition()
        self._guard: subprocess.Popen[bytes] | None = None
        self._ends = threading.Event()
        self._certificate = HeldCertificate(self._root.with_name(f"{plan.name}.tls")) if plan.is_certified else None
        self._is_certified = threading.Event()
        if self._certificate is None or not self._certificate.is_due():
            self._is_certified.set()
        self._keeper = threading.Thread(target=self._keep, name="guard-keeper", daemon=True)
        self._keeper.start()

    def plan(self) -> AgentPlan:
        """What it was started with."""
        return self._plan

    def told(self, after: int) -> tuple[int, list[str]]:
        """What was said after the first so many lines, and how many there are now. Waits for news, TOLD_SECONDS at most."""
        with self._news:
            self._news.wait_for(lambda: self._count > after, TOLD_SECONDS)
            new = min(self._count - after, len(self._told))
            return self._count, list(self._told)[len(self._told) - new :]

    def certificate_request(self) -> bytes | None:
        """With a new key of the agent's; None: it needs no certificate now."""
        if self._certificate is None or not self._certificate.is_due():
            return None
        return self._certificate.request()

    def take_certificate(self, certificate: bytes, bundle: bytes, identity: str) -> str:
        """What came for the last request; the agent reads it anew. Why it is not taken, or empty."""
        assert self._certificate is not None
        try:
            self._certificate.take(certificate, bundle, Identity.parse(identity))
            write_context_file(self._context, self._plan.servers.split(","), self._certificate.files)
        except (PkiError, IdentityError) as error:
            return str(error)
        self._is_certified.set()
        return ""

    @property
    def _context(self) -> Path:
        assert self._certificate is not None
        return self._certificate.files.ca.with_name(CONTEXT_FILE)

    def end(self) -> bool:
        """Ends pods and agent in order, then this process. Whether it was all over in time."""
        self._ends.set()
        self._is_certified.set()
        with self._news:
            guard = self._guard
        if guard is not None and guard.stdin is not None:
            guard.stdin.close()
        self._keeper.join(self._plan.shutdown_seconds + END_MARGIN_SECONDS)
        threading.Timer(_EXIT_SECONDS, os._exit, (0,)).start()
        return not self._keeper.is_alive()

    # --------------------------------------------------------------------------------------------------------------- thread

    def _keep(self) -> None:
        failures = 0
        self._is_certified.wait()
        while not self._ends.wait(_PAUSES_SECONDS[min(failures, len(_PAUSES_SECONDS) - 1)]):
            began = time.monotonic()
            try:
                guard = self._start()
            except (OSError, subprocess.TimeoutExpired) as error:
                self._tell(f"its guard does not start: {error}")
            else:
                with self._news:
                    self._guard = guard
                if self._ends.is_set() and guard.stdin is not None:
                    guard.stdin.close()
                assert guard.stdout is not None
                for line in guard.stdout:
                    self._tell(line.decode(errors="replace").strip())
                if not self._ends.is_set():
                    self._tell("its guard has ended; another one takes over the pods")
            failures = 0 if time.monotonic() - began > _LIFE_SECONDS_MIN else failures + 1

    def _start(self) -> subprocess.Popen[bytes]:
        """Raises OSError, TimeoutExpired."""
        plan = self._plan
        # -P: what lies in the directory that Ray chose for its worker is no module of ours.
        python = [sys.executable, "-P", "-m"]
        agent = [*python, "rayched.cli.main", "node", plan.name, "--root-dir", str(self._root), *plan.arguments]
        # Without one, none: that of whoever started Ray here is not the agent's.
        agent += ["--context", str(self._context) if plan.is_certified else NO_CONTEXT]
        guard = subprocess.Popen(
            [*python, "rayched.raynodes.guard", str(self._root), str(plan.shutdown_seconds), *agent],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={name: text for name, text in os.environ.items() if not name.startswith("RAY_")},
            start_new_session=True,
        )
        try:
            # The process that was started makes the guard and ends.
            guard.wait(_START_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            guard.kill()
            raise
        return guard

    def _tell(self, line: str) -> None:
        with self._news:
            self._told.append(line)
            self._count += 1
            self._news.notify_all()

"""The faults of `python -m benchmarks.gateway`: gateways killed, flooded, and starved of memory, while pods come steadily."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import threading
import time
import urllib.request
from urllib.parse import urlsplit

from benchmarks.flood import PAUSE_SECONDS_MAX, longest_pause
from benchmarks.gateway_rig import BOUND_SECONDS_MAX, Rig, Settings, rig, wait_for
from benchmarks.load import SteadyLoad, small_pods
from rayched.cli import printing
from rayched.cli.cluster.rehearsal import RehearsalFailed
from rayched.replica.ray.processes import alive

_STARVED_BYTES = 32 << 20
"""Less than the modules of a gateway take, some 45 MiB."""
_NONSENSE = b"[" * (3 << 20)
_FLOODERS = 8
_HELD_MAX = 400
"""Connections of each of them: all together are more than a process may have by most defaults."""
_RESTART_SECONDS_MAX = 60.0


def faults(settings: Settings) -> list[str]:
    """The demands that were missed."""
    with rig(settings) as found:
        epochs, replicas = len(found.onlooker.seen().epochs), found.replicas()
        with found.rehearsal.cluster.client(timeout_seconds=30.0) as client:
            pods = SteadyLoad(client, small_pods("steady"), rate=50.0).start()
            try:
                for fault in (_kill, _flood, _starve):
                    fault(found, settings.fault_seconds)
            finally:
                pods.stop()
        found.start()
        found.wait_until_up()
        bound = len(pods.acknowledged)
        with contextlib.suppress(RehearsalFailed):
            wait_for(lambda: found.onlooker.counts()[1] >= bound, BOUND_SECONDS_MAX, "the steady pods are bound")
        seen = found.onlooker.seen()
        wrong = [f"replica {pid} has ended" for pid in replicas if not alive(pid)]
    pause = longest_pause(seen.moments)
    if len(seen.epochs) != epochs:
        wrong.append(f"the leader changed {len(seen.epochs) - epochs} times")
    if pause > PAUSE_SECONDS_MAX:
        wrong.append(f"bindings paused for {pause:.2f} s, allowed are {PAUSE_SECONDS_MAX} s")
    if pods.refused:
        wrong.append(f"{len(pods.refused)} pods were refused; the first: {pods.refused[0]}")
    if len(seen.bindings) < bound:
        wrong.append(f"{len(seen.bindings)} of {bound} acknowledged pods were bound")
    rows = [
        ("pods", f"{bound:,} acknowledged, {len(seen.bindings):,} bound, {pods.achieved:.0f} a second"),
        ("leader", f"{len(seen.epochs) - epochs} changes, longest pause of bindings {pause:.2f} s"),
    ]
    printing.figures("gateways killed, flooded and starved", rows)
    return wrong


def _kill(found: Rig, seconds: float) -> None:
    """Each gateway, again and again, as soon as it is there."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for keeper in found.keepers:
            if keeper.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(keeper.pid, signal.SIGKILL)
        time.sleep(1.0)


def _flood(found: Rig, seconds: float) -> None:
    """Bodies of nonsense and connections that say nothing."""
    found.start()
    found.wait_until_up()
    stop = threading.Event()

    def send(url: str) -> None:
        held: list[socket.socket] = []
        place = urlsplit(url)
        while not stop.is_set():
            request = urllib.request.Request(f"{url}/api/v1/namespaces/default/pods", data=_NONSENSE, method="POST")
            request.add_header("Content-Type", "application/json")
            # A gateway that refuses, or ends, is what this is about.
            with contextlib.suppress(OSError, http.client.HTTPException):
                urllib.request.urlopen(request, timeout=10.0).close()
            if len(held) == _HELD_MAX:
                held.pop(0).close()
            with contextlib.suppress(OSError):
                held.append(socket.create_connection((place.hostname or "", place.port or 0), 5.0))
        for one in held:
            one.close()

    threads = [threading.Thread(target=send, args=(found.urls[number % len(found.urls)],)) for number in range(_FLOODERS)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()


def _starve(found: Rig, seconds: float) -> None:
    found.start(_STARVED_BYTES)
    time.sleep(seconds)
    what = f"each gateway with {_STARVED_BYTES >> 20} MiB has ended, and is started anew"
    wait_for(lambda: all(keeper.starts > 1 for keeper in found.keepers), _RESTART_SECONDS_MAX, what)

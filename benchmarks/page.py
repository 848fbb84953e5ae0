"""How soon the page is there, and what one who looks at it costs: `make page-load`.

A replica with 5,000 nodes and 50,000 pods, its gateway, and Chromium on this host, by Playwright.

* `visits`: from the address to all pictures of the overview, in new windows. Cold: nobody has looked for so long that the gateway
  follows nothing, and reads all nodes and pods first. Warm: somebody has just looked. Demanded: at most 1.5 s in the median of
  the cold ones, and 400 KB over the wire.
* `bindings`: pods come at 1,000 a second, in turn with the heat map open and without. Demanded: with it the browser draws 30
  frames a second, the page's main thread is busy for less than half of the time, the gateway takes less than a fifth of a
  processor; and 99 of 100 pods are bound within 1.05 times of what it takes without. The last of these is judged where there are
  eight processors, else told: who looks takes processors from who binds.

Exit code 1 where a demand is missed, 2 where there is no browser. In some two minutes:

    make page-load ARGS="--nodes 200 --pods 2000 --visits 2 --seconds 10"
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.flood_processes import Onlooker
from benchmarks.gateway import ROOMY_PROCESSORS
from benchmarks.load import SteadyLoad, small_pods
from benchmarks.measured import percentile
from benchmarks.page_rig import NoBrowser, PageRig, browsing, page_rig
from benchmarks.processes import all_cpu_seconds
from rayched.cli import printing
from rayched.cli.cluster.rehearsal import RehearsalFailed, scratch_directory
from rayched.client.errors import ApiError
from rayched.page.cluster_feed import IDLE_SECONDS
from rayched.replica.cluster.local_cluster import ReplicaFailed

DRAWN_SECONDS_MAX: Final = 1.5
WIRE_BYTES_MAX: Final = 400_000
FRAMES_MIN: Final = 30.0
MAIN_THREAD_MAX: Final = 0.5
GATEWAY_MAX: Final = 0.2
SLOWER_MAX: Final = 1.05
_VIEWPORT: Final = {"width": 1280, "height": 1000}
_SETTLE_SECONDS: Final = 2.0
_BATCH: Final = 50
_DRAWN_WAIT_MS: Final = 120_000
_DRAWN: Final = """async (nodes) => {
    const there = () => globalThis.rayched && rayched.state.columns.length === nodes && rayched.state.terms.length
        && rayched.state.status?.zones.length && document.querySelectorAll('.zone').length === rayched.state.status.zones.length;
    while (!there()) await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    return performance.now() / 1000;
}"""
"""When the frame after it is drawn, in seconds since the address was asked for."""
_COUNT_FRAMES: Final = """() => {
    globalThis.frames_drawn = 0;
    const count = () => { globalThis.frames_drawn++; requestAnimationFrame(count); };
    requestAnimationFrame(count);
}"""


@dataclass(frozen=True, slots=True)
class Visit:
    """One look at the overview, in a window of its own."""

    kind: str
    seconds: float
    wire_bytes: int


@dataclass(frozen=True, slots=True)
class BindingPhase:
    """A time in which pods came steadily."""

    bound_a_second: float
    slow_seconds: float
    """99 of 100 pods waited for less."""
    gateway: float
    """Processors."""
    frames_a_second: float | None = None
    """None: nobody looked."""
    main_thread: float = 0.0
    """The part of the time in which it was busy."""


def visits(rig: PageRig, browser: Any, count: int) -> list[Visit]:
    """As many cold ones, each followed by a warm one."""
    found = []
    # The first one starts the browser's own processes, and counts for nothing.
    _visit(rig, browser, "warm")
    for number in range(1, count + 1):
        printing.note(f"visit {number} of {count}: waiting until the gateway follows nothing")
        time.sleep(IDLE_SECONDS + _SETTLE_SECONDS)
        found += [_visit(rig, browser, "cold"), _visit(rig, browser, "warm")]
    return found


def _visit(rig: PageRig, browser: Any, kind: str) -> Visit:
    context = browser.new_context(viewport=_VIEWPORT)
    try:
        page = context.new_page()
        page.set_default_timeout(_DRAWN_WAIT_MS)
        session = context.new_cdp_session(page)
        sizes: list[int] = []
        session.on("Network.dataReceived", lambda told: sizes.append(told["dataLength"]))
        session.send("Network.enable")
        page.goto(f"{rig.url}/ui/", wait_until="commit")
        seconds = page.evaluate(_DRAWN, len(rig.nodes))
        return Visit(kind, seconds, sum(sizes))
    finally:
        context.close()


def bindings(rig: PageRig, browser: Any, seconds: float, rate: float, rounds: int) -> list[BindingPhase]:
    """With and without a page, in turn."""
    onlooker = Onlooker(rig.cluster.etcd_endpoints)
    try:
        found = []
        for number in range(rounds):
            found.append(_phase(rig, onlooker, f"alone-{number}", seconds, rate, None))
            context = browser.new_context(viewport=_VIEWPORT)
            page = context.new_page()
            page.goto(f"{rig.url}/ui/#/nodes?by=pods", wait_until="commit")
            page.set_default_timeout(_DRAWN_WAIT_MS)
            page.wait_for_function("count => globalThis.rayched?.state.columns.length === count", arg=len(rig.nodes))
            found.append(_phase(rig, onlooker, f"seen-{number}", seconds, rate, page))
            context.close()
        return found
    finally:
        onlooker.stop()


def _phase(rig: PageRig, onlooker: Onlooker, prefix: str, seconds: float, rate: float, page: Any | None) -> BindingPhase:
    time.sleep(_SETTLE_SECONDS)
    before = onlooker.counts()[1]
    pid = rig.gateway.pid
    if pid is None:
        raise RehearsalFailed("the gateway has ended by itself")
    watched = None if page is None else _PageWatch(page)
    cpu, began = all_cpu_seconds(pid), time.monotonic()
    load = SteadyLoad(rig.client, small_pods(prefix), rate, batch=_BATCH).start()
    # Playwright's own messages are taken by this thread, and while it sleeps they wait.
    time.sleep(seconds) if page is None else page.wait_for_timeout(seconds * 1_000)
    lasted = time.monotonic() - began
    looked = (None, 0.0) if watched is None else watched.end(lasted)
    gateway = (all_cpu_seconds(pid) - cpu) / lasted
    load.stop()
    if load.refused:
        raise RehearsalFailed(f"a submission was refused: {load.refused[0]}")
    # Of those that came while it was measured.
    found = [one for one in onlooker.seen().bindings[before:] if one.seconds <= began + lasted]
    slow = percentile(sorted(one.waited_seconds for one in found), 99)
    return BindingPhase(len(found) / lasted, slow, gateway, *looked)


class _PageWatch:
    """Counts the frames of a page and its main thread's time, from its making to `end`."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self._session = page.context.new_cdp_session(page)
        # Time on the processor: what others on this host do does not count.
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.evaluate(_COUNT_FRAMES)
        self._busy = self._task_seconds()

    def end(self, seconds: float) -> tuple[float, float]:
        """Frames a second, and the part of the time in which the main thread was busy."""
        frames = self._page.evaluate("globalThis.frames_drawn")
        return frames / seconds, (self._task_seconds() - self._busy) / seconds

    def _task_seconds(self) -> float:
        told = self._session.send("Performance.getMetrics")["metrics"]
        return next(float(one["value"]) for one in told if one["name"] == "TaskDuration")


def judged(seen: Sequence[Visit], phases: Sequence[BindingPhase], processors: int) -> list[str]:
    """Prints the figures; the demands that they miss."""
    rows, wrong = [], []
    for kind in dict.fromkeys(one.kind for one in seen):
        those = [one.seconds for one in seen if one.kind == kind]
        median = statistics.median(those)
        rows.append((f"overview, {kind}", f"median {median:.2f} s of {', '.join(f'{one:.2f}' for one in those)}"))
        if kind == "cold" and median > DRAWN_SECONDS_MAX:
            wrong.append(f"the overview is there after {median:.2f} s, allowed are {DRAWN_SECONDS_MAX}")
    if seen:
        most = max(one.wire_bytes for one in seen)
        rows.append(("over the wire", f"{most:,} bytes at most"))
        if most > WIRE_BYTES_MAX:
            wrong.append(f"the overview takes {most:,} bytes over the wire, allowed are {WIRE_BYTES_MAX:,}")
    for number, one in enumerate(phases, 1):
        rows.append((f"bindings {number}", _described(one)))
        wrong += _unmet(one)
    if phases:
        alone, looked_at = (
            statistics.median(one.slow_seconds for one in phases if (one.frames_a_second is None) is nobody)
            for nobody in (True, False)
        )
        times = looked_at / max(alone, 1e-9)
        has_room = processors >= ROOMY_PROCESSORS
        why = f"allowed are {SLOWER_MAX}" if has_room else f"told, not judged: all of it has {processors} processors together"
        rows.append(("99 of 100 bindings", f"take {times:.2f} times as long while somebody looks; {why}"))
        if has_room and times > SLOWER_MAX:
            wrong.append(f"99 of 100 bindings take {times:.2f} times as long while somebody looks, allowed are {SLOWER_MAX}")
    printing.figures("the page in Chromium", rows)
    return wrong


def _described(one: BindingPhase) -> str:
    text = f"{one.bound_a_second:,.0f} pods/s, 99 of 100 bound within {one.slow_seconds * 1e3:.0f} ms"
    text += f", gateway {one.gateway:.2f} of a processor"
    if one.frames_a_second is not None:
        text += f", {one.frames_a_second:.0f} frames/s, main thread {one.main_thread:.0%} busy"
    return text


def _unmet(one: BindingPhase) -> list[str]:
    if one.frames_a_second is None:
        return []
    wrong = []
    if one.frames_a_second < FRAMES_MIN:
        wrong.append(f"{one.frames_a_second:.0f} frames a second, wanted are {FRAMES_MIN:.0f}")
    if one.main_thread > MAIN_THREAD_MAX:
        wrong.append(f"the page's main thread is busy for {one.main_thread:.0%}, allowed are {MAIN_THREAD_MAX:.0%}")
    if one.gateway > GATEWAY_MAX:
        wrong.append(f"the gateway takes {one.gateway:.2f} of a processor, allowed are {GATEWAY_MAX}")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description="The page in a browser.")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--visits", type=int, default=5, help="cold ones, each followed by a warm one")
    parser.add_argument("--seconds", type=float, default=60.0, help="of bindings, with the page and without")
    parser.add_argument("--rounds", type=int, default=1, help="of bindings")
    parser.add_argument("--rate", type=float, default=1_000.0, help="bindings a second")
    parser.add_argument("--only", choices=("visits", "bindings"), help="without it both")
    given = parser.parse_args(arguments)
    try:
        with (
            browsing() as browser,
            scratch_directory("page") as directory,
            page_rig(directory, given.nodes, given.pods) as rig,
        ):
            seen = visits(rig, browser, given.visits) if given.only != "bindings" else []
            phases = bindings(rig, browser, given.seconds, given.rate, given.rounds) if given.only != "visits" else []
    except NoBrowser as why:
        print(why, file=sys.stderr)
        return 2
    except (RehearsalFailed, ReplicaFailed, ApiError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    wrong = judged(seen, phases, len(os.sched_getaffinity(0)))
    for words in wrong:
        print(f"error: {words}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

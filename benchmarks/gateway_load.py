"""The process of `python -m benchmarks.gateway` that asks gateways as many programs with kubectl's habits do.

It has its own interpreter, and begins and ends when it is told to. Watches are of the pods of one namespace each, over a
connection of their own. Requests begin at a steady rate, whatever became of those before; who would be the 401st at a time is
left out, and counts as not made. Of ten requests six read a pod, three a namespace's pods as a Table, and one changes a label,
which twenty watches are told of. The label is the time at which the change was asked for, so each line of a watch says how late
it is.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Final

import aiohttp

from benchmarks.asked_processes import AskedProcess

_WATCHES_SECONDS_MAX: Final = 120.0
_OPENING_AT_ONCE: Final = 50
_REQUESTS_AT_ONCE: Final = 400
_STEP_SECONDS: Final = 0.02
_SENT: Final = b'"sent":"'
"""Before the label's value in a line: nanoseconds of this process's clock."""
_TABLE: Final = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
NAMESPACES: Final = 100
POD: Final = "watched"


def namespace_name(number: int) -> str:
    return f"team-{number % NAMESPACES}"


@dataclass(slots=True)
class LoadFigures:
    """Since they were asked for last, or since `begin`."""

    seconds: float = 0.0
    watches: int = 0
    """That were open all the time."""
    lines: int = 0
    """Of watches, that came."""
    answers: Counter[int] = field(default_factory=Counter)
    """By status; 0: there was none."""
    left_out: int = 0
    took: list[float] = field(default_factory=list)
    """Seconds of each answer."""
    late: list[float] = field(default_factory=list)
    """Seconds from asking for a change to each line that tells of it."""
    cpu_seconds: float = 0.0
    """Of this process."""

    @property
    def rate(self) -> float:
        """Good answers a second."""
        good = sum(count for status, count in self.answers.items() if 200 <= status < 300)
        return good / max(self.seconds, 1e-9)

    @property
    def slow_seconds(self) -> float:
        """Of a hundred answers 99 took no longer."""
        return _slow(self.took)

    @property
    def slow_line_seconds(self) -> float:
        """Of a hundred lines of watches 99 came no later."""
        return _slow(self.late)


def _slow(seconds: Sequence[float]) -> float:
    found = sorted(seconds)
    return found[int(len(found) * 0.99)] if found else 0.0


class GatewayLoad(AskedProcess):
    """Owner of the process; `stop` ends it."""

    def __init__(self, urls: Sequence[str], watches: int, rate: float) -> None:
        super().__init__(_serve, tuple(urls), watches, rate)

    def begin(self) -> int:
        """Once the watches are open; how many that are."""
        found: int = self.ask("begin", _WATCHES_SECONDS_MAX)
        return found

    def figures(self) -> LoadFigures:
        found: LoadFigures = self.ask("figures", _WATCHES_SECONDS_MAX)
        return found

    def end(self) -> None:
        """Watches and requests; `begin` may follow."""
        self.ask("end", _WATCHES_SECONDS_MAX)


# ------------------------------------------------------------------------------------------------------- in that process


def _serve(end: Connection, urls: Sequence[str], watches: int, rate: float) -> None:
    asyncio.run(_rounds(end, urls, watches, rate))


async def _rounds(end: Connection, urls: Sequence[str], watches: int, rate: float) -> None:
    end.send("ready")
    while True:
        try:
            await asyncio.to_thread(end.recv)
            timeout = aiohttp.ClientTimeout(total=None)
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
                await _Round(session, urls, rate).run(end, watches)
        except EOFError:
            return


class _Round:
    def __init__(self, session: aiohttp.ClientSession, urls: Sequence[str], rate: float) -> None:
        self._session = session
        self._urls = urls
        self._rate = rate
        self._tasks: set[asyncio.Task[None]] = set()
        self._found = LoadFigures()
        self._since = self._cpu_since = 0.0
        self._open = 0

    async def run(self, end: Connection, watches: int) -> None:
        turns = asyncio.Semaphore(_OPENING_AT_ONCE)
        opened = [asyncio.Event() for _ in range(watches)]
        watching = [asyncio.create_task(self._watch(number, turns, opened[number])) for number in range(watches)]
        for one in opened:
            await one.wait()
        end.send(self._open)
        self._taken()
        asking = asyncio.create_task(self._ask_steadily())
        try:
            while await asyncio.to_thread(end.recv) == "figures":
                end.send(self._taken())
        finally:
            asking.cancel()
            for task in (*watching, *self._tasks):
                task.cancel()
            await asyncio.gather(asking, *watching, *self._tasks, return_exceptions=True)
        end.send("ended")

    def _taken(self) -> LoadFigures:
        """What there is; counting begins anew."""
        taken, self._found = self._found, LoadFigures()
        now, cpu = time.monotonic(), time.process_time()
        taken.seconds, taken.cpu_seconds, taken.watches = now - self._since, cpu - self._cpu_since, self._open
        self._since, self._cpu_since = now, cpu
        return taken

    async def _watch(self, number: int, turns: asyncio.Semaphore, opened: asyncio.Event) -> None:
        url = self._urls[number % len(self._urls)]
        place = f"{url}/api/v1/namespaces/{namespace_name(number)}/pods?watch=true&resourceVersion=0"
        try:
            async with turns:
                answer = await self._session.get(place)
                if answer.status == 200:
                    await answer.content.readline()
                    self._open += 1
                opened.set()
            async with answer:
                while answer.status == 200 and (line := await answer.content.readline()):
                    self._found.lines += 1
                    _, found, rest = line.partition(_SENT)
                    if found:
                        sent = int(rest[: rest.index(b'"')])
                        self._found.late.append((time.monotonic_ns() - sent) / 1e9)
                self._open -= answer.status == 200
        except (aiohttp.ClientError, OSError):
            self._open -= opened.is_set()
            opened.set()

    async def _ask_steadily(self) -> None:
        due, number = time.monotonic(), 0.0
        while True:
            due += _STEP_SECONDS
            first, number = int(number), number + self._rate * _STEP_SECONDS
            for one in range(first, int(number)):
                if len(self._tasks) >= _REQUESTS_AT_ONCE:
                    self._found.left_out += 1
                    continue
                task = asyncio.create_task(self._ask(one))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _ask(self, number: int) -> None:
        pods = f"{self._urls[number % len(self._urls)]}/api/v1/namespaces/{namespace_name(number)}/pods"
        began = time.monotonic()
        status = 0
        try:
            match number % 10:
                case 0:
                    change = f'{{"metadata":{{"labels":{{"sent":"{time.monotonic_ns()}"}}}}}}'.encode()
                    asked = self._session.patch(f"{pods}/{POD}", data=change, headers=_MERGE)
                case 1 | 2 | 3:
                    asked = self._session.get(f"{pods}?limit=500", headers=_TABLE)
                case _:
                    asked = self._session.get(f"{pods}/{POD}")
            async with asked as answer:
                await answer.read()
                status = answer.status
        except (aiohttp.ClientError, OSError):
            # Counted as an answer that did not come.
            pass
        self._found.answers[status] += 1
        self._found.took.append(time.monotonic() - began)

"""The processes of `make soak` beside the cluster's own: one makes pods and deletes them, one notes what etcd shows of them.

Each runs in an interpreter of its own and keeps nothing of a pod that is gone, so an hour costs it no more than a minute. They
end with the process that started them: their pipe to it closes.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final

import grpc

from benchmarks.asked_processes import READY_SECONDS_MAX, AskedProcess, answer, look
from benchmarks.load import small_pods
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.v1.storage_pb2 import Stored

_PREFIX: Final = "soak"
_BATCHES_A_SECOND: Final = 10
_DELETERS: Final = 32
_CALL_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 1.0
"""Until a deletion that failed is tried again."""
_END_SECONDS_MAX: Final = 120.0
"""For the last deletions."""
_REFUSALS_KEPT: Final = 5


@dataclass(slots=True)
class Loaded:
    """What the load has done so far."""

    acknowledged: int = 0
    deleted: int = 0
    refused: int = 0
    refusals: list[str] = field(default_factory=list)
    """The first of them."""


@dataclass(slots=True)
class Seen:
    """What etcd has shown so far; `waited` since it was asked last."""

    epochs: int = 0
    created: int = 0
    bound: int = 0
    removed: int = 0
    removed_unbound: int = 0
    present: int = 0
    waiting: int = 0
    waited: list[float] = field(default_factory=list)
    """Seconds from creation to binding."""


class Load(AskedProcess):
    """`rate` pods a second, each deleted `life_seconds` after it was acknowledged."""

    def __init__(self, addresses: Sequence[str], rate: float, life_seconds: float) -> None:
        super().__init__(_load, tuple(addresses), rate, life_seconds)

    def loaded(self) -> Loaded:
        found: Loaded = self.ask("loaded")
        return found

    def end(self) -> Loaded:
        """Submits nothing more, and waits until what is there has lived its time and is deleted."""
        found: Loaded = self.ask("end", _END_SECONDS_MAX + READY_SECONDS_MAX)
        return found


class Onlooker(AskedProcess):
    """Watches the pods and the epoch in etcd."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        super().__init__(_look, tuple(endpoints))

    def seen(self) -> Seen:
        found: Seen = self.ask("seen")
        return found


# ---------------------------------------------------------------------------------------------------- in those processes


class _Loading:
    """Owner of the load's threads: one submits, one hands deletions to a few that make them."""

    def __init__(self, client: Client, rate: float, life_seconds: float) -> None:
        self.loaded = Loaded()
        self._client = client
        self._batch = max(1, round(rate / _BATCHES_A_SECOND))
        self._period = self._batch / rate
        self._life_seconds = life_seconds
        self._pods = small_pods(_PREFIX)
        self._guard = threading.Lock()
        self._due: deque[tuple[float, str, str]] = deque()
        """When which pod, name and uid, is to be deleted; oldest first."""
        self._deleting = 0
        self._stopped = threading.Event()
        self._submitter = threading.Thread(target=self._submit, daemon=True)
        self._submitter.start()
        threading.Thread(target=self._delete, daemon=True).start()

    def end(self) -> Loaded:
        self._stopped.set()
        self._submitter.join(_END_SECONDS_MAX)
        deadline = time.monotonic() + _END_SECONDS_MAX
        while (self._due or self._deleting) and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.loaded

    def _submit(self) -> None:
        due = time.monotonic()
        while not self._stopped.is_set():
            pods = list(itertools.islice(self._pods, self._batch))
            outcomes = self._client.submit_many(pods, timeout_seconds=_CALL_SECONDS)
            now = time.monotonic()
            with self._guard:
                for pod, outcome in zip(pods, outcomes, strict=True):
                    if outcome.error is None:
                        self.loaded.acknowledged += 1
                        self._due.append((now + self._life_seconds, pod.metadata.name, outcome.uid))
                    else:
                        self._refused(f"submission of {pod.metadata.name}: {outcome.error}")
            # What is late is not made up for.
            due = max(due + self._period, time.monotonic() - self._period)
            self._stopped.wait(max(0.0, due - time.monotonic()))

    def _delete(self) -> None:
        with ThreadPoolExecutor(_DELETERS) as pool:
            while True:
                ripe = []
                with self._guard:
                    while self._due and self._due[0][0] <= time.monotonic():
                        ripe.append(self._due.popleft())
                    self._deleting += len(ripe)
                for _, name, uid in ripe:
                    pool.submit(self._delete_one, name, uid)
                time.sleep(0.02)

    def _delete_one(self, name: str, uid: str) -> None:
        again = False
        try:
            self._client.delete("Pod", name, uid=uid, timeout_seconds=_CALL_SECONDS)
        except ApiError as error:
            # Not found: an earlier attempt has done it.
            again = error.code is not grpc.StatusCode.NOT_FOUND
            if again:
                with self._guard:
                    self._refused(f"deletion of {name}: {error}")
        with self._guard:
            if again:
                self._due.appendleft((time.monotonic() + _AGAIN_SECONDS, name, uid))
            else:
                self.loaded.deleted += 1
            self._deleting -= 1

    def _refused(self, words: str) -> None:
        self.loaded.refused += 1
        if len(self.loaded.refusals) < _REFUSALS_KEPT:
            self.loaded.refusals.append(words)


def _load(end: Connection, addresses: Sequence[str], rate: float, life_seconds: float) -> None:
    with Client(addresses, timeout_seconds=_CALL_SECONDS) as client:
        loading = _Loading(client, rate, life_seconds)
        answer(end, lambda asked: loading.end() if asked == "end" else loading.loaded)


def _look(end: Connection, endpoints: Sequence[str]) -> None:
    looking = Looking()
    look(end, endpoints, lambda pair, keys: looking.note(pair, time.monotonic(), keys.epoch), lambda _: looking.seen())


class Looking:
    """What follows from the changes of pods and epoch."""

    def __init__(self) -> None:
        self._seen = Seen()
        self._present: set[bytes] = set()
        self._waiting: dict[bytes, float] = {}

    def seen(self) -> Seen:
        found, self._seen = self._seen, Seen()
        for name in ("epochs", "created", "bound", "removed", "removed_unbound"):
            setattr(self._seen, name, getattr(found, name))
        found.present, found.waiting = len(self._present), len(self._waiting)
        return found

    def note(self, pair: Any, seconds: float, epoch_key: bytes) -> None:
        seen, key = self._seen, pair.key
        if key == epoch_key:
            seen.epochs += 1
        elif pair.version == 0:
            seen.removed += 1
            seen.removed_unbound += self._waiting.pop(key, None) is not None
            self._present.discard(key)
        elif pair.version == 1:
            seen.created += 1
            self._present.add(key)
            self._waiting[key] = seconds
        elif key in self._waiting and Stored.FromString(pair.value).object.pod.spec.node_name:
            seen.bound += 1
            seen.waited.append(seconds - self._waiting.pop(key))

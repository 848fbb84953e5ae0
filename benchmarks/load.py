"""Load for rehearsals: pods by the number, at a steady rate, from threads that end when told to."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

from rayched.client.client import Client
from rayched.v1.core_pb2 import Pod


def small_pods(prefix: str, cpu: str = "10m", memory: str = "16Mi", scheduler_name: str = "") -> Iterator[Pod]:
    """Endless pods of one template."""
    template = Pod(api_version="v1", kind="Pod")
    template.metadata.namespace = "default"
    template.metadata.labels["app"] = prefix
    template.spec.scheduler_name = scheduler_name
    container = template.spec.containers.add(name="main", image="registry.example/load:1")
    container.resources.requests["cpu"].string = cpu
    container.resources.requests["memory"].string = memory
    for number in itertools.count():
        pod = Pod()
        pod.CopyFrom(template)
        pod.metadata.name = f"{prefix}-{number}"
        yield pod


def too_large_pods(prefix: str, count: int) -> list[Pod]:
    """Pods that no node can take: they stay pending."""
    return list(itertools.islice(small_pods(prefix, cpu="1000"), count))


class SteadyLoad:
    """Submits `rate` pods a second in equal batches, on a thread of its own. What was acknowledged is kept for the auditor.

    A batch that is late is not made up for, so a rate that cannot be reached is simply not reached; `achieved` tells.
    """

    def __init__(self, client: Client, pods: Iterator[Pod], rate: float, batch: int = 10) -> None:
        self._client = client
        self._pods = pods
        self._batch = batch
        self._period = batch / rate
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self.longest_call_seconds = 0.0
        self._calling_since: float | None = None
        self._began = self._ended = 0.0

    def start(self) -> SteadyLoad:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def tell_to_stop(self) -> None:
        """Does not wait: for one of several, each of which may be in a call."""
        self._stopped.set()

    def stop(self) -> None:
        self.tell_to_stop()
        self._thread.join(60.0)
        self._ended = time.monotonic()

    @property
    def achieved(self) -> float:
        """Acknowledged submissions a second."""
        return len(self.acknowledged) / max(1e-9, (self._ended or time.monotonic()) - self._began)

    def describe(self) -> str:
        """How it is doing, for a message."""
        since = self._calling_since
        call = "between calls" if since is None else f"in a call for {time.monotonic() - since:.1f} s"
        alive = call if self._thread.is_alive() else "ended"
        return f"{len(self.acknowledged)} acknowledged, {len(self.refused)} refused, {alive}" + "".join(self.refused[-1:])

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopped.is_set():
            began = self._calling_since = time.monotonic()
            try:
                outcomes = self._client.submit_many(itertools.islice(self._pods, self._batch), timeout_seconds=30.0)
            except Exception as error:
                self.refused.append(f"{type(error).__name__}: {error}")
                return
            self.longest_call_seconds = max(self.longest_call_seconds, time.monotonic() - began)
            self._calling_since = None
            for outcome in outcomes:
                if outcome.error is None:
                    self.acknowledged.append(outcome.uid)
                else:
                    self.refused.append(str(outcome.error))
            due = max(due + self._period, time.monotonic() - self._period)
            self._stopped.wait(max(0.0, due - time.monotonic()))

"""What a replica shows over HTTP: health for probes, metrics for scrapes, status and configuration for people.

| path | what |
|---|---|
| /livez, /readyz, /healthz | health checks, also one by one below each; ?verbose, ?exclude=NAME |
| /metrics | everything that is counted, in the text format or OpenMetrics |
| /metrics/slis | the health checks as metrics |
| /statusz, /configz, /version | what it is, the configuration in force, the version |

livez depends on nothing outside the process, neither on etcd nor on Ray: all replicas would be restarted together. A standby is
ready, for it serves the API. healthz fails on a leader that neither renews nor steps down.

Where it is not on loopback it speaks TLS, and but for the health checks asks who reads (access/http_policy.py).

Threads: the endpoint's. What lives in the event loop is asked there, with a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import platform
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily

from leader.clock import boottime
from rayched.access.http_policy import check_paths
from rayched.api.moments import moment_text
from rayched.pki.https import HttpsCertificate
from rayched.replica.certificate_metrics import etcd_certificate_metrics, insecure_etcd_metric
from rayched.replica.configuration_shown import configuration_shown
from rayched.replica.families import merged
from rayched.replica.leadership import Leadership
from rayched.replica.ray.actor_supervisor import ActorSupervisor
from rayched.replica.scheduler_settings import SchedulerSettings
from rayched.replica.settings import LOOPBACK, ReplicaSettings
from rayched.replica.source_commit import source_commit
from rayched.server.app import ApiServer
from rayched.server.errors import ApiFailure, unavailable
from rayched.server.http.health_checks import PING, Check, HealthChecks
from rayched.server.http.http_endpoint import JSON, Answer, HttpEndpoint, Request, Route
from rayched.server.http.http_readers import guarded, guarded_health
from rayched.server.http.scrapes import LimitedScrapes

TICK_SECONDS: Final = 1.0
STUCK_SECONDS: Final = 10.0
"""An event loop that has not turned for so long serves nobody."""
_SCRAPE_SECONDS_MAX: Final = 4.0
"""Actors that do not answer in time are left out of a scrape, and who is not judged in time reads nothing."""
_LIVEZ, _READYZ, _HEALTHZ = "livez", "readyz", "healthz"

T = TypeVar("T")

log = logging.getLogger("rayched.replica")


class Observability:
    """`open` in the event loop, where `ticking` then runs; `close` at the end."""

    def __init__(
        self,
        settings: ReplicaSettings,
        scheduler: SchedulerSettings,
        version: str,
        leadership: Leadership,
        actors: ActorSupervisor,
        server: ApiServer,
        problem_of_storage: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`problem_of_storage`: why etcd takes no writes, or a loop of this replica's does not turn."""
        self._settings = settings
        self._scheduler = scheduler
        self._version, self._commit = version, source_commit()
        self._leadership = leadership
        self._actors = actors
        self._server = server
        self._began = time.time()
        self._ticked = boottime()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._endpoint: HttpEndpoint | None = None
        loop, elector = Check("event-loop", self._loop_problem), Check("leaderElection", leadership.problem)
        self._checks = HealthChecks(
            {
                _LIVEZ: (PING, loop),
                _READYZ: (
                    PING,
                    elector,
                    Check("shutdown", lambda: "the replica is stopping" if self._stopping else None),
                    Check("sched-handler-sync", actors.problem),
                    Check("storage", problem_of_storage),
                    Check("watch-sync", server.problem),
                ),
                _HEALTHZ: (PING, elector, loop),
            }
        )
        self._registry = CollectorRegistry()
        self._registry.register(_Collector(self._families))
        self._slis = CollectorRegistry()
        self._slis.register(_Collector(self._checks.metrics))

    def open(self) -> str | None:
        """Where it listens, as a URL; None where it is turned off. Raises ListenError, PolicyError for a path without a row."""
        place = self._settings.http_place
        if place is None:
            return None
        self._loop = asyncio.get_running_loop()
        tls, certificate, routes = self._settings.tls, None, self._routes()
        check_paths(routes)
        if tls is not None and place[0] not in LOOPBACK:
            certificate = HttpsCertificate(tls.certificate, tls.key, tls.ca)
            routes = {path: self._guarded(path, route) for path, route in routes.items()}
        parents = frozenset(f"/{group}" for group in (_LIVEZ, _READYZ, _HEALTHZ))
        self._endpoint = HttpEndpoint(*place, routes, parents, self._settings.http_names, certificate)
        self._endpoint.start()
        return f"{'http' if certificate is None else 'https'}://{self._endpoint.address}"

    async def ticking(self) -> None:
        """Shows that the event loop turns, until cancelled."""
        while True:
            self._ticked = boottime()
            await asyncio.sleep(TICK_SECONDS)

    def stopping(self) -> None:
        """From now on this replica is not ready."""
        self._stopping = True

    def close(self) -> None:
        if self._endpoint is not None:
            self._endpoint.stop()

    # ------------------------------------------------------------------------------------------------------------- routes

    def _routes(self) -> dict[str, Route]:
        def group(name: str) -> Route:
            return lambda request: self._checks.answer(name, request)

        return {
            **{f"/{name}": group(name) for name in (_LIVEZ, _READYZ, _HEALTHZ)},
            "/metrics": LimitedScrapes(lambda request: _exposition(self._registry, request)),
            "/metrics/slis": lambda request: _exposition(self._slis, request),
            "/statusz": lambda _: Answer(self._statusz().encode()),
            "/configz": lambda _: _json(configuration_shown(self._settings, self._scheduler.loaded)),
            "/version": lambda _: _json({"version": self._version, "commit": self._commit, "python": platform.python_version()}),
        }

    def _guarded(self, path: str, route: Route) -> Route:
        """For whoever may read it."""
        if path.removeprefix("/") in (_LIVEZ, _READYZ, _HEALTHZ):
            return guarded_health(route, self._judge)
        return guarded(path, route, self._judge)

    def _judge(self, request: Request, path: str) -> ApiFailure | None:
        """Why who asks may not read the path; the event loop knows who may."""

        async def judged() -> tuple[ApiFailure | None]:
            try:
                self._server.judge_reader(request, path)
            except ApiFailure as failure:
                return (failure,)
            return (None,)

        found = self._in_loop(judged())
        return unavailable("this replica cannot say now who may read what; try again") if found is None else found[0]

    def _loop_problem(self) -> str | None:
        seconds = boottime() - self._ticked
        return f"the event loop has not turned for {seconds:.0f} s" if seconds > STUCK_SECONDS else None

    def _families(self) -> Iterable[Metric]:
        build = GaugeMetricFamily("rayched_build_info", "1; what it was built of is in the labels.", labels=["version", "commit"])
        build.add_metric([self._version, self._commit], 1)
        of_server, of_actors = self._asked_of_loop()
        lag = _revision_lag(of_server, of_actors)
        of_etcd = etcd_certificate_metrics(self._settings.etcd_tls, time.time())
        return merged(
            [build, insecure_etcd_metric(self._settings.insecure_etcd)],
            REGISTRY.collect(),
            self._leadership.metrics(),
            of_server,
            of_etcd,
            of_actors,
            lag,
        )

    def _asked_of_loop(self) -> tuple[list[Metric], list[Metric]]:
        """What the server and the actors count."""
        if self._stopping:
            return [], []

        async def ask() -> tuple[list[Metric], list[Metric]]:
            return self._server.metrics(), await self._actors.metrics()

        return self._in_loop(ask()) or ([], [])

    def _in_loop(self, asking: Coroutine[Any, Any, T]) -> T | None:
        """What the event loop answers; None: it has ended, or did not answer in time."""
        if self._loop is None:
            asking.close()
            return None
        try:
            answer = asyncio.run_coroutine_threadsafe(asking, self._loop)
        except RuntimeError:
            asking.close()  # the loop has ended
            return None
        try:
            return answer.result(_SCRAPE_SECONDS_MAX)
        except FutureTimeoutError:
            answer.cancel()
            log.warning("the event loop has not answered a reader of the HTTP endpoint within %.0f s", _SCRAPE_SECONDS_MAX)
            return None

    def _statusz(self) -> str:
        leader = self._leadership.leader()
        up = int(time.time() - self._began)
        failing = self._checks.failing(_READYZ)
        lines = {
            "Started": moment_text(self._began),
            "Up": f"{up // 3600} hr {up // 60 % 60:02} min {up % 60:02} sec",
            "Version": self._version,
            "Python version": platform.python_version(),
            "Process": str(os.getpid()),
            "Identity": self._leadership.identity,
            "API": self._server.address,
            "Leads": "yes" if self._leadership.leads else "no",
            "Leader": "nobody" if leader is None else f"{leader.holder} at {leader.address}, epoch {leader.epoch}",
            "Ready": "no; " + "; ".join(failing) if failing else "yes",
            "Paths": " ".join(sorted(self._routes())),
        }
        warning = "For people: the format of this page may change at any time.\n"
        return f"rayched statusz\n{warning}\n" + "".join(f"{name}: {value}\n" for name, value in lines.items())


class _Collector:
    """What a function finds at each scrape."""

    def __init__(self, find: Callable[[], Iterable[Metric]]) -> None:
        self._find = find

    def collect(self) -> Iterable[Metric]:
        return self._find()

    def describe(self) -> Iterable[Metric]:
        """Names are not checked beforehand."""
        return ()


def _revision_lag(of_server: list[Metric], of_actors: list[Metric]) -> list[Metric]:
    """How far the scheduler is behind the API: each follows etcd by itself. Nothing while one of them is not there."""
    revisions = {family.name: sample.value for family in (*of_server, *of_actors) for sample in family.samples}
    seen, read = revisions.get("rayched_watch_revision"), revisions.get("rayched_cache_revision")
    if seen is None or read is None:
        return []
    lag = GaugeMetricFamily("rayched_cache_revision_lag", "Revisions that the API has read and the scheduler has not.")
    lag.add_metric([], max(0.0, seen - read))
    return [lag]


def _exposition(registry: CollectorRegistry, request: Request) -> Answer:
    encode, content_type = choose_encoder(request.accept)
    return Answer(encode(registry), content_type)


def _json(value: object) -> Answer:
    return Answer(json.dumps(value, indent=2).encode() + b"\n", JSON)


async def ended(task: asyncio.Task[None]) -> None:
    """Cancels a task and waits for its end."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

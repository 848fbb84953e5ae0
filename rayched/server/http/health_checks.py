"""The checks behind /livez, /readyz and /healthz, asked and answered as Kubernetes' components do.

* 200 and "ok" where every check of the group passes, else 500 and the list of checks.
* `?verbose` lists them in any case; `?exclude=NAME` leaves one out, any number of times.
* GROUP/NAME asks one check alone.

Unlike in Kubernetes the list says why a check fails, unless whoever asks is not to know that (`withholds`).

Each result is counted, for /metrics/slis: kubernetes_healthcheck and kubernetes_healthchecks_total.
Source: k8s.io/apiserver/pkg/server/healthz of Kubernetes 1.34. Any thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

from rayched.server.http.http_endpoint import Answer, Request


@dataclass(frozen=True, slots=True)
class Check:
    """Something that has to be so. `find` gives None, or what is wrong; it returns at once."""

    name: str
    find: Callable[[], str | None]


PING: Final = Check("ping", lambda: None)


class HealthChecks:
    """Groups of checks by the name of their path: livez, readyz, healthz."""

    def __init__(self, groups: Mapping[str, Sequence[Check]]) -> None:
        self._groups = dict(groups)
        self._guard = threading.Lock()
        self._last: dict[tuple[str, str], bool] = {}
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def answer(self, group: str, request: Request) -> Answer:
        """What GET of the group's path, or of one below it, says."""
        checks = self._groups[group]
        if request.path:
            return self._one(group, request)
        left_out = {name for text in request.query.get("exclude", ()) for name in text.split(",")}
        unknown = sorted(left_out - {check.name for check in checks} - {""})
        lines, failed = [], False
        for check in checks:
            if check.name in left_out:
                lines.append(f"[+]{check.name} excluded: ok")
                continue
            problem = self._ask(group, check)
            failed |= problem is not None
            lines.append(f"[+]{check.name} ok" if problem is None else f"[-]{check.name} failed: {_told(problem, request)}")
        if unknown:
            lines.append(f"warn: some health checks cannot be excluded: no matches for {', '.join(unknown)}")
        if not failed and "verbose" not in request.query:
            return Answer(b"ok")
        lines.append(f"{group} check {'failed' if failed else 'passed'}")
        status = HTTPStatus.INTERNAL_SERVER_ERROR if failed else HTTPStatus.OK
        return Answer("".join(f"{line}\n" for line in lines).encode(), status=status)

    def metrics(self) -> list[Metric]:
        """All checks as of now."""
        for group, checks in self._groups.items():
            for check in checks:
                self._ask(group, check)
        state = GaugeMetricFamily("kubernetes_healthcheck", "Whether a check passes: 1 or 0.", labels=["name", "type"])
        counts = CounterMetricFamily(
            "kubernetes_healthchecks", "How often a check was asked, by what came out.", labels=["name", "status", "type"]
        )
        with self._guard:
            for (group, name), passes in self._last.items():
                state.add_metric([name, group], float(passes))
            for (group, name, outcome), count in self._counts.items():
                counts.add_metric([name, outcome, group], count)
        return [state, counts]

    def failing(self, group: str) -> list[str]:
        """One line for each check that fails now."""
        problems: Iterable[tuple[Check, str | None]] = ((check, check.find()) for check in self._groups[group])
        return [f"{check.name}: {problem}" for check, problem in problems if problem is not None]

    def _one(self, group: str, request: Request) -> Answer:
        for check in self._groups[group]:
            if check.name == request.path.removeprefix("/"):
                problem = self._ask(group, check)
                if problem is None:
                    return Answer(b"ok")
                text = f"internal server error: {_told(problem, request)}\n"
                return Answer(text.encode(), status=HTTPStatus.INTERNAL_SERVER_ERROR)
        return Answer(b"404 page not found\n", status=HTTPStatus.NOT_FOUND)

    def _ask(self, group: str, check: Check) -> str | None:
        problem = check.find()
        with self._guard:
            self._last[group, check.name] = problem is None
            self._counts[group, check.name, "success" if problem is None else "error"] += 1
        return problem


def _told(problem: str, request: Request) -> str:
    return "reason withheld" if request.withholds else problem

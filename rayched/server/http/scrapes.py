"""Scrapes of metrics, which ask every process of a replica: one at a time, and of each other host one a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from rayched.access.token_buckets import TokenBuckets
from rayched.server.edge.caller import host_of, is_local
from rayched.server.http.http_endpoint import Answer, Request, Route

SCRAPES_A_SECOND: Final = 1.0
_BURST: Final = 2.0


class LimitedScrapes:
    """A route in front of another one; any thread calls it. Who asks on this host is not counted: nobody can tell them apart."""

    def __init__(self, route: Route, clock: Callable[[], float] = time.monotonic) -> None:
        self._route = route
        self._clock = clock
        self._counting = threading.Lock()
        self._buckets = TokenBuckets()
        self._alone = threading.Lock()

    def __call__(self, request: Request) -> Answer:
        address = host_of(request.address)
        if not is_local(address):
            with self._counting:
                wait = self._buckets.take(address, SCRAPES_A_SECOND, _BURST, self._clock())
            if wait:
                text = f"429 {address} scrapes more than {SCRAPES_A_SECOND:g} time a second\n"
                return Answer(text.encode(), status=HTTPStatus.TOO_MANY_REQUESTS)
        with self._alone:
            return self._route(request)

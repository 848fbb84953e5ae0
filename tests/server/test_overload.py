"""A flood at a real API: what is too much is refused with a delay, the SDK obeys it, and everything gets in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rayched.client import ApiError, AsyncClient, Client
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.admission.write_gate import WriteGate
from rayched.server.admission.write_limit import WriteLimit
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from tests.patience import TRIES_MAX
from tests.server.objects import a_pod
from tests.server.serving import Serving, serving

pytestmark = pytest.mark.cluster


class _Tight(WriteLimit):
    """Room for one call, and never more."""

    def _change(self, weight: float, now: float) -> None:
        self.weight = 1.0


@pytest.fixture
def tight(etcd: EtcdServer, etcd_root: str) -> Iterator[Serving]:
    with serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(etcd_root))) as server:
        gate = _gate(server)
        gate.limit = _Tight()
        gate.limit.weight = 1.0
        yield server


def _gate(server: Serving) -> WriteGate:
    assert server.server._running is not None
    return server.server._running.gate


async def _flood(address: str, count: int, timeout_seconds: float, first: int = 0) -> list[BaseException | None]:
    async with AsyncClient(address, timeout_seconds=timeout_seconds) as client:
        outcomes = await asyncio.gather(
            *(client.submit(a_pod(f"pod-{number}")) for number in range(first, first + count)), return_exceptions=True
        )
    return [outcome if isinstance(outcome, BaseException) else None for outcome in outcomes]


def test_all_of_a_flood_get_in_though_most_are_refused_at_first(tight: Serving) -> None:
    n_pods = 0
    # A busy host may send so slowly that nothing is too much.
    while not _gate(tight).refused["users"] and n_pods < 60 * TRIES_MAX:
        assert asyncio.run(_flood(tight.address, 60, 60.0, first=n_pods)) == [None] * 60
        n_pods += 60
    with Client(tight.address) as client:
        assert len(list(client.list("pods"))) == n_pods
    assert _gate(tight).refused["users"] > 0, "else nothing was too much"
    assert _gate(tight).within == _gate(tight).waiting == 0


def test_who_has_no_time_to_wait_is_told_at_once_what_to_do(tight: Serving) -> None:
    refused: list[ApiError] = []
    for flood in range(TRIES_MAX):
        outcomes = asyncio.run(_flood(tight.address, 60, 0.3, first=60 * flood))
        refused = [outcome for outcome in outcomes if isinstance(outcome, ApiError) and outcome.code.name == "RESOURCE_EXHAUSTED"]
        # A busy host may send so slowly that nothing is too much.
        if refused:
            break
    assert refused
    assert refused[0].retry_after_seconds == 0.5
    assert str(refused[0]) == (
        "too many writes are under way, nothing of this one was done; try again in 0.5 s (RESOURCE_EXHAUSTED)"
    )


def test_reading_goes_on_and_agents_get_in_while_submissions_are_refused(tight: Serving) -> None:
    async def play() -> None:
        async with AsyncClient(tight.address, timeout_seconds=20.0) as client:
            n_pods = 0
            flood: asyncio.Future[Any] = asyncio.gather()
            while not _gate(tight).refused["users"]:
                if flood.done():
                    # A busy host may have sent so slowly that nothing was too much.
                    assert n_pods < 60 * TRIES_MAX, "nothing was too much"
                    pods = [a_pod(f"pod-{number}") for number in range(n_pods, n_pods + 60)]
                    flood = asyncio.gather(*(client.submit(pod) for pod in pods), return_exceptions=True)
                    n_pods += 60
                await asyncio.sleep(0.01)
            began = time.monotonic()
            assert await client.heartbeat(["nobody"]) == ("nobody",)
            await client.list_all("namespaces")
            assert _gate(tight).refused["nodes"] == 0
            assert time.monotonic() - began < 10.0
            await flood

    asyncio.run(play())


def test_the_gate_hears_how_soon_etcd_answers(etcd: EtcdServer, etcd_root: str) -> None:
    with serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys(etcd_root))) as server, Client(server.address) as client:
        client.submit(a_pod("one"))
        assert _gate(server).limit.seconds_allowed < 0.35, "a round trip was measured"
        metrics = {metric.name: [sample.value for sample in metric.samples] for metric in server.run(_metrics(server))}
    assert metrics["rayched_api_write_limit"] == [_gate_limit_at_first()]
    assert metrics["rayched_api_writes_in_flight"] == metrics["rayched_api_writes_waiting"] == [0.0]
    assert metrics["rayched_api_writes_refused"] == [0.0] * 4


async def _metrics(server: Serving) -> list[object]:
    return list(server.server.metrics())


def _gate_limit_at_first() -> float:
    return WriteLimit().weight

"""One replica: its API, its part in the election, its actors; from start to graceful stop.

Start: etcd (an own one where none is named), then the API, then Ray and the actors; the replica stands for election once its
SchedulerActor has read the cluster, so whoever wins is warm. The API serves all the while.

Stop, on SIGTERM or SIGINT: health says NOT_SERVING; the work drains and the lease is released, so that the next leader takes over
at once; streams end; actors, Ray and etcd end. A second signal ends the process where it stands; so does the hard limit.

The process is a subreaper, so nothing below it is ever out of reach. Exit codes: 0 asked to stop; 1 could not start, or had to be
ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from leader.belief import BeliefCell
from leader.channel import EndpointError, open_channel
from rayched.replica.actor_supervisor import ActorSupervisor
from rayched.replica.compaction import Compactor
from rayched.replica.etcd_server import EtcdServer
from rayched.replica.leadership import Leadership
from rayched.replica.processes import adopt_orphans, die_with_parent, end_descendants
from rayched.replica.scheduler_settings import SchedulerSettings, read_scheduler_settings
from rayched.replica.settings import ReplicaSettings
from rayched.server.app import ApiServer, ListenError, ServerOptions
from rayched.store.calls import Deadlines
from rayched.store.client import StoreClient
from rayched.store.errors import StoreError
from rayched.store.keys import Keys

_ETCD_ANSWER_SECONDS: Final = 5.0
_STOP_SECONDS_MAX: Final = 5.0
_MEMORY_DIRECTORY: Final = "/dev/shm"

log = logging.getLogger("rayched.replica")


class ReplicaError(Exception):
    """The replica cannot start: one line that says what to do."""


def run(settings: ReplicaSettings, *, die_with_parent: bool = False) -> int:
    """Runs until it is told to stop. Raises ReplicaError, EtcdServerError."""
    if die_with_parent:
        _die_with_parent()
    adopt_orphans()
    logging.getLogger().setLevel(logging.INFO)
    scheduler = read_scheduler_settings(settings.scheduler_configuration)
    with ExitStack() as owned:
        endpoints = settings.etcd_endpoints or (owned.enter_context(EtcdServer(settings.data_dir / "etcd")).endpoint,)
        _check_etcd(endpoints, given=bool(settings.etcd_endpoints))
        belief_file = owned.enter_context(_belief_file())
        replica = _Replica(settings, scheduler, endpoints, belief_file)
        owned.callback(end_descendants, os.getpid())
        return asyncio.run(replica.run())


class _Replica:
    """Everything of one replica that lives in its event loop."""

    def __init__(
        self, settings: ReplicaSettings, scheduler: SchedulerSettings, endpoints: tuple[str, ...], belief_file: Path
    ) -> None:
        keys = Keys(settings.root)
        version = importlib.metadata.version("rayched")
        self._belief = BeliefCell.create(belief_file)
        self._actors = ActorSupervisor(settings, scheduler, endpoints, belief_file)
        self._leadership = Leadership(
            settings.identity, settings.listen, version, endpoints, keys, settings.election_profile, self._belief, self._actors
        )
        self._actors.leadership = self._leadership
        options = ServerOptions(settings.listen, endpoints, keys, version, allow_remote=settings.insecure_bind)
        self._server = ApiServer(options, self._leadership, self._actors)
        self._compactor = Compactor(endpoints, lambda: self._leadership.leads) if settings.compact else None

    async def run(self) -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        _handle_signals(stop)
        # Ray's native code takes the signals over when it connects.
        self._actors.on_ray_connected = lambda: loop.call_soon_threadsafe(_handle_signals, stop)
        try:
            await self._server.start()
        except ListenError as error:
            raise ReplicaError(f"--listen: {error}") from error
        log.info("the API listens at %s", self._server.address)
        self._actors.start()
        if self._compactor is not None:
            self._compactor.start()
        ready = asyncio.create_task(self._stand_for_election())
        stopping = asyncio.create_task(stop.wait())
        ended = asyncio.create_task(asyncio.to_thread(self._actors.wait_until_ended))
        await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        await self._stop(ready)
        return 0 if stop.is_set() else 1

    async def _stand_for_election(self) -> None:
        await asyncio.to_thread(self._actors.ready.wait)
        if not self._actors.stopping:
            self._leadership.start()
            log.info("stands for election as %s", self._leadership.identity)

    async def _stop(self, ready: asyncio.Task[None]) -> None:
        watchdog = threading.Timer(_STOP_SECONDS_MAX, _leave, ["did not stop in time"])
        watchdog.daemon = True
        watchdog.start()
        log.info("stopping")
        await self._server.announce_stop()
        await asyncio.to_thread(self._leadership.release)
        self._actors.request_stop()
        with contextlib.suppress(asyncio.CancelledError):
            await ready
        await self._server.stop()
        if self._compactor is not None:
            await asyncio.to_thread(self._compactor.stop)
        await asyncio.to_thread(self._actors.stop)
        self._belief.close()
        watchdog.cancel()


def _handle_signals(stop: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _stop_or_leave, stop)


def _stop_or_leave(stop: asyncio.Event) -> None:
    if stop.is_set():
        _leave("told to stop twice")
    stop.set()


def _leave(why: str) -> None:
    """Ends the process and all below it at once."""
    log.warning("%s: leaving", why)
    end_descendants(os.getpid())
    sys.stderr.flush()
    os._exit(1)


def _die_with_parent() -> None:
    die_with_parent(signal.SIGTERM)


def _check_etcd(endpoints: tuple[str, ...], *, given: bool) -> None:
    """One linearizable read, so that a wrong endpoint is told at once and in one line."""
    try:
        with open_channel(endpoints) as channel:
            StoreClient(channel, Deadlines(patience_seconds=_ETCD_ANSWER_SECONDS)).revision()
    except EndpointError as error:
        raise ReplicaError(f"--etcd-endpoints: {error}") from error
    except StoreError as error:
        flag = "--etcd-endpoints " if given else ""
        raise ReplicaError(
            f"{flag}{','.join(endpoints)}: no etcd answers there ({error}); start one, or leave the flag out for one of its own"
        ) from error


@contextmanager
def _belief_file() -> Iterator[Path]:
    directory = _MEMORY_DIRECTORY if os.access(_MEMORY_DIRECTORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="rayched-", dir=directory) as path:
        yield Path(path) / "belief"

"""One replica: its API, its part in the election, its actors; from start to graceful stop.

Start: etcd (an own one where none is named), then the API, then Ray and the actors; the replica stands for election once its
SchedulerActor has read the cluster, so whoever wins is warm. The API serves all the while.

Stop, on SIGTERM or SIGINT at any time: health says NOT_SERVING; the work drains and the lease is released, so that the next
leader takes over at once; streams end; actors, Ray and etcd end. A second signal ends the process where it stands (stopping.py).

The process is a subreaper, so nothing below it is ever out of reach. Exit codes: 0 asked to stop; 1 could not start, or had to be
ended.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Final

from leader.belief import BeliefCell
from leader.channel import EndpointError
from leader.tls_channel import TlsFileError
from rayched.actors.event_room_cell import EventRoomCell
from rayched.actors.garbage import collect_rarely
from rayched.actors.log_sending import LogTarget
from rayched.controllers.budgets import BudgetStatus
from rayched.controllers.garbage import SubmissionGarbage
from rayched.controllers.heartbeat_garbage import HeartbeatGarbage
from rayched.controllers.housekeeping import Duty, Housekeeping
from rayched.controllers.node_controller import NodeController
from rayched.controllers.space_keeper import SpaceKeeper
from rayched.controllers.workloads.workload_controller import WorkloadController
from rayched.pki import private_files
from rayched.pki.errors import PkiError
from rayched.pki.online_signer import OnlineSigner
from rayched.replica.audit_opening import AuditOpenError, open_audit_log
from rayched.replica.busy_ports import try_port
from rayched.replica.etcd.etcd_keeper import EtcdKeeper
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.replica.etcd_wait import ask, wait_for_etcd
from rayched.replica.gateway_keeper import GatewayKeeper
from rayched.replica.leadership import Leadership
from rayched.replica.log_lines import level_of, log_to_stderr
from rayched.replica.log_receiving import LogReceiver
from rayched.replica.observability import Observability, ended
from rayched.replica.own_directories import MEMORY, SHORT, make_own_directory, remove_own_directory
from rayched.replica.ray.actor_supervisor import ActorSupervisor
from rayched.replica.ray.open_ray import OPEN_RAY, takes_whoever_comes
from rayched.replica.ray.processes import adopt_orphans
from rayched.replica.ray.published_term import term_line
from rayched.replica.scheduler_settings import SchedulerSettings, SchedulerSettingsError, read_scheduler_settings
from rayched.replica.settings import WILDCARDS, ReplicaSettings, split_address
from rayched.replica.stop_signals import takes_stop_signals
from rayched.replica.stopping import Stopping
from rayched.server.app import ApiServer
from rayched.server.audit_writer import AuditWriter
from rayched.server.peers import ServerTls
from rayched.server.server_options import ListenError, ServerOptions
from rayched.store.errors import StoreError
from rayched.store.keys import Keys

_LOOP_SECONDS_MAX: Final = 0.5
Loop = Housekeeping | BudgetStatus | NodeController | SpaceKeeper | WorkloadController

log = logging.getLogger("rayched.replica")


class ReplicaError(Exception):
    """The replica cannot start: one line that says what to do."""


def run(settings: ReplicaSettings) -> int:
    """Runs until it is told to stop. Raises SchedulerSettingsError, ReplicaError, EtcdServerError.

    Whoever imports this module calls `block_stop_signals` before, for the import starts threads.
    """
    adopt_orphans()
    collect_rarely()
    context = _LogContext()
    log_to_stderr(settings.log_format, settings.log_level, context)
    if takes_stop_signals():
        log.warning("a thread was started before the stop signals were blocked: SIGTERM will not end this replica in order")
    try:
        scheduler = read_scheduler_settings(settings.scheduler_configuration)
    except SchedulerSettingsError as error:
        for raised in error.raised:
            # Whoever configures gets a line; whoever wrote the plugin has to know where.
            log.error("a plugin cannot be made", exc_info=raised)
        raise
    tls = _read_tls(settings)
    signer = _read_signer(settings, tls)
    if settings.ray_address is not None and takes_whoever_comes(settings.ray_address):
        raise ReplicaError(f"--ray-address {settings.ray_address}: {OPEN_RAY}")
    _check_listen("--listen", *split_address("--listen", settings.listen))
    if settings.token_listen:
        _check_listen("--token-listen", *split_address("--token-listen", settings.token_listen))
    if settings.http_place is not None:
        _check_listen("--http-address", *settings.http_place)
    if settings.gateway is not None:
        _check_listen("--gateway-address", *split_address("--gateway-address", settings.gateway.listen))
    etcd = None if settings.etcd_endpoints else EtcdServer(settings.data_dir / "etcd")
    stopping = Stopping(etcd)
    with ExitStack() as owned:
        # Ray prints there, in coloured paragraphs, who has died; the supervisor logs it in a line.
        owned.enter_context(redirect_stdout(owned.enter_context(open(os.devnull, "w"))))
        keeper = None if etcd is None else owned.enter_context(EtcdKeeper(etcd, stopping.fail))
        endpoints = settings.given_etcd if keeper is None else (keeper.etcd.endpoint,)
        if not _etcd_answers(endpoints, Keys(settings.root), stopping, given=etcd is None):
            log.info("stopped")
            return 0
        belief_file = owned.enter_context(_belief_file())
        logs = owned.enter_context(LogReceiver(belief_file.with_name("logs"), level_of(settings.log_level))).target
        owned.callback(stopping.end_processes)
        code = 0
        if not stopping.asked:
            audit = _open_audit_log(settings, owned)
            replica = _Replica(settings, scheduler, endpoints, belief_file, logs, keeper, tls, audit, signer)
            context.epoch = replica.leadership.epoch
            code = asyncio.run(replica.run(stopping))
    log.info("stopped")
    return code


class _LogContext:
    """What all lines of this process have in common at the moment."""

    def __init__(self) -> None:
        self.epoch: Callable[[], int | None] = lambda: None

    def __call__(self) -> dict[str, int]:
        epoch = self.epoch()
        return {} if epoch is None else {"epoch": epoch}


class _Replica:
    """Everything of one replica that lives in its event loop."""

    def __init__(
        self,
        settings: ReplicaSettings,
        scheduler: SchedulerSettings,
        endpoints: tuple[str, ...],
        belief_file: Path,
        logs: LogTarget,
        etcd: EtcdKeeper | None,
        tls: ServerTls | None,
        audit: AuditWriter | None,
        signer: OnlineSigner | None,
    ) -> None:
        self._etcd = etcd
        keys = Keys(settings.root)
        version = importlib.metadata.version("rayched")
        self._advertised = settings.advertise_address
        try:
            self._belief = BeliefCell.create(belief_file)
            room_for_events = EventRoomCell.at(belief_file.parent)
        except OSError as error:
            raise ReplicaError(f"{error.filename}: {error.strerror}; make room there") from error
        self._actors = ActorSupervisor(
            settings, scheduler, endpoints, belief_file, self._belief.last_tick, lambda: self._server.n_objects, logs
        )
        self.leadership = Leadership(
            settings.identity,
            version,
            endpoints,
            keys,
            scheduler.durations(settings.election_profile),
            self._belief,
            self._actors,
            lambda held: self._actors.tell_guardian(term_line(settings, endpoints, held)),
            takes_evidence=settings.takes_evidence,
            suspect_after=settings.suspect_seconds,
        )
        self._actors.terms = self.leadership
        self._space = SpaceKeeper(
            endpoints, keys, self.leadership.epoch, compact=settings.compact, room_for_events=room_for_events.write
        )
        options = ServerOptions(
            settings.listen,
            endpoints,
            keys,
            version,
            tls=tls,
            signer=signer,
            token_listen_address=settings.token_listen,
            tolerations=settings.tolerations,
            gate=self._space.gate,
            problems=self._space.problems,
            edge=settings.edge,
            audit=audit,
        )
        self._server = ApiServer(options, self.leadership, self._actors.questions)
        duties: list[Duty] = [SubmissionGarbage(keys, self._server.is_there), HeartbeatGarbage(keys)]
        self._housekeeping = Housekeeping(endpoints, duties, self.leadership.epoch)
        self._observability = Observability(
            settings, scheduler, version, self.leadership, self._actors, self._server, self._problem_of_storage
        )
        self._loops: list[Loop] = [self._space, self._housekeeping]
        self._settings, self._endpoints, self._keys = settings, endpoints, keys

    async def run(self, stopping: Stopping) -> int:
        """Exit code."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        try:
            await self._server.start()
        except ListenError as error:
            raise ReplicaError(f"--listen: {error}") from error
        log.info("the API listens at %s", self._server.address)
        if self._server.token_address:
            log.info("the API takes tokens at %s", self._server.token_address)
        if self._settings.insecure_etcd:
            log.warning(
                "--insecure-etcd: whoever is on the way to %s reads and writes all that is there",
                ", ".join(self._settings.given_etcd),
            )
        try:
            http_url = self._observability.open()
        except ListenError as error:
            await self._server.stop()
            raise ReplicaError(f"--http-address: {error}") from error
        if http_url is not None:
            log.info("health, metrics and status are at %s", http_url)
        gateway = self._gateway()
        if gateway is not None:
            gateway.start()
        ticking = asyncio.create_task(self._observability.ticking())
        self.leadership.on_failed = stopping.fail
        self.leadership.look_on(self._advertised or self._server.address)
        self._actors.start()
        changes, epoch = self._server.changes(), self.leadership.epoch
        budgets = BudgetStatus(self._endpoints, self._keys, epoch, changes=changes)
        nodes = NodeController(self._endpoints, self._keys, self._settings.nodes, epoch, changes=changes)
        tolerations = self._settings.tolerations
        workloads = WorkloadController(
            self._endpoints,
            self._keys,
            epoch,
            tolerations,
            changes=changes,
            may_create=lambda: self._space.gate.refusal() is None,
            may_tell=lambda: self._space.gate.events_refusal() is None,
        )
        self._loops += [budgets, nodes, workloads]
        loops = tuple(self._loops)
        for one in loops:
            one.start()
        stopping.when_asked(lambda: loop.call_soon_threadsafe(stop.set))
        asked = asyncio.create_task(stop.wait())
        over = asyncio.create_task(asyncio.to_thread(self._actors.wait_until_ended))
        blind = asyncio.create_task(self._server.failed())
        await asyncio.wait({asked, over, blind}, return_when=asyncio.FIRST_COMPLETED)
        code = 0 if stop.is_set() and not stopping.failed else 1
        if blind.done() and code:
            log.critical("this replica no longer follows the cluster: it ends, to be started anew")
        stopping.begin()
        if gateway is not None:
            await asyncio.to_thread(gateway.stop)
        await self._stop(loops)
        await ended(ticking)
        return code

    def _gateway(self) -> GatewayKeeper | None:
        """Of this replica; it asks on this host."""
        place = self._settings.gateway
        if place is None:
            return None
        host, port = split_address("--listen", self._server.address)
        here = "127.0.0.1" if split_address("--listen", self._settings.listen)[0] in WILDCARDS else host
        log.info("the Kubernetes API is at %s", place.listen)
        return GatewayKeeper(place.command(f"[{here}]:{port}" if ":" in here else f"{here}:{port}"))

    def _problem_of_storage(self) -> str | None:
        """For readyz: an own etcd is not there, etcd takes no writes, or a loop does not do its work."""
        own = None if self._etcd is None else self._etcd.problem()
        found = [own, self._space.full(), *(loop.problem() for loop in self._loops)]
        return "; ".join(problem for problem in found if problem is not None) or None

    async def _stop(self, loops: Sequence[Loop]) -> None:
        log.info("stopping")
        ending = [threading.Thread(target=loop.stop, daemon=True) for loop in loops]
        for thread in ending:
            thread.start()
        self._observability.stopping()
        await self._server.announce_stop()
        await asyncio.to_thread(self.leadership.release)
        await asyncio.gather(self._server.stop(), asyncio.to_thread(self._actors.stop))
        deadline = time.monotonic() + _LOOP_SECONDS_MAX
        for thread in ending:
            await asyncio.to_thread(thread.join, max(0.0, deadline - time.monotonic()))
        self._observability.close()
        self._belief.close()


def _read_tls(settings: ReplicaSettings) -> ServerTls | None:
    """What the files say, before anything starts."""
    try:
        if settings.etcd_tls is not None and settings.etcd_tls.key:
            private_files.read_private(Path(settings.etcd_tls.key))
        if settings.tls is None:
            return None
        tls = ServerTls.read(settings.tls, settings.client_deny_list)
    except PkiError as error:
        raise ReplicaError(str(error)) from error
    if tls.certificate.facts.not_after <= time.time():
        raise ReplicaError(f"{settings.tls.certificate}: has expired; `rayched pki issue replica` makes a new one")
    return tls


def _read_signer(settings: ReplicaSettings, tls: ServerTls | None) -> OnlineSigner | None:
    """None: nobody asked for one."""
    if settings.signer is None or tls is None:
        return None
    try:
        return OnlineSigner.read(settings.signer, tls.judge.trust_domain)
    except PkiError as error:
        raise ReplicaError(f"--signer {error}") from error


def _open_audit_log(settings: ReplicaSettings, owned: ExitStack) -> AuditWriter | None:
    """Closed when the API has stopped."""
    try:
        audit = open_audit_log(settings)
    except AuditOpenError as error:
        raise ReplicaError(str(error)) from error
    if audit is not None:
        owned.callback(audit.close)
    return audit


def _check_listen(flag: str, host: str, port: int) -> None:
    try:
        try_port(host, port)
    except OSError as error:
        raise ReplicaError(f"{flag} {host}:{port}: {error.strerror}; choose an address of this host with a free port") from error


def _etcd_answers(endpoints: tuple[str, ...], keys: Keys, stopping: Stopping, *, given: bool) -> bool:
    """False where the replica is told to stop before. An own etcd was ready, so one that does not answer then is an error."""
    stop = threading.Event()
    stopping.when_asked(stop.set)
    try:
        if given:
            return wait_for_etcd(endpoints, stop, key=keys.cluster_prefix)
        ask(endpoints, key=keys.cluster_prefix)
        return not stop.is_set()
    except (EndpointError, TlsFileError) as error:
        raise ReplicaError(f"--etcd-endpoints: {error}") from error
    except StoreError as error:
        flag = "--etcd-endpoints " if given else ""
        raise ReplicaError(f"{flag}{','.join(endpoints)}: {error}") from error


@contextmanager
def _belief_file() -> Iterator[Path]:
    directory = make_own_directory(MEMORY if os.access(MEMORY, os.W_OK) else SHORT)
    try:
        yield directory / "belief"
    finally:
        remove_own_directory(directory)

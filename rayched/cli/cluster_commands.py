"""up, replica, leader: clusters and who leads them."""

from __future__ import annotations

import enum
import json
import signal
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from rayched.cli.cluster_options import ClusterOptions, with_cluster_options
from rayched.cli.connection import connected
from rayched.cli.option_groups import with_option_groups
from rayched.cli.options import Server, seconds_of
from rayched.cli.printing import GrowingTable, counted, fail, fail_all, note, out, plain_table, wrong
from rayched.cli.serving_options import ServingOptions
from rayched.client.contexts import NO_CONTEXT, ContextError, current_context
from rayched.client.errors import ApiError
from rayched.controllers.node_settings import NodeSettingsError
from rayched.pki.errors import PkiError
from rayched.replica.cluster.local_cluster import LocalCluster, ReplicaFailed
from rayched.replica.cluster.local_start import NotUpInTime, wait_until_up
from rayched.replica.etcd.etcd_binary import EtcdServerError
from rayched.replica.settings import (
    DEFAULT_PORT,
    HTTP_PORT_DISTANCE,
    ReplicaSettings,
    SettingsError,
)
from rayched.replica.stop_signals import block_stop_signals
from rayched.v1.services_pb2 import GetLeaderResponse, PoolWorker

if TYPE_CHECKING:
    from rayched.replica.cluster.local_pki import LocalPki

_HOST = "127.0.0.1"
_POLL_SECONDS = 0.2
_RENEW_LOOK_SECONDS = 3600.0

_POOL_HEADINGS = ["WORKER", "HOST", "RAY NODE", "PID", "EVALUATIONS", "ROWS", "SECONDS", "UNDER WAY"]
_RAY_NODE_LETTERS = 12
"""Of its 56 hexadecimal digits."""
_LEADER_HEADINGS = ["HOLDER", "ADDRESS", "EPOCH", "TRANSITIONS", "ACQUIRED"]

Compaction = Annotated[
    bool, typer.Option(help="Compact etcd every 5 minutes and keep 10, less the fuller it is; and bring it back from its quota.")
]


class LeaderOutput(enum.StrEnum):
    json = "json"
    wide = "wide"


@with_cluster_options
@with_option_groups({"serving": ServingOptions}, {})
def replica(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address of the API.")] = f"127.0.0.1:{DEFAULT_PORT}",
    advertise_address: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="Where the other replicas reach the API; none: where it listens.", show_default=False
        ),
    ] = "",
    http_address: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT|off",
            help="Of health, metrics and status; none: loopback, the API's port + 100.",
            show_default=False,
        ),
    ] = "",
    ray_address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="A Ray cluster for the workers; none: a local one.", show_default=False),
    ] = None,
    compact: Compaction = True,
    shard_always: Annotated[bool, typer.Option("--shard-always", hidden=True)] = False,
    *,
    serving: ServingOptions,
    shared: ClusterOptions,
) -> None:
    """Run one replica in the foreground."""
    # Before anything else, because the import below starts threads of numpy, and each of them could take the signal.
    block_stop_signals()
    # Not at the top: the other commands shall not wait for the import of all that a replica needs.
    from rayched.replica.replica import ReplicaError, run
    from rayched.replica.scheduler_settings import SchedulerSettingsError

    try:
        settings = ReplicaSettings(
            listen=listen,
            advertise_address=advertise_address,
            http_address=http_address,
            ray_address=ray_address,
            compact=compact,
            shard_always=shard_always,
            **serving.settings(),
            **shared.settings(),
        )
        if lines := settings.missing_certificates():
            _refuse(lines)
        code = run(settings)
    except SchedulerSettingsError as error:
        fail_all(error.lines)
    except (SettingsError, NodeSettingsError) as error:
        wrong(str(error))
    except (EtcdServerError, ReplicaError) as error:
        fail(str(error))
    raise SystemExit(code)


def _refuse(lines: Sequence[str]) -> NoReturn:
    """Ends with an error, and what to type in its place."""
    for line in (f"error: {lines[0]}", *lines[1:]):
        note(line)
    raise SystemExit(1)


@with_cluster_options
def up(
    replicas: Annotated[int, typer.Option(metavar="N", help="Number of replicas.", min=1, max=9)] = 3,
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Port of the first replica; the others use the next ones.", min=1, max=65_000)
    ] = DEFAULT_PORT,
    http_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="The same of health, metrics and status; 0: none. Not given: --port + 100.",
            show_default=False,
            min=0,
            max=65_500,
        ),
    ] = None,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="When to give up on the start, as in 90s or 5m; 0s: never.")
    ] = "10m",
    insecure_loopback: Annotated[
        bool, typer.Option("--insecure-loopback", help="No certificates: whoever is on this host may do everything.")
    ] = False,
    *,
    shared: ClusterOptions,
) -> None:
    """Run an etcd and several replicas on this host.

    Makes certificates and a context, so that commands of this user need no flag, and those of others get nowhere.
    """
    start_seconds_max = seconds_of("--timeout", timeout)
    http_port = port + HTTP_PORT_DISTANCE if http_port is None else http_port
    try:
        settings, flags = shared.settings(), shared.flags()
    except (NodeSettingsError, SettingsError) as error:
        wrong(str(error))
    directory, endpoints = settings["data_dir"] / "up", settings["etcd_endpoints"]
    _check_before_start(
        [port + number for number in range(replicas)],
        [http_port + number for number in range(replicas if http_port else 0)],
        settings | {"data_dir": directory},
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        pki = None if insecure_loopback else _local_pki(settings["data_dir"] / "pki", replicas)
        cluster = LocalCluster(
            directory, replicas, first_port=port, first_http_port=http_port, etcd_endpoints=endpoints, options=flags, pki=pki
        )
        with cluster, cluster.client() as client:
            note(f"starting {counted(replicas, 'replica')}, logs in {directory}")
            wait_until_up(cluster, client, start_seconds_max, note)
            _tell_context(cluster, pki)
            out(f"rayched is up at {','.join(cluster.addresses)}, etcd at {','.join(cluster.etcd_endpoints)}")
            _stay(cluster, pki)
    except KeyboardInterrupt:
        note("stopped")
    except NotUpInTime as error:
        fail(f"{error}; --timeout gives more time")
    except (EtcdServerError, ReplicaFailed, ApiError, SettingsError, PkiError, ContextError) as error:
        fail(str(error))


def _tell_context(cluster: LocalCluster, pki: LocalPki | None) -> None:
    """Makes the context, and says what commands need. Raises ContextError."""
    if pki is not None:
        pki.write_context(cluster.addresses)
        note(f"context {pki.name} is current: commands need no flag")
    elif other := current_context():
        note(f"context {other} is current, which is another cluster's: commands need --context {NO_CONTEXT}")


def _local_pki(directory: Path, replicas: int) -> LocalPki:
    # Not at the top: the other commands shall not wait for cryptography.
    from rayched.replica.cluster.local_pki import LocalPki

    return LocalPki(directory, replicas)


def _stay(cluster: LocalCluster, pki: LocalPki | None) -> NoReturn:
    """Looks after the cluster, and issues certificates anew long before they expire, until interrupted. Raises ReplicaFailed."""
    looked_at = time.monotonic()
    while True:
        time.sleep(_POLL_SECONDS)
        cluster.check()
        if pki is not None and time.monotonic() - looked_at > _RENEW_LOOK_SECONDS:
            looked_at = time.monotonic()
            for identity in pki.renew():
                note(f"{identity} has a new certificate")


def leader(
    server: Server = None,
    output: Annotated[
        LeaderOutput | None,
        typer.Option("--output", "-o", metavar="json|wide", help="Format; wide: its workers, too; none: a table."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep watching, and print changes.")] = False,
) -> None:
    """Show who leads."""
    with connected(server) as client:
        if watch:
            table = GrowingTable(len(_LEADER_HEADINGS))
            headings = [_LEADER_HEADINGS]
            with client.watch_leader() as stream:
                for found in stream:
                    if output is not LeaderOutput.json:
                        table.print([*headings, _leader_row(found)])
                        headings = []
                    else:
                        out(_leader_json(found))
            return
        found = client.leader()
        for problem in found.problems:
            note(f"{found.answered_by}: {problem}")
        if output is LeaderOutput.json:
            out(_leader_json(found))
        elif found.holder:
            plain_table(_LEADER_HEADINGS, [_leader_row(found)])
            if output is LeaderOutput.wide:
                out("")
                plain_table(_POOL_HEADINGS, [_pool_row(one) for one in client.scheduler_status().pool])
        else:
            fail("nobody leads at the moment; `rayched leader -w` shows the next leader when there is one")


def _leader_row(found: GetLeaderResponse) -> list[str]:
    if not found.holder:
        return ["<none>", "<none>", str(found.epoch), str(found.transitions), "<none>"]
    acquired = datetime.fromtimestamp(found.acquired_at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return [found.holder, found.address, str(found.epoch), str(found.transitions), acquired]


def _pool_row(one: PoolWorker) -> list[str]:
    place = [one.host or "<none>", one.ray_node[:_RAY_NODE_LETTERS] or "<none>", str(one.pid or "<none>")]
    return [one.name, *place, str(one.evaluations), str(one.rows), f"{one.seconds:.3f}", str(one.under_way)]


def _leader_json(found: GetLeaderResponse) -> str:
    """One line; the names are those of the message."""
    values = {field.name: getattr(found, field.name) for field in found.DESCRIPTOR.fields}
    return json.dumps(values | {"problems": list(found.problems)})


def _check_before_start(ports: Sequence[int], http_ports: Sequence[int], settings: Mapping[str, Any]) -> None:
    """All that can be told before anything runs: a replica that ends with an error is harder to read."""
    from leader.channel import EndpointError
    from leader.tls_channel import TlsFileError
    from rayched.replica.etcd_wait import ask
    from rayched.replica.scheduler_settings import SchedulerSettingsError, read_scheduler_settings
    from rayched.store.errors import StoreError

    try:
        for port in ports:
            ReplicaSettings(listen=f"{_HOST}:{port}", **settings)
        read_scheduler_settings(settings["scheduler_configuration"])
        settings["data_dir"].mkdir(parents=True, exist_ok=True)
        if settings["etcd_endpoints"]:
            # Replicas wait for it without an end; somebody who sits there wants to know.
            ask(ReplicaSettings(**settings).given_etcd)
    except SchedulerSettingsError as error:
        fail_all(error.lines, raised=error.raised)
    except SettingsError as error:
        wrong(str(error))
    except (EndpointError, TlsFileError) as error:
        fail(f"--etcd-endpoints: {error}")
    except StoreError as error:
        endpoints = ",".join(settings["etcd_endpoints"])
        fail(
            f"--etcd-endpoints {endpoints}: no etcd answers there ({error}); start one, or leave the flag out for one of its own"
        )
    except OSError as error:
        fail(f"--data-dir {settings['data_dir']}: {error.strerror}; name a directory that can be written to")
    check_ports(ports)
    check_ports(http_ports, "--http-port")


def check_ports(ports: Iterable[int], flag: str = "--port") -> None:
    """Ends the command where a replica could not listen."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError as error:
                fail(f"{flag}: cannot listen on {_HOST}:{port}: {error.strerror}; stop what does, or choose another {flag}")

"""up, replica, leader: clusters and who leads them."""

from __future__ import annotations

import json
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from rayched.cli.connection import Server, connected
from rayched.cli.printing import fail, note, out, plain_table
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.replica.etcd_binary import EtcdServerError
from rayched.replica.local_cluster import LocalCluster, ReplicaFailed
from rayched.replica.settings import (
    DEFAULT_PORT,
    WORKERS_MAX,
    ReplicaSettings,
    SettingsError,
    default_data_dir,
    split_endpoints,
)

_READY_SECONDS_MAX = 90.0
_POLL_SECONDS = 0.2

EtcdEndpoints = Annotated[str, typer.Option(envvar="RAYCHED_ETCD_ENDPOINTS", help="host:port of an etcd; none: one of its own.")]
EtcdRoot = Annotated[str, typer.Option(help="What the keys of this cluster begin with.")]
Workers = Annotated[int, typer.Option(help="FilterScoreWorkers of each replica.", min=0, max=WORKERS_MAX)]
Profile = Annotated[str, typer.Option(help="Durations of the election: fast (2/1.3/0.4 s) or kube (15/10/2 s).")]
Config = Annotated[Path | None, typer.Option("--config", help="A KubeSchedulerConfiguration.")]
Seed = Annotated[int, typer.Option(help="Of the draw among equal nodes.")]
DataDir = Annotated[Path | None, typer.Option(envvar="RAYCHED_HOME", help="Where etcd's data and logs lie.", show_default=False)]
Compaction = Annotated[bool, typer.Option(help="The leader compacts etcd every 5 minutes and keeps 10.")]


def replica(
    listen: Annotated[str, typer.Option(help="Address of the API.")] = f"127.0.0.1:{DEFAULT_PORT}",
    etcd_endpoints: EtcdEndpoints = "",
    etcd_root: EtcdRoot = "/rayched",
    data_dir: DataDir = None,
    election_profile: Profile = "fast",
    workers: Workers = 2,
    ray_address: Annotated[str | None, typer.Option(help="A Ray cluster for the workers; none: a local one.")] = None,
    config: Config = None,
    seed: Seed = 0,
    compact: Compaction = True,
    insecure_bind: Annotated[bool, typer.Option(help="Allow an address that is not loopback. There is no TLS.")] = False,
    shard_always: Annotated[bool, typer.Option(hidden=True)] = False,
    die_with_parent: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run one replica in the foreground."""
    # Not at the top: the other commands shall not wait for the import of all that a replica needs.
    from rayched.replica.replica import ReplicaError, run

    try:
        settings = ReplicaSettings(
            listen=listen,
            etcd_endpoints=split_endpoints(etcd_endpoints),
            root=etcd_root,
            data_dir=data_dir or default_data_dir(),
            election_profile=election_profile,
            workers=workers,
            ray_address=ray_address,
            scheduler_configuration=config,
            seed=seed,
            compact=compact,
            insecure_bind=insecure_bind,
            shard_always=shard_always,
        )
        code = run(settings, die_with_parent=die_with_parent)
    except (SettingsError, EtcdServerError, ReplicaError) as error:
        fail(str(error))
    raise SystemExit(code)


def up(
    replicas: Annotated[int, typer.Option(help="How many.", min=1, max=9)] = 3,
    port: Annotated[int, typer.Option(help="Of the first replica; the others count on.", min=1, max=65_000)] = DEFAULT_PORT,
    etcd_endpoints: EtcdEndpoints = "",
    etcd_root: EtcdRoot = "/rayched",
    data_dir: DataDir = None,
    election_profile: Profile = "fast",
    workers: Workers = 2,
    config: Config = None,
    seed: Seed = 0,
) -> None:
    """Run an etcd and several replicas on this host, until interrupted."""
    options = ["--election-profile", election_profile, "--workers", str(workers), "--seed", str(seed), "--etcd-root", etcd_root]
    if config is not None:
        options += ["--config", str(config)]
    directory = (data_dir or default_data_dir()) / "up"
    endpoints = split_endpoints(etcd_endpoints)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cluster = LocalCluster(directory, replicas, first_port=port, etcd_endpoints=endpoints, options=options)
    try:
        with cluster, Client(cluster.addresses) as client:
            note(f"starting {replicas} replicas, logs in {directory}")
            wait_for_leader(cluster, client)
            out(f"rayched is up at {','.join(cluster.addresses)}, etcd at {','.join(cluster.etcd_endpoints)}")
            while True:
                time.sleep(_POLL_SECONDS)
                cluster.check()
    except KeyboardInterrupt:
        note("stopped")
    except (EtcdServerError, ReplicaFailed, ApiError, SettingsError) as error:
        fail(str(error))


def leader(
    server: Server = None,
    output: Annotated[str, typer.Option("--output", "-o", help="json, or a table.")] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on with changes as they come.")] = False,
) -> None:
    """Show who leads."""
    with connected(server) as client:
        if watch:
            with client.watch_leader() as stream:
                for found in stream:
                    out(f"{found.epoch}\t{found.holder or '<nobody>'}\t{found.address}")
            return
        found = client.leader()
        if output == "json":
            names = (
                "holder",
                "address",
                "epoch",
                "transitions",
                "acquired_at_ms",
                "renewed_at_ms",
                "lease_duration_ms",
                "answered_by",
            )
            out(json.dumps({name: getattr(found, name) for name in names}))
            return
        if not found.holder:
            note("nobody leads at the moment")
            raise SystemExit(1)
        acquired = datetime.fromtimestamp(found.acquired_at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        row = [found.holder, found.address, str(found.epoch), str(found.transitions), acquired]
        plain_table(["HOLDER", "ADDRESS", "EPOCH", "TRANSITIONS", "ACQUIRED"], [row])


def wait_for_leader(cluster: LocalCluster, client: Client) -> None:
    """Returns when every replica answers and one of them schedules. Raises ReplicaFailed and ApiError."""
    deadline = time.monotonic() + _READY_SECONDS_MAX
    while True:
        cluster.check()
        try:
            if client.scheduler_status(timeout_seconds=1.0).epoch and all(map(_answers, cluster.addresses)):
                return
        except ApiError:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise ReplicaFailed(
                f"no leader within {_READY_SECONDS_MAX:.0f} s; the logs are in {cluster.replicas[0].log_file.parent}"
            )
        time.sleep(_POLL_SECONDS)


def _answers(address: str) -> bool:
    try:
        with Client([address], timeout_seconds=1.0) as client:
            client.leader()
    except ApiError:
        return False
    return True

"""replica and leader: one of a cluster, and who leads it."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

from rayched.api.moments import moment_text
from rayched.cli.cluster.cluster_options import ClusterOptions
from rayched.cli.cluster.own_gateway_options import OwnGatewayOptions
from rayched.cli.cluster.serving_options import ServingOptions
from rayched.cli.connection import connected
from rayched.cli.option_groups import with_option_groups
from rayched.cli.options import Server
from rayched.cli.printing import GrowingTable, fail, fail_all, note, out, plain_table, wrong
from rayched.controllers.node_settings import NodeSettingsError
from rayched.replica.etcd.etcd_binary import EtcdServerError
from rayched.replica.settings import (
    DEFAULT_PORT,
    ReplicaSettings,
    SettingsError,
)
from rayched.replica.stop_signals import block_stop_signals
from rayched.v1.services_pb2 import GetLeaderResponse, PoolWorker, ReplicaState

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


@with_option_groups({"serving": ServingOptions, "beside": OwnGatewayOptions, "shared": ClusterOptions})
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
    beside: OwnGatewayOptions,
    shared: ClusterOptions,
) -> None:
    """Run one replica in the foreground."""
    # Before anything else, because the import below starts threads of numpy, and each of them could take the signal.
    block_stop_signals()
    # Not at the top: the other commands shall not wait for the import of all that a replica needs.
    from rayched.replica.replica import ReplicaError, run
    from rayched.replica.scheduler_settings import SchedulerSettingsError

    try:
        served = serving.settings()
        settings = ReplicaSettings(
            listen=listen,
            advertise_address=advertise_address,
            http_address=http_address,
            ray_address=ray_address,
            compact=compact,
            shard_always=shard_always,
            **served,
            **beside.settings(served["tls"], served["client_deny_list"]),
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
    acquired = moment_text(found.acquired_at_ms / 1e3)
    return [found.holder, found.address, str(found.epoch), str(found.transitions), acquired]


def _pool_row(one: PoolWorker) -> list[str]:
    place = [one.host or "<none>", one.ray_node[:_RAY_NODE_LETTERS] or "<none>", str(one.pid or "<none>")]
    return [one.name, *place, str(one.evaluations), str(one.rows), f"{one.seconds:.3f}", str(one.under_way)]


def _leader_json(found: GetLeaderResponse) -> str:
    """One line; the names are those of the message."""
    values = {field.name: getattr(found, field.name) for field in found.DESCRIPTOR.fields}
    replica = _replica_values(found.replica) if found.HasField("replica") else None
    return json.dumps(values | {"problems": list(found.problems), "replica": replica})


def _replica_values(state: ReplicaState) -> dict[str, Any]:
    left = state.certificate_seconds_left if state.HasField("certificate_seconds_left") else None
    return {
        "revision": state.revision,
        "memory_bytes": state.memory_bytes,
        "certificate_seconds_left": left,
        "fenced_writes": dict(state.fenced_writes),
    }

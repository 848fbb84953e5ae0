"""etcd: what the store of a cluster is, and what it lets its clients do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from rayched.cli.cluster.cluster_options import (
    ClusterOptions,
    EtcdCa,
    EtcdCertificate,
    EtcdEndpoints,
    EtcdKey,
    EtcdRoot,
    EtcdServerName,
)
from rayched.cli.printing import fail, note, out, plain_table, wrong
from rayched.cli.short_options import KubectlCommand
from rayched.replica.settings import SettingsError, check_etcd, split_endpoints

if TYPE_CHECKING:
    from rayched.replica.etcd.etcd_check import EtcdFacts

etcd = typer.Typer(
    help="Look at the etcd of a cluster.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@etcd.command("check", cls=KubectlCommand)
def check(
    etcd_endpoints: EtcdEndpoints = "",
    etcd_cafile: EtcdCa = "",
    etcd_certfile: EtcdCertificate = "",
    etcd_keyfile: EtcdKey = "",
    etcd_server_name: EtcdServerName = "",
    etcd_root: EtcdRoot = "/rayched",
) -> None:
    """Show an etcd's version with its known holes, and what it lets this client do.

    Nothing is changed there. Exit code 1 where a member does not answer, has a known hole, or denies what a replica needs.

    \b
      rayched etcd check --etcd-endpoints 127.0.0.1:2379
    """
    # Not at the top: a client without the server's packages has this command's help, too.
    from leader.channel import EndpointError, SecureEndpoints
    from leader.tls_channel import TlsFileError
    from rayched.replica.etcd.etcd_check import check_etcd_access

    endpoints = split_endpoints(etcd_endpoints)
    if not endpoints:
        wrong("--etcd-endpoints: is missing; an etcd of rayched's own has no port and no users")
    options = ClusterOptions(
        etcd_cafile=etcd_cafile, etcd_certfile=etcd_certfile, etcd_keyfile=etcd_keyfile, etcd_server_name=etcd_server_name
    )
    try:
        tls = options.settings()["etcd_tls"]
        check_etcd(endpoints, tls, insecure=tls is None)
        found = check_etcd_access(endpoints if tls is None else SecureEndpoints(endpoints, tls), etcd_root)
    except SettingsError as error:
        wrong(str(error))
    except (EndpointError, TlsFileError) as error:
        fail(f"--etcd-endpoints: {error}")
    if not _told(found):
        raise SystemExit(1)


def _told(found: EtcdFacts) -> bool:
    """Whether all is well."""
    from rayched.controllers.etcd_denials import WHAT_HELPS, EtcdAct
    from rayched.replica.etcd.etcd_check import EtcdRight

    rows = [
        [one.endpoint, "-" if one.version is None else ".".join(map(str, one.version)), one.fault or _holes(one.holes())]
        for one in found.members
    ]
    plain_table(["ENDPOINT", "VERSION", "KNOWN HOLES"], rows)
    holes = {hole.id: hole for one in found.members for hole in one.holes()}
    for hole in holes.values():
        where = ", where etcd has users" if hole.needs_users else ""
        note(f"{hole.id}{where}: {hole.what}; fixed in {hole.fixed_text()}")
    out("")
    users = {True: "yes, and this client is one of them or nobody", False: "no: whoever reaches it may do everything", None: "?"}
    out(f"users: {users[found.has_users]}")
    plain_table(["THIS CLIENT MAY", ""], [[what, right.value] for what, right in found.rights])
    may_compact = dict(found.rights)["compact"]
    if may_compact is EtcdRight.NO:
        note(f"replicas will not be able to compact this etcd: {WHAT_HELPS[EtcdAct.COMPACT]}")
    needed = [right for what, right in found.rights[:3]]
    return not holes and all(one.version is not None for one in found.members) and all(one is EtcdRight.YES for one in needed)


def _holes(holes: Sequence[object]) -> str:
    return str(len(holes)) if holes else "<none>"

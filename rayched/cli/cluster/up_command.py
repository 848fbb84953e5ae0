"""up and reset: a cluster on this host."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from rayched.cli.cluster.cluster_options import ClusterOptions, DataDir
from rayched.cli.cluster.port_options import PortOptions
from rayched.cli.option_groups import with_option_groups
from rayched.cli.options import seconds_of
from rayched.cli.printing import broken_between_words, counted, fail, fail_all, note, out, shown, wrong
from rayched.client.contexts import NO_CONTEXT, ContextError, current_context
from rayched.client.errors import ApiError
from rayched.controllers.node_settings import NodeSettingsError
from rayched.pki.errors import PkiError
from rayched.replica.cluster.local_state import StateInUse, check_unused, remove_state, state_directory
from rayched.replica.etcd.etcd_binary import EtcdServerError
from rayched.replica.settings import GATEWAY_PORT_DISTANCE, ReplicaSettings, SettingsError, default_data_dir

if TYPE_CHECKING:
    from rayched.replica.cluster.local_cluster import LocalCluster
    from rayched.replica.cluster.local_pki import LocalPki

_HOST = "127.0.0.1"
_POLL_SECONDS = 0.2
_RENEW_LOOK_SECONDS = 3600.0


@with_option_groups({"ports": PortOptions, "shared": ClusterOptions})
def up(
    replicas: Annotated[int, typer.Option(metavar="N", help="Number of replicas.", min=1, max=9)] = 3,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="When to give up on the start, as in 90s or 5m; 0s: never.")
    ] = "10m",
    insecure_loopback: Annotated[
        bool, typer.Option("--insecure-loopback", help="No certificates: whoever is on this host may do everything.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start empty: remove what the last `rayched up` left.")] = False,
    *,
    ports: PortOptions,
    shared: ClusterOptions,
) -> None:
    """Run an etcd and several replicas on this host.

    Makes certificates and a context, so that commands of this user need no flag, and those of others get nowhere.

    \b
      rayched up                           continues with what was there last time
      rayched up --fresh                   starts empty
      rayched up --data-dir /tmp/cluster   keeps all there, not in ~/.local/state
    """
    # Not at the top: it needs etcd3, which a client has not.
    from rayched.replica.cluster.local_cluster import LocalCluster, ReplicaFailed
    from rayched.replica.cluster.local_start import NotUpInTime

    start_seconds_max = seconds_of("--timeout", timeout)
    try:
        settings, flags = shared.settings(), shared.flags()
    except (NodeSettingsError, SettingsError) as error:
        wrong(str(error))
    directory, endpoints = state_directory(settings["data_dir"]), settings["etcd_endpoints"]
    if fresh and endpoints:
        wrong("--fresh cannot be combined with --etcd-endpoints: only an etcd that rayched starts is emptied")
    _check_before_start(ports, replicas, settings | {"data_dir": directory})
    if fresh:
        _remove(directory)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        pki = None if insecure_loopback else _local_pki(settings["data_dir"] / "pki", replicas)
        cluster = LocalCluster(
            directory,
            replicas,
            first_port=ports.port,
            first_http_port=ports.first_http,
            first_gateway_port=ports.first_gateway,
            etcd_endpoints=endpoints,
            options=flags,
            pki=pki,
        )
        _serve(cluster, pki, start_seconds_max)
    except KeyboardInterrupt:
        note("stopped")
    except NotUpInTime as error:
        fail(f"{error}; --timeout gives more time")
    except (EtcdServerError, ReplicaFailed, ApiError, SettingsError, PkiError, ContextError) as error:
        fail(str(error))


def reset(
    data_dir: DataDir = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove the nodes and pods that `rayched up` keeps.

    Certificates and contexts stay. The cluster must not run.
    """
    directory = state_directory(data_dir or default_data_dir())
    if not directory.exists():
        out(f"{directory} holds nothing")
        return
    with _told_of_state(directory):
        # Before the question: whoever says yes wants it done, not refused.
        check_unused(directory)
    if not yes:
        if not sys.stdin.isatty():
            wrong(f"this removes {directory} with all nodes and pods of its cluster; --yes says that you want that")
        question = f"Remove {shown(str(directory))} with all nodes and pods of its cluster?"
        if not typer.confirm(broken_between_words(question, sys.stderr), err=True):
            note("nothing was removed")
            raise SystemExit(1)
    _remove(directory)
    out(f"{directory} is removed")


def _remove(directory: Path) -> None:
    """Ends the command where it cannot be removed."""
    with _told_of_state(directory):
        remove_state(directory)


@contextmanager
def _told_of_state(directory: Path) -> Iterator[None]:
    """Ends the command where a cluster runs on the directory, or where it cannot be read or removed."""
    try:
        yield
    except StateInUse as error:
        fail(str(error))
    except OSError as error:
        fail(f"{directory}: {error.strerror}")


def _serve(cluster: LocalCluster, pki: LocalPki | None, start_seconds_max: float) -> NoReturn:
    """Until interrupted. Raises ReplicaFailed, NotUpInTime, EtcdServerError, ApiError, ContextError."""
    # As in `up`.
    from rayched.replica.cluster.local_start import wait_until_up

    with cluster, cluster.client() as client:
        note(f"starting {counted(len(cluster.addresses), 'replica')}, data and logs in {cluster.directory}")
        wait_until_up(cluster, client, start_seconds_max, note)
        _tell_context(cluster, pki)
        out(f"rayched is up at {','.join(cluster.addresses)}")
        note(f"etcd is at {','.join(cluster.etcd_endpoints)}")
        if cluster.gateways:
            note(f"kubectl works with it: {kubeconfig_command(cluster)}")
            note(f"{ui_command(cluster)} opens the page at {page_address(cluster)}")
        if cluster.etcd is not None and (warning := cluster.etcd.binary.warning()):
            note(f"warning: {warning}")
        _stay(cluster, pki)


def _tell_context(cluster: LocalCluster, pki: LocalPki | None) -> None:
    """Makes the context, and says what commands need. Raises ContextError."""
    if pki is not None:
        pki.write_context(cluster.addresses)
        note(f"context {pki.name} is current: commands need no flag")
    elif other := current_context():
        note(f"context {other} is current, which is another cluster's: commands need --context {NO_CONTEXT}")


def kubeconfig_command(cluster: LocalCluster) -> str:
    """What to type for kubectl, where the context of the cluster is current."""
    words = ["rayched kubeconfig"]
    if cluster.tls is None:
        words += [f"--context {NO_CONTEXT}", f"--server {','.join(cluster.addresses)}"]
    if list(cluster.gateways) != _gateways_beside(cluster):
        scheme = "http" if cluster.tls is None else "https"
        words.append("--gateway " + ",".join(f"{scheme}://{address}" for address in cluster.gateways))
    return " ".join([*words, "-o rayched.kubeconfig"])


def page_address(cluster: LocalCluster) -> str:
    """Of the first replica's gateway."""
    return f"{'http' if cluster.tls is None else 'https'}://{cluster.gateways[0]}/ui/"


def ui_command(cluster: LocalCluster) -> str:
    """What to type to see it, where the context of the cluster is current."""
    words = ["rayched ui"]
    if cluster.tls is None:
        words += [f"--context {NO_CONTEXT}", f"--server {cluster.addresses[0]}"]
    if cluster.gateways[0] != _gateways_beside(cluster)[0]:
        words.append(f"--gateway {page_address(cluster).removesuffix('/ui/')}")
    return " ".join(words)


def _gateways_beside(cluster: LocalCluster) -> list[str]:
    """Where they are unless somebody has said otherwise."""
    return [f"{_HOST}:{int(address.rpartition(':')[2]) + GATEWAY_PORT_DISTANCE}" for address in cluster.addresses]


def _local_pki(directory: Path, replicas: int) -> LocalPki:
    # Not at the top: the other commands shall not wait for cryptography.
    from rayched.replica.cluster.local_pki import LocalPki

    return LocalPki(directory, replicas, gateways=True)


def _stay(cluster: LocalCluster, pki: LocalPki | None) -> NoReturn:
    """Looks after the cluster, and issues certificates anew long before they expire, until interrupted. Raises ReplicaFailed."""
    looked_at, ended = time.monotonic(), set[int]()
    while True:
        time.sleep(_POLL_SECONDS)
        cluster.check()
        tell_ended(cluster, ended)
        if pki is not None and time.monotonic() - looked_at > _RENEW_LOOK_SECONDS:
            looked_at = time.monotonic()
            _renew(pki)


def tell_ended(cluster: LocalCluster, told: set[int]) -> None:
    """Whoever kills a replica to see what happens sees it here as well. `told`: by number, those that were told of before."""
    for replica in cluster.replicas:
        if not replica.running and replica.number not in told:
            told.add(replica.number)
            code = 0 if replica.process is None else replica.process.returncode
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else "has ended"
            left = sum(one.running for one in cluster.replicas)
            note(f"replica {replica.number} ({replica.address}) {how}; running are {left} of {len(cluster.replicas)}")


def _renew(pki: LocalPki) -> None:
    """What has a third of its time left. A disk that is full by then ends no cluster: weeks are left for another try."""
    try:
        for identity in pki.renew():
            note(f"{identity} has a new certificate")
    except PkiError as error:
        note(f"warning: certificates are not renewed, which is tried again in an hour: {error}")


def _check_before_start(ports: PortOptions, replicas: int, settings: Mapping[str, Any]) -> None:
    """All that can be told before anything runs: a replica that ends with an error is harder to read."""
    from leader.channel import EndpointError
    from leader.tls_channel import TlsFileError
    from rayched.replica.etcd_wait import ask
    from rayched.replica.scheduler_settings import SchedulerSettingsError, read_scheduler_settings
    from rayched.store.errors import StoreError
    from rayched.store.keys import Keys

    try:
        for number in range(replicas):
            ReplicaSettings(listen=f"{_HOST}:{ports.port + number}", **settings)
        read_scheduler_settings(settings["scheduler_configuration"])
        settings["data_dir"].mkdir(parents=True, exist_ok=True)
        if settings["etcd_endpoints"]:
            # Replicas wait for it without an end; somebody who sits there wants to know.
            wanted = ReplicaSettings(**settings)
            ask(wanted.given_etcd, key=Keys(wanted.root).cluster_prefix)
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
    ports.check(replicas)

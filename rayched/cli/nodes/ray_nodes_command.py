"""node --ray-address: agents on the nodes of a Ray cluster, from one process in the foreground."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, get_type_hints

from rayched.access.identity import SCHEME
from rayched.api import quantity
from rayched.cli.context_option import chosen_context
from rayched.cli.nodes.eviction_options import EvictionOptions
from rayched.cli.nodes.node_command import NodeOptions, amounts_of, pair_of
from rayched.cli.printing import fail, out, wrong
from rayched.client.client import Client
from rayched.client.contexts import choose
from rayched.pki import private_files
from rayched.pki.certificates import facts_of, read_certificates
from rayched.pki.client_token import CallerFiles, TokenFiles
from rayched.pki.directory import PkiDirectory
from rayched.pki.errors import PkiError
from rayched.pki.tls_files import CA_FILE
from rayched.raynodes.agent_certificates import NodeSigner
from rayched.raynodes.connection import RayNotConnected, connect
from rayched.raynodes.offers import CPU, MEMORY
from rayched.raynodes.ray_nodes import RayGone, RayNodes, RayNodesSettings
from rayched.replica.settings import default_data_dir
from rayched.replica.stop_signals import on_stop_signals

_PATIENCE_SECONDS: Final = 10.0
_KILLED: Final = 130
_REFUSED: Final = {
    "address": "Ray says what address each node has",
    "resource": "Ray says what its nodes have: ray start --resources",
    "take_over": "nodes of Ray have names that nobody else has",
    "cancel": "ending this command ends its nodes",
}
_OWN: Final = frozenset({"root_dir", "cpu", "memory", *_REFUSED})
"""Options that agents are not given as they are."""
_GRACE: Final = "30s"
_CRITICAL_GRACE: Final = "10s"
"""Where the user says nothing: without it pods would be killed where they could be asked to end."""


def nodes_of_ray(
    address: str, server: str | None, options: NodeOptions, eviction: EvictionOptions, authority: Path | None
) -> None:
    """Until a signal; then until all has ended. A second signal leaves the rest to what runs on the nodes."""
    stopping = threading.Event()
    on_stop_signals(stopping.set, lambda: os._exit(_KILLED))
    log = logging.getLogger("rayched.raynodes")
    log.setLevel(logging.INFO)
    try:
        chosen = choose(server, chosen_context())
        client = Client(chosen.endpoints, timeout_seconds=_PATIENCE_SECONDS, tls=chosen.files, insecure=chosen.files is None)
        signer = signer_of(authority, chosen.files)
    except ValueError as error:
        wrong(str(error))
    except PkiError as error:
        fail(str(error))
    with client:
        settings = replace(settings_of(",".join(client.endpoints), options, eviction), signer=signer)
        try:
            connect(address, stopping.is_set)
            out(f"following the nodes of Ray at {address}")
            RayNodes(settings, client, log).run(stopping)
        except (RayNotConnected, RayGone) as error:
            fail(str(error))


def signer_of(authority: Path | None, files: CallerFiles | None) -> NodeSigner | None:
    """Who signs for the agents; `files`: what this command itself shows. None: nobody shows anything. Raises PkiError."""
    if files is None:
        if authority is not None:
            wrong(f"--pki-dir {authority}: agents need certificates where this command has one, and it goes without TLS")
        return None
    if isinstance(files, TokenFiles):
        wrong("--ray-address: agents need certificates, and this command shows a token; name a context that has a certificate")
    place = authority or default_data_dir() / "pki"
    if not (place / CA_FILE).exists():
        wrong(
            f"--ray-address: the agents on the nodes of Ray need certificates, and {place} is no authority that could issue them:"
            " name the directory of the cluster's with --pki-dir"
        )
    found = PkiDirectory(place)
    uris = facts_of(read_certificates(private_files.read(files.certificate), str(files.certificate))[0]).uris
    if not any(uri.startswith(f"{SCHEME}{found.trust_domain}/") for uri in uris):
        whose = ", ".join(uris) or "nobody"
        raise PkiError(f"{place}: is the authority of {found.trust_domain}, and this command is {whose}, of another cluster")
    if found.signer() is None:
        raise PkiError(f"{place}: its ca.key is kept elsewhere, and agents need certificates: put it back while this runs")
    return NodeSigner(found)


def settings_of(servers: str, options: NodeOptions, eviction: EvictionOptions) -> RayNodesSettings:
    """Ends the command where they make no sense; so an agent far away has nothing to complain of but its own host."""
    for name, why in _REFUSED.items():
        if getattr(options, name) != _defaults(options)[name]:
            wrong(f"--{name.replace('_', '-')}: not with --ray-address, as {why}")
    if not sum(band.seconds for band in options.shutdown()):
        options = replace(options, shutdown_grace_period=_GRACE, shutdown_grace_period_critical_pods=_CRITICAL_GRACE)
    bands = options.shutdown()
    eviction.settings()
    options.restart_cap()
    for option, texts in (("--system-reserved", options.system_reserved), ("--agent-reserved", options.agent_reserved)):
        amounts_of(option, texts)
    for text in options.node_label or ():
        pair_of("--label", text)
    return RayNodesSettings(
        servers=servers,
        root_dir=str(options.root_dir.absolute()) if options.root_dir is not None else "",
        arguments=(*arguments_of(options, _OWN), *arguments_of(eviction, ())),
        most=_most(options),
        shutdown_seconds=sum(band.seconds for band in bands),
    )


def arguments_of(group: Any, without: Collection[str]) -> list[str]:
    """A group of options as a command line; those that have their defaults are left out. Paths are made absolute."""
    hints = get_type_hints(type(group), include_extras=True)
    found: list[str] = []
    for name, default in _defaults(group).items():
        given = getattr(group, name)
        if name in without or given is None or given == default:
            continue
        (option,) = hints[name].__metadata__
        declared = [text for text in (option.default, *(option.param_decls or ())) if isinstance(text, str)]
        flag = next((text for text in declared if text.startswith("--")), f"--{name.replace('_', '-')}")
        if given is True:
            found.append(flag)
            continue
        for one in given if isinstance(given, list) else [given]:
            found += [flag, str(one.absolute() if isinstance(one, Path) else one)]
    return found


def _defaults(group: Any) -> dict[str, Any]:
    return {one.name: one.default for one in fields(group)}


def _most(options: NodeOptions) -> dict[str, int]:
    """What a node takes from Ray at most."""
    found = {}
    try:
        if options.cpu:
            found[CPU] = quantity.milli_value(options.cpu) // 1000
            if found[CPU] * 1000 != quantity.milli_value(options.cpu) or found[CPU] < 1:
                wrong(f"--cpu {options.cpu!r}: of a node of Ray want whole CPUs, 1 at least")
        if options.memory:
            found[MEMORY] = quantity.value(options.memory)
    except quantity.QuantityError as error:
        wrong(f"--cpu, --memory: {error}, want one such as 16 or 64Gi")
    return found

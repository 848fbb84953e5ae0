"""whoami, can-i and access: who the cluster takes one for, what one may, who has which role, and who is refused.

`can-i` takes kubectl's verbs, or a call of the API by its name, and answers as `kubectl auth can-i` does: yes and exit code 0, no
and exit code 1. A subject may be written as its URI, or as KIND/NAME, or as NAME of a user, in the trust domain of who asks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from rayched.access.identity import SCHEME, Identity, IdentityError, IdentityKind
from rayched.access.policy import NO_KIND, POLICY
from rayched.api import kinds
from rayched.api.kinds import UnknownKind
from rayched.api.moments import moment_text
from rayched.cli.connection import acting, connected
from rayched.cli.context_option import with_context_option
from rayched.cli.options import AllNamespaces, Namespace, Server
from rayched.cli.printing import note, out, plain_table, wrong
from rayched.cli.references import DEFAULT_NAMESPACE
from rayched.cli.short_options import KubectlCommand, KubectlGroup
from rayched.client.client import Client
from rayched.v1.access_pb2 import BindingLimits, RoleBinding

access = typer.Typer(
    cls=KubectlGroup, help="Show and change who has which role, and who is refused.", no_args_is_help=True, rich_markup_mode=None
)

_VERBS: Final = {
    "get": "Submission.Get",
    "list": "Submission.List",
    "watch": "Watch.Watch",
    "create": "Submission.Submit",
    "apply": "Submission.Apply",
    "patch": "Submission.Apply",
    "update": "Submission.Apply",
    "delete": "Submission.Delete",
    "evict": "Eviction.Evict",
    "label": "Admin.Label",
    "scale": "Admin.Scale",
    "cordon": "Admin.Cordon",
    "uncordon": "Admin.Cordon",
    "taint": "Admin.Taint",
    "logs": "Logs.Get",
    "exec": "Exec.Stream",
    "port-forward": "PortForward.Stream",
    "explain": "Scheduling.Explain",
    "queue": "Scheduling.ListQueue",
    "plan": "Scheduling.GetPlanBasis",
    "top": "Usage.GetUsage",
    "grant": "Access.Grant",
    "revoke": "Access.RevokeGrant",
}
_SERIAL: Final = re.compile(r"[0-9A-Fa-f:]{16,59}")
_ABOUT_ALL: Final = ("Submission.List", "Watch.Watch", "Scheduling.ListQueue")
"""Calls that may be about all namespaces."""


def limit_option(what: str) -> Any:
    """Of how much whoever has the binding may have."""
    return typer.Option(metavar="N", help=f"{what} 0: as everybody.", min=0)


Subject = Annotated[str, typer.Argument(metavar="SUBJECT", hidden=True)]


def whoami(server: Server = None) -> None:
    """Show who the cluster takes you for.

    \b
      rayched whoami
    """
    with connected(server) as client:
        found = client.who_am_i()
    roles = "; ".join(_summary(binding) for binding in found.bindings) or "<none>"
    plain_table(["ATTRIBUTE", "VALUE"], [["Identity", found.identity], ["Roles", roles]])


def can_i(
    verb: Annotated[str, typer.Argument(metavar="VERB", hidden=True)],
    target: Annotated[str, typer.Argument(metavar="TYPE", hidden=True)] = "",
    namespace: Namespace = DEFAULT_NAMESPACE,
    all_namespaces: AllNamespaces = False,
    subject: Annotated[
        str, typer.Option("--as", metavar="SUBJECT", help="Whose rights; none: your own.", show_default=False)
    ] = "",
    server: Server = None,
) -> None:
    """Say whether something would be allowed.

    The verb is one of kubectl's, or a call of the API by its name.

    \b
      rayched can-i create pods -n team-a
      rayched can-i list pods -A
      rayched can-i delete pod/web -n team-a --as alice
      rayched can-i Nodes.Register node/node-1 --as node/node-1
    """
    call = _VERBS.get(verb, verb)
    if call not in POLICY:
        wrong(f"there is no verb {verb!r}; want one of {', '.join(_VERBS)}, or a call such as Submission.Get")
    kind, name = _kind_and_name(call, target)
    namespaced = bool(kind) and kinds.by_name(kind).namespaced
    if all_namespaces and call not in _ABOUT_ALL:
        wrong(f"--all-namespaces: {verb} is about one object; allowed are list, watch and queue")
    where = namespace if namespaced and not all_namespaces else ""
    with connected(server) as client:
        found = client.can_i(call, kind, where, name, subject=subject_uri(client, subject) if subject else "")
    out("yes" if found.allowed else "no")
    if not found.allowed:
        note(found.reason)
        raise SystemExit(1)


@access.command("grant", cls=KubectlCommand)
@with_context_option
def grant(
    subject: Subject,
    role: Annotated[str, typer.Argument(metavar="ROLE", hidden=True)],
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", "-n", metavar="NAME", help="Where; may be repeated.", show_default=False)
    ] = None,
    all_namespaces: AllNamespaces = False,
    priority_class: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A class that pods may name; none: those up to 0.", show_default=False),
    ] = None,
    scheduler: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A scheduler that pods may name; none: all.", show_default=False)
    ] = None,
    privileged: Annotated[
        bool, typer.Option("--privileged", help="Pods may tolerate control planes, and have low host ports.")
    ] = False,
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A node of an agent of many, or node-{000..199}.", show_default=False),
    ] = None,
    write_rate: Annotated[float, limit_option("Calls that write, a second.")] = 0.0,
    read_rate: Annotated[float, limit_option("Calls that read, a second.")] = 0.0,
    watch_rate: Annotated[float, limit_option("Watches begun, a second.")] = 0.0,
    heartbeat_rate: Annotated[float, limit_option("Heartbeats a second.")] = 0.0,
    watches: Annotated[int, limit_option("Watches open at a time.")] = 0,
    pod_points: Annotated[int, limit_option("What a pod may cost to be decided.")] = 0,
    server: Server = None,
) -> None:
    """Give a role: viewer or submitter of namespaces, operator, admin, or node.

    Whose it is to be is said by a URI, by KIND/NAME, or by the name of a user.

    \b
      rayched access grant alice submitter -n team-a
      rayched access grant alice viewer -A
      rayched access grant nodes/h node --node 'n-{0..199}' --heartbeat-rate 200
    """
    if namespace and all_namespaces:
        wrong("--namespace cannot be combined with --all-namespaces")
    with connected(server) as client:
        binding = RoleBinding(
            subject=subject_uri(client, subject),
            role=role,
            namespaces=["*"] if all_namespaces else namespace or [],
            priority_classes=priority_class or [],
            scheduler_names=scheduler or [],
            privileged=privileged,
            nodes=node or [],
            limits=BindingLimits(
                writes=write_rate,
                reads=read_rate,
                watch_starts=watch_rate,
                heartbeats=heartbeat_rate,
                watches=watches,
                pod_points=pod_points,
            ),
        )
        found = client.grant(binding)
    out(f"rolebinding/{found.binding.id} {'granted' if found.changed else 'unchanged'}")


@access.command("revoke", cls=KubectlCommand)
@with_context_option
def revoke(
    ids: Annotated[list[str], typer.Argument(metavar="ID", hidden=True)],
    server: Server = None,
) -> None:
    """Take roles away, by the ids that the list shows.

    \b
      rayched access revoke 3f6c1b9a04d2e7f5
    """
    with acting(server) as (client, failures):
        for id in ids:
            with failures.told():
                client.revoke_grant(id.removeprefix("rolebinding/"))
                out(f"rolebinding/{id.removeprefix('rolebinding/')} revoked")


@access.command("list", cls=KubectlCommand)
@with_context_option
def list_grants(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", hidden=True)] = "",
    server: Server = None,
) -> None:
    """Show who has which role, all or one of them.

    \b
      rayched access list
      rayched access list alice
    """
    with connected(server) as client:
        found = client.grants(subject_uri(client, subject) if subject else "")
    if not found:
        note("No role bindings found")
        return
    plain_table(["ID", "SUBJECT", "ROLE", "NAMESPACES", "ALLOWS"], [_row(binding) for binding in found])


@access.command("deny", cls=KubectlCommand)
@with_context_option
def deny(
    who: Annotated[str, typer.Argument(metavar="SERIAL|SUBJECT", hidden=True)],
    words: Annotated[str, typer.Option("--note", metavar="TEXT", help="Why.", show_default=False)] = "",
    server: Server = None,
) -> None:
    """Refuse a certificate, or whatever an identity shows, at all replicas at once.

    A certificate is named by its serial number, as `rayched pki list` and the audit log have it. Open streams end.

    \b
      rayched access deny 62c41f0ab3d94e77 --note 'laptop lost'
      rayched access deny user/alice
    """
    with connected(server) as client:
        serial, identity = _serial_or_uri(client, who)
        found = client.revoke_certificate(serial, identity, words)
    out(f"{serial or identity} {'denied' if found.changed else 'unchanged'}")


@access.command("readmit", cls=KubectlCommand)
@with_context_option
def readmit(
    who: Annotated[str, typer.Argument(metavar="SERIAL|SUBJECT", hidden=True)],
    server: Server = None,
) -> None:
    """Take back that somebody is refused.

    \b
      rayched access readmit user/alice
    """
    with connected(server) as client:
        serial, identity = _serial_or_uri(client, who)
        client.readmit(serial, identity)
    out(f"{serial or identity} readmitted")


@access.command("denied", cls=KubectlCommand)
@with_context_option
def denied(server: Server = None) -> None:
    """Show who is refused.

    \b
      rayched access denied
    """
    with connected(server) as client:
        found = client.revocations()
    if not found:
        note("Nobody is denied")
        return
    rows = [
        [one.serial or one.identity or one.id, one.by or "<unreadable>", moment_text(one.at_ms / 1e3), one.note or "<none>"]
        for one in found
    ]
    plain_table(["WHO", "BY", "SINCE", "NOTE"], rows)


def _serial_or_uri(client: Client, who: str) -> tuple[str, str]:
    """What is written as a serial number is one; a user with such a name is written user/NAME."""
    return (who, "") if _SERIAL.fullmatch(who) else ("", subject_uri(client, who))


def _row(binding: RoleBinding) -> list[str]:
    return [binding.id, binding.subject, binding.role, _listed(binding.namespaces), _allows(binding) or "<none>"]


def _listed(names: Sequence[str]) -> str:
    return ",".join(names) or "<none>"


def _allows(binding: RoleBinding) -> str:
    parts = [("classes", binding.priority_classes), ("schedulers", binding.scheduler_names), ("nodes", binding.nodes)]
    words = [f"{name}={','.join(entries)}" for name, entries in parts if entries]
    words += ["privileged"] if binding.privileged else []
    return " ".join([*words, *(f"{field.name}={value:g}" for field, value in binding.limits.ListFields())])


def _summary(binding: RoleBinding) -> str:
    return f"{binding.role} in {','.join(binding.namespaces)}" if binding.namespaces else binding.role


def subject_uri(client: Client, subject: str) -> str:
    """A subject as its URI; short forms are in the trust domain of who asks."""
    if subject.startswith(SCHEME):
        return subject
    kind, slash, name = subject.partition("/")
    if not slash:
        kind, name = IdentityKind.USER.value, subject
    try:
        domain = Identity.parse(client.who_am_i().identity).trust_domain
        return Identity.parse(f"{SCHEME}{domain}/{kind}/{name}").uri
    except IdentityError as error:
        wrong(f"SUBJECT: {error}")


def _kind_and_name(call: str, target: str) -> tuple[str, str]:
    """What a call is about: as it was written, else the one kind that it can be about."""
    rows = [kind for kind in POLICY[call] if kind != NO_KIND]
    word, _, name = target.partition("/")
    if not word:
        if NO_KIND in POLICY[call]:
            return "", ""
        if len(rows) == 1:
            return rows[0], ""
        wrong("TYPE: is missing; want what it is about, such as pods")
    if not rows:
        wrong(f"TYPE: {call} is about no object, found {word!r}")
    try:
        return kinds.by_word(word).name, name
    except UnknownKind as error:
        wrong(f"TYPE: {error}")

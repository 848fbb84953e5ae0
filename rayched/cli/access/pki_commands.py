"""pki: the certificate authority of a cluster, and what it issues."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rayched.access.identity import IdentityKind
from rayched.api.moments import moment_text
from rayched.cli.access.access_commands import subject_uri
from rayched.cli.access.token_commands import OutFile, hand_out
from rayched.cli.connection import connected
from rayched.cli.context_option import with_context_option
from rayched.cli.options import Server, seconds_of
from rayched.cli.printing import counted, fail, note, out, plain_table, wrong
from rayched.cli.short_options import KubectlCommand
from rayched.client.contexts import CONTEXT_FILE, ClientContext, ContextError, write_context, write_context_file
from rayched.client.endpoints import endpoints_of
from rayched.pki.errors import PkiError
from rayched.pki.kinds import CERTIFICATE_KINDS
from rayched.pki.tls_files import TlsFiles
from rayched.replica.settings import default_data_dir

if TYPE_CHECKING:
    from rayched.pki.directory import PkiDirectory
    from rayched.pki.records import IssueRecord

DAYS_WARNED = 398
"""Longer than that certificates of the public web may not live either."""
_DAY_SECONDS = 86_400
_LIST_HEADINGS = ["SERIAL", "URI", "UNTIL", "STATE"]
_STATUS_HEADINGS = ["URI", "DAYS", "SERIAL", "AUTHORITY", "DIRECTORY"]

pki = typer.Typer(
    help="Issue and revoke certificates.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Directory = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="The authority's; none: pki in the data directory.", show_default=False),
]


class JoinKind(StrEnum):
    node = "node"


class RotationStep(StrEnum):
    trust_both = "trust-both"
    sign_new = "sign-new"
    trust_new = "trust-new"


@pki.command("init", cls=KubectlCommand)
def init(
    directory: Directory = None,
    external: Annotated[
        Path | None,
        typer.Option("--external-ca", metavar="CERT", help="Of who signs in place of an authority here.", show_default=False),
    ] = None,
) -> None:
    """Make a certificate authority and the trust domain of a new cluster.

    The authority is trusted by whoever has its ca.crt. Its ca.key signs; kept elsewhere, it can be put back to issue. With
    --external-ca there is a trust domain and a deny list, and somebody else issues.
    """
    from rayched.pki import private_files
    from rayched.pki.directory import PkiDirectory

    with _told():
        if external is not None:
            trusting = PkiDirectory.trust(_place(directory), private_files.read(external))
            out(f"trust domain {trusting.trust_domain} in {trusting.path}; {external} issues its certificates")
            return
        made = PkiDirectory.create(_place(directory))
        until = made.authorities()[0].not_after
        out(f"certificate authority of {made.trust_domain} in {made.path}, until {moment_text(until)}")


@pki.command("issue", cls=KubectlCommand)
def issue(
    kind: Annotated[IdentityKind, typer.Argument(metavar="KIND", hidden=True)],
    name: Annotated[str, typer.Argument(metavar="NAME", hidden=True)],
    directory: Directory = None,
    san: Annotated[
        list[str] | None,
        typer.Option(
            "--san",
            metavar="HOST,IP",
            help="Where who serves is, beside localhost: a replica, a gateway, a member of etcd.",
            show_default=False,
        ),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option("--days", metavar="N", min=1, max=3650, help="Valid so long; none: 90, a node's 30.", show_default=False),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where the three files go; none: below --dir.", show_default=False),
    ] = None,
    servers: Annotated[
        str,
        typer.Option(
            "--servers", metavar="HOST:PORT,...", help="Of a caller: write a context with these too.", show_default=False
        ),
    ] = "",
) -> None:
    """Issue a key and a certificate: tls.key, tls.crt and ca.crt, for their owner alone to read.

    KIND is replica, node, nodes (an agent of many), user, web or etcd (a client of etcd; with --san a member of it). The same
    NAME in the same directory gets new ones in place of the old; who uses them reads them anew.

    \b
      rayched pki issue replica replica-0 --san replica-0.example,10.0.0.11
      rayched pki issue node node-17 --out /etc/rayched --servers 10.0.0.11:7420
      rayched pki issue user alice --days 30 --servers 10.0.0.11:7420
    """
    rule = CERTIFICATE_KINDS[kind]
    hosts = [host.strip() for text in san or () for host in text.split(",") if host.strip()]
    if hosts and not (rule.serves or rule.may_serve):
        wrong(f"--san: a certificate of kind {kind.value} is for callers, and names no place; of a replica or a gateway it does")
    if servers and kind in (IdentityKind.REPLICA, IdentityKind.ETCD):
        wrong(f"--servers: a context is for callers of replicas, and this is a certificate of kind {kind.value}")
    from rayched.pki.issuing import leaf_request

    with _told():
        found = _opened(directory)
        request = leaf_request(found.trust_domain, kind, name, hosts, days)
        record = found.issue(request, target)
        if days is not None and days > DAYS_WARNED:
            note(f"--days {days}: a key that is lost serves its finder as long; {DAYS_WARNED} days and fewer are usual")
        out(f"{record.uri} until {moment_text(record.not_after)}, serial {record.serial}, in {record.directory}")
        if servers:
            _write_context(kind, f"{found.trust_domain}-{name}", endpoints_of(servers), Path(record.directory))


def _write_context(kind: IdentityKind, name: str, servers: tuple[str, ...], place: Path) -> None:
    """Beside the certificate, so that the directory can be carried whole. A user's becomes the current one of this host too."""
    files = TlsFiles.within(place)
    write_context_file(place / CONTEXT_FILE, servers, files)
    if kind is IdentityKind.USER:
        path = write_context(ClientContext(name, servers, files), make_current=True)
        out(f"context {name} in {path}, current from now on")
        return
    out(f"context in {place / CONTEXT_FILE}, for --context")


@pki.command("join-token", cls=KubectlCommand)
@with_context_option
def join_token(
    kind: Annotated[JoinKind, typer.Argument(metavar="node", hidden=True)],
    name: Annotated[str, typer.Argument(metavar="NAME", hidden=True)],
    ttl: Annotated[str, typer.Option("--ttl", metavar="DURATION", help="How long it counts, at most 24h.")] = "1h",
    file: OutFile = None,
    server: Server = None,
) -> None:
    """Make a token by which one node gets its certificate, once.

    An administrator makes it, and the cluster keeps its hash alone. It needs a replica that signs (`rayched replica --signer`).

    \b
      rayched pki join-token node worker-2 --out worker-2.token
      rayched node worker-2 --join-token-file worker-2.token --join-ca-file ca.crt
    """
    subject = f"{kind.value}/{name}"
    with connected(server) as client:
        issued = client.issue_token(subject_uri(client, subject), int(seconds_of("--ttl", ttl)), f"join token of {subject}")
    hand_out(issued, file)


@pki.command("renew", cls=KubectlCommand)
def renew(
    directory: Annotated[Path, typer.Argument(metavar="DIR", hidden=True)],
    servers: Annotated[
        str, typer.Option("--servers", metavar="HOST:PORT,...", help="Replicas, of which one signs.", show_default=False)
    ] = "",
    if_due: Annotated[bool, typer.Option("--if-due", help="Only where a third of its time is left, or less.")] = False,
) -> None:
    """Have the certificate in a directory renewed by the cluster, by showing it, with a new key.

    DIR has tls.crt, tls.key and ca.crt; who uses them reads them anew. A replica or a gateway gets one for the same hosts. It
    needs a replica that signs (`rayched replica --signer`). Run it by a timer, with --if-due.

    \b
      rayched pki renew /etc/rayched/tls --servers 10.0.0.11:7420 --if-due
    """
    from rayched.client.signing import NotCertified, certified
    from rayched.pki.held_certificate import HeldCertificate

    if not servers:
        wrong("--servers: is missing; want host:port of replicas, of which one signs")
    with _told():
        held = HeldCertificate(directory)
        identity = held.identity()
        if if_due and not held.is_due():
            note(f"{identity}: has more than a third of its time left")
            return
        try:
            _, until = certified(held, endpoints_of(servers), held.files, identity)
        except NotCertified as error:
            fail(f"{identity}: {error}")
        out(f"{identity} until {moment_text(until)}, in {directory}")


@pki.command("list", cls=KubectlCommand)
def list_issued(directory: Directory = None) -> None:
    """Show all that was issued."""
    with _told():
        found = _opened(directory)
        denied, now = found.denied(), time.time()
        rows = [[one.serial, one.uri, moment_text(one.not_after), _state(one, denied, now)] for one in found.issued()]
    plain_table(_LIST_HEADINGS, rows)


@pki.command("status", cls=KubectlCommand)
def status(directory: Directory = None) -> None:
    """Show the authority, and what is in use.

    Certificates are in use that are neither expired, revoked nor replaced by a newer one in their directory; the first to expire
    comes first.
    """
    with _told():
        found = _opened(directory)
        now, signer = time.time(), found.signer()
        for authority in found.authorities():
            signs = "signs" if authority.key_id == signer else "is trusted"
            out(f"authority {authority.key_id} of {found.trust_domain} {signs}, {_days(authority.not_after, now)} days left")
        if signer is None:
            note("the authority's ca.key is not there: nothing is issued or renewed until it is put back")
        rows = [
            [one.uri, _days(one.not_after, now), one.serial, one.authority, one.directory]
            for one in sorted(found.in_use(), key=lambda one: one.not_after)
        ]
    plain_table(_STATUS_HEADINGS, rows)


@pki.command("revoke", cls=KubectlCommand)
def revoke(
    what: Annotated[str, typer.Argument(metavar="SERIAL|URI", hidden=True)],
    directory: Directory = None,
) -> None:
    """Revoke a certificate by its serial number, or all certificates of a URI.

    Replicas that read the deny list (--client-deny-list-file) refuse it within two seconds, on open streams too.

    \b
      rayched pki revoke 5f0c9e...
      rayched pki revoke spiffe://rayched-1a2b3c4d/user/alice
    """
    with _told():
        opened = _opened(directory)
        found = opened.revoke(what)
        for one in found:
            out(f"{one.serial} of {one.uri} revoked")
        if not found:
            note(f"{what}: is revoked already")
        else:
            note(f"the deny list is {opened.deny_list}: it has to reach every replica")


@pki.command("rotate-ca", cls=KubectlCommand)
def rotate_ca(
    step: Annotated[RotationStep, typer.Argument(metavar="STEP", hidden=True)],
    directory: Directory = None,
    force: Annotated[bool, typer.Option("--force", help="Of sign-new: although somebody may not trust the new one.")] = False,
) -> None:
    """Exchange the certificate authority in three steps.

    Look at `rayched pki status` between them. Each step refuses while somebody is not ready for it. Certificates that are where
    they were issued get the new ca.crt by themselves; it has to be carried to those that were taken elsewhere.

    \b
      rayched pki rotate-ca trust-both   a second authority, which all shall trust
      rayched pki rotate-ca sign-new     it signs from now on; then issue all anew
      rayched pki rotate-ca trust-new    the old one is trusted no longer
    """
    if force and step is not RotationStep.sign_new:
        wrong("--force: goes with the step sign-new alone")
    with _told():
        found = _opened(directory)
        match step:
            case RotationStep.trust_both:
                missing = found.trust_next()
                out(f"two authorities are trusted, see {found.path / 'ca.crt'}; the next step is sign-new")
                if missing:
                    names = ", ".join(sorted({one.uri for one in missing}))
                    note(f"not where they were issued, so the new ca.crt has to be carried to them: {names}")
            case RotationStep.sign_new:
                found.sign_with_next(force=force)
                old = [one for one in found.in_use() if one.authority != found.signer()]
                out(f"the new authority signs; {counted(len(old), 'certificate')} to issue anew before trust-new")
            case RotationStep.trust_new:
                found.forget_old()
                out("the new authority alone is trusted")


@contextmanager
def _told() -> Iterator[None]:
    """What is wrong with keys, files or names ends the command with one line."""
    try:
        yield
    except (PkiError, ContextError) as error:
        fail(str(error))
    except ValueError as error:
        wrong(str(error))


def _place(directory: Path | None) -> Path:
    return directory or default_data_dir() / "pki"


def _opened(directory: Path | None) -> PkiDirectory:
    # Not at the top: the other commands shall not wait for cryptography.
    from rayched.pki.directory import PkiDirectory

    return PkiDirectory(_place(directory))


def _days(not_after: float, now: float) -> str:
    return str(int((not_after - now) // _DAY_SECONDS))


def _state(record: IssueRecord, denied: frozenset[int], now: float) -> str:
    if int(record.serial, 16) in denied:
        return "revoked"
    return "valid" if record.not_after > now else "expired"

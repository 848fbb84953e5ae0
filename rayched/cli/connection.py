"""How the command reaches a cluster, and how a failed call is told: in one line for each defect, with what to do about it.

A command about several objects goes on after one of them failed, as kubectl does, and ends with exit code 1. Only when nobody
answers it ends at once. Where nothing listens at any address that was given, no patience helps: that is told after two seconds,
while a replica that hangs or a cluster without a leader gets the client's full time. A command that waits longer for somebody
to listen says after these two seconds what it waits for.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import grpc

from rayched.cli.context_option import chosen_context
from rayched.cli.options import DryRunBy
from rayched.cli.printing import fail, note, wrong
from rayched.cli.verbosity import verbose, words_of
from rayched.client.client import Client
from rayched.client.contexts import choose
from rayched.client.errors import ApiError
from rayched.pki.client_token import CallerFiles, TokenFiles

TIMEOUT_SECONDS = 10.0
LISTENS_SECONDS = 2.0
_NOBODY_ANSWERS = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNIMPLEMENTED)
_CONNECT_SECONDS_MAX = 1.0
_POLL_SECONDS = 0.1


@contextmanager
def connected(
    server: str | None, timeout_seconds: float = TIMEOUT_SECONDS, listens_seconds: float | None = LISTENS_SECONDS
) -> Iterator[Client]:
    """A client; whatever call fails inside ends the command with one line for each defect.

    `listens_seconds` is how long there may be nobody at all at the addresses given; None: perhaps nobody is asked anything.
    """
    try:
        chosen = choose(server, chosen_context())
        client = Client(chosen.endpoints, timeout_seconds=timeout_seconds, tls=chosen.files, insecure=chosen.files is None)
    except ValueError as error:
        wrong(str(error))
    with client:
        if listens_seconds is not None:
            _until_somebody_listens(client.endpoints, listens_seconds)
        try:
            yield client
        except ApiError as error:
            if error.no_connection and (why := _tls_fault(client.endpoints, chosen.files)):
                fail(why)
            if error.code is grpc.StatusCode.UNIMPLEMENTED:
                addresses = ", ".join(client.endpoints)
                fail(f"what listens at {addresses} is no rayched; name its replicas with --server ({error.message})")
            tell(error)
            raise SystemExit(1) from None


def tell(error: ApiError, hint: str = "", source: str = "") -> None:
    """One line for each defect, naming the file that it came from, the object, the field and what is allowed.

    The name of gRPC's code is for who looks into calls, with -v.
    """
    before = f"{source}: " if source else ""
    if error.violations:
        for violation in error.violations:
            _error_line(
                before
                + (f"{violation.object}: {violation}" if violation.object else str(violation))
                + (f" ({error.code.name})" if verbose() else "")
            )
    else:
        _error_line(f"{before}{words_of(error)}{f'; {hint}' if hint else ''}")


class ObjectFailures:
    """What failed about single objects: told at once; the command goes on and ends with exit code 1."""

    def __init__(self) -> None:
        self.some = False

    @contextmanager
    def told(self, hint: Callable[[ApiError], str] = lambda _: "", source: str = "") -> Iterator[None]:
        """Tells an ApiError of what happens inside; raises it where no further call has a chance."""
        try:
            yield
        except ApiError as error:
            if error.code in _NOBODY_ANSWERS:
                raise
            tell(error, hint(error), source)
            self.some = True

    def end(self) -> None:
        """The last words of a command."""
        if self.some:
            raise SystemExit(1)


@contextmanager
def acting(server: str | None) -> Iterator[tuple[Client, ObjectFailures]]:
    """A client for what is done to several objects, and where failures of single ones are told."""
    failures = ObjectFailures()
    with connected(server) as client:
        yield client, failures
    failures.end()


def patience_of(dry_run: DryRunBy) -> float | None:
    """`listens_seconds` of a command that makes objects: what is judged here alone is asked of nobody."""
    return None if dry_run is DryRunBy.client else LISTENS_SECONDS


def overwrite_hint(error: ApiError) -> str:
    return "--overwrite replaces it" if "overwrite is not set" in error.message else ""


def _tls_fault(endpoints: Sequence[str], files: CallerFiles | None) -> str:
    """Why nobody answers although somebody listens, where TLS is the reason; else empty."""
    if isinstance(files, TokenFiles):
        return (
            f"{', '.join(endpoints)}: no TLS connection came about; a token is taken where a replica's --token-listen says alone,"
            f" and the certificate there has to be of an authority in {files.ca}"
        )
    # Not at the top: whoever is answered needs none of it.
    from rayched.pki.diagnosis import server_fault

    return next((f"{endpoint}: {why}" for endpoint in endpoints if (why := server_fault(endpoint, files))), "")


def _until_somebody_listens(endpoints: Sequence[str], seconds: float) -> None:
    began, told = time.monotonic(), False
    while not any(map(_may_listen, endpoints)):
        waited = time.monotonic() - began
        if waited > seconds:
            fail(f"no rayched answers at {', '.join(endpoints)}; start one with `rayched up`, or name its replicas with --server")
        if waited > LISTENS_SECONDS and not told:
            told = True
            note(f"waiting for a replica at {', '.join(endpoints)}, for {seconds:.0f} s at most")
        time.sleep(_POLL_SECONDS)


def _may_listen(endpoint: str) -> bool:
    """False only where the answer is certain: refused, or no such host."""
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS_MAX):
            return True
    except (ConnectionRefusedError, socket.gaierror):
        return False
    except OSError:
        return True


def _error_line(text: str) -> None:
    note(f"error: {' '.join(text.split())}")

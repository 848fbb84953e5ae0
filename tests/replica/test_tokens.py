"""Tokens and the deny list with real replicas: made at one of them by the command, counting at both, and at neither any more."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from rayched.access.identity import IdentityKind
from rayched.client.client import Client
from rayched.client.errors import ApiError
from rayched.pki.client_token import TokenFiles
from rayched.pki.directory import PkiDirectory
from rayched.pki.issuing import leaf_request
from rayched.pki.tls_files import TlsFiles
from rayched.replica.cluster.local_cluster import ReplicaProcess
from tests.cli.cluster import Result, run_here
from tests.replica.test_certificates import home, made, running
from tests.server.serving import until

pytestmark = pytest.mark.cluster

__all__ = ["home", "made"]

COUNTS_SECONDS_MAX = 2.0


def token_address(replica: ReplicaProcess) -> str:
    """Where it takes tokens, as its log says."""
    found = re.search(r"the API takes tokens at (\S+)", replica.log_file.read_text())
    assert found is not None
    return found.group(1)


def is_refused(client: Client) -> bool:
    try:
        client.who_am_i()
    except ApiError as error:
        assert error.code is grpc.StatusCode.UNAUTHENTICATED, error
        return True
    return False


def ok(result: Result) -> str:
    assert result.code == 0, result.errors
    return result.out


@pytest.mark.row("B31", "B35", "B39")
def test_a_token_counts_at_all_replicas_until_it_is_revoked_and_so_does_a_certificate(tmp_path: Path, made: PkiDirectory) -> None:
    with running(tmp_path / "cluster", made, ["--token-listen", "127.0.0.1:0"]) as (cluster, _):
        command: Callable[..., Result] = lambda *words: run_here(words, None, {"RAYCHED_SERVER": cluster.addresses[0]})  # noqa: E731
        path = tmp_path / "ci.token"
        ok(command("access", "grant", "ci", "viewer", "-A"))
        ok(command("token", "create", "--for", "ci", "--out", str(path)))
        id = path.read_text()[3:11]
        uri = f"spiffe://{made.trust_domain}/user/ci"
        record = made.issue(leaf_request(made.trust_domain, IdentityKind.USER, "ci"))
        certified = TlsFiles.within(Path(record.directory))
        with (
            Client(token_address(cluster.replicas[0]), tls=TokenFiles(certified.ca, path)) as one,
            Client(token_address(cluster.replicas[1]), tls=TokenFiles(certified.ca, path)) as other,
            Client(cluster.addresses[1], tls=certified) as shown,
        ):
            for client in (one, other):
                until(lambda asked=client: not is_refused(asked), COUNTS_SECONDS_MAX)  # type: ignore[misc]
                assert client.who_am_i().identity == uri
            ok(command("token", "revoke", id, "--for", "ci"))
            for client in (one, other):
                until(lambda asked=client: is_refused(asked), COUNTS_SECONDS_MAX)  # type: ignore[misc]
            assert shown.who_am_i().identity == uri
            ok(command("access", "deny", record.serial, "--note", "lost"))
            until(lambda: is_refused(shown), COUNTS_SECONDS_MAX)
        lines = [json.loads(line) for line in (tmp_path / "cluster" / "replica-1" / "audit.jsonl").read_text().splitlines()]
        assert {"uri": uri, "credential": id, "code": "OK"}.items() <= lines_of(lines, "Access.WhoAmI")[0].items()
        refused = [line for line in lines if line["stage"] == "refused" and line.get("credential") == record.serial]
        assert refused and refused[0]["uri"] == uri and "is revoked" in refused[0]["reason"]


def lines_of(lines: list[dict[str, object]], call: str) -> list[dict[str, object]]:
    """Those of a call that went well."""
    return [line for line in lines if line.get("call") == call and line.get("code") == "OK"]

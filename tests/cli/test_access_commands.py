"""whoami, can-i and access: what the command says, against a real server that proves no identities."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.server.server_options import ServerOptions
from rayched.store.keys import Keys
from tests.cli.cluster import Result, run_here
from tests.server.serving import serving, until

pytestmark = pytest.mark.cluster

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def command(etcd: EtcdServer) -> Iterator[Run]:
    with serving(ServerOptions("127.0.0.1:0", [etcd.endpoint], Keys("/access-commands"))) as server:
        yield lambda *words: run_here(words, None, {"RAYCHED_SERVER": server.address})


def told(result: Result) -> list[list[str]]:
    """The words of each line of a command that went well."""
    assert result.code == 0, result.errors
    return [line.split() for line in result.lines]


def test_whoami_tells_who_one_is_and_what_one_may(command: Run) -> None:
    assert told(command("whoami")) == [
        ["ATTRIBUTE", "VALUE"],
        ["Identity", "spiffe://insecure/user/admin"],
        ["Roles", "admin"],
    ]


def test_a_role_is_granted_listed_asked_about_and_revoked(command: Run) -> None:
    (said,) = told(command("access", "grant", "alice", "submitter", "-n", "team-a", "-n", "team-b", "--privileged"))
    name, word = said
    assert word == "granted" and name.startswith("rolebinding/")
    (again,) = told(command("access", "grant", "user/alice", "submitter", "-n", "team-b", "-n", "team-a", "--privileged"))
    assert again == [name, "unchanged"]
    id = name.removeprefix("rolebinding/")
    row = [id, "spiffe://insecure/user/alice", "submitter", "team-a,team-b", "privileged"]
    assert told(command("access", "list")) == [["ID", "SUBJECT", "ROLE", "NAMESPACES", "ALLOWS"], row]
    assert told(command("access", "list", "alice"))[1:] == [row]

    def can(*words: str) -> bool:
        result = command("can-i", *words, "--as", "alice")
        assert result.out in ("yes\n", "no\n") and (result.code == 0) == (result.out == "yes\n")
        assert result.code == 0 or "spiffe://insecure/user/alice" in result.errors[0]
        return result.code == 0

    until(lambda: can("create", "pods", "-n", "team-a"))
    assert can("get", "pod/web", "-n", "team-b") and can("exec", "pod/web", "-n", "team-a")
    assert can("scale", "rs", "-n", "team-a") and can("get", "namespace/team-a")
    assert not can("create", "pods", "-n", "team-c") and not can("list", "pods", "-A") and not can("cordon", "node/n1")
    assert told(command("access", "revoke", id)) == [[name, "revoked"]]
    until(lambda: not can("create", "pods", "-n", "team-a"))
    gone = command("access", "revoke", name)
    assert gone.code == 1 and gone.errors == [f"error: RoleBinding {id} not found"]
    empty = command("access", "list")
    assert (empty.code, empty.out, empty.errors) == (0, "", ["No role bindings found"])


def test_limits_are_granted_with_a_role_and_shown(command: Run) -> None:
    words = ("grant", "nodes/hollow", "node", "--node", "node-{000..199}", "--heartbeat-rate", "200", "--watches", "300")
    ((name, word),) = told(command("access", *words))
    assert word == "granted"
    row = told(command("access", "list", "nodes/hollow"))[1]
    assert row[4:] == ["nodes=node-{000..199}", "heartbeats=200", "watches=300"]
    (error,) = command("access", "grant", "bob", "admin", "--pod-points", "5").errors
    assert "limits.pod_points: is for the role submitter, found with admin" in error
    told(command("access", "revoke", name))


def test_an_administrator_can_all(command: Run) -> None:
    assert command("can-i", "delete", "nodes").out == "yes\n"
    assert command("can-i", "list", "pods", "-A").out == "yes\n"
    assert command("can-i", "Nodes.Register", "node/n1").out == "yes\n"
    assert command("can-i", "grant").out == "yes\n"


WRONG = {
    "no such verb": (("can-i", "steal", "pods"), 2, "there is no verb 'steal'; want one of get, list, "),
    "no such type": (("can-i", "get", "pots"), 2, 'TYPE: there is no kind "pots"'),
    "no type": (("can-i", "get"), 2, "TYPE: is missing; want what it is about, such as pods"),
    "a type too many": (("can-i", "Leadership.GetLeader", "pods"), 2, "TYPE: Leadership.GetLeader is about no object"),
    "all namespaces of one object": (("can-i", "delete", "pods", "-A"), 2, "--all-namespaces: delete is about one object"),
    "no such role": (("access", "grant", "alice", "king"), 1, 'role: "king" cannot be granted'),
    "no namespace": (("access", "grant", "alice", "viewer"), 1, "namespaces: the role viewer needs the names of namespaces"),
    "both": (("access", "grant", "alice", "viewer", "-n", "a", "-A"), 2, "--namespace cannot be combined"),
    "no subject": (("access", "grant", "Alice", "admin"), 2, "SUBJECT: identity"),
    "a node as an administrator": (("access", "grant", "node/n1", "admin"), 1, "subject: the role admin is for an identity"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_makes_no_sense_is_told_in_one_line(command: Run, case: str) -> None:
    words, code, message = WRONG[case]

    result = command(*words)

    assert (result.code, result.out) == (code, "")
    assert message in result.errors[0], result.errors

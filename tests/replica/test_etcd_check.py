"""`rayched etcd check`: known holes by version, and what a client of a real etcd may do, with users and without."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from leader.channel import SecureEndpoints, open_channel
from rayched.replica.etcd.etcd_binary import find_etcd
from rayched.replica.etcd.etcd_check import EtcdRight, check_etcd_access
from rayched.replica.etcd.etcd_server import EtcdServer
from rayched.replica.etcd.known_holes import HOLES, EtcdVersion, holes_of
from rayched.store.io.client import StoreClient
from tests.cli.cluster import run_here
from tests.etcd_tls import a_client_of_etcd, enable_users, etcd_over_tls, etcd_tls
from tests.pki.made import an_authority


@pytest.mark.row("B112")
@pytest.mark.parametrize(
    ("version", "ids"),
    [
        ((3, 5, 1), {"lost writes", "33343", "33413", "44283", "73499", "73500"}),
        ((3, 5, 27), {"33343", "33413", "44283", "73499", "73500"}),
        ((3, 5, 28), {"44283", "73499", "73500"}),
        ((3, 5, 30), {"73499", "73500"}),
        ((3, 5, 33), set()),
        ((3, 4, 22), {"33343", "33413", "44283", "73499", "73500"}),
        ((3, 4, 44), {"73499", "73500"}),
        ((3, 6, 8), {"33343", "33413", "44283", "73499", "73500"}),
        ((3, 6, 14), set()),
        ((3, 7, 0), {"73499", "73500"}),
        ((3, 7, 1), set()),
        ((3, 8, 0), set()),
        ((4, 0, 0), set()),
    ],
)
def test_a_version_has_the_holes_that_were_mended_after_it(version: EtcdVersion, ids: set[str]) -> None:
    assert {hole.id.removeprefix("CVE-2026-") for hole in holes_of(version)} == ids
    assert len(HOLES) == 6


@pytest.mark.cluster
@pytest.mark.row("B112")
def test_the_command_names_the_holes_of_the_etcd_that_it_finds(etcd: EtcdServer) -> None:
    with closing(open_channel([etcd.endpoint])) as channel:
        before = StoreClient(channel).revision()
        found = run_here(["etcd", "check", "--etcd-endpoints", etcd.endpoint])
        assert StoreClient(channel).revision() == before
    version = find_etcd().version
    known = holes_of(version)
    assert found.code == (1 if known else 0)
    assert found.lines[1].split() == [etcd.endpoint, ".".join(map(str, version)), str(len(known)) if known else "<none>"]
    assert [line.split(",")[0].split(":")[0] for line in found.errors] == [hole.id for hole in known]
    assert "users: no: whoever reaches it may do everything" in found.lines
    assert [
        line.split()[-1] for line in found.lines[found.lines.index("users: no: whoever reaches it may do everything") + 2 :]
    ] == ["yes"] * 7


def test_what_makes_no_sense_is_told_in_one_line() -> None:
    for words, said in (
        ((), "--etcd-endpoints: is missing"),
        (("--etcd-endpoints", "a"), "--etcd-endpoints 'a': an address is host:port"),
        (("--etcd-endpoints", "a:1", "--etcd-keyfile", "k"), "TLS needs --etcd-cafile as well"),
    ):
        found = run_here(["etcd", "check", *words])
        assert (found.code, found.out, len(found.errors)) == (2, "", 1) and said in found.errors[0]


@pytest.mark.cluster
def test_who_does_not_answer_is_told(tmp_path: Path) -> None:
    found = run_here(["etcd", "check", "--etcd-endpoints", "127.0.0.1:1"])
    assert found.code == 1 and found.lines[1].split()[:2] == ["127.0.0.1:1", "-"]
    assert "users: ?" in found.lines


@pytest.mark.cluster
def test_of_an_etcd_with_users_it_says_what_this_one_may(tmp_path: Path) -> None:
    authority = an_authority()
    (tmp_path / "etcd").mkdir()
    with etcd_over_tls(tmp_path / "etcd", authority) as endpoint:
        files = a_client_of_etcd(authority, tmp_path / "client")
        endpoints = SecureEndpoints([endpoint], etcd_tls(files))
        assert check_etcd_access(endpoints, "/rayched").has_users is False
        enable_users(endpoint, files)
        found = check_etcd_access(endpoints, "/rayched")
    assert found.has_users is True
    rights = dict(found.rights)
    assert rights["read keys below /rayched/"] is rights["write keys below /rayched/"] is rights["take leases"] is EtcdRight.YES
    assert rights["read all keys"] is rights["write any key"] is EtcdRight.NO
    is_mended = not any(hole.id == "CVE-2026-33343" for hole in holes_of(find_etcd().version))
    assert (rights["write any key by a nested transaction"] is EtcdRight.NO) == is_mended

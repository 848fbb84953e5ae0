"""Who certifies agents on Ray, without Ray: calls of an actor are made at once, with its own holder of certificates."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rayched.access.identity import Identity
from rayched.pki.certificates import facts_of
from rayched.pki.directory import PkiDirectory, read_certificate
from rayched.pki.errors import PkiError
from rayched.pki.held_certificate import HeldCertificate
from rayched.raynodes.agent_certificates import AGAIN_SECONDS, LOOK_SECONDS, AgentCertificates, NodeSigner
from tests.pki.made import SetClock

NOW, DAY = 1_800_000_000.0, 86_400
log = logging.getLogger("tests.certificates")


class RemoteMethod:
    """As Ray has it: what a call gives is asked for later."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def remote(self, *given: Any) -> Callable[[], Any]:
        return lambda: self._method(*given)


class LocalHolder:
    """What the actor of a node does with certificates."""

    def __init__(self, directory: Path, clock: SetClock) -> None:
        self.held = HeldCertificate(directory, clock)
        self.asked = 0
        self.certificate_request = RemoteMethod(self._request)
        self.take_certificate = RemoteMethod(self._take)

    def _request(self) -> bytes | None:
        self.asked += 1
        return self.held.request() if self.held.is_due() else None

    def _take(self, certificate: bytes, bundle: bytes, identity: str) -> str:
        try:
            self.held.take(certificate, bundle, Identity.parse(identity))
        except PkiError as error:
            return str(error)
        return ""

    def uri(self) -> str:
        [found] = facts_of(read_certificate(self.held.files.key.parent)).uris
        return found


@pytest.fixture
def clock() -> SetClock:
    return SetClock(NOW)


@pytest.fixture
def made(tmp_path: Path, clock: SetClock) -> PkiDirectory:
    return PkiDirectory.create(tmp_path / "pki", clock)


@pytest.fixture
def certificates(made: PkiDirectory) -> AgentCertificates:
    return AgentCertificates(NodeSigner(made), log, lambda calls: calls, lambda call: call())


def turns(certificates: AgentCertificates, now: float, actors: dict[str, LocalHolder]) -> None:
    for _ in range(3):
        certificates.turn(now, actors)


def test_each_gets_the_identity_of_its_own_node_and_a_new_one_in_time(
    certificates: AgentCertificates, made: PkiDirectory, clock: SetClock, tmp_path: Path
) -> None:
    actors = {name: LocalHolder(tmp_path / name, clock) for name in ("ray-1", "ray-2")}
    turns(certificates, 0.0, actors)
    for name, actor in actors.items():
        assert actor.uri() == f"spiffe://{made.trust_domain}/node/{name}"
    assert len(made.issued()) == 2 and [actor.asked for actor in actors.values()] == [1, 1]
    turns(certificates, LOOK_SECONDS - 1, actors)
    assert actors["ray-1"].asked == 1
    turns(certificates, LOOK_SECONDS, actors)
    assert actors["ray-1"].asked == 2 and len(made.issued()) == 2, "it has time"
    clock.now += 21 * DAY
    turns(certificates, 2 * LOOK_SECONDS, actors)
    assert len(made.issued()) == 4 and len(made.in_use()) == 2


def test_without_the_authoritys_key_it_is_told_once_and_tried_again(
    certificates: AgentCertificates, made: PkiDirectory, clock: SetClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    actors = {"ray-1": LocalHolder(tmp_path / "ray-1", clock)}
    (made.path / "ca.key").rename(tmp_path / "ca.key")
    for now in (0.0, AGAIN_SECONDS, 2 * AGAIN_SECONDS):
        turns(certificates, now, actors)
    assert actors["ray-1"].asked == 3
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("ray-1: its agent has no certificate yet: ") and "ca.key: is not there" in line
    (tmp_path / "ca.key").rename(made.path / "ca.key")
    turns(certificates, 3 * AGAIN_SECONDS, actors)
    assert actors["ray-1"].uri().endswith("/node/ray-1")


def test_who_does_not_take_what_was_signed_is_given_less_and_less_often(
    certificates: AgentCertificates, made: PkiDirectory, clock: SetClock, tmp_path: Path
) -> None:
    actor = LocalHolder(tmp_path / "ray-1", clock)
    taking = actor.take_certificate
    actor.take_certificate = RemoteMethod(lambda *_: "the disk is full")
    now, signed = 0.0, []
    while now < 2 * LOOK_SECONDS:
        before = len(made.issued())
        turns(certificates, now, {"ray-1": actor})
        signed += [now] * (len(made.issued()) - before)
        now += AGAIN_SECONDS
    pauses = [later - sooner for sooner, later in pairwise(signed)]
    assert pauses[:4] == [10.0, 20.0, 40.0, 80.0] and pauses == sorted(pauses) and len(signed) < 12
    actor.take_certificate = taking
    turns(certificates, now + LOOK_SECONDS, {"ray-1": actor})
    assert actor.uri().endswith("/node/ray-1")


@pytest.mark.parametrize("answer", [7, "text", {"a": b"b"}, [b"x"], float("nan"), memoryview(b"x"), b"no request"])
def test_an_answer_that_is_no_request_is_told_and_ends_nobody_elses_turn(
    certificates: AgentCertificates,
    made: PkiDirectory,
    clock: SetClock,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    answer: Any,
) -> None:
    actors = {name: LocalHolder(tmp_path / name, clock) for name in ("ray-1", "ray-2")}
    actors["ray-1"].certificate_request = RemoteMethod(lambda: answer)
    turns(certificates, 0.0, actors)
    assert [one.uri.rpartition("/")[2] for one in made.issued()] == ["ray-2"]
    assert any(one.getMessage().startswith("ray-1: its agent has no certificate yet: ") for one in caplog.records)


@pytest.mark.parametrize("answer", [None, 0, b"", ["x"], "x" * 100_000])
def test_an_answer_to_a_certificate_that_is_no_short_text_is_told_shortened_as_a_failure(
    certificates: AgentCertificates, clock: SetClock, tmp_path: Path, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    actor = LocalHolder(tmp_path / "ray-1", clock)
    actor.take_certificate = RemoteMethod(lambda *_: answer)
    turns(certificates, 0.0, {"ray-1": actor})
    [line] = [one.getMessage() for one in caplog.records]
    assert line.startswith("ray-1: its agent has no certificate yet: ") and len(line) < 400


def test_who_has_left_is_forgotten_and_asked_at_once_when_it_is_back(
    certificates: AgentCertificates, clock: SetClock, tmp_path: Path
) -> None:
    actor = LocalHolder(tmp_path / "ray-1", clock)
    turns(certificates, 0.0, {"ray-1": actor})
    turns(certificates, 1.0, {})
    turns(certificates, 2.0, {"ray-1": actor})
    assert actor.asked == 2

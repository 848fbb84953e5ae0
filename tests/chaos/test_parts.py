"""What the chaos runs are made of, without a cluster: plans, links, streams held against history, reports."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rayched.audit.auditor import Auditor, KeyChange, LateWrite, PodChange
from rayched.v1.storage_pb2 import LeaderWrite, Stored
from tests.chaos.demands import Demands
from tests.chaos.faults import FAULTS, KILLS_ETCD
from tests.chaos.histogram import draw_histograms, quantile
from tests.chaos.plan import FAULTS_A_SESSION, LEADER_KILLS, PAUSE_SECONDS, UNBELIEVING, Numbers, Plan, make_plan
from tests.chaos.progress import begin_in
from tests.chaos.proxy import Network, leader_writes_in
from tests.chaos.report import write_report
from tests.chaos.secured import FloodSeen, judge_flood
from tests.chaos.watchers import Stream

# ----------------------------------------------------------------------------------------------------------------------- plans


def a_plan(seed: int = 7, *, sound: bool = True, **numbers: int) -> Plan:
    return make_plan(seed, Numbers(**numbers), rate=50.0, members=3, etcd_kills_allowed=sound)


def test_a_plan_follows_from_seed_and_numbers_alone(tmp_path: Path) -> None:
    plan = a_plan(kills=200, pauses=100)
    assert plan == a_plan(kills=200, pauses=100) != a_plan(8, kills=200, pauses=100)
    plan.save(tmp_path / "plan.json")
    assert plan.is_saved_at(tmp_path / "plan.json")
    assert not a_plan(8, kills=200, pauses=100).is_saved_at(tmp_path / "plan.json")
    assert not plan.is_saved_at(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("seed", "commit", "verdicts", "kept"),
    [
        (7, "now", {0: "now", 2: "now"}, {0, 2}),
        (7, "now", {0: "now", 1: "before"}, {0}),
        (8, "now", {0: "now"}, set()),
        (7, "now", dict.fromkeys(range(7), "now"), set()),
    ],
    ids=["interrupted", "another commit", "another plan", "finished"],
)
def test_a_run_goes_on_where_the_same_one_was_interrupted(
    seed: int, commit: str, verdicts: dict[int, str], kept: set[int], tmp_path: Path
) -> None:
    assert len(a_plan(kills=200, pauses=100).sessions) == 7
    a_plan(7, kills=200, pauses=100).save(tmp_path / "plan.json")
    for number, of in verdicts.items():
        (tmp_path / f"session-{number}.json").write_text(json.dumps({"commit": of}))
    plan = a_plan(seed, kills=200, pauses=100)
    begin_in(tmp_path, plan, commit)
    assert {int(path.stem.removeprefix("session-")) for path in tmp_path.glob("session-*.json")} == kept
    assert plan.is_saved_at(tmp_path / "plan.json")


def test_a_plan_has_all_that_was_asked_for() -> None:
    plan = a_plan(kills=200, pauses=100, actors=21, etcd=9, network=18)
    faults = [fault for session in plan.sessions for fault in session.faults]
    counts = Counter(fault.kind for fault in faults)
    assert set(counts) <= set(FAULTS)
    # And a few more where nodes are full, where their seconds do not count.
    timed = [fault for session in plan.sessions if not session.crowded for fault in session.faults]
    assert sum(fault.kind in LEADER_KILLS for fault in timed) == 200
    assert sum(counts[kind] for kind in LEADER_KILLS) == 210
    pauses = [fault for fault in faults if fault.kind.startswith("pause-") and "etcd" not in fault.kind]
    assert len(pauses) == 100
    assert all(PAUSE_SECONDS[0] <= fault.seconds <= PAUSE_SECONDS[1] for fault in pauses)
    believing = [fault for session in plan.sessions if not session.broken_rules for fault in session.faults]
    assert {fault.seconds for fault in believing if fault in pauses} >= set(PAUSE_SECONDS)
    assert sum(counts[kind] for kind in KILLS_ETCD) == 9
    assert all(len(session.faults) <= FAULTS_A_SESSION for session in plan.sessions)


def test_half_of_the_pauses_stop_the_whole_tree_without_the_belief_check() -> None:
    plan = a_plan(kills=4, pauses=100)
    unbelieving = [fault for session in plan.sessions if session.broken_rules == (UNBELIEVING,) for fault in session.faults]
    assert [fault.kind for fault in unbelieving] == ["pause-tree"] * 50


def test_an_etcd_that_forgets_is_not_killed() -> None:
    assert not [fault for one in a_plan(etcd=9, sound=False).sessions for fault in one.faults if fault.kind in KILLS_ETCD]


# ----------------------------------------------------------------------------------------------------------------------- links


class Echo:
    """A server that sends back what it gets."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    @staticmethod
    def _echo(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    def close(self) -> None:
        self._listener.close()


def test_a_link_passes_delays_silences_and_cuts() -> None:
    echo = Echo()
    with Network() as network:
        link = network.link("echo", echo.address)
        host, port = link.address.split(":")
        with socket.create_connection((host, int(port)), timeout=2.0) as client:
            client.sendall(b"one")
            assert client.recv(10) == b"one"
            link.delay_seconds = 0.05
            began = time.monotonic()
            client.sendall(b"two")
            assert client.recv(10) == b"two"
            assert time.monotonic() - began >= 0.1
            link.delay_seconds, link.request_delay_seconds = 0.0, 0.15
            began = time.monotonic()
            client.sendall(b"slow")
            assert client.recv(10) == b"slow"
            assert time.monotonic() - began >= 0.15
            link.request_delay_seconds = 0.0
            link.silent_to_client = True
            client.sendall(b"three")
            client.settimeout(0.1)
            with pytest.raises(TimeoutError):
                client.recv(10)
            client.settimeout(2.0)
            link.heal()
            assert client.recv(10) == b"three"
            link.cut()
            with pytest.raises(ConnectionResetError):
                if client.recv(10) == b"":
                    raise ConnectionResetError
        with socket.create_connection((host, int(port)), timeout=2.0) as refused, pytest.raises(ConnectionResetError):
            if refused.recv(10) == b"":
                raise ConnectionResetError
        link.heal()
        with socket.create_connection((host, int(port)), timeout=2.0) as client:
            client.sendall(b"four")
            assert client.recv(10) == b"four"
    echo.close()


# --------------------------------------------------------------------------------------------------------------------- streams

HISTORY = [PodChange(revision, "ADDED", f"default/p{number}") for revision, number in ((1, 1), (2, 2), (2, 3), (5, 4))]


@pytest.mark.parametrize("ahead", [0, 2, 9])
@pytest.mark.parametrize(
    ("places", "is_right", "is_whole"),
    [
        ([0, 1, 2, 3], True, True),
        ([0, 1], True, False),
        ([], True, False),
        ([1, 2, 3], False, False),
        ([0, 1, 3], False, False),
        ([0, 1, 1, 2, 3], False, False),
        ([0, 2, 1, 3], False, False),
        ([0, 1, 2, 3, 3], False, False),
    ],
)
def test_a_stream_is_the_history_without_gap_or_double(places: list[int], is_right: bool, is_whole: bool, ahead: int) -> None:
    stream = Stream()
    seen = [HISTORY[place] for place in places]
    # The stream may be ahead of the auditor, or behind.
    for change in seen[:ahead]:
        stream.saw(change)
    for change in HISTORY:
        stream.expect(change)
    for change in seen[ahead:]:
        stream.saw(change)
    assert (stream.verdict() is None) is is_right
    assert (is_right and stream.has_caught_up) is is_whole


# ---------------------------------------------------------------------------------------------------------------- late writes


def a_leaders_write(name: str, epoch: int, number: int) -> KeyChange:
    stored = Stored(leader_write=LeaderWrite(op="bind", epoch=epoch, attempt=f"{AUTHOR}-{number}", decided_at_revision=3))
    stored.object.pod.metadata.name, stored.object.pod.metadata.uid = name, f"uid-{name}"
    return KeyChange(f"/rayched/cluster/pods/default/{name}".encode(), stored.SerializeToString())


AUTHOR = "0123456789abcdef" * 2


@pytest.mark.parametrize("epoch", [1, 127, 128, 300, 1 << 40])
def test_a_leaders_writes_are_found_in_what_passes_a_link(epoch: int) -> None:
    requests = [a_leaders_write(str(number), epoch, number).value or b"" for number in (7, 12)]
    submission = Stored()
    submission.object.pod.metadata.uid = AUTHOR
    data = b"frame".join([*requests, submission.SerializeToString()])
    assert leader_writes_in(data) == {(epoch, f"{AUTHOR}-7"), (epoch, f"{AUTHOR}-12")}


def test_the_auditor_counts_what_came_too_late_and_was_not_committed() -> None:
    auditor = Auditor()
    for revision, transitions in ((5, 0), (9, 1)):
        record = json.dumps({"holder": "one", "transitions": transitions}).encode()
        auditor.replay(revision, [KeyChange(b"/rayched/cluster/epoch", record)], seconds=float(revision))
        auditor.replay(revision + 1, [a_leaders_write(str(revision), revision, revision)], seconds=revision + 0.5)
    in_time, too_late = 8.9, 9.1
    late = [
        LateWrite(5, f"{AUTHOR}-5", too_late),  # a copy of what was committed
        LateWrite(5, f"{AUTHOR}-6", in_time),
        LateWrite(5, f"{AUTHOR}-7", too_late),
        LateWrite(5, f"{AUTHOR}-7", too_late),
        LateWrite(9, f"{AUTHOR}-8", too_late),
    ]
    assert auditor.refused(late) == 1


# --------------------------------------------------------------------------------------------------------------------- reports


def an_effect(kind: str, later_epoch: float | None, refused: int = 0) -> dict[str, Any]:
    return {
        "kind": kind,
        "seconds": 0.0,
        "took_effect": True,
        "note": "",
        "later_epoch": later_epoch,
        "after_release": None,
        "longest_gap": later_epoch or 0.1,
        "refused": refused,
        "counted": refused,
    }


def a_session(effects: list[dict[str, Any]], violations: dict[str, list[str]], rules: tuple[str, ...] = ()) -> dict[str, Any]:
    figures = {
        "acknowledged": 10,
        "bindings": 10,
        "refused writes": {"bind": sum(one["refused"] for one in effects)},
        "found": {"lost": len(violations.get("S3", ()))},
        "events of a stream": 12_000,
        "seconds of faults": 10.0,
        "cut off for slowness": 0,
    }
    return {
        "number": 0,
        "commit": "0123abc",
        "etcd_version": "3.5.30",
        "members": 3,
        "broken_rules": rules,
        "crowded": False,
        "effects": effects,
        "figures": figures,
        "violations": violations,
        "tolerated": {},
    }


def test_the_report_tells_figures_by_class_verdicts_and_refusals(tmp_path: Path) -> None:
    sessions = [
        a_session([an_effect("kill-replica", 1.5), an_effect("kill-replica", 3.5), an_effect("kill-queue", None)], {}),
        a_session([an_effect("pause-tree", 2.0, refused=12)], {"S3": ["1 is lost"]}, (UNBELIEVING,)),
    ]
    plan = make_plan(7, Numbers(events=1_000.0), rate=50.0, members=3, etcd_kills_allowed=True)
    summary = write_report(tmp_path, plan, sessions)
    killed = summary["latencies"]["kill-replica"]
    assert (killed["n"], killed["p50"], killed["p99"]) == (2, 1.5, 3.5)
    assert summary["latencies"]["leader kills together"]["kept"] is False
    met = {one["what"]: one["met"] for one in summary["demands"]}
    assert met == {
        "leader kills": False,
        "pauses": False,
        "lost": False,
        "bound twice": True,
        "over capacity": True,
        "stale writes committed": True,
        "late writes refused in pauses without the belief check": True,
        "leader kills together: p50 of 2": True,
        "leader kills together: p99 of 2": False,
        "events a second of a watch, each once": True,
        "times that a slow watch was cut off and went on": False,
    }
    assert summary["verdicts"]["S3"] == "broken"
    assert summary["verdicts"]["S1"] == "holds"
    assert summary["refused writes in pauses without the belief check"] == 12
    assert json.loads((tmp_path / "report.json").read_text())["faults"] == {"kill-queue": 1, "kill-replica": 2, "pause-tree": 1}
    page = (tmp_path / "report.md").read_text()
    assert "Commit 0123abc, " in page
    assert "etcd 3.5.30" in page
    assert "1 is lost" in page


@pytest.mark.parametrize(("values", "share", "found"), [([1, 2, 3, 4], 0.5, 2), (list(range(1, 101)), 0.99, 99), ([5], 0.99, 5)])
def test_a_quantile_is_one_of_the_values(values: list[float], share: float, found: float) -> None:
    assert quantile(values, share) == found


@pytest.mark.parametrize("classes", [{"kill-replica": [1.0, 1.1, 2.0], "none": []}, {}])
def test_the_histogram_is_a_png(classes: dict[str, list[float]], tmp_path: Path) -> None:
    draw_histograms(classes, "seconds", tmp_path / "latencies.png")
    assert (tmp_path / "latencies.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


# ------------------------------------------------------------------------------------------------------------------ certificates


@pytest.mark.parametrize(
    ("seen", "missed"),
    [
        (FloodSeen(3600, 390, 3200), []),
        (FloodSeen(3600, 200, 3300), []),
        # Of a host that sends less, less has to be refused.
        (FloodSeen(2600, 390, 1800), []),
        (FloodSeen(3600, 800, 2800), ["of the flood let in"]),
        (FloodSeen(1200, 390, 800), ["calls of the flood a second, 3 x 6 are granted"]),
        (FloodSeen(3600, 0, 3600), ["of the flood let in, as it is granted"]),
        (FloodSeen(3600, 390, 1000), ["of the flood refused"]),
    ],
    ids=["as granted", "rather less", "a slow host", "twice as much", "no flood", "nothing", "most without an answer"],
)
def test_what_is_let_in_of_a_flood_is_what_the_replicas_grant_together(seen: FloodSeen, missed: list[str]) -> None:
    demands = Demands("certificates", lambda _: None)
    judge_flood(demands, 3, 20.0, seen)
    assert [one.what for one in demands.found if not one.met] == missed

"""`make soak`: what counts as growth and what does not, which demands are missed when, and a short soak over real processes."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import soak
from benchmarks.soak_judging import MIB, Row, judged, spans, together, trend, warmed
from benchmarks.soak_processes import Looking
from benchmarks.soak_samples import ProcessSample, Sample, short_name
from rayched.v1.storage_pb2 import Stored

HOUR = 3600.0
_MOMENTS = [10.0 * number for number in range(361)]
"""An hour, a sample each 10 s."""


def noise(seconds: float) -> float:
    """Ten up or down."""
    return random.Random(round(seconds)).uniform(-10.0, 10.0)


GROWTH: list[tuple[str, Callable[[float], float], float, float]] = [
    # what, value at a moment, the least and the most growth an hour that is to be found
    ("level", lambda at: 100.0, 0.0, 0.0),
    ("level with noise", lambda at: 100.0 + noise(at), 0.0, 0.5),
    ("level with peaks", lambda at: 400.0 if at % 300 < 20 else 100.0, 0.0, 0.0),
    ("a sawtooth of five minutes", lambda at: 100.0 + at % 300 / 3, 0.0, 0.0),
    ("a sawtooth that rises", lambda at: 100.0 + at % 300 / 3 + 90.0 * at / HOUR, 5.0, 90.0),
    ("falling", lambda at: 100.0 - 50.0 * at / HOUR, 0.0, 0.0),
    ("a step in the first third", lambda at: 100.0 if at < 1000 else 200.0, 0.0, 0.0),
    ("a step in the middle", lambda at: 100.0 if at < 1800 else 200.0, 0.0, 0.0),
    ("a step in the last third", lambda at: 100.0 if at < 2600 else 200.0, 0.0, 0.0),
    ("a step down", lambda at: 200.0 if at < 1800 else 100.0, 0.0, 0.0),
    ("a cache that fills in half an hour", lambda at: 100.0 + min(at, 1800.0) / 18, 0.0, 15.0),
    ("a leak", lambda at: 100.0 + 30.0 * at / HOUR, 29.9, 30.1),
    ("a leak in noise", lambda at: 100.0 + 30.0 * at / HOUR + noise(at) / 2, 15.0, 30.0),
    ("a leak in steps of five minutes", lambda at: 100.0 + 5 * (at // 300), 40.0, 60.0),
]


@pytest.mark.parametrize(("what", "value", "least", "most"), GROWTH, ids=[row[0] for row in GROWTH])
def test_only_what_goes_on_growing_counts(what: str, value: Callable[[float], float], least: float, most: float) -> None:
    found = trend([(at, value(at)) for at in _MOMENTS])
    assert found is not None
    assert least <= round(found.growth, 6) <= most, f"{what}: {found}"


def test_a_rise_counts_as_far_as_it_exceeds_what_an_allocator_takes_at_once() -> None:
    points = [(at, 100.0 + 30.0 * at / HOUR) for at in _MOMENTS]
    with_noise, without = trend(points, noise=4.0), trend(points)
    assert with_noise is not None and without is not None
    # Ten each third; the medians of two thirds are 20 minutes apart.
    assert without.growth - with_noise.growth == pytest.approx(12.0, rel=0.01)
    assert with_noise.slope == without.slope == pytest.approx(30.0, rel=0.01)


def test_too_few_samples_tell_nothing() -> None:
    assert trend([(float(at), 1.0) for at in range(8)]) is None
    assert trend([(0.0, 1.0)] * 20) is None
    assert together([]) is None


def test_spans_count_by_their_length() -> None:
    short, long = trend([(at, at) for at in _MOMENTS[:91]]), trend([(at, 5.0) for at in _MOMENTS[:271]])
    assert short is not None and long is not None
    both = together([short, long])
    assert both is not None
    assert both.growth == pytest.approx(HOUR / 4, rel=0.02)


def test_the_warm_up_of_a_span_is_left_out() -> None:
    assert warmed([(50.0, 1.0), (55.0, 2.0), (60.0, 3.0)], 10.0) == [(60.0, 3.0)]


# ------------------------------------------------------------------------------------------------------------ demands


def a_process(name: str, pid: int, memory: float = 100.0 * MIB, *, replica: int | None = 0, fds: int = 10) -> ProcessSample:
    return ProcessSample(name, replica, pid, int(memory), int(memory), int(memory), fds, 5)


def a_sample(seconds: float, *processes: ProcessSample, leader: int | None = 0, kept: int = 2, in_use: int = 10) -> Sample:
    pods = int(seconds)
    return Sample(
        seconds=seconds,
        leader=leader,
        kills=0,
        epochs=0,
        submitted=pods,
        refused=0,
        created=pods,
        bound=pods,
        removed=pods,
        removed_unbound=0,
        present=0,
        waiting=0,
        p50=0.01,
        p99=0.02,
        cluster_keys=600,
        event_keys=kept * pods - pods,
        record_keys=pods,
        other_keys=100,
        in_use=in_use * (700 + kept * pods),
        file=1000,
        disk=1000,
        processes=processes or (a_process("replica", 1), a_process("etcd", 2, 1000.0 * (700 + kept * pods), replica=None)),
    )


def missed(samples: list[Sample], kills: int = 0) -> list[str]:
    return [row.series for row in judged(samples, kills) if row.met is False]


def test_a_level_run_misses_nothing_though_etcd_keeps_an_hour_of_records() -> None:
    assert missed([a_sample(at) for at in _MOMENTS]) == []


def test_what_is_kept_for_more_than_an_hour_is_a_leak() -> None:
    samples = [a_sample(60.0 * number) for number in range(4 * 60)]
    assert missed(samples) == ["Events and records a pod of the last hour"]


@pytest.mark.parametrize(
    ("change", "series"),
    [
        (lambda at: {"cluster_keys": int(600 + at)}, ["keys that schedulers follow", "etcd, memory a key"]),
        (lambda at: {"event_keys": int(at * at / 100)}, ["Events and records a pod of the last hour", "etcd, memory a key"]),
        (lambda at: {"in_use": int(at * at)}, ["etcd, bytes in use a key"]),
        (lambda at: {"present": int(at)}, ["pods present", "pods left"]),
        (lambda at: {"waiting": int(at)}, ["pods waiting", "pods left unbound"]),
        (lambda at: {"refused": 1}, ["submissions and deletions refused"]),
        (lambda at: {"bound": 0}, ["pods bound"]),
        (lambda at: {"removed_unbound": 1}, ["pods that went unbound"]),
        (lambda at: {"epochs": 1}, ["epochs after the first"]),
        (lambda at: {"kills": 1}, ["leaders killed"]),
        (lambda at: {"processes": [a_process("replica", 1, (100 + at / 100) * MIB)]}, ["leader, replica, memory"]),
        (lambda at: {"processes": [a_process("replica", 1, fds=int(10 + at / 300))]}, ["leader, replica, fds"]),
        (lambda at: {"processes": [a_process("replica", int(at))]}, ["processes"]),
    ],
)
def test_every_demand_that_is_missed_is_named(change: Callable[[float], dict[str, object]], series: list[str]) -> None:
    samples = [dataclasses.replace(a_sample(at), **change(at)) for at in _MOMENTS]  # type: ignore[arg-type]
    assert [name for name in missed(samples) if name != "etcd, memory a key"] == [
        name for name in series if name != "etcd, memory a key"
    ]


def test_small_processes_may_grow_by_what_allocators_keep_and_large_ones_by_a_tenth_and_steps_are_forgiven() -> None:
    def run(memory: Callable[[float], float]) -> list[str]:
        return missed([a_sample(at, a_process("replica", 1, memory(at) * MIB)) for at in _MOMENTS])

    assert run(lambda at: 10.0 + 6.0 * at / HOUR) == []
    assert run(lambda at: 10.0 + 9.0 * at / HOUR) == ["leader, replica, memory"]
    assert run(lambda at: 200.0 + 19.0 * at / HOUR) == []
    assert run(lambda at: 200.0 + 24.0 * at / HOUR) == ["leader, replica, memory"]
    assert run(lambda at: 200.0 if at < 1800 else 300.0) == []


def test_what_comes_after_the_load_is_no_part_of_a_series() -> None:
    loaded = [a_sample(at) for at in _MOMENTS]
    # Nobody submits any more and records stay: keys a pod of the last hour would grow.
    after = [dataclasses.replace(loaded[-1], seconds=3600.0 + at, waiting=0) for at in _MOMENTS[1:]]
    assert missed(loaded + [dataclasses.replace(one, cluster_keys=600 + int(one.seconds)) for one in after]) == []


def test_etcd_is_judged_once_its_history_is_as_long_as_it_gets() -> None:
    def at(seconds: float) -> Sample:
        # A leak from the first moment, in bytes and in files.
        processes = a_process("replica", 1), a_process("etcd", 2, replica=None, fds=int(30 + seconds / 100))
        return a_sample(seconds, *processes, in_use=int(1000 + seconds))

    short, long = [[at(seconds) for seconds in _MOMENTS if seconds <= until] for until in (1790.0, 3600.0)]
    assert missed(short) == []
    assert missed([dataclasses.replace(one, processes=one.processes[1:]) for one in short]) == ["processes"]
    assert missed(long) == ["etcd, fds", "etcd, bytes in use a key"]
    # What grows for as long as history does, and settles slowly, is none.
    settled = [
        1e3 * (700 + 2 * at) * (min(at, 900.0) + (min(at, 2000.0) - 900.0 if at > 900.0 else 0.0) * 0.001) for at in _MOMENTS
    ]
    assert missed([dataclasses.replace(one, in_use=int(used)) for one, used in zip(long, settled, strict=True)]) == ["etcd, fds"]


def test_a_run_without_samples_misses_its_demands() -> None:
    assert missed([]) == ["samples"]


def test_a_process_is_judged_apart_as_leader_and_standby_and_anew_after_its_start() -> None:
    def at(seconds: float) -> Sample:
        # Replica 0 leads for half an hour and is started again; replica 1 leads then. Leading takes more memory.
        leader = 0 if seconds < 1800 else 1
        pids = (10 if seconds < 1800 else 11), 20
        processes = [
            a_process("replica", pids[number], (300 if number == leader else 100) * MIB, replica=number) for number in (0, 1)
        ]
        return a_sample(seconds, *processes, leader=leader)

    samples = [at(seconds) for seconds in _MOMENTS]
    found = spans(samples, lambda one: one.memory / MIB)
    assert {kind: [len(points) for points in all_points] for kind, all_points in found.items()} == {
        "leader, replica": [180, 181],
        "standby, replica": [180, 181],
    }
    assert {value for points in found["leader, replica"] for _, value in points} == {300.0}
    assert "leader, replica, memory" not in missed(samples)


def test_moments_without_a_leader_belong_to_no_span() -> None:
    samples = [a_sample(at, a_process("replica", 1), leader=None if at == 100 else 0) for at in _MOMENTS]
    found = spans(samples, lambda one: one.memory)
    assert {kind: [len(points) for points in all_points] for kind, all_points in found.items()} == {"leader, replica": [360]}


# ------------------------------------------------------------------------------------------- samples, and what etcd shows


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["ray::SchedulerProcess.decide"], "SchedulerProcess"),
        (["ray::IDLE", "", ""], "IDLE"),
        (["/usr/lib/ray/raylet/raylet", "--x=1"], "raylet"),
        (["/usr/bin/python3.11", "-m", "rayched.cli.main", "replica"], "main"),
        (["python", "-u", "/usr/lib/ray/log_monitor.py", "--a"], "log_monitor"),
        (["python", "-I", "-c", "import os"], "python -c"),
        (["python"], "python"),
    ],
)
def test_processes_have_short_names(words: list[str], name: str) -> None:
    assert short_name(words) == name


def test_pods_are_followed_from_their_creation_to_their_removal() -> None:
    looking = Looking()
    waiting, bound = Stored(), Stored()
    bound.object.pod.spec.node_name = "node-1"

    def note(key: bytes, version: int, stored: Stored, seconds: float) -> None:
        pair = SimpleNamespace(key=key, version=version, value=stored.SerializeToString())
        looking.note(pair, seconds, b"/epoch")

    note(b"/a", 1, waiting, 1.0)
    note(b"/b", 1, waiting, 1.0)
    note(b"/c", 1, waiting, 1.0)
    note(b"/a", 2, waiting, 1.5)
    note(b"/a", 3, bound, 2.0)
    note(b"/a", 4, bound, 2.5)
    note(b"/epoch", 7, waiting, 3.0)
    note(b"/b", 0, waiting, 4.0)
    seen = looking.seen()
    assert (seen.created, seen.bound, seen.removed, seen.removed_unbound) == (3, 1, 1, 1)
    assert (seen.present, seen.waiting, seen.epochs, seen.waited) == (2, 1, 1, [1.0])
    assert looking.seen().waited == [] and looking.seen().created == 3


# ------------------------------------------------------------------------------------------------------------- command


def a_file(path: Path, samples: list[Sample], more: str = "") -> Path:
    path.write_text("".join(json.dumps(sample.as_json()) + "\n" for sample in samples) + more)
    return path


@pytest.mark.parametrize(("suffix", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_the_samples_of_a_run_are_judged_again_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str, begins: bytes
) -> None:
    # Its last line is being written.
    file = a_file(tmp_path / "soak.jsonl", [a_sample(at) for at in _MOMENTS], '{"seconds": 36')
    picture = tmp_path / f"soak.{suffix}"
    assert soak.main(["--judge", str(file), "--kills", "0", "--picture", str(picture)]) == 0
    assert picture.read_bytes().startswith(begins)
    printed = capsys.readouterr()
    assert "leader, replica, memory" in printed.out and "MISSED" not in printed.out and printed.err == ""


def test_a_missed_demand_is_the_exit_code_and_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = a_file(tmp_path / "soak.jsonl", [a_sample(at) for at in _MOMENTS])
    assert soak.main(["--judge", str(file), "--kills", "5"]) == 1
    printed = capsys.readouterr()
    assert "MISSED" in printed.out
    assert printed.err == "error: leaders killed: 0 became 0; 5\n"


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("nothing\n{}\n", [], ":1: found 'nothing', a sample is wanted"),
        ("", [], ": there are no samples"),
        ("", ["--picture", "a.gif"], "--picture a.gif: found .gif, allowed are .svg and .png"),
    ],
)
def test_what_is_no_sample_or_picture_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, arguments: list[str], words: str
) -> None:
    file = tmp_path / "soak.jsonl"
    file.write_text(text)
    assert soak.main(["--judge", str(file), *arguments]) == 1
    assert words in capsys.readouterr().err


def test_rows_are_told_with_their_units() -> None:
    rows = {row.series: row for row in judged([a_sample(at) for at in _MOMENTS], 0)}
    assert rows["leader, replica, memory"] == Row(
        "leader, replica, memory", "100.0 MiB", "100.0 MiB", "+0.0 MiB", "goes on: 0.0 MiB/h, at most 10.0 MiB/h", True
    )
    assert rows["from creation to binding, p50"].start == "10 ms"
    assert rows["pods bound"].demand == "all 3600 created"


@pytest.mark.long
@pytest.mark.cluster
def test_a_short_soak_samples_every_process_and_loses_no_pod(tmp_path: Path) -> None:
    file = tmp_path / "soak.jsonl"
    arguments = ["--minutes", "0.2", "--kills", "1", "--rate", "20", "--nodes", "4", "--samples", str(file)]
    # Twelve seconds show no trend: the exit code says only that.
    soak.main([*arguments, "--logs", str(tmp_path / "logs")])
    samples = soak.read(file)
    last = samples[-1]
    assert last.kills == 1 and last.epochs >= 1
    assert last.created >= last.submitted >= 20 and last.removed == last.created and last.present == 0
    names = {one.name for sample in samples for one in sample.processes}
    assert {"replica", "etcd", "raylet", "gcs_server", "SchedulerProcess", "QueueActor"} <= names
    assert all(one.memory > 0 and one.fds > 0 and one.threads > 0 for sample in samples for one in sample.processes)
    assert all(before.created <= after.created for before, after in itertools.pairwise(samples))
    assert last.record_keys >= 20 and last.cluster_keys > 4 and last.in_use > 0 and last.disk > 0

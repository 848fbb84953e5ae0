"""`make fuzz-parsers`: equal seeds give equal inputs, faults are found, and a short run finds none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fuzz.all_parsers import TARGETS
from tests.fuzz.kept_inputs import BYTES_MAX as KEPT_BYTES_MAX
from tests.fuzz.kept_inputs import KEPT_MAX, keep, kept
from tests.fuzz.mutation import BYTES_MAX, FAULTS_MAX, INPUT_SECONDS_MAX, MutatedInputs, fuzz_parser
from tests.fuzz.parsers import ParserTarget
from tests.fuzz.run_parsers import main

INPUTS = 1_500
BY_NAME = {target.name: target for target in TARGETS}


def still() -> float:
    return 0.0


def some(target: ParserTarget, seed: int, count: int = 300) -> list[bytes]:
    return list(itertools.islice(MutatedInputs(target, seed), count))


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_well_formed_is_taken_and_what_is_changed_at_random_is_never_a_fault(name: str) -> None:
    target = BY_NAME[name]
    report = fuzz_parser(target, 1, lambda done: done < INPUTS, still)
    assert [str(fault) for fault in report.faults] == []
    assert report.inputs == INPUTS and len(report.outcomes) >= 2, "it has to come further than to the first refusal"


@pytest.mark.parametrize("name", BY_NAME)
def test_what_once_reached_new_code_is_no_fault(name: str) -> None:
    inputs = kept(name)
    assert 0 < len(inputs) <= KEPT_MAX
    for data in inputs:
        assert BY_NAME[name].check(data)


def test_of_what_was_found_each_outcome_is_kept_and_then_the_shortest(tmp_path: Path) -> None:
    found = [b"\x00\xff\n", b"x" * (KEPT_BYTES_MAX + 1), *(b"a" * length for length in range(1, KEPT_MAX + 50)), b"z" * 400]
    assert keep("any", found, lambda data: str(data[:1]), tmp_path) == KEPT_MAX
    again = kept("any", tmp_path)
    assert set(again) == {b"\x00\xff\n", b"z" * 400, *(b"a" * length for length in range(1, KEPT_MAX - 1))}
    assert (tmp_path / "any.txt").read_bytes().isascii() and kept("nobody", tmp_path) == ()


def test_what_looks_like_a_secret_is_not_kept(tmp_path: Path) -> None:
    assert keep("any", [b"rt_abcdefgh_" + b"s" * 43, b"rt_abcdefgh_"], lambda _: "", tmp_path) == 1
    assert kept("any", tmp_path) == (b"rt_abcdefgh_",)


@pytest.mark.parametrize("name", ["bearer-header", "continue-tokens", "csr", "csr-content"])
def test_what_is_right_gets_through(name: str) -> None:
    target = BY_NAME[name]
    assert target.check(target.corpus[0]) == "taken"


def test_equal_seeds_give_equal_inputs_and_others_others() -> None:
    target = BY_NAME["yaml"]
    assert some(target, 3) == some(target, 3) != some(target, 4)
    assert all(len(data) <= BYTES_MAX for data in some(target, 5, 3_000))
    assert any(len(data) > 10_000 for data in some(target, 5, 3_000))


def test_a_parser_that_raises_what_it_does_not_document_is_found() -> None:
    def check(data: bytes) -> str:
        if b"!!" in data:
            raise KeyError("secret")
        return str(data[:1])

    report = fuzz_parser(ParserTarget("bad", check, (b"a!b",), (b"!",)), 1, lambda done: done < 100_000, still)
    assert len(report.faults) == FAULTS_MAX and "KeyError" in str(report.faults[0])


def test_an_input_that_takes_long_is_found() -> None:
    ticks: Iterator[float] = itertools.count(0.0, INPUT_SECONDS_MAX * 1.5)
    report = fuzz_parser(BY_NAME["quantities"], 1, lambda done: done < 3, lambda: next(ticks))
    assert [fault.said for fault in report.faults] == ["took 1.5 s"] * 3


def test_a_request_with_a_key_that_nobody_knows_is_refused() -> None:
    """cryptography has an error of its own for these, which is no ValueError."""
    (p256, *_) = BY_NAME["csr-content"].corpus
    for known in (b"\x2a\x86\x48\xce\x3d\x02\x01", b"\x2a\x86\x48\xce\x3d\x03\x01\x07"):
        assert known in p256
        unknown = known[:-1] + bytes([known[-1] ^ 8])
        assert "is no request for a certificate" in BY_NAME["csr-content"].check(p256.replace(known, unknown))


def test_a_request_of_a_version_that_there_is_not_is_refused() -> None:
    """The same goes for these."""
    p256 = BY_NAME["csr-content"].corpus[0]
    version = b"\x02\x01\x00\x30"
    assert version in p256
    said = BY_NAME["csr-content"].check(p256.replace(version, b"\x02\x01\x0a\x30"))
    assert "is no request for a certificate" in said


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("quantities", b"1" * 10_000),
        ("names", b"a" * 60_000 + b"!"),
        ("selectors", b"a in (" + b"b," * 2_000 + b")"),
        ("identities", b"spiffe://" + b"a." * 30_000),
        ("yaml", b"[" * 60_000),
        ("yaml", b"*" + b"a" * 60_000),
        ("patches", b's{"spec": {"' + b"a" * 60_000 + b'": 1}}'),
        ("patches", b'j[{"op": "test", "path": "/' + b"a/" * 30_000 + b'", "value": 1}]'),
        ("paths", b"{" + b"." * 60_000 + b"name}"),
        ("paths", b"{.a\x1b" + b"b" * 60_000),
        ("go-templates", b"{{}{" * 16_000),
        ("go-templates", b"{{- /* c */}x{{end}}" * 3_000),
        ("kustomizations", b"*" + b"a" * 60_000),
        ("configurations", b"*" + b"a" * 60_000),
        ("bodies", b'j{"a' + b"b" * 60_000 + b'": 1, "a' + b"b" * 60_000 + b'": 2}'),
        ("frames", b"\x01" + b"\x80\x03\x00\x01\x00\x00\x40\x00" * 8_000),
        ("yaml", b"a: &a [x]\n" + b"".join(b"b%d: [*a, *a]\n" % number for number in range(500))),
        ("csr-content", b"\x30\x82\xff\xff" * 1_000),
        ("bearer-header", b"Bearer rt_" + b"a" * 60_000),
    ],
)
def test_what_is_long_is_refused_in_a_line(name: str, data: bytes) -> None:
    assert BY_NAME[name].check(data)


def test_a_refusal_with_control_characters_is_a_fault() -> None:
    from tests.fuzz.parsers import refused

    for text in ("two\nlines", "red \x1b[31m", "\u202eback", "", "x" * 3_000):
        with pytest.raises(AssertionError):
            refused(text)


def test_one_of_them_runs_as_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "quantities", "--seconds", "0.2", "--without-atheris"]) == 0
    shown = capsys.readouterr().out
    assert "random changes, 0.2 s each, seed 1" in shown and "quantities: " in shown and ", 0 faults" in shown
    assert main(["--only", "nonsense"]) == 2
    assert "there are selectors, quantities" in capsys.readouterr().err


def test_all_of_them_are_named() -> None:
    """Those of the specification; requests for certificates as PEM and as what lies in it."""
    names = ["selectors", "quantities", "continue-tokens", "names", "bearer-header", "identities", "csr", "csr-content", "yaml"]
    others = ["bodies", "patches", "frames", "paths", "go-templates", "kustomizations", "configurations"]
    assert [target.name for target in TARGETS] == names + others
    assert all(replace(target).corpus for target in TARGETS)

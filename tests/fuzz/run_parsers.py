"""`make fuzz-parsers`: the parsers of hostile text, a minute of a processor's time each.

    make fuzz-parsers                              a minute each
    make fuzz-parsers SECONDS=3600                 an hour each
    make fuzz-parsers ARGS="--only yaml --seed 7"
    make fuzz-parsers ARGS="--corpus /tmp/corpus --keep"

Where atheris is installed (`pip install 'rayched[fuzz-parsers]'`, on Linux), it looks for inputs that reach new code, and keeps
them in `--corpus`; with `--keep` those that are worth it go into kept_inputs.py's files, which the next search begins with.
Elsewhere, and with `--without-atheris`, inputs are changed at random, by a seed. Exit code 1 for a fault; the input is printed.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SECONDS: Final = 60.0
_WAITS_MAX: Final = 20.0
"""How much longer a process of atheris may take than it has a processor's time: others may have the processors."""
_LONGER_SECONDS: Final = 60.0
"""What it has beyond that, to load and to end."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    if given.keep and given.corpus is None:
        print("--keep wants a --corpus", file=sys.stderr)
        return 2
    if given.atheris_target:
        return _look_with_atheris(given.atheris_target, given.seconds, given.seed, given.corpus)
    from tests.fuzz.all_parsers import TARGETS
    from tests.fuzz.kept_inputs import keep

    chosen = [target.name for target in TARGETS if not given.only or target.name in given.only]
    unknown = set(given.only) - {target.name for target in TARGETS}
    if unknown:
        print(f"--only {', '.join(sorted(unknown))}: there are {', '.join(target.name for target in TARGETS)}", file=sys.stderr)
        return 2
    guided = not given.without_atheris and importlib.util.find_spec("atheris") is not None
    print(f"{'atheris' if guided else 'random changes'}, {given.seconds:g} s each, seed {given.seed}")
    look = _in_a_process if guided else _at_random
    # Each of them, also behind one that has a fault.
    faulty = [name for name in chosen if look(name, given.seconds, given.seed, given.corpus)]
    for target in TARGETS if given.keep else ():
        if target.name in chosen:
            found = (file.read_bytes() for file in (given.corpus / target.name).iterdir())
            print(f"{target.name}: {keep(target.name, found, target.check)} inputs kept")
    return int(bool(faulty))


def _at_random(name: str, seconds: float, seed: int, _corpus: Path | None) -> int:
    from tests.fuzz.all_parsers import TARGETS
    from tests.fuzz.mutation import fuzz_parser

    (target,) = [one for one in TARGETS if one.name == name]
    until = time.thread_time() + seconds
    report = fuzz_parser(target, seed, lambda _: time.thread_time() < until, time.thread_time)
    longest = f"the longest took {report.longest_seconds * 1e3:.1f} ms"
    seen = f"{report.inputs} inputs, {len(report.outcomes)} outcomes, {longest}, {len(report.faults)} faults"
    print(f"{name}: {seen}", flush=True)
    for fault in report.faults:
        print(f"  {fault}", flush=True)
    return len(report.faults)


def _in_a_process(name: str, seconds: float, seed: int, corpus: Path | None) -> int:
    """libFuzzer ends the process it is in."""
    line = [sys.executable, "-m", "tests.fuzz.run_parsers", "--atheris-target", name]
    line += ["--seconds", str(seconds), "--seed", str(seed)]
    if corpus is not None:
        line += ["--corpus", str(corpus)]
    print(f"{name}:", flush=True)
    try:
        return subprocess.run(line, timeout=_WAITS_MAX * seconds + _LONGER_SECONDS, check=False).returncode
    except subprocess.TimeoutExpired as late:
        print(f"{name}: did not end within {late.timeout:g} s", flush=True)
        return 1


def _look_with_atheris(name: str, seconds: float, seed: int, corpus: Path | None) -> int:
    """In this process, which it ends. libFuzzer knows only a time by the clock, so what is counted here is the processor's."""
    import atheris  # type: ignore[import-not-found, unused-ignore]

    with atheris.instrument_imports(include=["rayched"]):
        from tests.fuzz.all_parsers import TARGETS
        from tests.fuzz.kept_inputs import kept
        from tests.fuzz.mutation import INPUT_SECONDS_MAX
    (target,) = [one for one in TARGETS if one.name == name]
    flags = [f"-seed={seed}", f"-timeout={int(_WAITS_MAX * INPUT_SECONDS_MAX)}"]
    if corpus is not None:
        place = corpus / name
        place.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate((*target.corpus, *kept(name))):
            (place / f"given-{number}").write_bytes(data)
        flags.append(str(place))

    inputs = itertools.count(1)

    def one_input(data: bytes) -> None:
        target.check(data)
        number = next(inputs)
        if (taken := time.process_time()) >= seconds:
            print(f"{name}: {number} inputs in {taken:.0f} s of a processor, no fault", flush=True)
            os._exit(0)

    atheris.Setup([sys.argv[0], *flags], one_input)
    atheris.Fuzz()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make fuzz-parsers")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], metavar="PARSER")
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="where atheris keeps inputs that reached new code")
    parser.add_argument("--keep", action="store_true", help="keep those of them that are worth it in tests/fuzz/corpus")
    parser.add_argument("--without-atheris", action="store_true")
    parser.add_argument("--atheris-target", default="", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())

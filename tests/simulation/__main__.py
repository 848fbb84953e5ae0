"""`python -m tests.simulation --seed N` repeats one run and tells its story; `--seeds N` runs many. See `run.py`."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.planted_bugs import OF_WORLDS
from tests.simulation.run import Report, simulate, simulate_many


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="one run, with its story")
    parser.add_argument("--seeds", type=int, default=2000, help="so many runs (default 2000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed of many (default 0)")
    parser.add_argument("--bug", choices=OF_WORLDS, metavar="NAME", help=f"with a bug planted: {'; '.join(OF_WORLDS)}")
    parser.add_argument("--quiet", action="store_true", help="one run without its story")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        report = simulate(options.seed, options.bug, None if options.quiet else print)
        print(f"seed {report.seed}: trace {report.trace_hash}, {report.simulated_seconds:.1f} s in {report.seconds:.2f} s")
        _tell_counts(report.counts)
        return _tell_violation(report, options.bug)
    return _many(range(options.first, options.first + options.seeds), options.bug)


def _many(seeds: range, bug: str | None) -> int:
    began = time.perf_counter()
    counts: Counter[str] = Counter()
    failed = 0
    runs = simulated = 0.0
    slowest = Report(0)
    for report in simulate_many(seeds, bug):
        counts.update(report.counts)
        runs += 1
        simulated += report.simulated_seconds
        slowest = max(slowest, report, key=lambda one: one.live_seconds)
        failed += _tell_violation(report, bug)
    took = time.perf_counter() - began
    print(f"{runs:.0f} seeds, {simulated:.0f} simulated seconds in {took:.1f} s: {failed} violations")
    print(f"longest until all had healed: {slowest.live_seconds:.2f} s, seed {slowest.seed}")
    _tell_counts(counts)
    return 1 if failed else 0


def _tell_counts(counts: Counter[str]) -> None:
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"{count:>10}  {name}")


def _tell_violation(report: Report, bug: str | None) -> int:
    if not report.rule:
        return 0
    print(f"seed {report.seed}: {report.text}\n    repeat it: {report.command(bug)}", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

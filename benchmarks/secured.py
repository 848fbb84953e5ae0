"""`make secured`: what certificates and the audit log cost a cluster of one replica.

Pairs in turn, each run with a cluster of its own (end_to_end.py): without TLS and audit log, and with both as `rayched up` has
them, but for how much one caller may ask for: here one submits all. Told are pods bound a second, and the median of single pods
that come steadily. Exit code 1 where the median of the ratios is below RATE_MIN, or single pods take longer by more than
LONGER_MS_MAX.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import median

from benchmarks import end_to_end, workloads
from benchmarks.measured import Measured
from rayched.cli import printing
from rayched.cli.cluster.rehearsal import RehearsalFailed
from rayched.client.errors import ApiError
from rayched.pki.errors import PkiError
from rayched.replica.cluster.local_cluster import ReplicaFailed

RATE_MIN = 0.85
LONGER_MS_MAX = 1.0
_WORKLOAD = "SchedulingBasic"
_ALL_NODES = 100
_NO_AUDIT = ("--audit-log", "off")
_RATE = "1000000"
_UNBOUNDED = ("--write-rate", _RATE, "--read-rate", _RATE, "--watch-rate", _RATE, "--store-bytes", str(1 << 30))


Pair = tuple[Measured, Measured]
"""The first one is without."""


def medians(pairs: Sequence[Pair]) -> tuple[float, float]:
    """What part of the rate is left, and how many ms longer single pods take."""
    return (
        median(plain.seconds / secured.seconds for plain, secured in pairs),
        median(secured.latency_ms_p50 - plain.latency_ms_p50 for plain, secured in pairs),
    )


def judged(pairs: Sequence[Pair]) -> list[str]:
    """The demands that are missed."""
    wrong = []
    ratio, longer = medians(pairs)
    if ratio < RATE_MIN:
        wrong.append(f"certificates and audit leave {ratio:.2f} of the rate, demanded are {RATE_MIN}")
    if longer > LONGER_MS_MAX:
        wrong.append(
            f"certificates and audit make single pods {longer:.2f} ms longer in the median, allowed is {LONGER_MS_MAX} ms"
        )
    return wrong


def rows(pairs: Sequence[Pair], pods: int) -> list[tuple[str, str]]:
    """What is printed of the pairs, and of their medians."""
    found = []
    for number, (plain, secured) in enumerate(pairs, 1):
        rates = f"{pods / plain.seconds:,.0f} and {pods / secured.seconds:,.0f} pods/s, {plain.seconds / secured.seconds:.2f}"
        found.append((f"pair {number}", f"{rates}; single pods {plain.latency_ms_p50:.2f} and {secured.latency_ms_p50:.2f} ms"))
    ratio, longer = medians(pairs)
    return [*found, ("median", f"{ratio:.2f} of the rate, single pods {longer:+.2f} ms")]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make secured")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--pairs", type=int, default=5)
    given = parser.parse_args(arguments)
    workload = workloads.chosen(_WORKLOAD)[0].sized(given.nodes, None, given.pods)
    pairs = []
    try:
        with printing.progress("pairs", given.pairs) as bar:
            for _ in range(given.pairs):
                runs = (
                    end_to_end.run(workload, 1, _ALL_NODES, options=(*_NO_AUDIT, *_UNBOUNDED)),
                    end_to_end.run(workload, 1, _ALL_NODES, certificates=True, options=_UNBOUNDED),
                )
                for run in runs:
                    if run.violations:
                        raise RehearsalFailed(f"the auditor found: {'; '.join(run.violations)}")
                pairs.append((runs[0].measured, runs[1].measured))
                bar.advance()
    except (RehearsalFailed, ReplicaFailed, ApiError, PkiError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    title = f"{_WORKLOAD}, {given.nodes:,} nodes, {given.pods:,} pods: without and with certificates and audit log"
    printing.figures(title, rows(pairs, given.pods))
    wrong = judged(pairs)
    for words in wrong:
        print(f"error: {words}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

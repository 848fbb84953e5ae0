"""What `rayched node` refuses before it does anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from rayched.nodes.agent.eviction.thresholds import DEPRECATED_FLAGS
from tests.cli.cluster import run_here


def refused(tmp_path: Path, *options: str) -> str:
    """The one line that says why; exit code 2."""
    result = run_here(["node", "n", "--root-dir", str(tmp_path), "--server", "127.0.0.1:1", *options])
    assert result.code == 2 and len(result.errors) == 1
    return result.errors[0].removeprefix("error: ")


@pytest.mark.row("K10.15", "N116")
@pytest.mark.parametrize("flag", list(DEPRECATED_FLAGS))
def test_an_old_flag_names_its_successor(tmp_path: Path, flag: str) -> None:
    told = refused(tmp_path, flag, "1")
    assert told == f"{flag} is not known any more; in its place stands {DEPRECATED_FLAGS[flag]}"


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (("--eviction-hard", "memory<1Gi"), "--eviction-hard: signal 'memory' is not known; allowed are memory.available, "),
        (
            ("--eviction-soft", "memory.available<1Gi"),
            "grace period must be specified for the soft eviction threshold memory.available",
        ),
        (("--eviction-pressure-transition-period", "5"), "--eviction-pressure-transition-period: '5' is no duration; want one"),
        (("--memory", "lots"), "--memory: "),
        (("--resource", "gpu"), "--resource 'gpu': want NAME=VALUE"),
        (("--memory", "1Gi", "--system-reserved", "memory=2Gi"), "memory: capacity 1073741824 is less than system-reserved"),
        (("--crash-loop-max-period", "10m"), "--crash-loop-max-period '10m': want 1s to 300s"),
        (
            ("--shutdown-grace-period", "5s", "--shutdown-grace-period-critical-pods", "10s"),
            "--shutdown-grace-period-critical-pods 10s: want at most --shutdown-grace-period, 5s",
        ),
        (
            ("--shutdown-grace-period-by-pod-priority", "high=5s"),
            "--shutdown-grace-period-by-pod-priority 'high': want a priority such as 0 or 2000000000",
        ),
        (
            ("--shutdown-grace-period-by-pod-priority", "0=5s", "--shutdown-grace-period", "5s"),
            "--shutdown-grace-period-by-pod-priority: cannot be given together with --shutdown-grace-period",
        ),
        (("--http-address", "10.0.0.1:80"), "--http-address '10.0.0.1:80': want HOST:PORT with a host of loopback"),
        (("--http-address", "80"), "--http-address '80': want HOST:PORT with a host of loopback"),
        (("--pod-user", "no-such-user"), "--pod-user 'no-such-user': this host has no such user"),
        (("--allowed-uids", "a-b"), "--allowed-uids 'a-b': want FIRST-LAST or one number"),
        (
            ("--containment", "tree", "--pod-pids-limit", "100"),
            "--pod-pids-limit 100: needs the tier cgroup of --containment, found tree",
        ),
        (("--podman", "/no/such/podman"), "--podman /no/such/podman: this is no program"),
        (("--default-driver", "podman", "--podman", "/bin/false"), "--default-driver podman: podman info ended with 1"),
        (("--allowed-gids", "x"), "--allowed-gids 'x': want FIRST-LAST or one number"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_line(tmp_path: Path, options: tuple[str, ...], wanted: str) -> None:
    assert refused(tmp_path, *options).startswith(wanted)

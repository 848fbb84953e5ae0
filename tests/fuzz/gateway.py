"""`make fuzz-gateway`: schemathesis makes requests of the OpenAPI documents that a gateway serves, and sends them to it.

    make fuzz-gateway                   for an hour
    make fuzz-gateway MINUTES=3 SEED=7  for less, and others

One replica on loopback with an etcd of its own, and a gateway before it. Rounds over all documents, each with a seed of its own,
until the time is over; what requests are about is put back before each round. In the documents the names of what is there stand
beside any text, so that requests find something. Streams that do not end by themselves are left out: a tool that waits for
answers would wait for them.

Demanded is that no answer is of 500 or above, that the gateway logs no exception, and that neither replica nor gateway ends. Exit
code 1 where a demand is missed; what schemathesis says of it, with a command of curl that asks for it again, is printed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rayched.client.client import Client
from rayched.replica.cluster.local_cluster import LocalCluster
from rayched.replica.cluster.local_start import wait_until_up
from tests.cli.cluster import started
from tests.fuzz.run import OPTIONS
from tests.fuzz.values import NAMESPACES, NODES, PODS
from tests.fuzz.world import clear, place

_EXAMPLES: Final = 30
"""Of an operation, before the next one has its turn."""
_DOCUMENT_SECONDS_MAX: Final = 120.0
"""Of a round."""
_REQUEST_SECONDS_MAX: Final = 20
_END_SECONDS_MAX: Final = 120.0
"""What schemathesis has for its last requests and its words, once its time is over."""
_START_SECONDS_MAX: Final = 180.0
_ENDLESS: Final = ("watch", "follow")
_LOG_CHARACTERS: Final = 4_000


def fuzz(directory: Path, minutes: float, seed: int) -> list[str]:
    """The demands that were missed; the replica's log stays in the directory."""
    ends_at = time.monotonic() + 60.0 * minutes
    wrong: list[str] = []
    cluster = LocalCluster(directory / "up", 1, unsafe_no_fsync=True, options=OPTIONS)
    with cluster, cluster.client(timeout_seconds=30.0) as client:
        wait_until_up(cluster, client, _START_SECONDS_MAX, _tell)
        log = directory / "gateway.log"
        with started("gateway", "--listen", "127.0.0.1:0", "--server", cluster.addresses[0], errors=log) as gateway:
            url = gateway.line_with("is served at").rpartition(" ")[2]
            while not wrong and time.monotonic() < ends_at:
                _tell(f"seed {seed}, {max(0.0, ends_at - time.monotonic()) / 60:.1f} minutes left")
                wrong += _round(directory, url, client, seed, ends_at)
                seed += 1
            wrong += _ended(gateway.process.poll(), log)
            wrong += _logged(log)
        replica = cluster.replicas[0].process
        if replica is None or replica.poll() is not None:
            wrong.append("the replica has ended")
    return wrong


def _round(directory: Path, url: str, client: Client, seed: int, ends_at: float) -> list[str]:
    """All documents once, or as many as the time allows."""
    clear(client)
    place(client)
    index = _read(f"{url}/openapi/v3")
    wrong = []
    for number, (name, one) in enumerate(index["paths"].items()):
        left = ends_at - time.monotonic()
        if left <= 0:
            break
        # It goes on until its time is spent, so each document gets its share of what is left.
        budget = max(1, int(min(_DOCUMENT_SECONDS_MAX, left / (len(index["paths"]) - number))))
        file = directory / f"{name.replace('/', '-')}.json"
        file.write_text(json.dumps(with_names(_read(f"{url}{one['serverRelativeURL']}"))))
        words = [
            *(sys.executable, "-m", "schemathesis.cli", "run", str(file), "--url", url, "--checks", "not_a_server_error"),
            *("--max-examples", str(_EXAMPLES), "--seed", str(seed), "--request-timeout", str(_REQUEST_SECONDS_MAX)),
            *("--max-time", str(budget), "--suppress-health-check", "all", "--no-color"),
        ]
        limit = budget + _END_SECONDS_MAX
        try:
            ended = subprocess.run(words, capture_output=True, text=True, timeout=limit, cwd=directory, check=False)
        except subprocess.TimeoutExpired:
            wrong.append(f"{name}, seed {seed}: schemathesis does not end within {limit:.0f} s")
            continue
        if ended.returncode:
            wrong.append(f"{name}, seed {seed}:\n{ended.stdout}{ended.stderr}")
    return wrong


def with_names(document: dict[str, Any]) -> dict[str, Any]:
    """The document with what there is among the names, and without parameters that ask for a stream without an end."""
    names = {"namespace": [*NAMESPACES, "default"], "name": [*PODS, *NODES, *NAMESPACES]}
    for item in document["paths"].values():
        for one in item.get("parameters", ()):
            # Twice as often as any other.
            one["schema"] = {"anyOf": [{"enum": names[one["name"]]}, {"enum": names[one["name"]]}, one["schema"]]}
        for operation in item.values():
            if isinstance(operation, dict):
                operation["parameters"] = [one for one in operation["parameters"] if one["name"] not in _ENDLESS]
    return document


def _ended(code: int | None, log: Path) -> list[str]:
    if code is None:
        return []
    return [f"the gateway has ended with code {code}: {log.read_text(errors='replace')[-2_000:]}"]


def _logged(log: Path) -> list[str]:
    """Exceptions that nobody expected."""
    text = log.read_text(errors="replace")
    at = text.find("Traceback")
    return [] if at < 0 else [f"the gateway has logged an exception:\n{text[max(0, at - 500) : at + _LOG_CHARACTERS]}"]


def _read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=_REQUEST_SECONDS_MAX) as answer:
        return json.load(answer)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make fuzz-gateway")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="rayched-fuzz-") as directory:
        wrong = fuzz(Path(directory), given.minutes, given.seed)
    for words in wrong:
        print(f"error: {words}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

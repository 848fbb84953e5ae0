"""One side of `benchmarks.pairs`: a workload of `benchmarks.one_thread` that goes on only when it is told to.

Run as a file with a checkout as working directory, whose rayched and benchmarks are measured; the checkout may be older than this
file. Arguments: workload, nodes, pods before, measured pods, templates, CPU. Says `ready`, then after each line of standard input
`more`, at the end one line of JSON: `us_per_pod` by stage, and `wrong`.
"""

from __future__ import annotations

import json
import os
import sys
import time

sys.path[0] = os.getcwd()

from benchmarks import workloads  # noqa: E402 - of the working directory, not of the folder of this file
from benchmarks.one_thread import SECONDS_MAX, OneThread  # noqa: E402
from rayched.actors.garbage import collect_rarely  # noqa: E402

TURN_SECONDS = 0.01
"""A short run has a few of them, too."""


def main(name: str, nodes: int, before: int, measured: int, templates: int, cpu: int) -> None:
    collect_rarely()
    workload = workloads.chosen(name)[0].sized(nodes, before, measured)
    rig = OneThread(workload)
    wrong = [] if rig.prepare() else ["not all pods that are there before were bound"]
    pods = rig.cluster.pairs(workload.pods_measured(templates))
    meanwhile = rig.cluster.meanwhile()
    # Both sides on one processor: what slows it down for a while slows both.
    os.sched_setaffinity(0, {cpu})
    print("ready", flush=True)
    sys.stdin.readline()
    for one in meanwhile:
        one.start()
    rig.seconds.clear()
    cluster = rig.cluster
    cluster.await_pods(key for key, _ in pods)
    cluster.memory.put_all(pods)
    deadline = time.process_time() + SECONDS_MAX
    turn_ends = time.process_time() + TURN_SECONDS
    while not cluster.all_bound.is_set() and time.process_time() < deadline:
        rig._step()  # older checkouts have no other name for it
        if time.process_time() >= turn_ends:
            print("more", flush=True)
            sys.stdin.readline()
            turn_ends = time.process_time() + TURN_SECONDS
    for one in meanwhile:
        one.stop()
    if len(cluster.bound) < len(pods):
        wrong.append(f"{len(cluster.bound)} of {len(pods)} pods were bound within {SECONDS_MAX:.0f} s of CPU")
    wrong.extend(cluster.judged(templates).wrong)
    us_per_pod = {stage: 1e6 * seconds / len(pods) for stage, seconds in rig.seconds.items()}
    print(json.dumps({"us_per_pod": us_per_pod, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))

"""A candidate in a process of its own, to be killed or paused: `python -m tests.leader.candidate_process ENDPOINT ROOT IDENTITY`.

While it leads it writes `ROOT/work/IDENTITY` under its epoch as fast as it can, with no look at its belief: the worst that a
writer can do. Prints `leads EPOCH` and, at its first refused write, `refused`.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import time

import grpc

from leader.channel import open_channel
from tests.leader.members import Member, guarded_put

_PR_SET_PDEATHSIG = 1


def main(endpoint: str, root: str, identity: str) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    member = Member(identity, [endpoint], root).start()
    channel = open_channel([endpoint])
    epoch = member.leads(60.0)
    print("leads", epoch, flush=True)
    refused = False
    while True:
        try:
            taken = guarded_put(channel, root, epoch, f"work/{identity}")
        except grpc.RpcError:
            continue
        if not taken and not refused:
            print("refused", flush=True)
            refused = True
        time.sleep(0.002)


if __name__ == "__main__":
    main(*sys.argv[1:])

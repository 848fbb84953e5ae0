"""One of several equal programs works at a time: `python leader_election.py ENDPOINT NAME`. Needs the package `leader` alone."""

import signal
import sys
import threading

from leader.config import FAST, ElectionConfig
from leader.elector import Elector
from leader.etcd_lock import EtcdLock
from leader.lock import Callbacks

stopped = threading.Event()


def work(epoch: int) -> None:  # on a thread of its own, once per term
    stopped.clear()
    while not stopped.wait(0.1):
        print(f"working under epoch {epoch}", flush=True)  # write to etcd only if mod_revision(epoch key) is still this epoch


lock = EtcdLock([sys.argv[1]], "/example/record", "/example/epoch")
elector = Elector(ElectionConfig.of(FAST, identity=sys.argv[2]), lock, Callbacks(work, stopped.set))
signal.signal(signal.SIGTERM, lambda *_: elector.request_stop())
elector.run()  # until stopped; a lost lease makes it a follower again

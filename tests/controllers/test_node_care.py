"""From a decision about a pod to its write: only a pod that is still as it was decided on is written."""

from __future__ import annotations

import pytest

from rayched.api.kinds import POD
from rayched.controllers.cluster_view import PodView
from rayched.controllers.heartbeat_ages import HeartbeatAges
from rayched.controllers.node_care import CareDecision, NodeCare
from rayched.controllers.node_lifecycle import EndKind, PodEnd
from rayched.controllers.node_settings import NodeSettings
from rayched.controllers.node_writes import NodeWrites
from rayched.store.codec import encode
from rayched.store.entries import Entry
from rayched.store.keys import Keys
from rayched.store.revision_clock import RevisionClock
from rayched.v1.core_pb2 import Pod
from rayched.v1.workloads_pb2 import Object

KEYS = Keys("/test")
DECIDED_AT = 70


def entry_at(mod_revision: int) -> Entry:
    pod = Pod()
    pod.metadata.name, pod.metadata.uid, pod.spec.node_name = "web-0", "uid-0", "n1"
    return Entry(KEYS.object_key(POD, "default", "web-0"), encode(Object(pod=pod)), 60, mod_revision)


@pytest.mark.parametrize("end", [EndKind.EVICT, EndKind.FAIL, EndKind.REMOVE])
@pytest.mark.parametrize(
    ("read_at", "is_written"), [(DECIDED_AT, True), (DECIDED_AT + 1, False), (DECIDED_AT - 1, False), (None, False)]
)
def test_a_pod_that_changed_since_the_decision_is_left_as_it_is(end: EndKind, read_at: int | None, is_written: bool) -> None:
    """It may have got a toleration, another deletion, or be a successor of the same name."""
    care = NodeCare(KEYS, NodeSettings(), HeartbeatAges(10.0), RevisionClock(), NodeWrites(KEYS, "incarnation"))
    known = entry_at(DECIDED_AT)
    facts = PodView(known.key, DECIDED_AT, "uid-0", "n1", DECIDED_AT, False, True, None, known.value)
    decided = CareDecision(5, 80, 1000.0, (), (PodEnd(facts, end, None),))
    writes = care.writes(decided, [None if read_at is None else entry_at(read_at)], {})
    assert [(write.key, write.mod_revision) for write in writes] == ([(known.key, DECIDED_AT)] if is_written else [])

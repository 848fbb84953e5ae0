"""Assumed and observed pods against a plain dictionary, under any order of operations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rayched.scheduler.occupancy import Occupancy
from rayched.snapshot.snapshot import Snapshot
from rayched.snapshot.templates import TemplateTable
from rayched.snapshot.verification import verify
from tests.core.builders import a_node, a_pod

UIDS, NODES = ("a", "b", "c"), ("n1", "n2")
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["assume", "forget", "observe", "remove"]), st.sampled_from(UIDS), st.sampled_from(NODES)),
    max_size=30,
)


@given(OPERATIONS)
def test_what_was_seen_wins_and_room_is_taken_exactly_once(operations: list[tuple[str, str, str]]) -> None:
    snapshot = Snapshot()
    for name in NODES:
        snapshot.add_node(a_node(name))
    template = TemplateTable().intern(a_pod("p"))
    occupancy = Occupancy(snapshot)
    assumed: dict[str, str] = {}
    observed: dict[str, str] = {}
    for operation, uid, node in operations:
        if operation == "assume":
            if uid in assumed or uid in observed:
                with pytest.raises(ValueError, match=f"pod {uid} takes up room already: it cannot be assumed on {node}"):
                    occupancy.assume(uid, template, node)
            else:
                occupancy.assume(uid, template, node)
                assumed[uid] = node
        elif operation == "forget":
            assert occupancy.forget(uid) == (assumed.pop(uid, None) is not None)
        elif operation == "observe":
            occupancy.observe(uid, template, node)
            assumed.pop(uid, None)
            observed[uid] = node
        else:
            occupancy.remove(uid)
            assumed.pop(uid, None)
            observed.pop(uid, None)
        assert (occupancy.n_assumed, occupancy.n_observed) == (len(assumed), len(observed))
    for uid in UIDS:
        bound = snapshot.bound(uid)
        assert (bound.node_name if bound else None) == observed.get(uid, assumed.get(uid))
        assert occupancy.assumed_on(uid) == assumed.get(uid)
    verify(snapshot)

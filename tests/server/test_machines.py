"""Whether an agent is on another machine than the one before it: ids may be blank, and copied images share one."""

from __future__ import annotations

import grpc
import pytest

from rayched.api.kinds import NODE
from rayched.client.errors import ApiError
from tests.server.nodes_over_model import KEYS, NodesOverModel, registration

DENIED = grpc.StatusCode.PERMISSION_DENIED
LIVES = grpc.StatusCode.FAILED_PRECONDITION


@pytest.fixture
def nodes() -> NodesOverModel:
    return NodesOverModel()


def begin(nodes: NodesOverModel, agent: str, machine: str, boot: str, *, take_over: bool = False) -> object:
    """The code it is refused with; else the revision below which pods may run on another machine."""
    try:
        found = nodes.begin(registration("one", agent, machine_id=machine, boot_id=boot, take_over=take_over))
    except ApiError as error:
        return error.code
    return found.replaced_before


def silent(nodes: NodesOverModel) -> None:
    """The first agent has not been heard of for a long time."""
    nodes.store.model.delete(KEYS.heartbeat("one"))


@pytest.mark.row("N76")
@pytest.mark.parametrize(
    ("machines", "boots", "is_another"),
    [
        (("m1", "m1"), ("b1", "b1"), False),
        (("m1", "m1"), ("b1", "b2"), True),
        (("m1", "m2"), ("b1", "b1"), True),
        (("m1", "m2"), ("b1", "b2"), True),
        (("", ""), ("b1", "b2"), True),
        (("", ""), ("b1", "b1"), False),
        (("m1", ""), ("b1", "b2"), True),
        (("", "m1"), ("b1", "b2"), True),
        (("m1", ""), ("b1", "b1"), False),
        (("uninitialized", "uninitialized"), ("b1", "b2"), True),
        (("uninitialized", "m1"), ("b1", "b1"), False),
        (("m1", "m1"), ("", ""), True),
        (("m1", "m1"), ("b1", ""), True),
    ],
)
def test_another_agent_is_on_the_same_machine_only_if_that_was_not_started_anew(
    nodes: NodesOverModel, machines: tuple[str, str], boots: tuple[str, str], is_another: bool
) -> None:
    assert begin(nodes, "a", machines[0], boots[0]) == 0
    assert begin(nodes, "b", machines[1], boots[1]) is (DENIED if is_another else LIVES)
    silent(nodes)
    if is_another:
        assert begin(nodes, "b", machines[1], boots[1]) is DENIED
    replaced_before = begin(nodes, "b", machines[1], boots[1], take_over=True)
    assert isinstance(replaced_before, int) and bool(replaced_before) == is_another


@pytest.mark.parametrize("machine", ["m1", "", "uninitialized"])
def test_the_same_agent_goes_on_after_its_host_was_started_anew(nodes: NodesOverModel, machine: str) -> None:
    for boot in ("b1", "b2", "b2"):
        assert begin(nodes, "a", machine, boot) == 0


def test_the_same_directory_on_another_machine_is_another_machine(nodes: NodesOverModel) -> None:
    assert begin(nodes, "a", "m1", "b1") == 0
    assert begin(nodes, "a", "m2", "b2") is DENIED
    assert begin(nodes, "a", "m2", "b2", take_over=True) != 0


def test_what_an_agent_does_not_say_it_said_before_and_nobody_else_did(nodes: NodesOverModel) -> None:
    assert begin(nodes, "a", "m1", "b1") == 0
    assert begin(nodes, "a", "", "b2") == 0, "the same agent"
    assert begin(nodes, "a", "m2", "b3") is DENIED, "its machine is still known"
    revision = begin(nodes, "b", "", "b4", take_over=True)
    assert isinstance(revision, int) and revision
    # The machine of the one before is not b's.
    assert begin(nodes, "b", "m3", "b5") == revision


def test_a_node_that_was_deleted_may_come_again_anywhere_and_starts_nothing_of_before(nodes: NodesOverModel) -> None:
    assert begin(nodes, "a", "", "b1") == 0
    nodes.store.model.delete(KEYS.object_key(NODE, "", "one"))
    silent(nodes)
    replaced_before = begin(nodes, "b", "", "b2")
    assert isinstance(replaced_before, int) and replaced_before


def test_it_says_which_machine_where_that_is_known(nodes: NodesOverModel) -> None:
    begin(nodes, "a", "m1", "b1")
    with pytest.raises(ApiError, match=r"it is on machine m1, whose pods may run there still; once that machine is off"):
        nodes.begin(registration("one", "b", machine_id="m2", boot_id="b2"))
    with pytest.raises(ApiError, match=r"it is on another machine, for all that is known, whose pods"):
        nodes.begin(registration("one", "b", machine_id="m1", boot_id="b2"))

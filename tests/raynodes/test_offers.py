"""What a node of Ray becomes: tables."""

from __future__ import annotations

from typing import Any

import pytest

from rayched.raynodes.offers import CPU, GPU, MEMORY, RayNode, living_nodes, node_name, offer_of

ID = "0123456789ab" + "c" * 44
GI = 1 << 30


def a_node(total: dict[str, float], free: dict[str, float] | None = None, **labels: str) -> RayNode:
    return RayNode(ID, "10.0.0.7", total, total if free is None else free, labels)


def amounts(node: RayNode, most: dict[str, int] | None = None, before: dict[str, int] | None = None) -> dict[str, int]:
    return dict(offer_of(node, most or {}, before).amounts)


@pytest.mark.parametrize(
    ("total", "free", "wanted"),
    [
        ({"CPU": 4.0}, None, {CPU: 4}),
        ({"CPU": 4.0}, {"CPU": 2.5}, {CPU: 2}),
        ({"CPU": 4.0}, {"CPU": 2.9999999}, {CPU: 3}),
        ({"CPU": 4.0, "memory": 2.0 * GI + 1000}, None, {CPU: 4, MEMORY: 2 * GI}),
        ({"CPU": 4.0, "memory": 8.0 * GI}, {"CPU": 4.0, "memory": 3.0 * GI}, {CPU: 4, MEMORY: 3 * GI}),
        ({"CPU": 4.0, "GPU": 2.0}, None, {CPU: 4, GPU: 2}),
        ({"CPU": 4.0, "GPU": 2.0}, {"CPU": 4.0, "GPU": 1.0}, {CPU: 4}),
        ({"CPU": 4.0, "GPU": 2.0}, {"CPU": 4.0, "GPU": 1.5}, {CPU: 4}),
        ({"CPU": 4.0, "ssd": 3.0}, {"CPU": 4.0, "ssd": 1.7}, {CPU: 4, "ray.io/ssd": 1}),
        ({"CPU": 4.0, "ssd": 3.0}, {"CPU": 4.0}, {CPU: 4}),
        ({"CPU": 4.0, "TPU-v4.8_head": 1.0}, None, {CPU: 4, "ray.io/TPU-v4.8_head": 1}),
        (
            {
                "CPU": 4.0,
                "node:10.0.0.7": 1.0,
                "node:__internal_head__": 1.0,
                "object_store_memory": 1e9,
                "accelerator_type:A100": 1.0,
                "CPU_group_" + "a" * 36: 2.0,
                "CPU_group_0_" + "a" * 36: 2.0,
                "bundle_group_" + "0f" * 18: 1000.0,
                "memory_group_1_" + "0f" * 18: 1000.0,
            },
            None,
            {CPU: 4},
        ),
        ({"CPU": 4.0, "my_group_1": 1.0}, None, {CPU: 4, "ray.io/my_group_1": 1}),
    ],
)
def test_what_is_free_is_offered(total: dict[str, float], free: dict[str, float] | None, wanted: dict[str, int]) -> None:
    offer = offer_of(a_node(total, free), {}, None)
    assert offer.amounts == wanted
    assert not [line for line in offer.left_out if line.startswith("resource")], "what is Ray's own is nobody's loss"


@pytest.mark.parametrize(
    ("total", "free", "lacks"),
    [
        ({"CPU": 4.0}, {"CPU": 1.0}, ""),
        ({"CPU": 4.0}, {"CPU": 0.5}, "no whole CPU is free"),
        ({"CPU": 4.0}, {}, "no whole CPU is free"),
        ({}, {}, "no whole CPU is free"),
        ({"CPU": 4.0, "memory": 8.0 * GI}, {"CPU": 4.0}, "0Mi of memory are free, and a node takes 256Mi at least"),
        ({"CPU": 4.0, "memory": 8.0 * GI}, {"CPU": 4.0, "memory": 256.0 * (1 << 20)}, ""),
    ],
)
def test_a_node_without_anything_free_says_what_it_lacks(total: dict[str, float], free: dict[str, float], lacks: str) -> None:
    assert offer_of(a_node(total, free), {}, None).lacks == lacks


def test_a_user_takes_less_and_a_node_comes_back_with_no_more() -> None:
    node = a_node({"CPU": 8.0, "memory": 16.0 * GI, "ssd": 4.0})
    assert amounts(node, {CPU: 2, MEMORY: GI}) == {CPU: 2, MEMORY: GI, "ray.io/ssd": 4}
    assert amounts(node, {CPU: 100}) == {CPU: 8, MEMORY: 16 * GI, "ray.io/ssd": 4}
    before = {CPU: 3, MEMORY: 20 * GI, "pods": 110}
    assert amounts(node, None, before) == {CPU: 3, MEMORY: 16 * GI}, "what it did not have it may not offer"
    assert amounts(node, {CPU: 2}, before)[CPU] == 2


def test_names_that_are_none_are_left_out_and_said() -> None:
    offer = offer_of(a_node({"CPU": 1.0, "two words": 1.0, "a/b": 1.0, "x" * 64: 1.0, "GPU": 2.0}, {"CPU": 1.0}), {}, None)
    assert offer.amounts == {CPU: 1}
    said = "\n".join(offer.left_out)
    assert len(offer.left_out) == 4 and "two words" in said and "a/b" in said and "has 64 characters" in said
    assert f"{GPU}: Ray has given away 2 of 2" in said


@pytest.mark.parametrize(
    ("labels", "kept", "said"),
    [
        ({"disk": "ssd", "ray.io/node-id": ID}, {"disk": "ssd", "ray.io/node-id": ID}, ""),
        ({"kubernetes.io/hostname": "h"}, {"kubernetes.io/hostname": "h"}, ""),
        ({"x.kubernetes.io/y": "1"}, {}, "a node may not give it to itself"),
        ({"node-restriction.kubernetes.io/team": "a"}, {}, "only administrators set labels"),
        ({"two words": "1"}, {}, "is not a valid key"),
        ({"disk": "not a value"}, {}, 'label disk: "not a value" is not a valid label value'),
        (
            {"ray.io/availability-zone": "z1", "ray.io/availability-region": "r1"},
            {
                "ray.io/availability-zone": "z1",
                "ray.io/availability-region": "r1",
                "topology.kubernetes.io/zone": "z1",
                "topology.kubernetes.io/region": "r1",
            },
            "",
        ),
        (
            {"ray.io/availability-zone": "z1", "topology.kubernetes.io/zone": "own"},
            {"ray.io/availability-zone": "z1", "topology.kubernetes.io/zone": "own"},
            "",
        ),
    ],
)
def test_labels_are_kept_or_said(labels: dict[str, str], kept: dict[str, str], said: str) -> None:
    offer = offer_of(a_node({"CPU": 1.0}, None, **labels), {}, None)
    assert offer.labels == kept
    assert len(offer.left_out) == bool(said) and said in "".join(offer.left_out)


def test_ray_is_asked_for_just_what_the_agent_offers() -> None:
    offer = offer_of(
        a_node({"CPU": 2.5, "memory": 1.0 * GI + 7, "GPU": 1.0, "ssd": 3.0, "node:10.0.0.7": 1.0}, None, disk="fast"), {}, None
    )
    assert offer.reservation() == {"num_cpus": 2, "num_gpus": 1, "memory": GI, "resources": {"ssd": 3.0}}
    assert offer.arguments() == [
        *("--address", "10.0.0.7", "--cpu", "2", "--memory", f"{GI >> 10}Ki"),
        *("--resource", f"{GPU}=1", "--resource", "ray.io/ssd=3", "--label", "disk=fast"),
    ]
    assert offer.text() == f"cpu 2, memory 1024Mi, {GPU} 1, ray.io/ssd 3"
    bare = offer_of(a_node({"CPU": 1.0}), {}, None)
    assert bare.reservation() == {"num_cpus": 1, "num_gpus": 0, "resources": {}}, (
        "memory that Ray does not count is not asked for"
    )


def test_nodes_that_live_and_whose_load_is_known() -> None:
    def record(ray_id: str, alive: bool) -> dict[str, Any]:
        return {
            "NodeID": ray_id,
            "Alive": alive,
            "NodeManagerAddress": "10.0.0.7",
            "Resources": {"CPU": 2.0},
            "Labels": {"a": "b"},
        }

    records = [record("one", True), record("dead", False), record("new", True)]
    found = living_nodes(records, {"one": {"CPU": 1.0}, "dead": {"CPU": 2.0}})
    assert found == [RayNode("one", "10.0.0.7", {"CPU": 2.0}, {"CPU": 1.0}, {"a": "b"})]
    assert node_name(ID) == a_node({}).name == "ray-0123456789ab"

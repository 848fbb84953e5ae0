"""Views in Chromium: the command that each names, what a thousand bindings cost, and the pictures of the documents."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import all_cpu_seconds
from rayched.client import new_pod
from tests.cli.cluster import Commands, Running, a_pod_text, wait_until
from tests.page.pictures import IN_DOCS, PICTURES, WIDE, draw
from tests.page.test_in_browser import OpenPage, opened

pytestmark = [pytest.mark.cluster, pytest.mark.browser]

__all__ = ["opened"]

ROOT = Path(__file__).parents[2]
BINDINGS = 1_000


@pytest.mark.row("UI59")
def test_every_view_names_the_command_that_gives_the_same(
    opened: Callable[..., OpenPage], rayched: Commands, namespace: str
) -> None:
    pods = [a_pod_text("web", namespace=namespace), a_pod_text("big", namespace=namespace, cpu="99")]
    rayched.ok("apply", "-f", "-", stdin="---\n".join(pods))
    node = rayched.running("web", namespace).spec.node_name
    rayched.unschedulable("big", "Insufficient cpu", namespace)
    holder = rayched.client.leader().holder
    page = opened()
    for address, shown in {
        "#/": (holder,),
        "#/nodes": (),
        "#/nodes?select=topology.kubernetes.io%2Fzone%3Dzone-b": (),
        f"#/node/{node}": (node, "topology.kubernetes.io/zone", "web"),
        f"#/queue?namespace={namespace}": ("big", "NodeResourcesFit"),
        f"#/pod/{namespace}/web": ("web", node),
        "#/plan": (),
        f"#/events?namespace={namespace}": ("big", "FailedScheduling"),
        "#/replicas": (holder,),
    }.items():
        page.go(address)
        for words in shown:
            page.until("words => document.querySelector('main').innerText.includes(words)", words)
        named = page.page.inner_text("#command")
        said = "\n".join(out_of(rayched, command, namespace) for command in named.split("; "))
        assert [words for words in shown if words not in said] == [], (address, named)
        if "select" in address:
            page.until("() => rayched.view.map?.lit?.size")
            lit = page.page.evaluate("[...rayched.view.map.lit].map(row => rayched.state.columns.names[row])")
            assert set(lit) == set(re.findall(r"node-\d+", said)), named
    assert page.complaints == []


def out_of(rayched: Commands, command: str, namespace: str) -> str:
    """What the command says that the page names; one that would go on for ever says it once."""
    first, *words = shlex.split(command)
    assert first == "rayched"
    words = ["-" if word == "FILE" else word for word in words if word != "-w"]
    planned = words[0] == "plan"
    result = rayched(*words, stdin=a_pod_text("planned", namespace=namespace) if planned else None)
    assert result.code == planned and result.out, (command, result.errors)
    return result.out


@pytest.mark.row("UI12")
@pytest.mark.slow
def test_a_thousand_bindings_a_second_would_leave_the_page_and_its_process_at_ease(
    opened: Callable[..., OpenPage], rayched: Commands, gateway: tuple[Running, str], namespace: str
) -> None:
    page = opened().go("#/nodes?by=pods")
    session = page.page.context.new_cdp_session(page.page)
    # Time on the processor: what others on this host do does not count.
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def costs() -> tuple[float, float]:
        """Seconds of the page's main thread, and of the gateway."""
        metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        return metrics["TaskDuration"], all_cpu_seconds(gateway[0].process.pid)

    began, before = time.monotonic(), costs()
    time.sleep(3.0)
    idle_seconds, idle = time.monotonic() - began, costs()
    rates = [(now - then) / idle_seconds for then, now in zip(before, idle, strict=True)]
    placed = "() => rayched.state.status.zones.reduce((sum, zone) => sum + zone.used[2], 0)"
    there = page.page.evaluate(placed)
    names = [item.metadata.name for item in rayched.client.list("nodes")]
    pods = []
    for number in range(BINDINGS):
        pod = new_pod(f"bound-{number}", namespace=namespace, image="registry.example/a:1", cpu="1m")
        pod.spec.node_name = names[number % len(names)]
        pods.append(pod)
    began, before = time.monotonic(), costs()
    assert not [one.error for one in rayched.client.submit_many(pods) if one.error is not None]
    wait_until(lambda: page.page.evaluate(placed) >= there + BINDINGS, "the page shows all of them")
    seconds, after = time.monotonic() - began, costs()
    main_thread, process = (now - then - rate * seconds for then, now, rate in zip(before, after, rates, strict=True))
    # Half of a processor for the page, a fifth for its process, if all of them had come within a second.
    assert main_thread < 0.5 * BINDINGS / 1_000
    assert process < 0.2 * BINDINGS / 1_000
    assert page.complaints == []


@pytest.mark.row("UI60")
@pytest.mark.slow
def test_the_pictures_of_the_documents_are_drawn_by_make_pictures(
    browser: Any, rayched: Commands, url: str, tmp_path: Path
) -> None:
    texts = [file.read_text() for file in (ROOT / "docs").glob("*.md")]
    named = {name for text in texts for name in re.findall(r"pictures/(page-[\w-]+\.png)", text)}
    assert named == {f"page-{name}.png" for name in IN_DOCS}
    assert "tests.page.pictures" in (ROOT / "Makefile").read_text().partition("\npictures:")[2].partition("\n\n")[0]
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("shop-1", namespace="default"))
    try:
        rayched.running("shop-1")
        draw(browser, url, IN_DOCS, tmp_path, WIDE, "light", "")
    finally:
        rayched("delete", "pod", "shop-1")
    assert {file.name for file in tmp_path.iterdir()} == named
    for name in named:
        for file in (tmp_path / name, PICTURES / name):
            assert size_of(file) == (WIDE["width"], WIDE["height"]), file


def size_of(png: Path) -> tuple[int, int]:
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")

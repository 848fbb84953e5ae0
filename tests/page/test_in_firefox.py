"""The page in Firefox: the walks through its views, on the cluster of this folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.cli.cluster import Commands, a_pod_text
from tests.page.firefox import Firefox, firefox

pytestmark = [pytest.mark.cluster, pytest.mark.browser]

BROWSERS = ("firefox-esr", "firefox")


@pytest.fixture(scope="module")
def fox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("there is no Firefox on this host")
    with firefox(program, tmp_path_factory.mktemp("profile")) as found:
        yield found


def has(words: str) -> str:
    return f"document.querySelector('main').innerText.includes({words!r})"


@pytest.mark.row("UI54")
def test_the_walks_pass_in_firefox_as_well(fox: Firefox, rayched: Commands, url: str, namespace: str) -> None:
    pods = [a_pod_text("web", namespace=namespace), a_pod_text("big", namespace=namespace, cpu="99")]
    rayched.ok("apply", "-f", "-", stdin="---\n".join(pods))
    node = rayched.running("web", namespace).spec.node_name
    rayched.unschedulable("big", "Insufficient cpu", namespace)
    fox.go(f"{url}/ui/")
    fox.until("rayched.state.columns.length >= 12 && rayched.state.status !== null")
    # Who leads, and how full the room is.
    fox.until(has(rayched.client.leader().holder))
    fox.until("document.querySelectorAll('.zone').length === 3")
    # A zone of the heat map, and a node of it.
    fox.run("location.hash = '#/nodes?select=topology.kubernetes.io%2Fzone%3Dzone-b'")
    fox.until("rayched.view.map?.lit?.size === 4")
    fox.run(f"location.hash = '#/node/{node}'")
    fox.until(has("topology.kubernetes.io/zone"))
    # Why a pod waits, and which nodes that is about.
    fox.run(f"location.hash = '#/queue?namespace={namespace}'")
    fox.until(has("NodeResourcesFit"))
    fox.run(f"location.hash = '#/pod/{namespace}/big'")
    fox.until("document.querySelector('a.segment') !== null")
    fox.run("document.querySelector('a.segment').click()")
    fox.until("rayched.view.map?.lit?.size === 12")
    # Why a pod is where it is.
    fox.run(f"location.hash = '#/pod/{namespace}/web'")
    fox.until("document.querySelector('.chosen')?.innerText")
    assert fox.run("return document.querySelector('.chosen').innerText") == node
    # What has happened, and who says so.
    fox.run(f"location.hash = '#/events?namespace={namespace}'")
    fox.until(has("FailedScheduling"))
    fox.run("location.hash = '#/replicas'")
    fox.until(has("as each says of itself"))
    assert fox.run("return [document.querySelectorAll('.error').length, document.cookie, localStorage.length]") == [0, "", 0]


@pytest.mark.row("UI54")
def test_each_node_has_a_cell_with_a_colour_in_firefox(fox: Firefox, url: str) -> None:
    fox.go(f"{url}/ui/#/nodes")
    fox.until("rayched.state.columns.length >= 12 && rayched.view.map?.layout.cell(5)")
    found = fox.run(
        "const { map } = rayched.view; return map.columns.names.map((name, row) => Array.from(map.pixel(row)).slice(0, 3))"
    )
    assert len(found) == 12 and all(len(pixel) == 3 and sum(pixel) for pixel in found)

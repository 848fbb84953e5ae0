"""The page in Chromium, on the cluster of this folder: what is in it, what it asks for, and that nothing of others' text runs."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cli.cluster import Commands, a_pod_text, started, wait_until
from tests.page.foreign_page import foreign_page
from tests.page.in_page import ATTACKS, CELLS, FOREIGN, HAS_NODES, HIDE, LOW_CONTRASTS, MANY_NODES, TALL_TABLE, UNNAMED

pytestmark = [pytest.mark.cluster, pytest.mark.browser]

WIDE = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
VIEWS = ("#/", "#/nodes", "#/queue", "#/plan", "#/events", "#/replicas")
READY_MS = 60_000


class OpenPage:
    """A page of the browser, and all that it asked for and complained of."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.addresses: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.addresses.append(request.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)

    def go(self, address: str = "#/") -> OpenPage:
        """To a view, once it has the cluster."""
        if self.page.url.startswith(self.url):
            self.page.evaluate("address => { location.hash = address }", address)
        else:
            self.page.goto(f"{self.url}/ui/{address}")
        self.page.wait_for_function(HAS_NODES, timeout=READY_MS)
        return self

    def text(self) -> str:
        found: str = self.page.inner_text("body")
        return found

    def until(self, script: str, argument: Any = None) -> Any:
        return self.page.wait_for_function(script, arg=argument, timeout=READY_MS)


@pytest.fixture
def opened(browser: Any, url: str) -> Iterator[Callable[..., OpenPage]]:
    contexts = []

    def open_page(viewport: dict[str, int] = WIDE, **options: Any) -> OpenPage:
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        return OpenPage(context.new_page(), url)

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.row("UI3", "UI4", "UI36")
def test_a_walk_asks_nobody_but_the_gateway_and_nothing_complains(opened: Callable[..., OpenPage]) -> None:
    page = opened()
    for address in VIEWS:
        page.go(address)
        page.page.wait_for_timeout(300)
    assert {urlsplit(one).netloc for one in page.addresses if not one.startswith("data:")} == {urlsplit(page.url).netloc}
    assert page.complaints == []
    assert page.page.evaluate("[document.cookie, localStorage.length]") == ["", 0]


@pytest.mark.row("UI2")
def test_the_overview_is_there_with_little_over_the_wire(opened: Callable[..., OpenPage], rayched: Commands) -> None:
    page = opened()
    sizes: list[int] = []
    page.page.on("response", lambda response: sizes.append(int(response.headers.get("content-length", 0))))
    page.go()
    leader = rayched.client.leader()
    page.until("name => document.querySelector('.tiles').innerText.includes(name)", leader.holder)
    tiles = page.page.inner_text(".tiles")
    assert str(leader.epoch) in tiles and "12 of 12" in tiles
    assert page.page.locator(".zone").count() == 3
    assert sum(sizes) < 200_000


@pytest.mark.row("UI10", "UI11", "UI14")
def test_each_cell_has_the_colour_of_its_nodes_use(opened: Callable[..., OpenPage], rayched: Commands, namespace: str) -> None:
    page = opened().go("#/nodes?by=cpu")
    rayched.ok("apply", "-f", "-", stdin="---\n".join(a_pod_text(f"web-{n}", namespace=namespace, cpu="7") for n in range(3)))
    nodes = {rayched.running(f"web-{n}", namespace).spec.node_name for n in range(3)}
    for node in nodes:
        page.until("name => rayched.state.columns.cpu[rayched.state.columns.rowOf(name)] > 400", node)
    # What glows has an edge of another colour for a moment; the middle keeps its own.
    found = page.page.evaluate(CELLS)
    assert len(found) == 12
    for name, pixel, wanted in found:
        assert all(abs(a - b) <= 1 for a, b in zip(pixel, wanted, strict=True)), (name, pixel, wanted)
    assert len({tuple(pixel) for _, pixel, _ in found}) >= 2
    assert page.complaints == []


@pytest.mark.row("UI13", "UI31")
def test_the_pointer_and_a_click_find_the_node(opened: Callable[..., OpenPage]) -> None:
    page = opened().go("#/nodes")
    page.until("() => rayched.view.map?.layout.cell(5)")
    place = page.page.evaluate("rayched.view.map.layout.cell(5)")
    canvas = page.page.locator("canvas").first
    canvas.hover(position={"x": place["x"] + 4, "y": place["y"] + 4})
    assert page.page.inner_text(".hover").startswith("node-005: cpu ")
    canvas.click(position={"x": place["x"] + 4, "y": place["y"] + 4})
    page.until("() => location.hash === '#/node/node-005'")
    page.until("() => document.body.innerText.includes('allocatable') || document.body.innerText.includes('zone-')")
    # And without one: the table has links.
    page.page.keyboard.press("2")
    page.until("() => location.hash === '#/nodes'")
    page.page.keyboard.press("t")
    page.page.focus("tbody a")
    page.page.keyboard.press("Enter")
    page.until("() => location.hash.startsWith('#/node/node-000')")


@pytest.mark.row("UI15", "UI33")
def test_a_selector_in_the_address_lights_its_nodes(opened: Callable[..., OpenPage]) -> None:
    page = opened().go("#/nodes?select=topology.kubernetes.io%2Fzone%3Dzone-b")
    page.until("() => rayched.view.map?.lit?.size === 4")
    lit = page.page.evaluate("[...rayched.view.map.lit].map(row => rayched.state.columns.zones[rayched.state.columns.zone[row]])")
    assert lit == ["zone-b"] * 4
    page.page.reload()
    page.until("() => globalThis.rayched?.view?.map?.lit?.size === 4")
    assert page.page.input_value("input[name=select]") == "topology.kubernetes.io/zone=zone-b"


@pytest.mark.row("UI20")
def test_a_pod_that_waits_says_why_and_each_reason_lights_its_nodes(
    opened: Callable[..., OpenPage], rayched: Commands, namespace: str
) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("big", namespace=namespace, cpu="99"))
    rayched.unschedulable("big", "Insufficient cpu", namespace)
    page = opened().go(f"#/queue?namespace={namespace}")
    page.until("() => document.querySelector('.why a')?.innerText.includes('NodeResourcesFit')")
    page.page.click("tbody a >> text=big")
    page.until("() => document.querySelector('a.segment')")
    assert "Insufficient cpu" in page.page.inner_text(".segments")
    page.page.click("a.segment")
    page.until("() => rayched.view.map?.lit?.size === 12")
    assert page.complaints == []


@pytest.mark.row("UI22", "UI23")
def test_the_decision_of_a_bound_pod_rings_its_node(opened: Callable[..., OpenPage], rayched: Commands, namespace: str) -> None:
    rayched.ok("apply", "-f", "-", stdin=a_pod_text("web", namespace=namespace))
    node = rayched.running("web", namespace).spec.node_name
    page = opened().go(f"#/pod/{namespace}/web")
    page.until("() => rayched.view.explained")
    explained = page.page.evaluate("rayched.view.explained")
    answer = json.loads("\n".join(rayched.ok("explain", "web", "-n", namespace, "-o", "json")))
    assert explained["best"] == answer["best"] and explained["decision"]["node"] == node
    page.until("name => document.querySelector('.chosen')?.innerText === name", node)
    assert f"drawn among {explained['decision']['ties']}" in page.text()


@pytest.mark.row("UI27")
def test_a_plan_is_made_from_the_page(opened: Callable[..., OpenPage], namespace: str) -> None:
    page = opened().go("#/plan")
    page.page.fill("textarea[name=manifest]", a_pod_text("web", namespace=namespace))
    told = "() => ['would be placed', 'took longer'].some(words => document.body.innerText.includes(words))"
    for _ in range(5):
        page.page.click("button[type=submit]")
        page.until(told)
        # A machine that does other things as well may need more than the ten seconds of a plan.
        if "took longer" not in page.text():
            break
    assert "1 pod would be placed" in page.text()
    ((row, change),) = page.page.evaluate("[...rayched.view.outlook.columns.changes]")
    before, after = change["before"][0], change["after"][0]
    assert before < after == page.page.evaluate("row => rayched.view.outlook.columns.value(row, 'cpu')", row)
    colour_at = "row => { const { map } = rayched.view.outlook; return [...map.pixel(row)]; }"
    bright = page.page.evaluate(colour_at, row)
    page.page.locator("input[type=range]").focus()
    page.page.keyboard.press("Home")
    assert page.page.evaluate("row => rayched.view.outlook.columns.value(row, 'cpu')", row) == before
    assert page.page.evaluate(colour_at, row) != bright
    page.page.click("button:text-is('pods')")
    assert page.page.evaluate("rayched.view.outlook.map.by") == "pods"
    page.page.fill("textarea[name=manifest]", "kind: Pod\n\tx")
    page.page.click("button[type=submit]")
    page.until("() => document.querySelector('.error')?.innerText.includes('line 2')")
    assert not page.page.locator("canvas").count()
    assert page.complaints == []


@pytest.mark.row("UI25")
def test_of_five_thousand_rows_those_in_sight_are_in_the_page(opened: Callable[..., OpenPage]) -> None:
    page = opened().go("#/replicas")
    for top, count, rows in page.page.evaluate(TALL_TABLE):
        assert count <= 60 and len(rows) >= 15
        assert rows == list(range(rows[0], rows[0] + len(rows)))
        assert abs(rows[0] - top / 26) <= 2 or rows[-1] == 4_999


@pytest.mark.row("UI10", "UI17")
@pytest.mark.parametrize("count", [5_000, 100_000])
def test_each_of_many_cells_has_its_colour_and_is_found(opened: Callable[..., OpenPage], count: int) -> None:
    page = opened().go()
    assert page.page.evaluate(MANY_NODES, count) == 0


@pytest.mark.row("UI30")
def test_a_picture_turns_into_a_table_of_its_numbers(opened: Callable[..., OpenPage]) -> None:
    page = opened().go("#/nodes?by=memory")
    assert page.page.locator("canvas").is_visible()
    page.page.keyboard.press("t")
    page.until("() => document.querySelectorAll('tbody td a').length === 12")
    lines = page.page.evaluate("rayched.view.figure.csv()").split("\r\n")
    assert lines[0] == "node,zone,state,cpu,memory,pods" and len(lines) == 14
    columns = page.page.evaluate(
        "(({names, cpu, memory, pods}) => names.map((n, i) => [n, cpu[i], memory[i], pods[i]]))(rayched.state.columns)"
    )
    told = {line.split(",")[0]: [float(cell) * 10 for cell in line.split(",")[3:]] for line in lines[1:-1]}
    assert told == {name: pytest.approx(values) for name, *values in columns}
    page.page.keyboard.press("t")
    assert page.page.locator("canvas").is_visible()


HOSTILE = "<script>rayched.hit=1</script><img src=x onerror=rayched.hit=1>javascript:rayched.hit=1\x1b[2J\u202etxet\u202c"


@pytest.mark.row("UI42", "UI43")
def test_markup_in_texts_is_shown_and_never_runs(opened: Callable[..., OpenPage], rayched: Commands, namespace: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": namespace, "annotations": {"note": HOSTILE}},
        "spec": {"containers": [{"name": "main", "image": HOSTILE}]},
    }
    rayched.ok("apply", "-f", "-", stdin=json.dumps(pod))
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "hostile"},
        "spec": {"taints": [{"key": "example.com/x", "value": "y", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "1", "memory": "1Gi", "pods": "5"},
            "conditions": [{"type": "Ready", "status": "True", "reason": HOSTILE, "message": HOSTILE}],
        },
    }
    rayched.ok("apply", "-f", "-", stdin=json.dumps(node))
    try:
        page = opened()
        for address in (
            *VIEWS,
            f"#/pod/{namespace}/web",
            "#/node/hostile",
            f"#/queue?namespace={namespace}",
            f"#/pod/{HOSTILE}/x",
        ):
            page.go(address)
            page.page.wait_for_timeout(300)
            assert page.page.evaluate("[rayched.hit, document.scripts.length, document.images.length]") == [None, 1, 0]
        page.go("#/node/hostile")
        page.until("() => document.body.innerText.includes('onerror')")
        text = page.page.inner_text("main")
        assert "<script>rayched.hit=1</script>" in text and "\\u001b[2J\\u202etxet\\u202c" in text
        assert "\u202e" not in text and "\x1b" not in text
        assert not [one for one in page.complaints if "Content Security Policy" in one or "Trusted" in one]
    finally:
        rayched("delete", "node", "hostile")


@pytest.mark.row("UI45")
def test_script_that_gets_in_all_the_same_does_not_run(opened: Callable[..., OpenPage]) -> None:
    page = opened().go()
    blocked = page.page.evaluate(ATTACKS)
    assert blocked == [["TypeError", "EvalError", "TypeError", "TypeError"], None]


@pytest.mark.row("UI40")
def test_a_page_of_another_origin_reads_nothing(browser: Any, url: str) -> None:
    with foreign_page() as foreign:
        context = browser.new_context()
        try:
            page = context.new_page()
            page.goto(foreign)
            found = page.evaluate(FOREIGN, url)
        finally:
            context.close()
    assert set(found.values()) == {"refused"}, found


@pytest.mark.row("UI32")
def test_light_and_dark_follow_the_system_and_words_can_be_read(opened: Callable[..., OpenPage]) -> None:
    for scheme, paper in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 26)")):
        page = opened(color_scheme=scheme).go()
        assert page.page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
        low = page.page.evaluate(LOW_CONTRASTS)
        assert low == []
    calm = opened(reduced_motion="reduce").go("#/nodes")
    assert calm.page.evaluate("rayched.view.calm.matches") is True


@pytest.mark.row("UI31")
def test_no_view_scrolls_sideways_and_the_focus_is_seen(opened: Callable[..., OpenPage]) -> None:
    for viewport, views in ((WIDE, VIEWS), (PHONE, ("#/", "#/queue"))):
        page = opened(viewport)
        for address in views:
            page.go(address)
            page.page.wait_for_timeout(300)
            wide, room = page.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert wide <= room, (address, viewport)
            unnamed = page.page.evaluate(UNNAMED)
            assert unnamed == [], address
    page.page.keyboard.press("Tab")
    assert page.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


@pytest.mark.row("UI55")
def test_a_tab_that_is_hidden_closes_its_stream_and_catches_up(opened: Callable[..., OpenPage], rayched: Commands) -> None:
    page = opened().go()
    page.page.clock.install()
    page.page.evaluate(HIDE, True)
    page.page.clock.fast_forward(31_000)
    wait_until(lambda: not page.page.evaluate("rayched.stream.isOpen"), "the stream is closed")
    before = page.page.evaluate("rayched.state.status.now")
    page.page.evaluate(HIDE, False)
    wait_until(lambda: page.page.evaluate("rayched.state.status.now") > before, "it is up to date")


@pytest.mark.row("UI56")
def test_a_page_of_before_loads_itself_anew_once(opened: Callable[..., OpenPage]) -> None:
    page = opened().go()
    own = page.page.get_attribute("meta[name=rayched-version]", "content")
    page.page.route(
        "**/ui/",
        lambda route: route.fulfill(
            response=(found := route.fetch()), body=found.text().replace(f'content="{own}"', 'content="old"')
        ),
    )
    loads: list[str] = []
    page.page.on("load", lambda: loads.append("load"))
    page.page.reload()
    page.until("() => sessionStorage.getItem('rayched-reloaded-for') !== null")
    wait_until(lambda: page.page.wait_for_timeout(200) or len(loads) >= 2, "it was loaded anew")
    page.page.wait_for_function(HAS_NODES, timeout=READY_MS)
    page.page.wait_for_timeout(1_000)
    assert len(loads) == 2 and page.page.evaluate("sessionStorage.getItem('rayched-reloaded-for')") == own


@pytest.mark.row("UI8", "UI49")
def test_while_the_gateway_is_gone_the_page_says_so_and_goes_on_by_itself(browser: Any, rayched: Commands) -> None:
    context = browser.new_context()
    words = ("--server", rayched.server)
    try:
        with started("gateway", "--listen", "127.0.0.1:0", *words) as first:
            url = first.line_with("is served at").rpartition(" ")[2]
            page = OpenPage(context.new_page(), url).go()
            assert not page.page.is_visible("#problem")
            first.process.send_signal(signal.SIGKILL)
            first.process.wait()
            page.until("() => !document.getElementById('problem').hidden")
            assert "the gateway does not answer" in page.page.inner_text("#problem")
        with started("gateway", "--listen", url.removeprefix("http://"), *words):
            page.until("() => document.getElementById('problem').hidden")
            before = page.page.evaluate("rayched.state.status.now")
            page.until("before => rayched.state.status.now > before", before)
    finally:
        context.close()

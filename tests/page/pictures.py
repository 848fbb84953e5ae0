"""The pictures of docs/web.md: `python -m tests.page.pictures [--nodes 5000] [--pods 50000] [--all DIRECTORY]`.

A cluster of one replica with nodes and pods (benchmarks/page_rig.py), some of them placed by the scheduler, some that wait; the
gateway before it; Chromium by Playwright. `--all` draws every view, wide and narrow, light and dark, into another directory: to
be looked at.
Exit code 2 where there is no Playwright or no Chromium.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.page_rig import NoBrowser, a_pod, browsing, page_rig
from rayched.client import Client

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
WIDE, PHONE = {"width": 1280, "height": 1000}, {"width": 390, "height": 844}
SAMPLES_SECONDS = 20.0
IN_DOCS = {"overview": "#/", "nodes": "#/nodes?by=cpu", "pod": "#/pod/default/shop-1"}
VIEWS = {**IN_DOCS, "queue": "#/queue", "plan": "#/plan", "events": "#/events", "replicas": "#/replicas", "node": "#/node/{node}"}
ON_PHONES = ("overview", "queue", "plan", "replicas")


def submit_some(client: Client) -> None:
    """What the scheduler has to do while histories fill."""
    client.submit_many(a_pod(f"shop-{number}", 250, 512) for number in range(200))
    client.submit_many(a_pod(f"huge-{number}", 99_000, 512) for number in range(40))
    client.wait_bound([f"shop-{number}" for number in range(200)], timeout_seconds=300.0)


def ask_what_if(page: Any) -> None:
    """More nodes, and a few emptied; some of the pods that wait fit then. A plan that takes too long says so in the picture."""
    first, *more = page.evaluate("rayched.state.columns.names.slice(0, 6)")
    page.fill("input[name=add]", "40")
    page.fill("input[name=like]", first)
    page.fill("input[name=drain]", " ".join(more))
    page.click("button[type=submit]")
    page.wait_for_function("() => rayched.view.outlook || document.querySelector('.error')", timeout=60_000)


def draw(
    browser: Any, url: str, views: dict[str, str], directory: Path, viewport: dict[str, int], scheme: str, suffix: str
) -> None:
    context = browser.new_context(viewport=viewport, color_scheme=scheme)
    page = context.new_page()
    began = time.monotonic()
    page.goto(f"{url}/ui/")
    page.wait_for_function("() => rayched.state.columns.length && rayched.state.status !== null", timeout=120_000)
    print(f"the overview is there after {time.monotonic() - began:.2f} s")
    page.wait_for_function("() => rayched.state.samples.fine.length > 3", timeout=120_000)
    for name, address in views.items():
        page.evaluate("address => { location.hash = address }", address)
        page.wait_for_timeout(1_000)
        page.evaluate("() => rayched.view.ready")
        if name == "plan":
            ask_what_if(page)
        page.wait_for_timeout(3_000)
        page.screenshot(path=directory / f"page-{name}{suffix}.png")
        print(directory / f"page-{name}{suffix}.png")
    context.close()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--all", type=Path)
    given = parser.parse_args(arguments)
    try:
        with (
            browsing() as browser,
            tempfile.TemporaryDirectory() as scratch,
            page_rig(Path(scratch), given.nodes, given.pods) as rig,
        ):
            browser.new_page().goto(f"{rig.url}/ui/")
            submit_some(rig.client)
            time.sleep(SAMPLES_SECONDS)
            draw(browser, rig.url, IN_DOCS, PICTURES, WIDE, "light", "")
            if given.all is not None:
                given.all.mkdir(parents=True, exist_ok=True)
                views = {name: address.format(node=rig.nodes[0]) for name, address in VIEWS.items()}
                for scheme in ("light", "dark"):
                    draw(browser, rig.url, views, given.all, WIDE, scheme, f"-1280-{scheme}")
                    draw(browser, rig.url, {name: views[name] for name in ON_PHONES}, given.all, PHONE, scheme, f"-390-{scheme}")
    except NoBrowser as why:
        print(why, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

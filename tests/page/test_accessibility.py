"""The page by the rules of axe-core, in Chromium: no serious finding in any view, light and dark, wide and narrow."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.cluster import Commands, a_pod_text
from tests.page.test_in_browser import PHONE, VIEWS, WIDE, OpenPage, opened

pytestmark = [pytest.mark.cluster, pytest.mark.browser]

__all__ = ["opened"]

SERIOUS = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
    .filter(one => ["serious", "critical"].includes(one.impact))
    .map(one => [one.id, one.help, one.nodes.slice(0, 5).map(node => node.html.slice(0, 200))])"""
WITHOUT_NAME = "<main><button></button><img src='data:,'></main>"


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core, as its package for Playwright has it."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("axe-playwright-python is not installed (make test-browser)")
    return (Path(found.origin).parent / "axe.min.js").read_text("utf-8")


@pytest.mark.row("UI31")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "narrow"])
def test_no_view_has_a_serious_finding(
    opened: Callable[..., OpenPage], rayched: Commands, namespace: str, axe: str, viewport: dict[str, int], scheme: str
) -> None:
    pods = [a_pod_text("web", namespace=namespace), a_pod_text("big", namespace=namespace, cpu="99")]
    rayched.ok("apply", "-f", "-", stdin="---\n".join(pods))
    node = rayched.running("web", namespace).spec.node_name
    rayched.unschedulable("big", "Insufficient cpu", namespace)
    page = opened(viewport, color_scheme=scheme)
    for address in (
        *VIEWS,
        f"#/node/{node}",
        f"#/pod/{namespace}/web",
        f"#/pod/{namespace}/big",
        f"#/queue?namespace={namespace}",
    ):
        page.go(address)
        page.page.wait_for_timeout(500)
        page.page.evaluate(axe)
        assert page.page.evaluate(SERIOUS) == [], address


def test_what_has_no_name_would_be_found(opened: Callable[..., OpenPage], axe: str) -> None:
    page = opened()
    page.page.set_content(WITHOUT_NAME)
    page.page.evaluate(axe)
    assert {finding[0] for finding in page.page.evaluate(SERIOUS)} >= {"button-name", "image-alt"}

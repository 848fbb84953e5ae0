"""One cluster for this folder, an etcd and one replica with twelve hollow nodes, the gateway before it, and a browser."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import client, cluster, cordoned, name, namespace, nodes, rayched
from tests.gateway.conftest import gateway, url

__all__ = ["client", "cluster", "cordoned", "gateway", "name", "namespace", "nodes", "rayched", "url"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without a browser no cluster is started for it."""
    if item.get_closest_marker("browser") is not None:
        if importlib.util.find_spec("playwright") is None:
            pytest.skip("Playwright is not installed (make test-browser)")
        if _program() is None:
            pytest.skip("there is no Chromium on this host")


def _program() -> str | None:
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, by Playwright, whose event loop runs in this thread for as long as it is there: no longer than its module."""
    from playwright import sync_api as playwright

    program = _program()
    with playwright.sync_playwright() as running:
        found = running.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield found
        finally:
            found.close()

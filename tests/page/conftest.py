"""One cluster for this folder, an etcd and one replica with twelve hollow nodes, the gateway before it, and a browser."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.page_rig import browsing, chromium
from tests.cli.conftest import client, cluster, cordoned, name, namespace, nodes, rayched
from tests.gateway.conftest import gateway, url

__all__ = ["client", "cluster", "cordoned", "gateway", "name", "namespace", "nodes", "rayched", "url"]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without a browser no cluster is started for it."""
    if item.get_closest_marker("browser") is not None:
        if importlib.util.find_spec("playwright") is None:
            pytest.skip("Playwright is not installed (make test-browser)")
        if chromium() is None:
            pytest.skip("there is no Chromium on this host")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, by Playwright, whose event loop runs in this thread for as long as it is there: no longer than its module."""
    with browsing() as found:
        yield found

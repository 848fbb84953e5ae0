"""Who has no certificate pastes a token into the page, or opens it by `rayched ui`: in Chromium, on a secured gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from rayched.client.contexts import write_context_file
from rayched.v1.core_pb2 import Node
from tests.cli.cluster import run_here, started, wait_until
from tests.gateway.requests import ask
from tests.gateway.test_bearer_tokens import is_known, issued
from tests.gateway.test_identity import Secured, secured
from tests.page.in_page import HAS_NODES
from tests.page.test_in_browser import READY_MS

pytestmark = [pytest.mark.cluster, pytest.mark.browser]

__all__ = ["secured"]

ASKS = "() => document.getElementById('sign-in').open"
DOES_NOT_ASK = "() => !document.getElementById('sign-in').open"


@pytest.mark.row("UI34")
def test_a_token_that_is_pasted_shows_the_page_and_is_gone_when_it_is_loaded_anew(browser: Any, secured: Secured) -> None:
    # The browser does not know the cluster's authority; what it would say of that is not the page's matter.
    context = browser.new_context(ignore_https_errors=True)
    try:
        page = context.new_page()
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        answers: list[int] = []
        page.on("response", lambda answer: answers.append(answer.status) if "/ui/api/queue" in answer.url else None)
        page.goto(f"{secured.url}/ui/#/queue")
        page.wait_for_function(ASKS, timeout=READY_MS)
        page.fill("#token", "rt_aaaaaaaa_" + "A" * 43)
        page.press("#token", "Enter")
        # It is refused, and asked for again with why.
        page.wait_for_function("() => document.querySelector('#sign-in [role=alert]')?.textContent", timeout=READY_MS)
        page.wait_for_function(ASKS, timeout=READY_MS)
        page.fill("#token", issued(secured, "rosa").secret)
        page.press("#token", "Enter")
        page.wait_for_function(DOES_NOT_ASK, timeout=READY_MS)
        page.wait_for_timeout(2_000)  # the queue is asked for each second
        # Somebody now, who may not see the queue of all namespaces.
        assert answers[0] == 401 and answers[-1] == 403 and page.evaluate(DOES_NOT_ASK)
        kept = page.evaluate("() => [document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage)].join(' ')")
        assert "rt_" not in kept
        page.reload()
        page.wait_for_function(ASKS, timeout=READY_MS)
        assert complaints == []
    finally:
        context.close()


@pytest.mark.row("UI1", "UI35")
def test_the_command_opens_the_page_signed_in_and_its_address_serves_once(
    browser: Any, secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secured.user("udo", "viewer", "team-a")
    file, opened = tmp_path / "context.yaml", tmp_path / "opened"
    write_context_file(file, [secured.replica.address], secured.issue("user", "udo"))
    # What the command finds as the browser of whoever calls it.
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}\n')
    program.chmod(0o755)
    words = ("ui", "--context", str(file), "--gateway", secured.url)
    with started(*words, environment={"BROWSER": f"{program} %s"}) as running:
        assert running.process.wait(60) == 0
    wait_until(lambda: opened.exists() and bool(opened.read_text()), "the browser was started")
    address = opened.read_text()
    assert address.startswith(f"{secured.url}/ui/#code=") and "rt_" not in address
    context = browser.new_context(ignore_https_errors=True)
    try:
        page, again = context.new_page(), context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.wait_for_function("() => rayched.state.since !== null", timeout=READY_MS)
        assert page.evaluate(DOES_NOT_ASK) and page.url == f"{secured.url}/ui/#/"
        code = address.rpartition("=")[2]
        assert not [one for one in asked if code in one.partition("#")[0]]
        kept = page.evaluate("() => [document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage)].join(' ')")
        assert "rt_" not in kept and code not in kept
        again.goto(address)
        again.wait_for_function(ASKS, timeout=READY_MS)
        assert "has served already" in again.inner_text("#sign-in [role=alert]") and code not in again.url
    finally:
        context.close()
    printed = run_here([*words, "--print"])
    assert printed.code == 0 and printed.lines[0].startswith(f"{secured.url}/ui/#code=") and len(printed.lines) == 1
    # Each time a token of its own, which can be seen and revoked.
    assert [one.note for one in secured.admin.tokens(f"spiffe://{secured.made.trust_domain}/user/udo")] == ["rayched ui"] * 2


def test_who_cannot_be_signed_in_is_told_why(secured: Secured, tmp_path: Path) -> None:
    file = tmp_path / "context.yaml"
    # Without a role nobody has a token.
    write_context_file(file, [secured.replica.address], secured.issue("user", "nadja"))
    words = ["ui", "--print", "--context", str(file), "--gateway"]
    for gateway, code, said in (
        (secured.url, 1, "may not Access.IssueToken"),
        ("https://127.0.0.1:1", 1, "no gateway answers at https://127.0.0.1:1"),
        (secured.url.replace("https", "http"), 2, "want https://"),
        ("nowhere", 2, "want a URL such as https://127.0.0.1:7620"),
    ):
        result = run_here([*words, gateway])
        assert (result.code, result.out) == (code, "") and said in result.errors[-1], (gateway, result)
    nobody = secured.tls(None)
    json_body = {"Content-Type": "application/json"}
    for body in ({}, {"code": 5}, {"code": "x"}, [], "x"):
        assert ask(secured.url, "/ui/session", "POST", body, headers=json_body, tls=nobody).status == 403
    assert ask(secured.url, "/ui/session", "POST", {"code": "x" * 2_000}, headers=json_body, tls=nobody).status == 413
    assert ask(secured.url, "/ui/code", "POST", {}, headers=json_body, tls=nobody).status == 401
    admin = secured.tls(secured.issue("user", "admin"))
    refused = ask(secured.url, "/ui/code", "POST", {}, headers=json_body, tls=admin)
    assert refused.status == 409 and "shown none" in refused.document["error"]
    for headers in ({**json_body, "Origin": "https://elsewhere.example"}, {"Content-Type": "text/plain"}):
        assert ask(secured.url, "/ui/session", "POST", {"code": "x"}, headers=headers, tls=nobody).status in (403, 415)


@pytest.mark.row("UI57")
def test_two_clusters_in_two_tabs_share_nothing(browser: Any, secured: Secured, url: str) -> None:
    secured.admin.register_node(Node(api_version="v1", kind="Node", metadata={"name": "node-of-the-other"}))
    found = secured.admin.issue_token()
    wait_until(lambda: is_known(secured, found), "the token is in force")
    context = browser.new_context(ignore_https_errors=True)
    try:
        asked: dict[str, list[Any]] = {url: [], secured.url: []}
        tabs = {}
        for address, requests in asked.items():
            tabs[address] = context.new_page()
            tabs[address].on("request", lambda request, kept=requests: kept.append(request))
            tabs[address].goto(f"{address}/ui/#/nodes")
        other = tabs[secured.url]
        other.wait_for_function(ASKS, timeout=READY_MS)
        other.fill("#token", found.secret)
        other.press("#token", "Enter")
        other.wait_for_function("() => rayched.state.columns.names.includes('node-of-the-other')", timeout=READY_MS)
        # Once somebody is signed in beside it.
        tabs[url].reload()
        tabs[url].wait_for_function(HAS_NODES, timeout=READY_MS)
        assert "node-of-the-other" not in tabs[url].evaluate("rayched.state.columns.names")
        assert "node-001" not in other.evaluate("rayched.state.columns.names")
        for address, requests in asked.items():
            places = {urlsplit(one.url).netloc for one in requests if not one.url.startswith("data:")}
            assert places == {urlsplit(address).netloc}
            shown = {one.headers.get("authorization", "") for one in requests if not one.url.startswith("data:")}
            assert shown == ({""} if address == url else {"", f"Bearer {found.secret}"})
        assert context.cookies() == []
    finally:
        context.close()

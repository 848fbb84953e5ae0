"""Who has no certificate pastes a token into the page: in Chromium, on a secured gateway."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.test_bearer_tokens import issued
from tests.gateway.test_identity import Secured, secured
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

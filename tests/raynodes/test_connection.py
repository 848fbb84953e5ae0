"""What Ray says when it gives up becomes one line that says what to do."""

from __future__ import annotations

import pytest

from rayched.raynodes.connection import reason

TOKEN = "it wants a token that this command does not have: RAY_AUTH_MODE=token with RAY_AUTH_TOKEN_PATH"


@pytest.mark.parametrize(
    ("output", "wanted"),
    [
        (
            "RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.59.0\n    Python: 3.12.1\nThis is x",
            "Version mismatch: The cluster was started with: Ray: 2.59.0 Python: 3.12.1 This is x",
        ),
        (
            "RuntimeError: No node info found matching attributes: '' when trying to resolve node to connect to.",
            "none of its nodes is on this host, and a driver needs one beside it",
        ),
        ("[C 2026] x.cc: Unauthenticated: InvalidAuthToken: Authentication token is missing or incorrect\n stack\n", TOKEN),
        (
            "[C 2026] loader.cc: RAY_AUTH_TOKEN_PATH is set but file cannot be opened or is empty: /nowhere\n*** SIGABRT ***\n",
            TOKEN,
        ),
        ("AuthenticationError: Token authentication is enabled but no authentication token was found", TOKEN),
        ("one\n\n  the   last \n\n", "the last"),
        ("x" * 1000, "x" * 300),
        ("", "it ended without a word"),
    ],
)
def test_one_line(output: str, wanted: str) -> None:
    assert reason(output) == wanted

"""Every parser that is tried: those of hostile text, and what else reads what others write."""

from __future__ import annotations

from typing import Final

from tests.fuzz import parsers, written_parsers

TARGETS: Final = (*parsers.TARGETS, *written_parsers.TARGETS)

"""What is wrong with a key, a certificate or a directory of them."""

from __future__ import annotations


class PkiError(Exception):
    """One line: which file or name, what was found, what is allowed or what to do."""

"""Manifests behind a URL, as `-f https://...` names them."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from typing import Final

from rayched.api.yaml_text import MAX_TEXT_BYTES

_SCHEMES: Final = ("http://", "https://")
_SECONDS_MAX: Final = 30.0


def is_url(name: str) -> bool:
    return name.startswith(_SCHEMES)


def fetched(url: str) -> str:
    """The text. Raises OSError, whose text is one line, and UnicodeDecodeError."""
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS_MAX) as answer:
            content: bytes = answer.read(MAX_TEXT_BYTES + 1)
    except urllib.error.HTTPError as error:
        raise OSError(f"the server answers {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise OSError(f"cannot be reached ({getattr(error.reason, 'strerror', None) or error.reason})") from None
    except (ValueError, http.client.InvalidURL) as error:
        raise OSError(f"is no URL ({error})") from None
    except http.client.HTTPException as error:
        raise OSError(f"what answers speaks no HTTP ({type(error).__name__})") from None
    if len(content) > MAX_TEXT_BYTES:
        raise OSError(f"more than {MAX_TEXT_BYTES} bytes; no more are read")
    return content.decode()

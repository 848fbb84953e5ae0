"""The body of a request as a document, whatever form it came in; what is wrong with it is a Status. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from rayched.api.errors import quoted
from rayched.api.yaml_text import MAX_DEPTH, TextError, depth_exceeds, load_all
from rayched.gateway import protobuf_bodies
from rayched.gateway.statuses import StatusFailure, bad_request, unsupported_type

JSON: Final = "application/json"
YAML: Final = "application/yaml"
ACCEPTED: Final = (JSON, YAML, protobuf_bodies.CONTENT_TYPE)

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)

Document = dict[str, Any]


def read_document(body: bytes, content_type: str) -> Document:
    """The object in a body; {} of none. Without a content type it is JSON: some clients send none."""
    if content_type not in ("", *ACCEPTED):
        raise unsupported_type(content_type, ACCEPTED)
    if not body:
        return {}
    if body.startswith(protobuf_bodies.PREFIX):
        try:
            return protobuf_bodies.read(body)
        except protobuf_bodies.UnreadableBody as error:
            raise StatusFailure(415, "UnsupportedMediaType", str(error)) from None
    found = _checked(_read_yaml(body), body) if content_type == YAML else read_json(body)
    if not isinstance(found, dict):
        raise bad_request("the body must be an object")
    return found


def read_json(body: bytes) -> Any:
    """Any JSON value. A field that is there twice is refused, as one of the two would be lost."""
    try:
        found = json.loads(body.decode(), object_pairs_hook=_once_each)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is no JSON: {error}") from None
    return _checked(found, body)


def _checked(found: Any, body: bytes) -> Any:
    """What all that follows relies on: it is not deep, and its texts can be written again. Raises StatusFailure."""
    if depth_exceeds(found, MAX_DEPTH):
        raise bad_request(f"the body has values that are nested more than {MAX_DEPTH} levels deep")
    if b"\\u" in body or b"\\U" in body:
        # Such an escape may be half of a pair, which is in no text of Unicode.
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise bad_request("the body has text that is not valid Unicode: half of a pair of \\u escapes") from None
    return found


def _once_each(pairs: list[tuple[str, Any]]) -> Document:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise bad_request(f"strict decoding error: duplicate field {quoted(twice)}")
    return found


def _read_yaml(body: bytes) -> Any:
    try:
        documents = load_all(body.decode(), "body")
    except (TextError, UnicodeDecodeError) as error:
        raise bad_request(f"the body is no YAML: {error}") from None
    if len(documents) != 1:
        raise bad_request(f"the body has {len(documents)} documents, want one")
    return documents[0]

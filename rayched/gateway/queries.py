"""What a request says beside its body: parameters of the query, and which of its accepted forms is served. Pure.

Parameters that nobody here knows are ignored, as Kubernetes does: clients send `timeout`, `fieldManager` and `pretty`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rayched.gateway.statuses import bad_request

_TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")
_FALSE: Final = ("", "0", "f", "F", "false", "FALSE", "False")
"""What Go's ParseBool takes."""
_ALL: Final = "All"
NUMBER_MAX: Final = 2**63 - 1
"""What a field of 64 bits holds."""
_DIGITS_MAX: Final = 40
"""Python reads no text of some thousand digits as a number."""
INCLUDE_METADATA, INCLUDE_OBJECT, INCLUDE_NONE = "Metadata", "Object", "None"


@dataclass(frozen=True, slots=True)
class AcceptedForm:
    """How the answer is to look: objects as they are, as a Table, or their metadata alone."""

    table: bool = False
    metadata_only: bool = False


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Parameters of a list or a watch."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    token: str = ""
    resource_version: str = ""
    exact: bool = False
    """The list as of `resource_version`."""
    watch: bool = False
    bookmarks: bool = False
    initial_events: bool = False
    timeout_seconds: float | None = None


def accepted_form(accept: str) -> AcceptedForm:
    """The first of the accepted forms that is served; JSON is understood by everybody who asks for protobuf as well."""
    for part in accept.split(","):
        media, *parameters = (word.strip() for word in part.split(";"))
        if media not in ("application/json", "application/*", "*/*"):
            continue
        given = dict(word.split("=", 1) for word in parameters if "=" in word)
        kind = given.get("as", "")
        if kind in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
            if given.get("v", "v1") in ("v1", "v1beta1") and given.get("g", "meta.k8s.io") == "meta.k8s.io":
                return AcceptedForm(table=kind == "Table", metadata_only=kind != "Table")
            continue
        if not kind:
            break
    return AcceptedForm()


def accepts_aggregated(accept: str) -> bool:
    """Whether discovery is wanted in one document, in the version that is served."""
    forms = (part.replace(" ", "") for part in accept.split(","))
    return any("as=APIGroupDiscoveryList" in form and "v=v2" in form.split(";") for form in forms)


def list_query(query: Mapping[str, str]) -> ListQuery:
    match = query.get("resourceVersionMatch", "")
    if match not in ("", "Exact", "NotOlderThan"):
        raise bad_request(f'resourceVersionMatch: found "{match}", want Exact or NotOlderThan')
    seconds = number(query, "timeoutSeconds")
    return ListQuery(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        limit=number(query, "limit") or 0,
        token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        exact=match == "Exact",
        watch=flag(query, "watch"),
        bookmarks=flag(query, "allowWatchBookmarks"),
        initial_events=flag(query, "sendInitialEvents"),
        timeout_seconds=float(seconds) if seconds else None,
    )


def revision(text: str) -> int:
    """A resourceVersion as a revision; "" and "0" are 0."""
    if not text:
        return 0
    found = _whole_number(text)
    if found is None:
        raise bad_request(f'resourceVersion: found "{text[:40]}", want a number')
    return found


def flag(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "")
    if text not in _TRUE and text not in _FALSE:
        raise bad_request(f'{name}: found "{text[:40]}", want true or false')
    return text in _TRUE


def number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    found = _whole_number(text)
    if found is None:
        raise bad_request(f'{name}: found "{text[:40]}", want a whole number from 0 on')
    return found


def dry_run(given: object) -> bool:
    """Of `dryRun` in a query, a text, or in options in a body, a list of texts."""
    words = given if isinstance(given, list) else [given] if given else []
    for word in words:
        if word != _ALL:
            raise bad_request(f"dryRun: found {str(word)[:40]!r}, want {_ALL}")
    return bool(words)


def is_unicode(text: str) -> bool:
    """Whether it can be written as UTF-8. Bytes of a request that are none come as halves of pairs."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _whole_number(text: str) -> int | None:
    """From 0 to NUMBER_MAX; None: the text is none."""
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
        return None
    number = int(text)
    return number if number <= NUMBER_MAX else None

"""The grammar of names, labels and annotations: fixed linear-time patterns, and one sentence for each fault.

Each function returns why a text is not allowed, or None. What passes is remembered for texts that recur.

Source: apimachinery's validation of DNS-1123 and qualified names, Kubernetes 1.34; limits as there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rayched.api.errors import quoted
from rayched.api.short_texts import remembered

LABEL_MAX: Final = 63
SUBDOMAIN_MAX: Final = 253
LAST_APPLIED: Final = "rayched.dev/last-applied"
"""The annotation in which `apply` notes what its manifest had."""
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REGION_LABEL: Final = "topology.kubernetes.io/region"
SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_CHARACTERS: Final = 5
"""Of what is put behind a prefix to make a name."""

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_LABEL_1035 = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_NAME_PART = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_LABEL_VALUES = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?(?:\n|\Z)|\n)*+", re.ASCII)
"""Label values, a line each; whatever they are, a line is looked at in one piece."""
_PORT_NAME = re.compile(r"(?=[a-z0-9-]*[a-z])[a-z0-9](?:-?[a-z0-9])*", re.ASCII)
_VARIABLE = re.compile(r"[\x20-\x3c\x3e-\x7e]+", re.ASCII)

_SUBDOMAIN_RULE: Final = "lower case letters, digits, '-' and '.', starting and ending with a letter or digit"
_LABEL_RULE: Final = "lower case letters, digits and '-', starting and ending with a letter or digit"
_NAME_RULE: Final = "letters, digits, '-', '_' and '.', starting and ending with a letter or digit"


@remembered(8_192)
def subdomain_fault(text: str) -> str | None:
    """A DNS-1123 subdomain: the name of most objects."""
    if not text:
        return "is required"
    if len(text) > SUBDOMAIN_MAX:
        return f"{quoted(text)} has {len(text)} characters; at most {SUBDOMAIN_MAX} are allowed"
    return None if _SUBDOMAIN.fullmatch(text) else f"{quoted(text)} is not a valid name; allowed are {_SUBDOMAIN_RULE}"


@remembered(8_192)
def label_fault(text: str) -> str | None:
    """A DNS-1123 label: the name of a namespace or a container."""
    if not text:
        return "is required"
    if len(text) > LABEL_MAX:
        return f"{quoted(text)} has {len(text)} characters; at most {LABEL_MAX} are allowed"
    return None if _LABEL.fullmatch(text) else f"{quoted(text)} is not a valid name; allowed are {_LABEL_RULE}"


def label_1035_fault(text: str) -> str | None:
    """A DNS-1035 label: the name of a service."""
    fault = label_fault(text)
    if fault is None and not _LABEL_1035.fullmatch(text):
        fault = f"{quoted(text)} is not a valid name; allowed are {_LABEL_RULE}, the first a letter"
    return fault


@remembered(8_192)
def qualified_fault(text: str) -> str | None:
    """A qualified name: a name of up to 63 characters, with an optional DNS prefix and slash; keys of labels."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return f"{quoted(text)} has more than one '/'; allowed is [prefix/]name"
    if slash:
        fault = subdomain_fault(prefix)
        if fault is not None:
            return f"the prefix of {quoted(text)} {'is empty' if not prefix else 'is not a DNS subdomain'}"
    if not name:
        return f"the name part of {quoted(text)} is empty" if text else "is required"
    if len(name) > LABEL_MAX:
        return f"the name part of {quoted(text)} has {len(name)} characters; at most {LABEL_MAX} are allowed"
    return None if _NAME_PART.fullmatch(name) else f"{quoted(text)} is not a valid key; allowed are {_NAME_RULE}"


@remembered(8_192)
def label_value_fault(text: str) -> str | None:
    """The value of a label; the empty one is allowed."""
    if len(text) > LABEL_MAX:
        return f"{quoted(text)} has {len(text)} characters; at most {LABEL_MAX} are allowed"
    if text and not _NAME_PART.fullmatch(text):
        return f"{quoted(text)} is not a valid label value; allowed are {_NAME_RULE}, or none at all"
    return None


def are_label_values(texts: Sequence[str]) -> bool:
    """Whether each is a valid value of a label. Cost: 0.1 µs a text, as it looks at all of them at once."""
    lines = "\n".join(texts)
    return lines.count("\n") < max(len(texts), 1) and _LABEL_VALUES.fullmatch(lines) is not None


def port_name_fault(text: str) -> str | None:
    """The name of a port: up to 15 characters, a letter among them."""
    if len(text) > 15:
        return f"{quoted(text)} has {len(text)} characters; at most 15 are allowed"
    if not _PORT_NAME.fullmatch(text):
        return f"{quoted(text)} is not a valid port name; allowed are lower case letters (one at least), digits and single '-'"
    return None


def variable_fault(text: str) -> str | None:
    """The name of an environment variable: printable ASCII without '='."""
    if not text:
        return "is required"
    if not _VARIABLE.fullmatch(text):
        return f"{quoted(text)} is not a valid variable name; allowed are printable ASCII characters except '='"
    return None

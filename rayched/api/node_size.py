"""What a node registered with first, as an annotation of its Node says it: quantities by resource, in JSON. Pure.

    metadata:
      annotations:
        rayched.dev/registered-allocatable: '{"cpu": "4", "memory": "8Gi", "pods": "110"}'

Its agent may offer no more. Administrators change it; agents cannot.
"""

from __future__ import annotations

import json
from typing import Final

from rayched.api.errors import quoted
from rayched.api.quantity import QuantityError, milli_value

SIZE_ANNOTATION: Final = "rayched.dev/registered-allocatable"
_WANTED: Final = 'want quantities by resource, such as {"cpu": "4", "memory": "8Gi"}'


class SizeTextError(ValueError):
    """The annotation says no sizes; one line."""


def sizes_of(text: str) -> dict[str, str]:
    """Quantities by resource, each of which can be read. Raises SizeTextError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SizeTextError(f"is no JSON ({error}); {_WANTED}") from None
    if not isinstance(found, dict):
        raise SizeTextError(f"is no object of JSON; {_WANTED}")
    for name, amount in found.items():
        if not isinstance(amount, str):
            raise SizeTextError(f"{quoted(name)}: is no text; {_WANTED}")
        try:
            negative = milli_value(amount) < 0
        except QuantityError as error:
            raise SizeTextError(f"{quoted(name)}: {error}; {_WANTED}") from None
        if negative:
            raise SizeTextError(f"{quoted(name)}: {amount} is less than nothing")
    return found


def size_text_fault(text: str) -> str:
    """What is wrong with the annotation's value; empty: nothing."""
    try:
        sizes_of(text)
    except SizeTextError as error:
        return str(error)
    return ""

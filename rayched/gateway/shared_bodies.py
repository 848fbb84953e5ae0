"""Objects as JSON, made once for all watches that tell of them: turning one into JSON costs more than all else of an event.

What is kept is found by the object's bytes, so it is right whatever became of revisions: in a store that was restored, too. It is
bounded, and what nobody has asked for longest goes first. Owner: the event loop.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any, Final

from rayched.api.kinds import AnyObject, Kind
from rayched.gateway import rendering

BYTES_MAX: Final = 8 << 20
"""Of all keys and bodies together: some thousand pods."""


class SharedBodies:
    """Of one gateway."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bodies: OrderedDict[tuple[str, bool, bytes], bytes] = OrderedDict()
        self._bytes = 0

    def of(self, kind: Kind, item: AnyObject, metadata_only: bool) -> bytes:
        """The object, or its metadata alone, in UTF-8."""
        key = kind.name, metadata_only, item.SerializeToString()
        body = self._bodies.get(key)
        if body is not None:
            self._bodies.move_to_end(key)
            return body
        whole = rendering.document(item)
        body = json_bytes(rendering.partial(whole) if metadata_only else whole)
        self._bodies[key] = body
        self._bytes += len(key[2]) + len(body)
        while self._bytes > self._bytes_max:
            (_, _, raw), oldest = self._bodies.popitem(last=False)
            self._bytes -= len(raw) + len(oldest)
        return body


def json_bytes(value: Any) -> bytes:
    """As short as it can be, in UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

"""What plugins raised, for the log: with the traceback, each place in the code once.

A pod is told in a line that a plugin has failed; whoever mends the plugin has to know where. The pure rooms do not log: they note
it here, and the process that has a log takes it out. An exception that goes no further anywhere else goes through here.

Owner: whoever calls the plugins; one thread. Cost: nothing while nobody raises, then a walk down the traceback, and 0.1 ms for a
new place.
"""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Final

from rayched.framework.plugin_error import PluginError

PLACES_MAX: Final = 200
"""Places told of; a plugin that raises at more of them is known well enough."""


class Raised:
    """Exceptions that plugins raised, for the log: each place in the code once."""

    def __init__(self) -> None:
        self._places: set[tuple[type[BaseException], str, int]] = set()
        self._unread: list[str] = []

    def note(self, words: str, problem: BaseException) -> bool:
        """Keeps the words and the traceback, where this place has not been told of. False: it has, or nothing was raised."""
        if isinstance(problem, PluginError):
            # The plugin's own exception; without one it has answered wrongly, and the words say all of it.
            if problem.__cause__ is None:
                return False
            problem = problem.__cause__
        place = type(problem), *_innermost(problem.__traceback__, words)
        if place in self._places or len(self._places) >= PLACES_MAX:
            return False
        self._places.add(place)
        self._unread.append(f"{words}\n{''.join(traceback.format_exception(problem)).rstrip()}")
        return True

    def take(self) -> list[str]:
        """What nobody has read yet."""
        if not self._unread:
            return []
        unread, self._unread = self._unread, []
        return unread


def place_of(problem: BaseException) -> str:
    """Where it was raised, in words: the file's name and the line."""
    file, line = _innermost(problem.__traceback__, "")
    return f"{file.rpartition('/')[2]}, line {line}"


def _innermost(trace: TracebackType | None, words: str) -> tuple[str, int]:
    """File and line; the words where there is no traceback."""
    if trace is None:
        return words, 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename, trace.tb_lineno

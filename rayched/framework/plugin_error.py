"""The error of a plugin that raised or broke its contract."""

from __future__ import annotations


class PluginError(Exception):
    """A plugin raised, or answered something that its contract forbids. The attempt ends with Code.ERROR; nothing was cached."""

    def __init__(self, plugin: str, point: str, problem: str) -> None:
        super().__init__(f'plugin "{plugin}", {point}: {problem}')
        self.plugin = plugin
        self.point = point
        """The extension point, as people call it."""


class GroupedScoreError(PluginError):
    """One that raised when it was asked about groups of rows, of which only those count that have a feasible row."""

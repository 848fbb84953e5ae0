"""A cluster on this host for as long as a `with` lasts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class ClusterSession(ABC):
    """Closes what it opened, also where opening fails half-way."""

    @abstractmethod
    def open(self) -> None:
        """Start all of it. May raise."""

    @abstractmethod
    def close(self) -> None:
        """End all of it, as far as it was started."""

    def __enter__(self) -> Self:
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

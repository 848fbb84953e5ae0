"""What the container of a pod writes, printed by a thread of its own while the pod is waited for."""

from __future__ import annotations

import threading
from typing import Final

from rayched.cli.printing import note, raw
from rayched.cli.verbosity import words_of
from rayched.client.client import Client
from rayched.client.errors import ApiError

_PATIENCE_SECONDS: Final = 10.0
"""For an agent that cannot be reached; a hollow node has none."""
_LAST_SECONDS_MAX: Final = 15.0
"""For what is not printed yet when the container has ended."""


class FollowedLogs:
    """The attempts of one container, one after the other. Owner: the thread that waits for the pod."""

    def __init__(self, client: Client, pod: str, namespace: str, container: str) -> None:
        self._client = client
        self._pod = pod
        self._namespace = namespace
        self._container = container
        self._followed = -1
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def begun(self, restarts: int) -> None:
        """An attempt runs, or has ended. One that was told already is not followed again."""
        if restarts > self._followed:
            self._followed = restarts
            self._thread = threading.Thread(target=self._print, args=(self._thread,), name="logs", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Nothing will be written any more: returns when all is printed."""
        if self._thread is not None:
            self._thread.join(_LAST_SECONDS_MAX)
            if self._thread.is_alive():
                note(f"warning: pod/{self._pod}: the last of what it wrote does not come; try rayched logs {self._pod}")

    def _print(self, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        try:
            stream = self._client.logs(
                self._pod, self._namespace, container=self._container, follow=True, patience_seconds=_PATIENCE_SECONDS
            )
            with stream as chunks:
                for chunk in chunks:
                    if chunk.lost:
                        note(f"warning: pod/{self._pod}: lines were removed by rotation before they could be read")
                    raw(chunk.data)
        except BrokenPipeError:
            # Nobody reads any more; the pod is waited for all the same.
            return
        except ApiError as error:
            note(f"warning: pod/{self._pod}: what it writes cannot be shown: {words_of(error)}")

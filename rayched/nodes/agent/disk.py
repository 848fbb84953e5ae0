"""What the agent keeps on disk, so that it can be killed at any moment and go on.

    <root>/agent.lock                              held for life: one agent a directory
    <root>/identity.json                           format, agent id, node
    <root>/boot.json                               the boot of the host in which an agent was here last
    <root>/pods/<uid>/pod.json                     the object as it was last seen
    <root>/pods/<uid>/accepted                     admission said yes, and when
    <root>/pods/<uid>/ending.json                  why it ends, and by when
    <root>/pods/<uid>/memory.json                  what probes and hooks said
    <root>/pods/<uid>/driver.json                  which driver it was given, where that had to be found out
    <root>/pods/<uid>/shim/                        lock, socket and state of its shim
    <root>/pods/<uid>/containers/<name>/<attempt>/ spec.json, work/, exit.json
    <root>/pods/<uid>/volumes/<name>/              emptyDir
    <root>/logs/<namespace>_<pod>_<uid>/<container>/<attempt>.log

Files appear whole or not at all, and are on the disk when a call returns. An attempt's directory is made before it is started,
and its exit is written before anybody is told: so nothing is started twice, and no end is lost.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from rayched.nodes.agent.removal import remove_tree
from rayched.nodes.agent.shim.container import write_json
from rayched.v1.core_pb2 import Pod

FORMAT: Final = 1
_OWNER_BYTES_MAX: Final = 200
"""Of a directory's name before the uid; a file system takes 255 bytes in all."""

log = logging.getLogger(__name__)


def default_root() -> Path:
    """Where agents of this user keep their state, unless they are told otherwise."""
    if os.geteuid() == 0:
        return Path("/var/lib/rayched-node")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rayched-node"


class DiskFault(Exception):
    """The agent cannot work in its directory; one line."""


class PodDirectory:
    """What is kept of one pod."""

    def __init__(self, root: NodeDirectory, uid: str) -> None:
        self._root = root
        self.uid = uid
        self.path = root.pods / uid

    def make(self) -> None:
        for path in (self.path, self.path / "containers", self.path / "volumes"):
            self._root.make(path)
        (self.path / "shim").mkdir(0o700, exist_ok=True)

    # ------------------------------------------------------------------------------------------------------------ objects

    def save_object(self, pod: Pod) -> None:
        write_json(str(self.path / "pod.json"), MessageToDict(pod))

    def load_object(self) -> Pod | None:
        """None where there is none that can be read: the agent was killed while it took the pod on."""
        values = self._load("pod.json")
        try:
            return None if values is None else ParseDict(values, Pod(), ignore_unknown_fields=True)
        except ParseError as error:
            raise DiskFault(f"{self.path}/pod.json: cannot be read ({error})") from None

    def accept(self, at: float) -> None:
        write_json(str(self.path / "accepted"), {"at": at})

    def accepted_at(self) -> float | None:
        values = self._load("accepted")
        return None if values is None else float(values["at"])

    def save(self, name: str, values: dict[str, Any]) -> None:
        """`name`: ending, memory or driver."""
        write_json(str(self.path / f"{name}.json"), values)

    def load(self, name: str) -> dict[str, Any] | None:
        return self._load(f"{name}.json")

    def _load(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise DiskFault(f"{self.path / name}: cannot be read ({error})") from None
        return found

    # ----------------------------------------------------------------------------------------------------------- attempts

    def attempts(self, container: str) -> list[int]:
        """Those begun, oldest first; of older ones only the last is kept."""
        directory = self.path / "containers" / container
        if not directory.is_dir():
            return []
        return sorted(int(entry.name) for entry in directory.iterdir() if entry.name.isdigit())

    def has_attempts(self) -> bool:
        """Whether any container was begun."""
        directory = self.path / "containers"
        return directory.is_dir() and any(directory.iterdir())

    def attempt_path(self, container: str, attempt: int) -> Path:
        return self.path / "containers" / container / str(attempt)

    def begin_attempt(self, container: str, attempt: int) -> Path:
        """Its directory; the one before the last is removed."""
        path = self.attempt_path(container, attempt)
        self._root.make(path.parent)
        self._root.make(path)
        work = path / "work"
        work.mkdir(0o755, exist_ok=True)
        for older in self.attempts(container):
            if older < attempt - 1:
                remove_or_log(self.attempt_path(container, older))
        self._remove_logs(container, attempt - 1)
        return path

    def _remove_logs(self, container: str, before: int) -> None:
        """Of attempts before that one: a container that crashes all day would fill the disk."""
        for path in self._root.logs.glob(f"*_{self.uid}/{container}/*.log*"):
            attempt = path.name.partition(".")[0]
            if attempt.isdigit() and int(attempt) < before:
                path.unlink(missing_ok=True)

    def write_spec(self, container: str, attempt: int, spec: dict[str, Any]) -> None:
        write_json(str(self.attempt_path(container, attempt) / "spec.json"), spec)

    def exit_of(self, container: str, attempt: int) -> dict[str, Any] | None:
        return self._load(f"containers/{container}/{attempt}/exit.json")

    def write_exit(self, container: str, attempt: int, values: dict[str, Any]) -> None:
        write_json(str(self.attempt_path(container, attempt) / "exit.json"), values)

    def logs_of(self, pod: Pod) -> Path:
        """One directory a container."""
        owner = f"{pod.metadata.namespace}_{pod.metadata.name}"
        if len(owner) > _OWNER_BYTES_MAX:
            owner = f"{owner[:_OWNER_BYTES_MAX]}-{hashlib.sha256(owner.encode()).hexdigest()[:8]}"
        return self._root.logs / f"{owner}_{self.uid}"

    def log_directory(self, pod: Pod, container: str) -> Path:
        return self.logs_of(pod) / container

    def log_path(self, pod: Pod, container: str, attempt: int) -> Path:
        """Its directory is made."""
        directory = self.log_directory(pod, container)
        directory.mkdir(0o700, parents=True, exist_ok=True)
        return directory / f"{attempt}.log"

    def volume(self, name: str, user: int | None, group: int | None) -> str:
        path = self.path / "volumes" / name
        if not path.exists():
            path.mkdir(0o777)
            path.chmod(0o777)
            if os.geteuid() == 0 and group is not None:
                os.chown(path, user if user is not None else -1, group)
        return str(path)

    # --------------------------------------------------------------------------------------------------------------- shim

    def shim_lives(self) -> bool:
        """Whether somebody holds the shim's lock: whatever its pid says."""
        try:
            fd = os.open(self.path / "shim" / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def shim_state(self) -> dict[str, Any] | None:
        return self._load("shim/state.json")

    def remove(self) -> None:
        """All of it, and its logs. Raises OSError, and can be called again."""
        for directory in self._root.logs.glob(f"*_{self.uid}"):
            remove_tree(directory)
        if not self.path.exists():
            return
        # Without the object it would not be found again if this were cut short.
        for name in sorted(os.listdir(self.path), key="pod.json".__eq__):
            entry = self.path / name
            if entry.is_dir() and not entry.is_symlink():
                remove_tree(entry)
            else:
                entry.unlink(missing_ok=True)
        self.path.rmdir()


def remove_or_log(path: Path) -> None:
    """For what only takes room."""
    try:
        remove_tree(path)
    except OSError as error:
        log.warning("%s is left on the disk: %s", path, error)


class NodeDirectory:
    """The agent's own directory. `traversable`: pods run as other users and have to reach their own directories."""

    def __init__(self, root: Path, *, traversable: bool) -> None:
        self.root = root
        self.pods = root / "pods"
        self.logs = root / "logs"
        self._mode = 0o711 if traversable else 0o700
        self._lock: int | None = None

    def open(self, node: str) -> str:
        """Locks it and gives the agent's id. Raises DiskFault where another agent lives in it, or another node."""
        try:
            for path in (self.root, self.pods):
                path.mkdir(self._mode, parents=True, exist_ok=True)
                path.chmod(self._mode)
            self.logs.mkdir(0o700, exist_ok=True)
            self._lock = os.open(self.root / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DiskFault(f"{self.root}: cannot be used ({error.strerror}: {error.filename})") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip()
            os.close(self._lock)
            self._lock = None
            raise DiskFault(f"{self.root}: another agent lives in it, pid {holder}") from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        return self._identity(node)

    def is_another_boot(self, boot_id: str) -> bool:
        """Whether the host was rebooted since an agent asked here; remembers this boot."""
        path = self.root / "boot.json"
        try:
            before = json.loads(path.read_text(encoding="utf-8"))["boot_id"]
        except (OSError, ValueError, KeyError):
            # The first time, or nobody knows.
            before = boot_id
        write_json(str(path), {"boot_id": boot_id})
        return bool(before != boot_id)

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def make(self, path: Path) -> None:
        path.mkdir(self._mode, exist_ok=True)
        path.chmod(self._mode)

    def pod(self, uid: str) -> PodDirectory:
        return PodDirectory(self, uid)

    def pods_there(self) -> Iterator[PodDirectory]:
        for entry in sorted(self.pods.iterdir()):
            if entry.is_dir():
                yield PodDirectory(self, entry.name)

    def uids_there(self) -> set[str]:
        """Of pods of which there is something, whether or not it can be read."""
        return {entry.name for entry in self.pods.iterdir() if entry.is_dir()}

    def _identity(self, node: str) -> str:
        path = self.root / "identity.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            found = {"format": FORMAT, "agent_id": str(uuid.uuid4()), "node": node, "made_at": int(time.time())}
            write_json(str(path), found)
        except (OSError, ValueError) as error:
            raise DiskFault(f"{path}: cannot be read ({error})") from None
        if found["format"] > FORMAT:
            raise DiskFault(f"{path}: has format {found['format']}, this agent reads up to {FORMAT}")
        if found["node"] != node:
            raise DiskFault(f"{self.root}: belongs to node {found['node']}, not to {node}")
        return str(found["agent_id"])

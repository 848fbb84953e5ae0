"""An etcd of our own: found, started, ready when it says so, stopped, never left behind.

One member, for `rayched up`, for a replica that is alone, and for tests. Whoever wants more gives the endpoints of an external
etcd.

* It listens at Unix sockets in a directory that only this user can enter, and at no port: whoever reaches an etcd is the master
  of the cluster, and every local user and every page in a browser reaches a port on loopback. Only tests ask for one.
* An open port is not readiness: etcd accepts connections up to two seconds before it answers. Ready means that it has answered
  a linearizable read.
* A lock file beside the data directory is locked by the etcd process itself (it inherits the descriptor), so the lock ends with
  etcd and not with whoever started it. Without it a second etcd on the same data waits silently for ever.
* A version file beside the data directory refuses an older minor version than the one that wrote the data: etcd cannot go back.
* etcd gets SIGTERM when the thread that started it ends (Linux counts threads here, not processes): start it from a thread that
  lives as long as it shall live, the main thread as a rule.
* Compaction is the leader's task and therefore not switched on here.

Source: etcd 3.4 and 3.5, their flags and exit behaviour. Cost: ready after 0.1 to 0.5 s when empty, 0.7 to 2.3 s on data.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import grpc
import tenacity

from leader.channel import open_channel
from leader.etcd_shim import rpc
from rayched.replica.busy_ports import try_port
from rayched.replica.cluster.free_ports import free_port
from rayched.replica.etcd.etcd_binary import EtcdBinary, EtcdServerError, etcd_environment, find_etcd, version_in
from rayched.replica.log_file import LOG_BYTES_MAX, cut
from rayched.replica.own_directories import SHORT, make_own_directory, remove_own_directory, try_lock
from rayched.replica.ray.processes import dying_with_us

_log = logging.getLogger(__name__)

_HOST: Final = "127.0.0.1"
_CLIENT_SOCKET: Final = "localhost:1"
_PEER_SOCKET: Final = "localhost:2"
"""Names of the only form that etcd takes; they are the files of the sockets, too."""
_FLAGS: Final = (
    # A heartbeat is for other members; alone, a short election timeout only makes the restart quick.
    *("--heartbeat-interval", "50", "--election-timeout", "500"),
    # 100 objects, each with its own comparisons, in one transaction. The largest request stays at etcd's default of 1.5 MiB: it
    # is also the size of a watch's fragments, and the time that etcd takes to cut one grows with the square of that.
    *("--max-txn-ops", "1100"),
    # The default of etcd 3.6; 3.5 takes a snapshot after 100,000 writes. All since the last one lies in memory, with its garbage
    # five times, and is read again at the next start.
    *("--snapshot-count", "10000"),
    *("--logger", "zap", "--log-level", "warn"),
    # A second way in, which nobody needs.
    "--enable-grpc-gateway=false",
)
_COLLECTS_RARELY: Final = {"GOGC": "400"}
"""Where the environment does not say how often etcd collects its garbage: a sixth of its CPU, for up to twice its memory."""
_QUOTA_BYTES: Final = 8 << 30
_READY_READ_SECONDS: Final = 0.5
_READY_PAUSE_SECONDS: Final = 0.01
_STOP_SECONDS: Final = 5.0
_PORT_ATTEMPTS: Final = 3


class _PortInUse(EtcdServerError):
    pass


class EtcdServer:
    """One etcd process on a data directory. `start` and `stop` may be repeated; the endpoint stays the same."""

    def __init__(
        self,
        data_dir: Path | str,
        client_port: int | None = None,
        *,
        binary: EtcdBinary | None = None,
        unsafe_no_fsync: bool = False,
        quota_bytes: int = _QUOTA_BYTES,
        ready_seconds_max: float = 120.0,
        warn: Callable[[str], None] | None = _log.warning,
    ) -> None:
        """`client_port`: on loopback, in place of a Unix socket; 0 chooses a free one. `unsafe_no_fsync` is for tests: a crash of
        the machine loses data. `warn` is told, at the first start, of a version that is not safe; None: the caller does it."""
        self._data_dir = Path(data_dir).absolute()
        self._port_given = client_port
        self._port = client_port or 0
        self._sockets: Path | None = None
        """Where its Unix sockets are, from the first start on."""
        self._binary = binary
        self._unsafe_no_fsync = unsafe_no_fsync
        self._quota_bytes = quota_bytes
        self._ready_seconds_max = ready_seconds_max
        self._warn = warn
        self._process: subprocess.Popen[bytes] | None = None
        self._log_offset = 0

    @property
    def endpoint(self) -> str:
        """unix:path or host:port for clients; known after the first start."""
        if self._sockets is not None:
            return f"unix:{self._sockets / _CLIENT_SOCKET}"
        if not self._port:
            raise EtcdServerError("etcd has no endpoint before it is started")
        return f"{_HOST}:{self._port}"

    @property
    def binary(self) -> EtcdBinary:
        """The binary used, found now if it was not given."""
        if self._binary is None:
            self._binary = find_etcd()
        return self._binary

    @property
    def pid(self) -> int | None:
        """The process, None while it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def log_path(self) -> Path:
        return self._beside(".log")

    def start(self) -> None:
        """Start etcd and return when it is ready. Raises EtcdServerError with one line that says what to do."""
        if self.pid is not None:
            return
        self._refuse_older_binary()
        try:
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise EtcdServerError(f"etcd data directory {self._data_dir} cannot be created: {error.strerror}") from error
        # A chosen port may be taken by another between the choice and etcd's bind: then choose again.
        attempts = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(1 if self._port_given else _PORT_ATTEMPTS),
            retry=tenacity.retry_if_exception_type(_PortInUse),
            reraise=True,
        )
        attempts(self._start_once)
        if self._warn is not None and (warning := self.binary.warning()):
            self._warn(warning)
        self._warn = None

    def wait(self, timeout_seconds: float | None = None) -> int | None:
        """Returns when it has ended; its exit code, None where it did not run. Raises TimeoutError."""
        process = self._process
        try:
            return None if process is None else process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None

    def keep_log_small(self) -> None:
        """Whether etcd runs or not: where its disk is slow it writes a line for each request."""
        try:
            cut(self.log_path)
        except OSError as error:
            _log.warning("etcd's log %s cannot be cut: %s", self.log_path, error.strerror)

    def stop(self, patience_seconds: float = _STOP_SECONDS) -> None:
        """SIGTERM, and SIGKILL if it has not ended by then. Nothing happens when it does not run."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Stops it for good: the next start has another endpoint."""
        self.stop()
        if (sockets := self._sockets) is not None:
            self._sockets = None
            remove_own_directory(sockets)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _start_once(self) -> None:
        if self._port_given is None:
            self._sockets = self._sockets or make_own_directory(SHORT)
            client, peer, endpoint = f"unix://{_CLIENT_SOCKET}", f"unix://{_PEER_SOCKET}", self.endpoint
        else:
            port = self._port or free_port()
            _refuse_busy_port(port)
            endpoint = f"{_HOST}:{port}"
            client, peer = f"http://{endpoint}", f"http://{_HOST}:{free_port()}"
        self._process = self._spawn(client, peer)
        try:
            self._wait_until_ready(self._process, endpoint)
        except BaseException:
            self.stop()
            raise
        if self._port_given is not None:
            self._port = int(endpoint.rpartition(":")[2])
        self._beside(".version").write_text(self.binary.version_text + "\n")

    def _spawn(self, client: str, peer: str) -> subprocess.Popen[bytes]:
        """`client`, `peer`: URLs where it listens; Unix sockets are in its working directory."""
        arguments = [
            *("--name", "rayched", "--data-dir", str(self._data_dir)),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"rayched={peer}"),
            *("--quota-backend-bytes", str(self._quota_bytes)),
            *_FLAGS,
            *(("--unsafe-no-fsync",) if self._unsafe_no_fsync else ()),
        ]
        with self._locked() as lock, self._open_log() as log:
            process = subprocess.Popen(
                dying_with_us([str(self.binary.path), *arguments]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._sockets or self._data_dir,
                env=_COLLECTS_RARELY | etcd_environment(),
                pass_fds=(lock,),
                # Its own session: a Ctrl-C in the terminal reaches the replicas first, and they still need etcd to end well.
                start_new_session=True,
            )
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(process.pid).encode(), 0)
        return process

    def _wait_until_ready(self, process: subprocess.Popen[bytes], endpoint: str) -> None:
        ready_at_latest = time.monotonic() + self._ready_seconds_max

        def check_progress() -> None:
            self._check_progress(process, endpoint, ready_at_latest)

        attempts = tenacity.Retrying(
            wait=tenacity.wait_fixed(_READY_PAUSE_SECONDS),
            retry=tenacity.retry_if_exception_type((OSError, grpc.RpcError)),
            before_sleep=lambda _: check_progress(),
        )
        attempts(_connect, endpoint)
        with contextlib.closing(open_channel([endpoint])) as channel:
            attempts(rpc.KVStub(channel).Range, rpc.RangeRequest(key=b"\0", limit=1), timeout=_READY_READ_SECONDS)
        # Another server at this port would have answered as well.
        check_progress()

    def _check_progress(self, process: subprocess.Popen[bytes], endpoint: str, ready_at_latest: float) -> None:
        if process.poll() is not None:
            complaint = _last_complaint(self.log_path, self._log_offset)
            if "address already in use" in complaint:
                raise _PortInUse(_in_use_by_others(endpoint))
            if "downgrade" in complaint:
                raise EtcdServerError(self._older_binary("a newer version"))
            reason = complaint or "it gave no reason"
            raise EtcdServerError(f"etcd ended with code {process.returncode}: {reason}; see {self.log_path}")
        if time.monotonic() > ready_at_latest:
            raise EtcdServerError(f"etcd is not ready after {self._ready_seconds_max:g} s; see {self.log_path}")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The descriptor of the lock file, locked; etcd inherits it and so keeps the lock after it is closed here."""
        lock = os.open(self._beside(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not try_lock(lock):
                owner = os.pread(lock, 32, 0).decode(errors="replace").strip()
                raise EtcdServerError(self._in_use(f"by the etcd with pid {owner}" if owner else "by another etcd"))
            self._refuse_foreign_etcd()
            yield lock
        finally:
            os.close(lock)

    def _refuse_foreign_etcd(self) -> None:
        """An etcd that somebody else started locks its own file, and ours would wait for it silently."""
        with contextlib.suppress(FileNotFoundError), (self._data_dir / "member" / "snap" / "db").open("rb") as database:
            if not try_lock(database.fileno()):
                raise EtcdServerError(self._in_use("by another etcd"))

    def _in_use(self, by: str) -> str:
        return f"etcd data directory {self._data_dir} is in use {by}: stop that one or choose another directory"

    def _refuse_older_binary(self) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError):
            written_by = version_in(self._beside(".version").read_text())
            if self.binary.version[:2] < written_by[:2]:
                raise EtcdServerError(self._older_binary(".".join(map(str, written_by))))

    def _older_binary(self, written_by: str) -> str:
        return (
            f"etcd data directory {self._data_dir} was written by etcd {written_by}, which {self.binary.version_text}"
            f" ({self.binary.path}) cannot read: use that version or another directory"
        )

    def _open_log(self) -> BinaryIO:
        self.keep_log_small()
        log = self.log_path.open("ab")
        self._log_offset = log.tell()
        return log

    def _beside(self, suffix: str) -> Path:
        return self._data_dir.with_name(self._data_dir.name + suffix)


def _refuse_busy_port(port: int) -> None:
    # As etcd does: a port with connections that are just closing is free.
    try:
        try_port(_HOST, port)
    except OSError as error:
        raise _PortInUse(_in_use_by_others(f"{_HOST}:{port}")) from error


def _in_use_by_others(endpoint: str) -> str:
    host, _, port = endpoint.rpartition(":")
    return f"etcd port {port} on {host} is in use: stop what listens there or choose another port"


def _connect(endpoint: str) -> None:
    """Raises OSError where nobody listens."""
    if endpoint.startswith("unix:"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_READY_READ_SECONDS)
            connection.connect(endpoint.removeprefix("unix:"))
        return
    host, _, port = endpoint.rpartition(":")
    socket.create_connection((host, int(port)), timeout=_READY_READ_SECONDS).close()


def _last_complaint(log_path: Path, offset: int) -> str:
    """What etcd wrote last above the level of a warning, else its last line; of this start only."""
    with log_path.open("rb") as log:
        log.seek(offset)
        lines = log.read(LOG_BYTES_MAX).decode(errors="replace").strip().splitlines()
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and entry.get("level") in ("error", "fatal", "panic"):
                return ": ".join(str(entry[field]) for field in ("msg", "error") if entry.get(field))
    return lines[-1] if lines else ""

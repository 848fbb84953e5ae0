"""Opens the audit log that a replica's settings name."""

from __future__ import annotations

import logging

from rayched.replica.settings import STANDARD_OUTPUT, ReplicaSettings, split_address
from rayched.server.audit_log import AuditLog, AuditLogError, AuditLogTaken, StandardOutput
from rayched.server.audit_writer import AuditSink, AuditWriter

_log = logging.getLogger("rayched.replica")


class AuditOpenError(Exception):
    """The audit log cannot be opened: one line that says what to do."""


def open_audit_log(settings: ReplicaSettings) -> AuditWriter | None:
    """None: there is to be none. Raises AuditOpenError."""
    sink = _sink(settings)
    return None if sink is None else AuditWriter(sink, settings.identity, strict=settings.audit_strict)


def _sink(settings: ReplicaSettings) -> AuditSink | None:
    path = settings.audit_path
    if path is None:
        return StandardOutput() if settings.audit_log == STANDARD_OUTPUT else None
    try:
        if settings.audit_log:
            return AuditLog(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return AuditLog(path)
        except AuditLogTaken:
            # Of two replicas that share a data directory the port tells which one it is.
            _, port = split_address("--listen", settings.listen)
            own = path.with_name(f"{path.stem}-{port}{path.suffix}")
            _log.warning("%s is written by another replica; this one has %s", path, own)
            return AuditLog(own)
    except AuditLogError as error:
        raise AuditOpenError(f"--audit-log: {error}") from error
    except OSError as error:
        if settings.audit_log:
            raise AuditOpenError(f"--audit-log {path}: {error.strerror or error}; name a file that can be written") from error
        # As in a container whose file system is for reading alone, where somebody collects what comes out.
        _log.warning("%s: %s; the audit log goes to the standard output (--audit-log)", path, error.strerror or error)
        return StandardOutput()

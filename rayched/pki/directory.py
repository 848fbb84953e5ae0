"""PkiDirectory: the authority of one cluster as files, and all that `rayched pki` does with them.

| file | what |
|---|---|
| trust-domain | of all identities |
| ca.crt | the authorities that are trusted: one, or two while they are exchanged |
| ca.key | of the one that signs. It can be kept elsewhere: then nothing is issued until it is back |
| next-ca.key | of the one that will sign, from the first step of an exchange to the second |
| issued | every certificate that was issued, a JSON line each |
| revoked | the deny list (records.py) |
| external | there where another authority signs, of which `ca.crt` has the certificate: nothing is issued here |
| KIND/NAME/ | tls.crt, tls.key and ca.crt of one identity, where no other directory was named |

A serial number is recorded before its certificate is written, so none is ever out that the list does not have. One process
changes a directory at a time. Time and randomness are given.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from rayched.access.identity import Identity
from rayched.pki import private_files
from rayched.pki.authority import Authority, IssuedCertificate, IssuedPair, KeyMaker, LeafRequest
from rayched.pki.certificates import (
    CertificateFacts,
    check_pair,
    facts_of,
    key_id_of,
    pem_of,
    read_bundle,
    read_certificates,
    serial_text,
)
from rayched.pki.errors import PkiError
from rayched.pki.records import (
    DENY_LIST_HEAD,
    IssueRecord,
    chosen,
    deny_line,
    latest,
    read_deny_list,
    read_records,
)
from rayched.pki.signing_requests import requested_key
from rayched.pki.tls_files import CA_FILE, CERTIFICATE_FILE, KEY_FILE, TlsFiles

_AUTHORITY_KEY: Final = "ca.key"
_NEXT_KEY: Final = "next-ca.key"
_TRUST_DOMAIN: Final = "trust-domain"
_ISSUED: Final = "issued"
_REVOKED: Final = "revoked"
_EXTERNAL: Final = "external"
_LOCK: Final = "lock"
ELSEWHERE: Final = "/elsewhere"
"""In the place of a directory: the certificate is with its holder, who made the key."""


class PkiDirectory:
    """One that `create` made."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time, maker: KeyMaker | None = None) -> None:
        """Raises PkiError where there is none."""
        self.path = path.absolute()
        self._clock = clock
        self._maker = maker or KeyMaker()
        if not (self.path / CA_FILE).exists():
            raise PkiError(f"{self.path}: has no {CA_FILE}; `rayched pki init` makes a certificate authority there")
        self.trust_domain = private_files.read(self.path / _TRUST_DOMAIN).decode(errors="replace").strip()

    @classmethod
    def create(cls, path: Path, clock: Callable[[], float] = time.time, maker: KeyMaker | None = None) -> PkiDirectory:
        """A new authority and trust domain. Raises PkiError where there is one, and then changes nothing."""
        maker = maker or KeyMaker()
        if (path / CA_FILE).exists() or (path / _AUTHORITY_KEY).exists():
            raise PkiError(f"{path}: has a certificate authority already, and nothing is overwritten; name another directory")
        private_files.make_directory(path)
        trust_domain = maker.trust_domain()
        authority = Authority.create(trust_domain, clock(), maker)
        private_files.create(path / _AUTHORITY_KEY, authority.key_pem)
        for name, data in ((_TRUST_DOMAIN, trust_domain + "\n"), (_ISSUED, ""), (_REVOKED, DENY_LIST_HEAD)):
            private_files.replace(path / name, data.encode())
        # Last: a directory without it is none.
        private_files.create(path / CA_FILE, authority.certificate_pem)
        return cls(path, clock, maker)

    @classmethod
    def trust(cls, path: Path, certificate: bytes, clock: Callable[[], float] = time.time, maker: KeyMaker | None = None) -> Self:
        """The trust domain of a cluster whose certificates somebody else signs. Raises PkiError, and changes nothing then."""
        maker = maker or KeyMaker()
        if (path / CA_FILE).exists() or (path / _AUTHORITY_KEY).exists():
            raise PkiError(f"{path}: has a certificate authority already, and nothing is overwritten; name another directory")
        bundle = b"".join(map(pem_of, read_bundle(certificate, "--external-ca")))
        for one in read_bundle(bundle, "--external-ca"):
            if facts_of(one).not_after <= clock():
                raise PkiError(f"--external-ca: {one.subject.rfc4514_string()} has expired")
        private_files.make_directory(path)
        for name, data in (
            (_TRUST_DOMAIN, maker.trust_domain() + "\n"),
            (_ISSUED, ""),
            (_REVOKED, DENY_LIST_HEAD),
            (_EXTERNAL, ""),
        ):
            private_files.replace(path / name, data.encode())
        private_files.create(path / CA_FILE, bundle)
        return cls(path, clock, maker)

    @property
    def is_external(self) -> bool:
        """Whether somebody else signs."""
        return (self.path / _EXTERNAL).exists()

    @property
    def deny_list(self) -> Path:
        """The file."""
        return self.path / _REVOKED

    @property
    def bundle(self) -> bytes:
        """The authorities that are trusted."""
        return private_files.read(self.path / CA_FILE)

    def authorities(self) -> list[CertificateFacts]:
        """That are trusted; the newest last."""
        return [facts_of(one) for one in read_bundle(self.bundle, str(self.path / CA_FILE))]

    def signer(self) -> str | None:
        """The id of the key that signs; None: it is kept elsewhere."""
        return self._authority().key_id if (self.path / _AUTHORITY_KEY).exists() else None

    # ------------------------------------------------------------------------------------------------------------ issuing

    def issue(self, request: LeafRequest, directory: Path | None = None) -> IssueRecord:
        """A certificate in a directory, in place of an earlier one of the same identity. Raises PkiError."""
        if request.identity.trust_domain != self.trust_domain:
            raise PkiError(f"{request.identity}: is of another trust domain, this one is {self.trust_domain}")
        place = (directory or self.place_of(request.identity)).absolute()
        with self._alone():
            authority = self._authority()
            if directory is None:
                private_files.make_directory(place.parent)
            private_files.make_directory(place)
            _refuse_anothers(place, request.identity)
            pair = authority.issue(request, self._clock())
            record = self._record(request.identity, pair, authority, str(place))
            _write_pair(place, pair, self.bundle)
        return record

    def certify(self, request: LeafRequest, signing_request: bytes) -> bytes:
        """A certificate for a key that stays where it is, in PEM. Raises PkiError."""
        if request.identity.trust_domain != self.trust_domain:
            raise PkiError(f"{request.identity}: is of another trust domain, this one is {self.trust_domain}")
        key = requested_key(signing_request, f"the request of {request.identity}")
        with self._alone():
            authority = self._authority()
            made = authority.certify(request, key, self._clock())
            self._record(request.identity, made, authority, ELSEWHERE)
        return made.certificate

    def place_of(self, identity: Identity) -> Path:
        """Where its files are, where no other directory is named."""
        return self.path / identity.kind / identity.name

    def issued(self) -> list[IssueRecord]:
        """Oldest first."""
        text = private_files.read_list(self.path / _ISSUED)
        # Half a line: somebody is writing it, or was ended before the certificate was out.
        return read_records(text[: text.rfind("\n") + 1], str(self.path / _ISSUED))

    # ----------------------------------------------------------------------------------------------------------- revoking

    def revoke(self, text: str) -> list[IssueRecord]:
        """Puts a serial number, or all of a URI, on the deny list; what was put there now. Raises PkiError."""
        with self._alone():
            denied = self.denied()
            known = [_signed_elsewhere(text)] if self.is_external else chosen(self.issued(), text)
            found = [one for one in known if int(one.serial, 16) not in denied]
            lines = "".join(deny_line(one, self._clock()) for one in found)
            if lines:
                # In one piece: replicas read the file meanwhile.
                private_files.replace(self.deny_list, (private_files.read_list(self.deny_list) + lines).encode())
        return found

    def denied(self) -> frozenset[int]:
        """Serial numbers."""
        return read_deny_list(private_files.read_list(self.deny_list), str(self.deny_list))

    # ------------------------------------------------------------------------------------------- exchanging the authority

    def in_use(self) -> list[IssueRecord]:
        """Certificates that somebody may hold: the newest of each identity and directory, neither expired nor revoked."""
        now, denied = self._clock(), self.denied()
        return [one for one in latest(self.issued()) if one.not_after > now and int(one.serial, 16) not in denied]

    def trust_next(self) -> list[IssueRecord]:
        """First step: a second authority, which everybody is to trust. Who could not be told of it here. Raises PkiError."""
        with self._alone():
            if self.is_external:
                raise PkiError(f"{self.path}: another authority signs; exchange it there, and put both certificates into ca.crt")
            if len(self.authorities()) > 1:
                raise PkiError(
                    "two certificate authorities are trusted already; the next step is `rayched pki rotate-ca sign-new`"
                )
            successor = Authority.create(self.trust_domain, self._clock(), self._maker)
            private_files.replace(self.path / _NEXT_KEY, successor.key_pem)
            self._write_bundle(self.bundle + successor.certificate_pem)
        return self.holders_without(self.authorities()[-1].key_id)

    def sign_with_next(self, *, force: bool = False) -> None:
        """Second step. Raises PkiError while somebody may not trust the new authority, but for `force`."""
        with self._alone():
            if not (self.path / _NEXT_KEY).exists() or len(self.authorities()) < 2:
                raise PkiError("there is no new certificate authority yet; the first step is `rayched pki rotate-ca trust-both`")
            missing = self.holders_without(self.authorities()[-1].key_id)
            if missing and not force:
                raise PkiError(
                    f"{_named(missing)} may not trust the new certificate authority yet: put {self.path / CA_FILE} beside"
                    " their certificates; --force goes on all the same"
                )
            (self.path / _NEXT_KEY).replace(self.path / _AUTHORITY_KEY)

    def forget_old(self) -> None:
        """Third step: the new authority alone is trusted. Raises PkiError while somebody has a certificate of the old one."""
        with self._alone():
            bundle = read_bundle(self.bundle, str(self.path / CA_FILE))
            signer = self._authority()
            if len(bundle) < 2 or (self.path / _NEXT_KEY).exists():
                raise PkiError(
                    "the new certificate authority does not sign yet; before this comes `rayched pki rotate-ca sign-new`"
                )
            old = [one for one in self.in_use() if one.authority != signer.key_id]
            if old:
                raise PkiError(
                    f"{_named(old)} have certificates of the old certificate authority: issue new ones with `rayched pki issue`,"
                    " or revoke them"
                )
            self._write_bundle(pem_of(signer.certificate))

    def holds(self, record: IssueRecord) -> bool:
        """Whether the certificate is where it was written, with its key and with the authorities that are trusted now."""
        place = Path(record.directory)
        return _is_there(place, record) and private_files.read(place / CA_FILE) == self.bundle

    def holders_without(self, key_id: str) -> list[IssueRecord]:
        """Certificates in use beside which no trusted authority of this key was found, here or elsewhere."""
        return [one for one in self.in_use() if key_id not in _trusted_at(Path(one.directory), one)]

    # --------------------------------------------------------------------------------------------------------------- parts

    def _authority(self) -> Authority:
        path = self.path / _AUTHORITY_KEY
        if self.is_external:
            raise PkiError(
                f"{self.path}: another authority signs; have it issue a certificate with the one URI"
                f" spiffe://{self.trust_domain}/KIND/NAME"
            )
        if not path.exists():
            raise PkiError(
                f"{path}: is not there, so nothing can be signed; put the key of the certificate authority back for that"
            )
        return Authority.read(self.bundle, private_files.read_private(path), str(path), self._maker)

    def _record(
        self, identity: Identity, made: IssuedPair | IssuedCertificate, authority: Authority, directory: str
    ) -> IssueRecord:
        record = IssueRecord(
            serial=serial_text(made.serial),
            uri=str(identity),
            issued_at=int(self._clock()),
            not_after=made.not_after,
            authority=authority.key_id,
            directory=directory,
        )
        private_files.append_line(self.path / _ISSUED, record.line())
        return record

    def _write_bundle(self, bundle: bytes) -> None:
        """Here, and beside the certificates that are still where they were written."""
        private_files.replace(self.path / CA_FILE, bundle)
        for one in self.in_use():
            if _is_there(Path(one.directory), one):
                private_files.replace(Path(one.directory) / CA_FILE, bundle)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        descriptor = os.open(self.path / _LOCK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _signed_elsewhere(text: str) -> IssueRecord:
    """A certificate of which the serial number is known and nothing else. Raises PkiError where that is none."""
    try:
        serial = serial_text(int(text.replace(":", ""), 16))
    except ValueError:
        raise PkiError(f"{text}: another authority signs here, so want a serial number in hexadecimal digits") from None
    return IssueRecord(serial, "-", 0, 0, "-", ELSEWHERE)


def _write_pair(place: Path, pair: IssuedPair, bundle: bytes) -> None:
    """The certificate last: until it is there, the old pair stays in use at who has it."""
    private_files.replace(place / CA_FILE, bundle)
    private_files.replace(place / KEY_FILE, pair.key)
    private_files.replace(place / CERTIFICATE_FILE, pair.certificate)


def _refuse_anothers(place: Path, identity: Identity) -> None:
    path = place / CERTIFICATE_FILE
    if path.exists():
        # The certificate alone: a pair that does not fit, or whose key is lost, is what a new one is wanted for.
        found = facts_of(read_certificates(private_files.read(path), str(path))[0]).uris
        if found != (str(identity),):
            raise PkiError(f"{place}: has a certificate of {', '.join(found) or 'nobody'}; name another directory for {identity}")


def read_certificate(place: Path) -> Any:
    """Of the files in a directory, once it is sure that they belong together. Raises PkiError."""
    files = TlsFiles.within(place)
    return check_pair(
        private_files.read(files.certificate), private_files.read_private(files.key), str(files.certificate), str(files.key)
    )


def _is_there(place: Path, record: IssueRecord) -> bool:
    try:
        return serial_text(read_certificate(place).serial_number) == record.serial
    except PkiError:
        return False


def _trusted_at(place: Path, record: IssueRecord) -> set[str]:
    """The ids of the keys that are trusted there."""
    if not _is_there(place, record):
        return set()
    try:
        found = read_bundle(private_files.read(place / CA_FILE), str(place / CA_FILE))
    except PkiError:
        return set()
    return {key_id_of(one.public_key()) for one in found}


def _named(records: Sequence[IssueRecord]) -> str:
    """Some of them by name."""
    names = sorted({one.uri for one in records})
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"

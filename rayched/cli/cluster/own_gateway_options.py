"""The gateway that a replica starts beside itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rayched.pki.tls_files import TlsFiles
from rayched.replica.gateway_keeper import GatewayPlace
from rayched.replica.settings import NO_ADDRESS, SettingsError, check_gateway


@dataclass(frozen=True, kw_only=True)
class OwnGatewayOptions:
    """As they were given."""

    gateway_address: Annotated[
        str, typer.Option(metavar="HOST:PORT|off", help="Of the Kubernetes API, which a process beside the replica serves.")
    ] = NO_ADDRESS
    gateway_cert_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="That process's certificate, of kind web.", show_default=False)
    ] = None
    gateway_private_key_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key.", show_default=False)] = None

    def settings(self, tls: TlsFiles | None, deny_list: Path | None) -> dict[str, Any]:
        """As ReplicaSettings takes them; `tls` and `deny_list` are the replica's. Raises SettingsError."""
        certificate, key = self.gateway_cert_file, self.gateway_private_key_file
        if self.gateway_address == NO_ADDRESS:
            if certificate is not None or key is not None:
                raise SettingsError("--gateway-cert-file and --gateway-private-key-file: go with --gateway-address alone")
            return {"gateway": None}
        if (certificate is None) != (key is None):
            raise SettingsError("--gateway-cert-file and --gateway-private-key-file go together, and one is missing")
        own = None
        if certificate is not None and key is not None:
            if tls is None:
                raise SettingsError(f"--gateway-cert-file {certificate}: the replica has none, and is not asked with any")
            own = TlsFiles(tls.ca, certificate, key)
        place = GatewayPlace(self.gateway_address, own, deny_list if own is not None else None)
        check_gateway(place.listen, has_tls=own is not None, replica_has_tls=tls is not None)
        return {"gateway": place}

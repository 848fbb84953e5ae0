"""How etcd is reached: how long the certificate that it is shown is still valid, or that there is no TLS at all.

The certificate of the API is counted by the server (api_metrics.py).
"""

from __future__ import annotations

import logging
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.metrics_core import GaugeMetricFamily

from leader.tls_channel import EtcdTls
from rayched.pki import private_files
from rayched.pki.certificates import facts_of, read_certificates
from rayched.pki.errors import PkiError

_log = logging.getLogger("rayched.replica")


def etcd_certificate_metrics(tls: EtcdTls | None, now: float) -> list[Metric]:
    """Of what is in the file now; `now`: seconds since 1970. Without a certificate there is no value."""
    left = GaugeMetricFamily(
        "rayched_certificate_expiry_seconds", "How long certificates in use are still valid; negative: expired.", labels=["use"]
    )
    if tls is not None and tls.certificate:
        try:
            facts = facts_of(read_certificates(private_files.read(Path(tls.certificate)), tls.certificate)[0])
        except PkiError as error:
            _log.warning("a scrape lacks how long etcd's certificate is still valid: %s", error)
        else:
            left.add_metric(["etcd"], facts.not_after - now)
    return [left]


def insecure_etcd_metric(is_insecure: bool) -> Metric:
    """`is_insecure`: it is beyond loopback, and reached without TLS."""
    found = GaugeMetricFamily("rayched_etcd_insecure", "1: an etcd beyond loopback is reached without TLS; else 0.")
    found.add_metric([], float(is_insecure))
    return found

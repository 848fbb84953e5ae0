"""How long the certificate that etcd is shown is still valid."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from leader.tls_channel import EtcdTls
from rayched.replica.certificate_metrics import etcd_certificate_metrics, insecure_etcd_metric
from rayched.replica.families import merged
from rayched.server.http.api_metrics import certificate_metrics
from tests.pki.made import HOUR, a_pair, an_authority


def values(tls: EtcdTls | None, now: float) -> dict[str, float]:
    [family] = etcd_certificate_metrics(tls, now)
    return {sample.labels["use"]: sample.value for sample in family.samples}


@pytest.mark.row("B33")
def test_the_metric_says_how_long_etcds_certificate_is_still_valid(tmp_path: Path) -> None:
    now = time.time()
    files = a_pair(an_authority(), ends=HOUR).write(tmp_path)
    tls = EtcdTls(str(files.ca), str(files.certificate), str(files.key))
    found = values(tls, now)
    assert found.keys() == {"etcd"} and abs(found["etcd"] - HOUR) < 1.0 + time.time() - now
    assert values(tls, now + 2 * HOUR)["etcd"] < 0
    assert values(EtcdTls(str(files.ca)), now) == values(None, now) == {}


def test_a_file_that_cannot_be_read_leaves_the_value_out_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert values(EtcdTls("ca", str(tmp_path / "missing.crt"), "key"), 0.0) == {}
    assert "missing.crt: No such file" in caplog.text


def test_it_is_one_family_with_those_of_the_api() -> None:
    joined = list(merged(certificate_metrics(None, 0.0), etcd_certificate_metrics(None, 0.0)))
    assert [one.name for one in joined] == ["rayched_certificate_expiry_seconds"]


def test_that_etcd_is_reached_without_tls_shows() -> None:
    for is_insecure, value in ((True, 1.0), (False, 0.0)):
        [sample] = insecure_etcd_metric(is_insecure).samples
        assert (sample.name, sample.value) == ("rayched_etcd_insecure", value)

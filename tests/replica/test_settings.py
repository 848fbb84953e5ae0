"""What a replica's flags allow, and how a wrong one is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leader.channel import SecureEndpoints
from leader.config import FAST, TimingProfile
from leader.tls_channel import EtcdTls
from rayched.pki.tls_files import TlsFiles
from rayched.replica.scheduler_settings import SchedulerSettingsError, read_scheduler_settings
from rayched.replica.settings import ReplicaSettings, SettingsError, split_endpoints

TLS = TlsFiles.within(Path("/tls"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listen": "7420"}, "--listen '7420': an address is host:port"),
        ({"listen": ":7420"}, "--listen ':7420': an address is host:port"),
        ({"listen": "127.0.0.1:http"}, "--listen '127.0.0.1:http': an address is host:port"),
        ({"listen": "127.0.0.1:65536"}, "--listen 127.0.0.1:65536: the port is 0 to 65535"),
        ({"token_listen": "7421", "tls": TLS}, "--token-listen '7421': an address is host:port"),
        (
            {"token_listen": "127.0.0.1:7421"},
            "--token-listen 127.0.0.1:7421: tokens go over TLS alone, with --tls-cert-file, --tls-private-key-file and"
            " --client-ca-file",
        ),
        ({"audit_log": "off", "audit_strict": True}, "--audit-strict: there is no audit log to write, as --audit-log is off"),
        (
            {"listen": "10.0.0.1:7420", "insecure_loopback": True},
            "--insecure-loopback: --listen 10.0.0.1:7420 is no loopback address",
        ),
        (
            {"tls": TLS, "insecure_loopback": True},
            "--insecure-loopback: says that there are no certificates, and --tls-cert-file names one",
        ),
        (
            {"listen": "0.0.0.0:7420"},
            "--listen 0.0.0.0:7420: 0.0.0.0 leads nobody here; name an address that the other replicas reach"
            " with --advertise-address as well",
        ),
        (
            {"advertise_address": "[::]:7420"},
            "--advertise-address [::]:7420: want one address that the other replicas reach, with a port of 1 to 65535",
        ),
        (
            {"advertise_address": "replica-1:0"},
            "--advertise-address replica-1:0: want one address that the other replicas reach, with a port of 1 to 65535",
        ),
        ({"advertise_address": "replica-1"}, "--advertise-address 'replica-1': an address is host:port"),
        ({"http_address": "on"}, "--http-address 'on': an address is host:port"),
        (
            {"http_address": "10.0.0.1:9000"},
            "--http-address 10.0.0.1:9000: 10.0.0.1 is no loopback address; others are served over TLS, with --tls-cert-file",
        ),
        *(
            (
                {"etcd_endpoints": ("127.0.0.1:2379", endpoint)},
                f"--etcd-endpoints {endpoint}: {host} is no loopback address, and without TLS whoever is on the way reads and"
                " writes all there is: name the authorities of etcd's certificates with --etcd-cafile, or go without with"
                " --insecure-etcd",
            )
            for endpoint, host in (("10.0.0.1:2379", "10.0.0.1"), ("http://etcd:2379", "etcd"), ("https://etcd:2379", "etcd"))
        ),
        (
            {"etcd_endpoints": ("https://a:1",), "etcd_tls": EtcdTls("/ca"), "insecure_etcd": True},
            "--insecure-etcd: says that an etcd of others is reached without TLS, and --etcd-cafile says with",
        ),
        (
            {"insecure_etcd": True},
            "--insecure-etcd: says that an etcd of others is reached without TLS, and --etcd-endpoints names none",
        ),
        ({"workers": -1}, "--workers -1: allowed are 0 to 64, and auto"),
        ({"workers": 65}, "--workers 65: allowed are 0 to 64, and auto"),
        ({"election_profile": "slow"}, "--election-profile slow: allowed are fast and kube"),
        ({"takeover": "hearsay"}, "--takeover hearsay: allowed are lease and evidence"),
        (
            {"suspect_after": "soon"},
            "--suspect-after soon: a duration of 0.3 to 60 s such as 700ms, or off",
        ),
        ({"suspect_after": "200ms"}, "--suspect-after 200ms: a duration of 0.3 to 60 s such as 700ms, or off"),
        ({"suspect_after": "1s", "takeover": "lease"}, "--suspect-after 1s: it needs --takeover evidence"),
        ({"root": "rayched"}, "--etcd-root rayched: it starts with a slash and does not end with one"),
        ({"root": "/rayched/"}, "--etcd-root /rayched/: it starts with a slash and does not end with one"),
        ({"etcd_endpoints": ("127.0.0.1:2379", "nonsense")}, "--etcd-endpoints 'nonsense': an address is host:port"),
        (
            {"pod_max_in_unschedulable_pods_duration": "0"},
            "--pod-max-in-unschedulable-pods-duration '0': a duration longer than 0 such as 5m or 90s",
        ),
        (
            {"pod_max_in_unschedulable_pods_duration": "five minutes"},
            "--pod-max-in-unschedulable-pods-duration 'five minutes': a duration longer than 0 such as 5m or 90s",
        ),
        ({"log_format": "xml"}, "--log-format xml: allowed are text and json"),
        ({"log_level": "loud"}, "--log-level loud: allowed are debug, info, warning, error"),
        (
            {"client_deny_list": Path("/revoked")},
            "--client-deny-list-file /revoked: goes with --tls-cert-file, --tls-private-key-file and --client-ca-file alone",
        ),
        (
            {"etcd_tls": EtcdTls("/ca")},
            "--etcd-cafile: goes with --etcd-endpoints alone, as an etcd of its own has no port",
        ),
        (
            {"etcd_endpoints": ("a:1",), "etcd_tls": EtcdTls("/ca", "/crt")},
            "--etcd-certfile and --etcd-keyfile go together, and one is missing",
        ),
        (
            {"etcd_endpoints": ("a:1", "https://b:2"), "etcd_tls": EtcdTls("/ca")},
            "--etcd-endpoints a:1,https://b:2: several over TLS need --etcd-server-name, a name that all of their"
            " certificates have",
        ),
        ({"head_of_line_limit": -1}, "--head-of-line-limit -1: a number of attempts, or 0 for none"),
    ],
)
def test_a_setting_that_cannot_be_used_is_told_with_its_flag_and_what_is_allowed(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as error:
        ReplicaSettings(**settings)
    assert str(error.value) == message


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"listen": "localhost:0"},
        {"listen": "[::1]:7420"},
        {"listen": "[::1]:7420", "insecure_loopback": True},
        {"listen": "10.0.0.1:7420", "tls": TLS, "client_deny_list": Path("/revoked")},
        {"etcd_endpoints": ("https://a:1", "b:2"), "etcd_tls": EtcdTls("/ca", "/crt", "/key", "etcd.example")},
        {"listen": "[::]:7420", "tls": TLS, "advertise_address": "replica-1.example:7420"},
        {"listen": "10.0.0.1:7420", "tls": TLS, "http_address": "10.0.0.1:7520"},
        {"etcd_endpoints": ("http://etcd:2379", "10.0.0.1:2379"), "insecure_etcd": True},
        {"etcd_endpoints": ("localhost:2379", "[::1]:2379")},
        {
            "workers": 64,
            "election_profile": "kube",
            "root": "/a/b",
            "etcd_endpoints": ("http://127.0.0.1:2379", "unix:/run/etcd/localhost:1"),
        },
    ],
)
def test_a_setting_that_can_be_used_is_taken(settings: dict[str, Any]) -> None:
    ReplicaSettings(**settings)


@pytest.mark.row("B4")
def test_without_certificates_the_commands_that_make_them_are_told() -> None:
    assert ReplicaSettings(tls=TLS).missing_certificates() == []
    assert ReplicaSettings(insecure_loopback=True).missing_certificates() == []
    first, *commands, last = ReplicaSettings(listen="10.0.0.11:7420").missing_certificates()
    assert first.startswith("--listen 10.0.0.11:7420: there are no certificates")
    assert [line.split()[:3] for line in commands] == [
        ["rayched", "pki", "init"],
        ["rayched", "pki", "issue"],
        ["rayched", "replica", "--listen"],
    ]
    assert "--san 10.0.0.11" in commands[1]
    assert last == "without certificates: on loopback alone, with --insecure-loopback"


def test_etcd_is_reached_as_it_was_said() -> None:
    plain = ReplicaSettings(etcd_endpoints=("localhost:1",)).given_etcd
    assert plain == ("localhost:1",) and not isinstance(plain, SecureEndpoints)
    tls = EtcdTls("/ca", "/crt", "/key")
    secure = ReplicaSettings(etcd_endpoints=("https://a:1",), etcd_tls=tls).given_etcd
    assert isinstance(secure, SecureEndpoints) and (secure, secure.tls) == (("https://a:1",), tls)


@pytest.mark.parametrize(
    ("profile", "takeover", "takes_evidence"),
    [("fast", "", True), ("kube", "", False), ("fast", "lease", False), ("kube", "evidence", True)],
)
def test_the_profile_says_what_a_takeover_waits_for_unless_told_otherwise(
    profile: str, takeover: str, takes_evidence: bool
) -> None:
    assert ReplicaSettings(election_profile=profile, takeover=takeover).takes_evidence is takes_evidence


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 0.7),
        ({"suspect_after": "2s"}, 2.0),
        ({"suspect_after": "off"}, None),
        ({"takeover": "lease"}, None),
        ({"election_profile": "kube"}, None),
        ({"election_profile": "kube", "takeover": "evidence"}, None),
        ({"election_profile": "kube", "takeover": "evidence", "suspect_after": "5s"}, 5.0),
    ],
)
def test_silence_counts_in_the_profile_fast_or_where_that_is_asked_for(settings: dict[str, Any], seconds: float | None) -> None:
    assert ReplicaSettings(**settings).suspect_seconds == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("listen", "http_address", "place"),
    [
        ("127.0.0.1:7421", "", ("127.0.0.1", 7521)),
        ("127.0.0.1:65500", "", ("127.0.0.1", 65400)),
        ("127.0.0.1:0", "", ("127.0.0.1", 0)),
        ("127.0.0.1:7421", "[::1]:9000", ("::1", 9000)),
        ("127.0.0.1:7421", "off", None),
    ],
)
def test_the_http_endpoint_is_near_the_api_unless_told_otherwise(
    listen: str, http_address: str, place: tuple[str, int] | None
) -> None:
    assert ReplicaSettings(listen=listen, http_address=http_address).http_place == place


def test_the_time_among_unschedulable_pods_is_read_as_go_writes_it() -> None:
    settings = ReplicaSettings(pod_max_in_unschedulable_pods_duration="1m30s")
    assert settings.unschedulable_seconds_max == 90.0


def test_endpoints_are_separated_by_commas() -> None:
    assert split_endpoints(" a:1, b:2 ,,") == ("a:1", "b:2")
    assert split_endpoints("") == ()


@pytest.mark.row("L7")
def test_each_identity_is_another() -> None:
    assert ReplicaSettings().identity != ReplicaSettings().identity


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "--config {file}: No such file or directory"), (b"\xff\xfe", "--config {file}: not a text in UTF-8")],
)
def test_a_configuration_that_cannot_be_read_is_told_with_its_file(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "scheduler.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SchedulerSettingsError) as error:
        read_scheduler_settings(file)
    assert error.value.lines == (message.format(file=file),)


def test_without_a_configuration_the_default_one_is_used() -> None:
    assert read_scheduler_settings(None).source == "default configuration"


@pytest.mark.parametrize(
    ("given", "durations"),
    [
        ("", FAST),
        ("leaderElection: {leaderElect: true}", FAST),
        ("leaderElection: {leaseDuration: 30s}", TimingProfile(30.0, 10.0, 2.0, 30)),
        ("leaderElection: {leaseDuration: 3s, renewDeadline: 1800ms, retryPeriod: 0.5s}", TimingProfile(3.0, 1.8, 0.5, 3)),
    ],
)
def test_durations_of_a_configuration_come_before_those_of_the_profile(
    tmp_path: Path, given: str, durations: TimingProfile
) -> None:
    assert read_scheduler_settings(configuration(tmp_path, given)).durations("fast") == durations


def test_durations_that_elect_nobody_safely_are_refused(tmp_path: Path) -> None:
    file = configuration(tmp_path, "leaderElection: {leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 1900ms}")
    with pytest.raises(SchedulerSettingsError) as error:
        read_scheduler_settings(file)
    assert error.value.lines == ("leaderElection: renewDeadline must be greater than retryPeriod*JitterFactor",)


@pytest.mark.row("L2")
def test_the_election_cannot_be_switched_off_and_that_is_said(tmp_path: Path) -> None:
    loaded = read_scheduler_settings(configuration(tmp_path, "leaderElection: {leaderElect: false}")).loaded
    (warning,) = loaded.warnings
    assert warning.path == "leaderElection.leaderElect" and "has no effect" in warning.message


def configuration(directory: Path, lines: str) -> Path:
    file = directory / "scheduler.yaml"
    file.write_text(f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{lines}\n")
    return file

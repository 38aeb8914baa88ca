"""Settings: every mistake is found, the nearest name is offered, and the reference is what the code says."""

import resource
from pathlib import Path

import pytest

from penstock.errors import InvalidConfig, InvalidSettings
from penstock.server.kafka.configs import read_config
from penstock.server.settings_sources import (
    needs_restart,
    read_settings,
    reference,
    shown,
    warnings_of,
    with_live,
)

DOCS = Path(__file__).parents[2] / "docs"


def problems_of(text: str, **more) -> list[str]:
    with pytest.raises(InvalidSettings) as found:
        read_settings(text, **more)
    return list(found.value.problems)


def test_five_mistakes_give_five_messages():
    text = """
broker: {prot: 9000, port: 99999}
storage: {fsync: sometimes, retention_hours: forever}
htpp: {body_bytes_max: 5}
"""
    problems = problems_of(text)
    assert len(problems) == 5
    for wanted in (
        "broker.prot; did you mean broker.port?",
        "broker.port must be in 0..65535, got 99999",
        "storage.fsync: Invalid enum value 'sometimes'",
        "storage.retention_hours must look like ",
        "no section htpp; did you mean http?",
    ):
        assert any(wanted in one for one in problems), wanted


def test_environment_beats_the_file_and_flags_beat_both():
    environment = {"PENSTOCK_BROKER__PORT": "2", "PENSTOCK_HTTP__ALLOWED_HOSTS": "a, b"}
    found = read_settings("broker: {port: 1, id: x}", environment=environment)
    assert (found.broker.port, found.broker.id) == (2, "x")
    assert found.http.allowed_hosts == ("a", "b")
    flagged = read_settings(
        "broker: {port: 1}", environment=environment, flags={("broker", "port"): 3}
    )
    assert flagged.broker.port == 3


def test_sizes_and_durations_may_have_units():
    found = read_settings(
        "storage: {segment_size_bytes: 32MiB, retention_hours: 7d}",
        environment={"PENSTOCK_CONSUMER__VISIBILITY_TIMEOUT_MS": "2m"},
        flags={("storage", "min_free_bytes"): "8MiB"},
    )
    assert (found.storage.segment_size_bytes, found.storage.retention_hours) == (32 << 20, 168)
    assert found.consumer.visibility_timeout_ms == 120_000
    assert found.storage.min_free_bytes == 8 << 20
    problems = problems_of("storage: {segment_size_bytes: 32 apples, fsync_interval_ms: 0.5ms}")
    assert len(problems) == 2
    assert any("storage.segment_size_bytes" in one for one in problems)
    assert any("storage.fsync_interval_ms" in one for one in problems)


def test_how_segments_are_closed_and_kept_can_be_said_in_file_environment_and_flags():
    found = read_settings(
        "storage: {segment_age_ms: 60000, retention_segments: 9, retention_segments_min: 2}",
        environment={"PENSTOCK_STORAGE__SEGMENT_MESSAGES_MAX": "1000"},
        flags={("storage", "retention_check_ms"): "2000", ("storage", "compaction_check_ms"): 3000},
    )
    expected = {
        "segment_age_ms": 60_000,
        "segment_messages_max": 1000,
        "retention_segments": 9,
        "retention_segments_min": 2,
        "retention_check_ms": 2000,
        "compaction_check_ms": 3000,
    }
    assert expected.items() <= found.topic_defaults().items()
    problems = problems_of(
        "storage: {segment_age_ms: 0, segment_messages_max: -7, retention_segments: 0, "
        "retention_segments_min: 0, retention_check_ms: 5, compaction_check_ms: 0}"
    )
    assert len(problems) == 6
    for name in expected:
        assert any(f"storage.{name} must be " in one for one in problems), name


def test_an_environment_variable_that_is_wrong_is_named():
    (problem,) = problems_of("", environment={"PENSTOCK_BROKER__PROT": "1", "PENSTOCK_KEY": "x"})
    assert "PENSTOCK_BROKER__PROT" in problem


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_other_addresses_need_keys(host):
    (problem,) = problems_of(f"broker: {{host: '{host}'}}")
    assert "auth.enabled: true" in problem
    read_settings(f"broker: {{host: '{host}'}}\nauth: {{enabled: true}}")
    read_settings(f"broker: {{host: '{host}'}}\nauth: {{insecure: true}}")
    for own in ("127.0.0.1", "::1", "localhost", "127.1.2.3"):
        read_settings(f"broker: {{host: '{own}'}}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("logg: {}", "there is no section logg; did you mean log?"),
        ("storag:", "there is no section storag; did you mean storage?"),
        ("broker: {port: 21000, binary_port: 21000}", "broker.binary_port must be another port"),
        ("broker: {port: 9092}", "broker.binary_port must be another port"),
        ("storage: {retention_hours: .inf}", "storage.retention_hours must be a finite number"),
        ("storage: {retention_hours: 1.0e+400}", "storage.retention_hours must be a finite number"),
        ("producer: {linger_ms: .nan}", "producer.linger_ms must be a finite number, got nan"),
        ("http: {allowed_origins: [foo]}", "http.allowed_origins must be SCHEME://HOST"),
        ("http: {allowed_origins: ['https://a.example/']}", "http.allowed_origins must be SCHEME"),
        ("broker: {host: 999.1.1.1}", "broker.host must be an address"),
        ("broker: {host: 'a b'}", "broker.host must be an address"),
        (
            "cluster: {listen: '127.0.0.1:8080', peers: ['127.0.0.1:9999']}",
            "cluster.listen must be another port than broker.port",
        ),
        (
            "{broker: {host: '::'}, auth: {enabled: true}, cluster: {listen: '127.0.0.1:9092', peers: ['[::1]:1']}}",
            "cluster.listen must be another port than broker.binary_port",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_problem(text, said):
    (problem,) = problems_of(text)
    assert said in problem


@pytest.mark.parametrize("name", ["listen", "peers", "follow"])
def test_a_port_of_a_peer_is_one_that_there_is(name):
    addresses = {"listen": "127.0.0.1:9093", "peers": "127.0.0.1:9094", name: "127.0.0.1:65536"}
    given = {f"PENSTOCK_CLUSTER__{one.upper()}": found for one, found in addresses.items()}
    assert (
        f"cluster.{name} must be HOST:PORT, the port in 0..65535"
        in problems_of("", environment=given)[0]
    )


def test_a_number_that_is_not_finite_is_refused_in_a_variable_and_from_a_kafka_client():
    (problem,) = problems_of("", environment={"PENSTOCK_CONSUMER__BACKOFF_MULTIPLIER": "1e400"})
    assert "consumer.backoff_multiplier" in problem
    with pytest.raises(InvalidConfig, match=r"retention\.ms"):
        read_config("retention.ms", "9" * 400, {})


def test_what_looks_wrong_and_is_not_is_taken():
    read_settings("broker: {port: 0, binary_port: 0, host: localhost}\nlog:\nstorage: {}")
    origins = "['https://a.example:8443', 'http://[::1]:80', 'chrome-extension://abc']"
    read_settings(f"http: {{allowed_origins: {origins}}}")
    read_settings("broker: {port: 0}\ncluster: {listen: '127.0.0.1:0', peers: ['127.0.0.1:9999']}")
    read_settings("cluster: {listen: '127.0.0.2:8080', peers: ['127.0.0.1:9999']}")
    read_settings("broker: {host: 'fe80::1%eth0'}\nauth: {enabled: true}")


def test_a_variable_that_looks_like_a_setting_is_warned_about():
    meant = {"PENSTOCK_BROKER_PORT": "1", "PENSTOCK_STORAGE_RETENTION_HOUR": "1"}
    for_clients = ("SERVER", "KEY", "KEY_FILE", "CONTEXT", "CONTEXTS", "CA_FILE", "COMPLETE")
    # Kubernetes sets these in every pod, for a service named penstock.
    for_service = ("PORT", "SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_BINARY", "PORT_9092_TCP")
    others = {f"PENSTOCK_{name}": "x" for name in (*for_clients, *for_service)}
    assert warnings_of(meant | others | {"PENSTOCK_BROKER__PORT": "1"}) == [
        f"{name} is no setting and is ignored; did you mean {right}?"
        for name, right in (
            ("PENSTOCK_BROKER_PORT", "PENSTOCK_BROKER__PORT"),
            ("PENSTOCK_STORAGE_RETENTION_HOUR", "PENSTOCK_STORAGE__RETENTION_HOURS"),
        )
    ]


@pytest.mark.parametrize(
    "text",
    [
        "broker: !!python/object/apply:os.system ['true']",
        "a: &a [x]\nb: &b [*a, *a]\n" + "c: [" + "*b, " * 200 + "]",
        "broker: [1, 2]",
        "just text",
        "broker: {port: 1, port: 2}",
        "broker: {port: 1\n",
        "broker:\n  port: true",
        "broker:\n  port: 1.5",
        "storage: {retention_bytes: 99999999999999999999}",
        "consumer: {visibility_timeout_ms: 0}",
        "storage: {retention_hours: 0}",
        "http: {body_timeout_ms: -1}",
        "tls: {cert_file: a.pem}",
        "limits: {value_bytes_max: 100000000}",
    ],
)
def test_what_is_not_a_configuration_is_refused(text):
    assert problems_of(text)


def test_a_running_process_takes_over_what_it_can():
    old = read_settings("broker: {port: 1}")
    new = read_settings("broker: {port: 2}\nlog: {level: debug}\nhttp: {requests_per_s: 5}")
    assert needs_restart(old, new) == ["broker.port"]
    merged = with_live(old, new)
    assert (merged.broker.port, merged.log.level, merged.http.requests_per_s) == (1, "debug", 5)


def test_topics_start_with_what_the_settings_say():
    found = read_settings("consumer: {max_retries: 9}\ndlq: {enabled: false}")
    defaults = found.topic_defaults()
    assert (defaults["max_retries"], defaults["dlq_enabled"]) == (9, False)


@pytest.mark.parametrize(
    ("soft_limit", "kept_open"),
    [(256, 512), (1024, 512), (4096, 1024), (65_536, 16_384), (1 << 30, 16_384), (-1, 16_384)],
)
def test_a_broker_keeps_a_quarter_of_its_descriptors_for_logs(monkeypatch, soft_limit, kept_open):
    """At least as many as the library keeps open, and no more than are of use. What a file says holds as it is."""
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (soft_limit, resource.RLIM_INFINITY))
    assert read_settings("").storage.storage_config().open_files_max == kept_open
    chosen = read_settings("storage: {open_files_max: 64}")
    assert chosen.storage.storage_config().open_files_max == 64


def test_settings_survive_being_shown():
    import yaml

    written = yaml.safe_dump(shown(read_settings("broker: {port: 7}")))
    assert read_settings(written) == read_settings("broker: {port: 7}")


def test_the_reference_is_made_from_the_code():
    assert (DOCS / "configuration.md").read_text() == reference(), (
        "penstock config reference > docs/configuration.md"
    )

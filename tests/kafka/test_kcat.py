"""kcat, a program of Debian's, against a broker."""

import shutil
import subprocess

import pytest

from tests.kafka.brokers import KafkaAddress

pytestmark = [
    pytest.mark.tier("test"),
    pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed"),
]


def kcat(broker: KafkaAddress, *words: str, given: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", str(broker), *words],
        input=given,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_with_every_compression_and_consume(broker: KafkaAddress, codec: str) -> None:
    topic = f"compressed-{codec}"
    lines = "".join(f"value {number} {'x' * 50}\n" for number in range(200))
    kcat(broker, "-P", "-t", topic, "-p", "0", "-z", codec, given=lines)
    assert kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q") == lines


def test_keys_headers_and_seek(broker: KafkaAddress) -> None:
    produce = ("-P", "-t", "keyed", "-p", "0", "-K", ":", "-H", "a=1")
    kcat(broker, *produce, given="".join(f"k{number}:{number}\n" for number in range(10)))
    consume = ("-C", "-t", "keyed", "-p", "0", "-e", "-q", "-f", "%o %k %s %h\\n")
    assert kcat(broker, *consume, "-o", "8") == "8 k8 8 a=1\n9 k9 9 a=1\n"


def test_a_group_commits_and_resumes(broker: KafkaAddress) -> None:
    kcat(broker, "-P", "-t", "grouped", given="1\n2\n3\n")
    group = ("-G", "readers", "-X", "auto.offset.reset=earliest", "-q", "-e", "grouped")
    assert sorted(kcat(broker, *group).split()) == ["1", "2", "3"]
    kcat(broker, "-P", "-t", "grouped", given="4\n")
    assert kcat(broker, *group) == "4\n"


def test_the_list_of_topics(broker: KafkaAddress) -> None:
    kcat(broker, "-P", "-t", "listed", "-p", "0", given="1\n")
    listed = kcat(broker, "-L")
    assert "1 brokers" in listed
    assert 'topic "listed" with 3 partitions' in listed

"""Random changes of Protobuf files: none is called compatible that loses a value, or that Confluent refuses.

Confluent's verdicts are those of the classes of its registry 7.0.16, which `make torture` asks (see `confluent.py`);
what they said of the first pairs stands in `confluent_protobuf.txt`, a character for each pair.
"""

from dataclasses import replace
from pathlib import Path
from random import Random
from zlib import crc32

import pytest

from tests.schemas.protobuf_pairs import File, lost_value, random_pair

VERDICTS = Path(__file__).with_name("confluent_protobuf.txt")
INCOMPATIBLE = "i"


def pair(seed: int) -> tuple[File, File]:
    return random_pair(Random(seed))


def faults_of(old: File, new: File) -> list[str]:
    return new.schema().faults_reading(old.schema())


def test_no_compatible_change_loses_a_value(effort) -> None:
    compatible = 0
    for seed in range(effort(check=100, test=1000, torture=10_000)):
        old, new = pair(seed)
        if not faults_of(old, new):
            compatible += 1
            assert not lost_value(Random(seed), old, new), (seed, old, new)
    assert compatible > 20


def test_whatever_confluent_refuses_is_refused(effort) -> None:
    drawn, verdicts = VERDICTS.read_text().splitlines()
    checksum = crc32("".join(pair(seed)[1].text for seed in range(20)).encode())
    assert int(drawn) == checksum, "the pairs are others now: ask Confluent's classes again"
    refused = 0
    for seed, verdict in enumerate(verdicts[: effort(check=100, test=700, torture=2000)]):
        if verdict == INCOMPATIBLE:
            refused += 1
            assert faults_of(*pair(seed)), (seed, *pair(seed))
    assert refused > 10


@pytest.mark.tier("torture")
def test_confluents_own_classes_refuse_nothing_else() -> None:
    """What is refused here and not there loses a value, or is a oneof under another name with a field less.

    Those classes pass over imported messages, so the pairs of this test differ in the importing one only.
    """
    from tests.schemas.confluent import confluent

    with confluent() as judge:
        for seed in range(3000):
            old, new = pair(seed)
            new = replace(new, line=old.line)
            theirs, faults = judge.is_compatible(old, new), faults_of(old, new)
            assert theirs or faults, (seed, old, new)
            if theirs and faults and not lost_value(Random(seed), old, new):
                assert all("of a oneof is gone" in fault for fault in faults), (seed, old, new)

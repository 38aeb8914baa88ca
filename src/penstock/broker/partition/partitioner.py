"""Which partition a message goes to. Test vectors for other languages: docs/partitioner.md."""

import mmh3


def partition_of(key: bytes, partitions: int) -> int:
    """murmur3 of the key (32 bits, seed 0), unsigned, modulo the number of partitions."""
    return int(mmh3.hash(key, 0, signed=False)) % partitions

"""CRC32C, and the seed that ties a head to its log."""

from crc32c import crc32c

from ..model import LogId

SEED_IN_TRANSIT = 0
"""Seed of a batch that belongs to no log yet: fresh from an encoder, or between client and broker."""

checksum = crc32c


def seed_of(log_id: LogId) -> int:
    """Returns the seed of the heads in one log, by which bytes of another log, or of an earlier topic, never verify."""
    return crc32c(log_id.to_bytes(8, "little", signed=False))

"""What the core wants done and cannot do itself. The shell performs it and reports back."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sync:
    """Make a log durable up to an offset; comes back as `Log.synced`."""

    log: int
    up_to: int


Effect = Sync

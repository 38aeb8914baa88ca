"""Lives in which a bug can show that most seeds do not meet: what a seed draws, with some of it fixed."""

from collections.abc import Callable
from dataclasses import replace

from penstock.sim.parameters import Parameters

Scene = Callable[[Parameters], Parameters]


def any_life(drawn: Parameters) -> Parameters:
    return drawn


def many_dead_letters(drawn: Parameters) -> Parameters:
    """Power cuts as soon as the disk has it that a letter arrived. Drawn lives have too few dead letters for that."""
    config = replace(drawn.config, max_retries=0, dlq_enabled=True)
    aims, kinds = ("done synced",), ("power cut",)
    return replace(drawn, config=config, aims=aims, kinds_of_faults=kinds, is_lying=False)


def letters_leave_late(drawn: Parameters) -> Parameters:
    """Dead letters wait for a slow disk, while retention takes all but the last segment."""
    config = replace(
        drawn.config,
        max_retries=0,
        dlq_enabled=True,
        segment_size_bytes=1500,
        retention_bytes=1500,
        keep_unread=False,
    )
    aims, kinds = ("intent",), ("slow disk", "kill")
    return replace(drawn, config=config, aims=aims, kinds_of_faults=kinds, is_lying=False)


def without_history(drawn: Parameters) -> Parameters:
    """State is let go with its snapshot, as where no journeys are kept."""
    config = replace(drawn.config, journey_retention_hours=0, journey_retention_bytes=0)
    return replace(drawn, config=config)

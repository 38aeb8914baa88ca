"""Failed messages: their history, the backoff, and when they become dead letters."""

from dataclasses import dataclass

from ..config import DeliveryConfig
from ..ports import Entropy


@dataclass(slots=True)
class Failure:
    """History of a message that failed at least once."""

    attempts: int
    first_delivery_ns: int
    last_delivery_ns: int
    member: str
    error: str


def backoff_ms(attempts: int, config: DeliveryConfig, entropy: Entropy) -> int:
    """Returns the delay after an attempt failed: it grows with the attempts up to a cap, with jitter if set."""
    # The exponent is capped first, so that the power stays finite for a message that is retried for ever.
    steps = min(attempts - 1, 64)
    delay_ms = min(config.backoff_max_ms, config.backoff_base_ms * config.backoff_multiplier**steps)
    ceiling_ms = int(delay_ms)
    if not config.backoff_jitter or ceiling_ms < 2:
        return ceiling_ms
    return entropy.randint(ceiling_ms // 2, ceiling_ms)


def is_last(attempts: int, config: DeliveryConfig) -> bool:
    """Whether a message that failed this often becomes a dead letter."""
    return config.max_retries >= 0 and attempts > config.max_retries

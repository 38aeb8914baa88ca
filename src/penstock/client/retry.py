"""When to try again, and when not to try at all. Time and chance are arguments."""

import math
import secrets
from dataclasses import dataclass
from typing import Self

from ..api.arguments import whole_number
from ..api.frames import ClientDefaults
from ..errors import PenstockError, Refused, Unreachable
from .failures import wait_asked_s

_PAUSE_MS_MAX = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """`retries` after the first try, with pauses that double; half of each pause is random."""

    retries: int = 3
    backoff_ms: int = 100
    backoff_ms_max: int = 30_000

    def __post_init__(self) -> None:
        whole_number("retries", self.retries, 0)
        whole_number("backoff_ms", self.backoff_ms, 1)
        whole_number("backoff_ms_max", self.backoff_ms_max, 1)
        if not self.backoff_ms <= self.backoff_ms_max <= _PAUSE_MS_MAX:
            raise Refused(
                f"backoff_ms must be in 1..{self.backoff_ms_max}, and that at most {_PAUSE_MS_MAX},"
                f" got {self.backoff_ms}"
            )

    @classmethod
    def of_server(cls, defaults: ClientDefaults) -> Self:
        """The policy that a server asks of clients that have none of their own."""
        return cls(
            retries=defaults.retries,
            backoff_ms=defaults.retry_backoff_ms,
            backoff_ms_max=defaults.retry_backoff_max_ms,
        )

    def pause_s(self, tries: int, chance: float) -> float:
        """The pause after so many tries (from 1); `chance` in 0..1 spreads clients that failed together."""
        longest_ms = min(self.backoff_ms << min(tries - 1, 40), self.backoff_ms_max)
        return longest_ms * (0.5 + chance / 2) / 1000

    def wait_s(
        self,
        error: PenstockError,
        tries: int,
        chance: float,
        *,
        is_repeatable: bool,
        left_s: float = math.inf,
    ) -> float | None:
        """The pause before the next try, at least what the server asks for; None: give up.

        It gives up at once if the server asks for more than the longest pause, or an open breaker for more than the
        call has left of its time.
        """
        if tries > self.retries or not may_repeat(error, is_repeatable=is_repeatable):
            return None
        asked_s = wait_asked_s(error)
        if isinstance(error, Unreachable) and asked_s > left_s:
            return None
        is_too_long = asked_s * 1000 > self.backoff_ms_max
        return None if is_too_long else max(self.pause_s(tries, chance), asked_s)


def may_repeat(error: PenstockError, *, is_repeatable: bool) -> bool:
    """Whether another try can help and does no harm.

    A server that refused has done nothing. If its answer was lost, only a request that may be carried out twice is
    sent again.
    """
    if isinstance(error, Unreachable) and error.is_sent:
        return is_repeatable
    return error.retriable


def chance() -> float:
    """A number in 0..1, to spread clients that failed at the same moment."""
    return secrets.randbelow(1 << 30) / (1 << 30)


@dataclass(slots=True)
class Breaker:
    """Stops requests to a server that does not answer. After a pause one may try; if it gets an answer, all may.

    A refusal is an answer.
    """

    address: str
    failures_max: int = 5
    pause_s: float = 1.0
    pause_s_max: float = 30.0
    failures: int = 0
    _open_until_s: float = 0.0
    _failed_at_s: float = 0.0

    def admit(self, now_s: float) -> None:
        """Unreachable while it is open. The first request after the pause passes, and the next pause begins."""
        if self.failures < self.failures_max:
            return
        wait_s = self._open_until_s - now_s
        if wait_s > 0:
            error = Unreachable(
                self.address,
                f"{self.failures} requests in a row failed; next try in {wait_s:.1f} s",
            )
            error.fields["retry_after_ms"] = wait_s * 1000
            raise error
        self._open_until_s = now_s + self._pause_s()

    def succeeded(self) -> None:
        self.failures = 0

    def failed(self, now_s: float, sent_at_s: float) -> None:
        """A request failed. Those that were under way when a connection ended failed together, and count once."""
        if sent_at_s < self._failed_at_s:
            return
        self._failed_at_s = now_s
        self.failures += 1
        if self.failures >= self.failures_max:
            self._open_until_s = now_s + self._pause_s()

    def _pause_s(self) -> float:
        beyond = min(max(0, self.failures - self.failures_max), 10)
        return min(self.pause_s * 2.0**beyond, self.pause_s_max)

"""The clocks of the machine."""

import time


class SystemClock:
    """Wall time for what is stored, a clock that never steps for measuring waits."""

    def now_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

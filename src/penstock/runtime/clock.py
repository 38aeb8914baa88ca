"""The clocks of the machine."""

import time


class SystemClock:
    """Wall time for what is stored, a clock that never steps for measuring waits."""

    # As they are: every command asks for both.
    now_ns = staticmethod(time.time_ns)
    monotonic_ns = staticmethod(time.monotonic_ns)

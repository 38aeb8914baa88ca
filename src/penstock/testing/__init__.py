"""A clock that the test moves, and brokers in memory, for the tests of your own programs.

    from penstock.testing import VirtualClock

    def test_gives_up_after_three_retries():
        broker = penstock.Broker(clock=VirtualClock())       # no path: everything in memory
        ...
        broker.clock.advance("1m")                           # retries are due now

`pytest_plugins = ["penstock.testing.fixtures"]` offers the fixtures `penstock_clock`, `penstock_broker`,
`penstock_queue` and `penstock_server` (a broker process, for `penstock.client`).
"""

from .clock import VirtualClock as VirtualClock

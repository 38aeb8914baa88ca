"""The consumer of the end-to-end case, in a process of its own.

    python -m bench.broker_follow NAME PORT TOPIC COUNT

Says `ready`, hears that many messages that begin with the time at which they were sent, and prints how late they were,
in nanoseconds, as a JSON list. Processes of one machine share the clock. A message of 0 is for warming up.
"""

import json
import sys
import time

from .broker_clients import CLIENTS, BrokerContender


def client_of(name: str, port: int) -> BrokerContender:
    if name in CLIENTS:
        return CLIENTS[name](port)
    from .broker_ours import PenstockContender

    return PenstockContender(port)


def main(name: str, port: str, topic: str, count: str) -> None:
    late_ns: list[int] = []

    def heard(value: bytes) -> bool:
        sent_ns = int(value[:20])
        if sent_ns:
            late_ns.append(time.monotonic_ns() - sent_ns)
        elif not late_ns:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
        return len(late_ns) < int(count)

    client = client_of(name, int(port))
    client.follow(topic, heard)
    client.close()
    sys.stdout.write(json.dumps(late_ns))


if __name__ == "__main__":
    main(*sys.argv[1:5])

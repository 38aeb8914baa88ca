"""A Ctrl-C anywhere in a request: the next request has its answer, on this connection or on a new one."""

import dis
import sys

import pytest

from penstock.client import Client, ClientSettings, RetryPolicy
from penstock.client.synchronous import connection

# A request that waits for a reader that is gone would be given up after so long, which is an error.
SETTINGS = ClientSettings(timeout_s=5, retry=RetryPolicy(retries=0))


class Interruption:
    """A Ctrl-C behind the n-th call in the module of connections: the interpreter looks for signals there."""

    def __init__(self, number):
        self.left = number
        self._is_behind_call = False

    def __call__(self, frame, event, _given):
        if frame.f_code.co_filename != connection.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            if self._is_behind_call:
                self.left -= 1
                if self.left == 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            self._is_behind_call = dis.opname[frame.f_code.co_code[frame.f_lasti]] == "CALL"
        return self

    def comes_during(self, call):
        usual = sys.gettrace()
        sys.settrace(self)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(usual)
        return False


# The stream of a connection that a Ctrl-C ended while its lock was taken is closed when the connection is collected.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_request_after_an_interrupted_one_is_answered(url):
    with Client(url, settings=SETTINGS) as client:
        client.topics()
        number = 1
        while Interruption(number).comes_during(client.topics):
            client.topics()
            number += 1
        assert number > 10

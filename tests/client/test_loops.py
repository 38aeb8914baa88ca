"""One AsyncClient, and more than one event loop."""

import asyncio
import gc
import threading
import time

import pytest

from penstock.client import AsyncClient, ClientSettings, RetryPolicy
from penstock.errors import Refused, Unreachable

from .servers import NOWHERE


# What a loop left open when it was closed can only be found by the garbage collection.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_client_goes_on_in_the_next_loop(url):
    client = AsyncClient(url)

    async def use():
        # Several at once: they wait for one connection.
        found = await asyncio.gather(*(client.server() for _ in range(5)))
        return found[0].http

    began_s = time.monotonic()
    addresses = {asyncio.run(use()) for _ in range(3)}
    asyncio.run(client.close())
    gc.collect()
    assert len(addresses) == 1
    assert time.monotonic() - began_s < 15  # Not until a request is given up, after 30 s.


def test_a_client_that_found_no_server_says_so_in_the_next_loop_too():
    client = AsyncClient(NOWHERE, settings=ClientSettings(retry=RetryPolicy(retries=0)))

    async def use():
        # Several at once: they wait for one connection, and there is none.
        return await asyncio.gather(*(client.server() for _ in range(2)), return_exceptions=True)

    for _ in range(2):
        assert [type(one) for one in asyncio.run(use())] == [Unreachable] * 2


async def test_client_of_another_loop_that_runs_is_refused(url):
    async with AsyncClient(url) as client:
        await client.server()
        raised = []

        def use():
            with pytest.raises(Refused, match="another event loop"):
                asyncio.run(client.topics())
            raised.append(True)

        thread = threading.Thread(target=use)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert raised
        assert await client.server()

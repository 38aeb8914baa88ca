"""What pages of other sites can have a browser send: nothing that changes anything."""

import asyncio

from penstock.server.http.table import ROUTES

from .rigs import example_path, in_process

PAGE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
LEASING = (
    "/consume?topic=orders&group=page",
    "/topics/orders/messages?group=page",
    "/groups/page/poll?member_id=m",
)


async def test_a_page_of_another_site_can_neither_lease_nor_make_a_group(tmp_path):
    """By requests that a browser sends without asking: images, forms, fetch without CORS."""
    async with in_process(tmp_path) as broker:
        await broker.topic()
        await broker.publish("1")
        for site in ("cross-site", "same-site", "anything"):
            for target in LEASING:
                async with asyncio.timeout(10):
                    refused = await broker.call("GET", target, headers={"sec-fetch-site": site})
                assert (refused.status, refused.json["error"]) == (403, "FORBIDDEN_ORIGIN")
        assert (await broker.call("GET", "/groups")).json["groups"] == []
        for site in ("none", "same-origin"):
            target = f"/topics/orders/messages?group={site}"
            polled = await broker.call("GET", target, headers={"sec-fetch-site": site})
            assert [one["value"] for one in polled.json["messages"]] == ["1"]


async def test_every_route_that_changes_something_refuses_pages_of_other_sites(tmp_path):
    async with in_process(tmp_path) as broker:
        await broker.topic()
        for route in ROUTES:
            target = example_path(route)
            reply = await broker.call(route.method, target, headers=PAGE)
            is_reading = route.method == "GET" and route.action.value.startswith(("see", "read"))
            assert (reply.status == 403) == (not is_reading), target


async def test_a_page_that_is_allowed_may_use_the_broker(tmp_path):
    allowed = {("http", "allowed_origins"): ["https://console.example"]}
    async with in_process(tmp_path, allowed) as broker:
        await broker.topic()
        for origin, status in (("https://console.example", 200), ("https://evil.example", 403)):
            headers = {**PAGE, "origin": origin}
            reply = await broker.call("GET", "/topics/orders/messages?group=g", headers=headers)
            assert reply.status == status

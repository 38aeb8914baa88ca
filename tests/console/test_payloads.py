"""Bytes that strangers send: markup, scripts, ten mebibytes, no text at all, and lies about their type."""

import base64

import pytest

SCRIPT = "<script>window.isRun = true</script><img src=x onerror='window.isRun = true'>"
LARGE = "<b>" + "0123456789abcdef" * 655_000
HOSTILE = {
    "markup": {"value": SCRIPT, "key": SCRIPT, "headers": {SCRIPT: SCRIPT}},
    "large": {"value": LARGE[: 8 * 1024 * 1024 - 1000]},
    "deep": {"value": "[" * 200_000 + "]" * 200_000},
    "binary": {"value": {"base64": base64.b64encode(bytes(range(256)) * 64).decode()}},
    "control": {"value": "\x00\x1b[2J\u202eevil\ufeff"},
    "lying": {"value": '{"not": "json"', "headers": {"content-type": "application/json"}},
    "html": {"value": SCRIPT, "headers": {"content-type": "text/html"}},
    "null": {"value": None, "key": "gone"},
    "tall": {"value": "\n" * 300_000},
}


@pytest.fixture(scope="module")
def hostile(broker):
    broker.topic("hostile", max_retries=0)
    for message in HOSTILE.values():
        broker.call("POST", "/topics/hostile/messages", {"messages": [message]})
    return broker


def test_no_payload_runs_or_hangs_the_page(hostile, visit):
    visitor = visit("readonly")
    page = visitor.page
    for offset, name in enumerate(HOSTILE):
        visitor.go(f"messages/hostile?partition=0&offset={offset}")
        visitor.click(f"Open offset {offset}")
        page.locator("dialog h3").first.wait_for()
        for kind in page.locator("dialog .tabs button").all():
            kind.click()
            visitor.settle()
            shown = page.locator("dialog pre").inner_text()
            assert 0 < len(shown) < 100_000, name
        visitor.click("Close", within="dialog")
        page.locator("dialog").wait_for(state="detached")
    assert page.evaluate("window.isRun") is None
    assert page.locator("main img, main script, dialog img").count() == 0
    # What names a schema that there is not is asked for, and the browser notes the 404.
    visitor.problems[:] = [one for one in visitor.problems if "/schemas/decode" not in one]


def test_markup_is_shown_as_the_text_that_it_is(hostile, visit):
    visitor = visit("consumer")
    visitor.go("messages/hostile?partition=0&offset=0")
    visitor.click("Open offset 0")
    visitor.sees(SCRIPT, within="dialog pre")
    assert visitor.page.locator("dialog dl").last.inner_text().count("<script>") == 2
    visitor.click("Show the journey")
    visitor.sees("publish.received", within="dialog")
    assert visitor.page.evaluate("window.isRun") is None


def test_names_and_errors_of_strangers_are_text_too(hostile, visit):
    held = hostile.poll("hostile", "g")
    body = {"receipt_handle": held[0]["receipt_handle"], "reason": SCRIPT}
    hostile.call("POST", "/messages/reject", body)
    hostile.letters("hostile", 1)
    report = {"kind": "archive", "state": "failed", "target": SCRIPT, "error": SCRIPT}
    hostile.call("PUT", "/pipelines/p", report)
    later = {"value": SCRIPT, "delay": "9h", "delay_key": SCRIPT}
    hostile.call("POST", "/topics/hostile/messages", {"messages": [later]})
    visitor = visit("admin")
    for place in ("dead-letters/hostile", "pipelines", "delayed/hostile"):
        visitor.go(place)
        visitor.sees("window.isRun")
    visitor.go(f"topics/{'%3Cimg%20src=x%20onerror=alert(1)%3E'}")
    assert visitor.page.evaluate("window.isRun") is None
    # The browser notes that there is no such topic.
    visitor.problems[:] = [one for one in visitor.problems if "400" not in one and "404" not in one]

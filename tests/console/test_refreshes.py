"""A screen asks again while it is looked at, one request at a time, and says when what it shows is old."""

import signal

import pytest
from playwright.sync_api import expect

from .visitor import PATIENCE_MS

# Holds the answers of a route back until `window.letGo()`, and counts the requests that are under way.
HOLD = """
() => {
  const ask = window.fetch;
  const let_go = [];
  window.asked = 0;
  window.letGo = () => let_go.splice(0).forEach((one) => one());
  window.fetch = async (url, options) => {
    if (!String(url).includes("/inflight")) return ask(url, options);
    window.asked += 1;
    await new Promise((done) => let_go.push(done));
    return ask(url, options);
  };
}
"""
LOOK_AWAY_AND_BACK = """
() => [true, false].forEach((value) => {
  Object.defineProperty(document, "hidden", { value, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
})
"""


@pytest.fixture(scope="module")
def held(broker):
    broker.topic("held", "1")
    broker.poll("held", "holders")
    return broker


def test_looking_away_and_back_asks_no_slow_broker_twice(held, visit):
    visitor = visit()
    visitor.go("in-flight")
    visitor.page.evaluate(HOLD)
    visitor.page.evaluate("location.hash = '#/in-flight/holders'")
    visitor.page.wait_for_function("window.asked === 1")
    for _ in range(3):
        visitor.page.evaluate(LOOK_AWAY_AND_BACK)
    assert visitor.page.evaluate("window.asked") == 1
    visitor.page.evaluate("window.letGo()")
    visitor.sees("held/0/0")


def test_a_broker_that_hangs_is_told_and_one_that_is_back_is_asked_again(held, visit):
    visitor = visit()
    visitor.go("in-flight/holders")
    held.served.signal(signal.SIGSTOP)
    try:
        visitor.sees("Not up to date: the broker has not answered for 10 s")
        visitor.sees("held/0/0")
    finally:
        held.served.signal(signal.SIGCONT)
    expect(visitor.page.get_by_text("Not up to date")).to_have_count(0, timeout=PATIENCE_MS)


def test_what_was_done_is_not_known_when_no_answer_comes(held, visit):
    visitor = visit()
    visitor.go("messages/held")
    visitor.page.route("**/topics/held/messages", lambda route: route.abort())
    visitor.click("Publish a message")
    visitor.fill(value="x")
    visitor.click("Publish", within="dialog")
    visitor.sees("the broker does not answer, so this may have been done or not", within="dialog")
    visitor.page.unroute("**/topics/held/messages")
    visitor.page.route("**/topics/held/messages", lambda route: route.fulfill(body='{"resul'))
    visitor.click("Publish", within="dialog")
    visitor.sees("the answer of the broker cannot be read", within="dialog")
    assert all("net::ERR_FAILED" in one for one in visitor.problems)
    visitor.problems.clear()

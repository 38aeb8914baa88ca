"""A person in front of the console: what they click, what they see, and what goes wrong behind it."""

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

# The machine may be busy with other tests; a page that needs longer is broken.
PATIENCE_MS = 120_000


class Visitor:
    """A page in a context of its own. `problems` is what the browser's console said, and what scripts raised."""

    def __init__(self, browser: Any, address: str, **options: Any) -> None:
        self._context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 860}, **options}
        )
        self._context.set_default_timeout(PATIENCE_MS)
        self.page = self._context.new_page()
        self.address = address
        self.problems: list[str] = []
        self.page.on("console", self._note_line)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", self._note_dialog)
        self.page.goto(address)

    def _note_line(self, line: Any) -> None:
        if line.type in {"error", "warning"}:
            self.problems.append(f"{line.text} {line.location.get('url', '')}")

    def _note_dialog(self, dialog: Any) -> None:
        self.problems.append(f"a script opened a dialog: {dialog.message}")
        dialog.dismiss()

    def log_in(self, key: str) -> None:
        self.page.get_by_label("Key").fill(key)
        self.click("Log in")
        self.page.get_by_role("link", name="Penstock").wait_for()

    def go(self, place: str) -> None:
        """A screen by its address, once what it shows is there."""
        self.page.goto(f"{self.address}/#/{place}")
        self.settle()

    def settle(self) -> None:
        self.page.locator("main h1").wait_for()
        expect(self.page.get_by_text("Loading…")).to_have_count(0, timeout=PATIENCE_MS)

    def click(self, name: str, *, within: str = "body") -> None:
        place = self.page.locator(within).get_by_role("button", name=name, exact=True)
        place.first.click()

    def fill(self, **fields: str) -> None:
        """Fields of the dialog that is open, by their names."""
        for name, value in fields.items():
            self.page.locator(f"dialog [name={name}]").fill(value)

    def choose(self, name: str, value: str) -> None:
        self.page.locator(f"[name={name}]").select_option(value)

    def confirm(self, name: str, button: str) -> None:
        """Type the name that a dialog asks for; before that its button does nothing."""
        action = self.page.locator("dialog").get_by_role("button", name=button, exact=True)
        assert action.is_disabled()
        self.fill(confirmed=name)
        action.click()

    def refreshed(self, path: str) -> None:
        """What the screen shows of a route was asked for again since now, and is shown."""
        for _ in range(2):
            with self.page.expect_response(lambda one: path in one.url, timeout=PATIENCE_MS):
                pass

    def sees(self, text: str, *, within: str = "body") -> None:
        self.page.locator(within).get_by_text(text).first.wait_for()

    def no_longer_sees(self, text: str, *, within: str = "main") -> None:
        expect(self.page.locator(within).get_by_text(text)).to_have_count(0, timeout=PATIENCE_MS)

    def offers(self, name: str) -> bool:
        return self.page.get_by_role("button", name=name, exact=True).count() > 0

    def screens(self) -> list[str]:
        return self.page.get_by_role("navigation").get_by_role("link").all_inner_texts()

    def faults(self) -> list[str]:
        """What axe finds serious or worse in the page as it is now."""
        found = Axe().run(self.page).response["violations"]
        return [
            f"{one['id']}: {one['nodes'][0]['html'][:200]}"
            for one in found
            if one["impact"] in {"serious", "critical"}
        ]

    def close(self) -> None:
        self._context.close()

"""A page in the system's Chromium, driven by Playwright, that notes what it complains of."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Request, sync_playwright

LOCAL = ("file:", "data:", "about:", "blob:")


def find_chromium() -> str | None:
    """The browser's path, or None where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


@contextmanager
def chromium(executable: str) -> Iterator[Chromium]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        yield Chromium(browser)
        browser.close()


class Chromium:
    """One page; `messages` collects what it logged, threw, or asked of the network."""

    def __init__(self, browser: Browser) -> None:
        self.messages: list[str] = []
        self.page = browser.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("console", lambda message: self._note(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", self._note_request)

    def open(self, path: Path, width: int = 1280, height: int = 900, scheme: Any = "light") -> None:
        """Load a file in a window of this size, the system being light or dark."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme=scheme)
        self.messages.clear()
        self.page.goto(path.resolve().as_uri())

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        return self.page.evaluate(expression)

    def wait_for(self, expression: str, seconds: float = 60.0) -> None:
        """Wait until a JavaScript expression is true.

        The page's content security policy forbids Playwright's own wait_for_function.
        """
        end = time.monotonic() + seconds
        while not self.run(expression):
            if time.monotonic() > end:
                raise TimeoutError(expression)
            self.page.wait_for_timeout(20)

    def _note(self, message: str) -> None:
        # A hint to those who read pixels, as tests do and the page does not.
        if "willReadFrequently" not in message:
            self.messages.append(message)

    def _note_request(self, request: Request) -> None:
        if not request.url.startswith(LOCAL):
            self.messages.append(f"the page asked for {request.url}")

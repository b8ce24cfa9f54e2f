"""A headless Chromium driven over the DevTools protocol through two pipes; no package needed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# Chromium reads commands from file descriptor 3 and writes answers to 4.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    """The browser's path, or None where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


class Chromium:
    """One browser with one page; `messages` collects what the page logged or threw."""

    def __init__(self, executable: str, profile: Path, timeout_s: float = 30.0) -> None:
        self.messages: list[str] = []
        self._timeout_s, self._next, self._buffer = timeout_s, 0, b""
        read_command, self._write = os.pipe()
        self._read, write_answer = os.pipe()
        ends = (read_command, write_answer)
        arguments = [executable, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *map(str, ends), *arguments],
            pass_fds=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(profile)},
        )
        for end in ends:
            os.close(end)
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer."""
        self._next += 1
        command = {"id": self._next, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._write, json.dumps(command).encode() + b"\0")
        while True:
            message = self._receive()
            if message.get("id") == self._next:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return dict(message["result"])
            self._note(message)

    def open(self, page: Path, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Load a file in a window of this size, the system being light or dark."""
        mobile = width < 600
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.send("Emulation.setEmulatedMedia", features=[feature])
        self.messages.clear()
        self.send("Page.navigate", url=page.resolve().as_uri())
        self.wait_for("document.readyState === 'complete'")

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 10.0) -> None:
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + seconds
        while not self.run(expression):
            if time.monotonic() > end:
                raise TimeoutError(expression)
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """A real click in the middle of an element."""
        middle = f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{block: "center"}});
            const box = element.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        }})()"""
        self.click_at(*self.run(middle))

    def click_at(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, whole_page: bool = False) -> bytes:
        """The page as PNG."""
        answer = self.send("Page.captureScreenshot", captureBeyondViewport=whole_page)
        return base64.b64decode(answer["data"])

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], self._timeout_s)
            data = os.read(self._read, 1 << 20) if ready else b""
            if not data:
                raise TimeoutError(f"Chromium says nothing (exit code {self._process.poll()})")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.messages.append(str(parameters["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded":
            self.messages.append(str(parameters["entry"]))
        elif message.get("method") == "Runtime.consoleAPICalled":
            self.messages.append(str(parameters))
        elif message.get("method") == "Network.requestWillBeSent":
            address = parameters["request"]["url"]
            if not address.startswith(("file:", "data:", "about:")):
                self.messages.append(f"the page asked for {address}")

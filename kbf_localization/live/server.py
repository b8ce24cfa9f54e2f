"""The page's web server (Tornado, as in rosbridge_server, on its own thread) and what it shows."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import math
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from kbf_localization.errors import KbfError
from kbf_localization.limits import MAX_COORDINATE_M, check_number

Content = bytes | Mapping[str, Any]


class Board:
    """The newest content of each channel; older content that nobody has fetched is forgotten.

    Whoever fills it asks `watched` whether that is worth while. All methods are safe on any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, tuple[int, Content]] = {}
        self._version = 0
        self._watchers: dict[object, Callable[[], object]] = {}

    def put(self, channel: str, content: Content) -> None:
        """Replace a channel's content and wake everybody who watches."""
        with self._lock:
            self._version += 1
            self._newest[channel] = self._version, content
            wake = list(self._watchers.values())
        for callback in wake:
            callback()

    def since(self, version: int) -> tuple[int, dict[str, Content]]:
        """Return the board's version now, and the channels that are newer than `version`."""
        with self._lock:
            newer = {
                name: content
                for name, (put_at, content) in self._newest.items()
                if put_at > version
            }
            return self._version, newer

    def forget(self, *channels: str) -> None:
        """Drop what new watchers would be shown of these channels."""
        with self._lock:
            for channel in channels:
                self._newest.pop(channel, None)

    def watch(self, watcher: object, wake: Callable[[], object]) -> None:
        """Call `wake`, on any thread, for everything new, until `leave`."""
        with self._lock:
            self._watchers[watcher] = wake

    def leave(self, watcher: object) -> None:
        with self._lock:
            self._watchers.pop(watcher, None)

    @property
    def watched(self) -> bool:
        with self._lock:
            return bool(self._watchers)


FILES = {
    "/": ("page.html", "text/html"),
    "/live.js": ("live.js", "text/javascript"),
    "/map.js": ("map.js", "text/javascript"),
    "/style.css": ("style.css", "text/css"),
}
"""All that can be asked for: no part of an address is ever a file's name."""

IMAGE_PREFIXES = {"camera": b"\x01", "match": b"\x02"}
"""First byte of a binary message, by channel."""

MIN_PAUSE_S = 0.05
"""Between two messages to a watcher."""

MAX_WATCHERS, MAX_PENDING = 16, 64
"""At once: of those who are served, and of those who have not sent the token yet."""
MAX_CONNECTIONS = 256
"""Of all kinds: well below the 1024 descriptors that a process has at least."""
TOKEN_WAIT_S = 10.0
MAX_REQUEST_S = 20.0
MAX_MESSAGE_BYTES = 1000
REFUSED, TOO_MANY = 4401, 4429
"""Codes with which a socket is closed: wrong token, and more watchers than are served."""

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class LiveSettings:
    """Where the page is served, and to whom.

    `token` is what a watcher must know, if anything. `set_pose` is called with the (x, y, heading)
    that a watcher clicks, on the server's thread; None: the page is for looking only.
    """

    host: str = "127.0.0.1"
    port: int = 8642
    token: str | None = None
    set_pose: Callable[[float, float, float], None] | None = None


def is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def is_own_name(name: str) -> bool:
    """Return whether a request's Host is an address, or a name that this computer has itself.

    A rebound name is none of these: it is the attacker's own.
    """
    own = socket.gethostname().lower()
    return _address(name) is not None or name.lower() in ("localhost", own, f"{own}.local")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


@contextmanager
def serving(board: Board, settings: LiveSettings) -> Iterator[int]:
    """Serve the page during the block; gives the port, which the system chooses for 0."""
    try:
        sockets = bind_sockets(settings.port, settings.host)
    except (OSError, OverflowError) as error:
        raise KbfError(
            f"{settings.host}:{settings.port} cannot be served ({error}): choose another --port "
            "or --host"
        ) from error
    started: Future[Callable[[], object]] = Future()
    serve = _serve(board, settings, sockets, started)
    thread = threading.Thread(target=asyncio.run, args=(serve,), name="live page", daemon=True)
    thread.start()
    stop = started.result()
    try:
        yield int(sockets[0].getsockname()[1])
    finally:
        stop()
        thread.join()


async def _serve(
    board: Board,
    settings: LiveSettings,
    sockets: list[socket.socket],
    started: Future[Callable[[], object]],
) -> None:
    """Serve until what `started` gets is called, on whichever thread."""
    watchers: set[_Socket] = set()
    pending: set[_Socket] = set()
    of_sockets = {"board": board, "live": settings, "watchers": watchers, "pending": pending}
    application = Application(
        [("/socket", _Socket, of_sockets), (".*", _Page)],
        websocket_max_message_size=MAX_MESSAGE_BYTES,
        websocket_ping_interval=20,
        log_function=lambda _: None,
    )
    server = _BoundedServer(
        application,
        max_header_size=16_384,
        max_body_size=MAX_MESSAGE_BYTES,
        idle_connection_timeout=MAX_REQUEST_S,
        body_timeout=MAX_REQUEST_S,
    )
    server.add_sockets(sockets)
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    started.set_result(lambda: loop.call_soon_threadsafe(over.set))
    await over.wait()
    server.stop()
    for watcher in (*watchers, *pending):
        watcher.close()
    await server.close_all_connections()


class _BoundedServer(HTTPServer):
    """Hangs up on whoever comes when too many are connected.

    A process has only so many descriptors; with none left it would try again without end.
    """

    def initialize(self, *arguments: Any, **keywords: Any) -> None:
        super().initialize(*arguments, **keywords)
        self._open: list[IOStream] = []

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        self._open = [stream for stream in self._open if not stream.closed()]
        if len(self._open) >= MAX_CONNECTIONS:
            stream.close()
            return
        self._open.append(stream)
        super().handle_stream(stream, address)


class _Guarded(RequestHandler):
    """Refuses names that are not this computer's: another site's name may lead here."""

    def prepare(self) -> None:
        try:
            host = urlsplit(f"//{self.request.host}")
            # It may be no number, as in 127.0.0.1:8642.evil.example.
            name = host.hostname if host.port != 0 else None
        except ValueError:
            name = None
        if name is None or not is_own_name(name):
            raise HTTPError(403, reason="Unknown Host")

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in _HEADERS.items():
            self.set_header(name, value)

    def write_error(self, status_code: int, **_: Any) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{status_code} {self._reason}\n")


class _Page(_Guarded):
    def get(self) -> None:
        if self.request.path not in FILES:
            raise HTTPError(404)
        name, kind = FILES[self.request.path]
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        self.write(Path(__file__).with_name("page").joinpath(name).read_bytes())


class _Socket(_Guarded, WebSocketHandler):
    """One watcher: gets what is new as fast as it can take it, and may set the pose."""

    def initialize(
        self, board: Board, live: LiveSettings, watchers: set[_Socket], pending: set[_Socket]
    ) -> None:
        self._board, self._live = board, live
        self._watchers, self._pending = watchers, pending
        self._new = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._sender: asyncio.Task[None] | None = None

    async def get(self, *arguments: Any, **keywords: Any) -> None:
        # Browsers always say where a socket's page is from.
        if not self.check_origin(self.request.headers.get("Origin", "")):
            raise HTTPError(403, reason="Foreign Origin")
        await super().get(*arguments, **keywords)

    def check_origin(self, origin: str) -> bool:
        return origin in (f"http://{self.request.host}", f"https://{self.request.host}")

    def open(self, *_: str, **__: str) -> None:
        if self._live.token is None:
            self._admit()
        elif len(self._pending) >= MAX_PENDING:
            self.close(TOO_MANY, "too many connections without a token")
        else:
            self._pending.add(self)
            self._loop.call_later(TOKEN_WAIT_S, self._send_away)

    def on_message(self, message: str | bytes) -> None:
        """Take a token at first, then poses; close the socket on anything else."""
        try:
            content = json.loads(message)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            self.close(1003, "not understood")
        elif self._sender is None:
            token = content.get("token")
            given = token.encode("utf-8", "replace") if isinstance(token, str) else b""
            if hmac.compare_digest(given, (self._live.token or "").encode()):
                self._admit()
            else:
                self.close(REFUSED, "wrong token")
        elif (pose := _pose(content.get("pose"))) is not None and self._live.set_pose is not None:
            self._live.set_pose(*pose)

    def on_close(self) -> None:
        self._watchers.discard(self)
        self._pending.discard(self)
        self._board.leave(self)
        if self._sender is not None:
            self._sender.cancel()

    def _send_away(self) -> None:
        if self in self._pending:
            self.close(REFUSED, "no token")

    def _admit(self) -> None:
        self._pending.discard(self)
        if len(self._watchers) >= MAX_WATCHERS:
            self.close(TOO_MANY, "too many watchers")
            return
        self._watchers.add(self)
        self._board.watch(self, lambda: self._loop.call_soon_threadsafe(self._new.set))
        self._sender = self._loop.create_task(self._send())

    async def _send(self) -> None:
        version = -1
        with suppress(WebSocketClosedError):
            await self._write("hello", {"can_set_pose": self._live.set_pose is not None})
            while True:
                self._new.clear()
                version, newer = self._board.since(version)
                for channel, content in newer.items():
                    await self._write(channel, content)
                await self._new.wait()
                await asyncio.sleep(MIN_PAUSE_S)

    async def _write(self, channel: str, content: Any) -> None:
        if isinstance(content, bytes):
            await self.write_message(IMAGE_PREFIXES[channel] + content, binary=True)
            return
        # JSON has no word for a number from the network that is none.
        with suppress(ValueError):
            await self.write_message(json.dumps({"channel": channel, **content}, allow_nan=False))


def _pose(value: Any) -> tuple[float, float, float] | None:
    """Return the (x, y, heading) of a message; None for all else."""
    if not (isinstance(value, list) and len(value) == 3):
        return None
    limits = [(-most, most) for most in (MAX_COORDINATE_M, MAX_COORDINATE_M, 2.0 * math.pi)]
    try:
        x, y, heading = map(check_number, ("x", "y", "heading"), value, limits)
    except ValueError:
        return None
    return x, y, heading

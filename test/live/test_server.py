"""The page's server: whom it serves, whom it refuses, and what it hands on."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("tornado")

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from kbf_localization.errors import KbfError
from kbf_localization.live import server
from kbf_localization.live.server import (
    FILES,
    MAX_MESSAGE_BYTES,
    Board,
    LiveSettings,
    is_loopback,
    is_own_name,
    serving,
)

TOKEN = "a long secret, ünïcode"  # noqa: S105
Pose = tuple[float, float, float]


class Served:
    """A server on its own port, and the poses that came through it."""

    def __init__(self, token: str | None = None) -> None:
        self.board, self.poses = Board(), list[Pose]()
        self.settings = LiveSettings(
            port=0, token=token, set_pose=lambda *pose: self.poses.append(pose)
        )

    def get(self, path: str, host: str | None = None) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest("GET", path, skip_host=host is not None)
            if host is not None:
                connection.putheader("Host", host)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())
        finally:
            connection.close()

    def talk(self, *messages: str, origin: str | None = "", wanted: int = 1) -> list[Any]:
        """What comes after sending messages: `wanted` contents, or the code that closes it."""

        async def talking() -> list[Any]:
            own = f"http://127.0.0.1:{self.port}" if origin == "" else origin
            headers = {} if own is None else {"Origin": own}
            request = HTTPRequest(f"ws://127.0.0.1:{self.port}/socket", headers=headers)
            connection = await websocket_connect(request)
            for message in messages:
                await connection.write_message(message)
            came: list[Any] = []
            while len(came) < wanted:
                content = await asyncio.wait_for(connection.read_message(), 60)
                if content is None:
                    came.append(connection.close_code)
                    break
                came.append(content if isinstance(content, bytes) else json.loads(content))
            connection.close()
            return came

        return asyncio.run(talking())


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    with serving(served.board, served.settings) as served.port:
        yield served
    assert not served.board.watched


@pytest.fixture
def guarded() -> Iterator[Served]:
    served = Served(TOKEN)
    with serving(served.board, served.settings) as served.port:
        yield served


def test_the_page_and_its_parts_are_served_with_strict_headers(served: Served) -> None:
    for path in FILES:
        status, body, headers = served.get(path)
        assert status == 200 and body
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/server.py",
        "/../server.py",
        "/page/../../server.py",
        "/%2e%2e/server.py",
        "/..%2f..%2fetc/passwd",
        "//etc/passwd",
        "/live.js/",
        "/%00",
    ],
)
def test_nothing_but_the_page_can_be_asked_for(served: Served, path: str) -> None:
    status, body, _ = served.get(path)
    assert status == 404 and b"import" not in body


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1:8642.evil.example",
        "localhost.evil",
        "[",
    ],
)
def test_a_rebound_name_is_refused(served: Served, host: str) -> None:
    """As DNS rebinding sends it: the attacker's name, which leads to this computer."""
    status, body, _ = served.get("/", host)
    assert status in (400, 403) and b"html" not in body


def test_own_names_and_addresses_are_known() -> None:
    for name in ("localhost", "LOCALHOST", "127.0.0.1", "::1", "192.168.1.7", socket.gethostname()):
        assert is_own_name(name)
    assert not is_own_name("") and not is_own_name("robot.example")
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("::") and not is_loopback("192.168.1.7")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", None, "file://", "http://127.0.0.1:1", "http://["]
)
def test_a_foreign_page_gets_no_socket(served: Served, origin: str | None) -> None:
    with pytest.raises(HTTPClientError) as refusal:
        served.talk(origin=origin)
    assert refusal.value.code in (400, 403)


def test_a_watcher_gets_the_newest_of_each_channel(served: Served) -> None:
    served.board.put("status", {"message": "old"})
    served.board.put("status", {"message": "new"})
    served.board.put("camera", b"JPEG")
    hello, *rest = served.talk(wanted=3)
    assert hello == {"channel": "hello", "can_set_pose": True}
    assert {"channel": "status", "message": "new"} in rest and b"\x01JPEG" in rest


def test_without_the_token_nothing_is_sent(guarded: Served) -> None:
    guarded.board.put("status", {"message": "secret"})
    nobody = ({"token": "wrong"}, {"token": TOKEN[:-1]}, {"token": None}, {"token": "\ud800"})
    for wrong in (*nobody, {"pose": [1, 2, 3]}):
        assert guarded.talk(json.dumps(wrong)) == [4401]
    assert not guarded.poses
    hello, status = guarded.talk(json.dumps({"token": TOKEN}), wanted=2)
    assert hello["channel"] == "hello" and status["message"] == "secret"


def test_a_pose_is_handed_on_and_nonsense_is_not(served: Served) -> None:
    nonsense: list[Any] = [
        *([1, 2], [1, 2, 3, 4], ["1", 2, 3], [True, 2, 3], [1e9, 0, 0], [0, 0, 99.0], {}, None),
        [10**400, 0, 0],
        [float("nan"), 0, 0],
        [float("inf"), 0, 0],
    ]
    messages = [json.dumps({"pose": pose}) for pose in (*nonsense, [1.5, -2, 0.5])]
    served.board.put("status", {"message": "now"})
    served.talk(*messages, json.dumps([]), wanted=100)
    assert served.poses == [(1.5, -2.0, 0.5)]


@pytest.mark.parametrize(
    "message",
    ["", "{", "[]", '"text"', "[" * MAX_MESSAGE_BYTES, "x" * (MAX_MESSAGE_BYTES + 1)],
)
def test_what_is_not_understood_closes_the_socket(served: Served, message: str) -> None:
    assert served.talk(message, wanted=100)[-1] in (1003, 1009)


def test_clients_who_send_no_token_take_nobodys_place_and_are_sent_away(
    monkeypatch: pytest.MonkeyPatch, guarded: Served
) -> None:
    monkeypatch.setattr(server, "TOKEN_WAIT_S", 2.0)

    async def meeting() -> list[Any]:
        own = {"Origin": f"http://127.0.0.1:{guarded.port}"}
        request = HTTPRequest(f"ws://127.0.0.1:{guarded.port}/socket", headers=own)
        silent = [await websocket_connect(request) for _ in range(server.MAX_WATCHERS + 1)]
        watcher = await websocket_connect(request)
        await watcher.write_message(json.dumps({"token": TOKEN}))
        hello = await asyncio.wait_for(watcher.read_message(), 60)
        ends = [await asyncio.wait_for(client.read_message(), 60) for client in silent]
        codes = {client.close_code for client in silent}
        watcher.close()
        return [json.loads(hello or "")["channel"], set(ends), codes]

    assert asyncio.run(meeting()) == ["hello", {None}, {server.REFUSED}]


def test_a_number_that_json_has_no_word_for_is_not_sent(served: Served) -> None:
    served.board.put("pose", {"pose": [float("nan"), 0.0, 0.0]})
    served.board.put("status", {"message": "now"})
    _, second = served.talk(wanted=2)
    assert second == {"channel": "status", "message": "now"}


def test_somebody_watches_only_while_a_page_is_open(served: Served) -> None:
    assert not served.board.watched
    served.board.put("status", {})
    served.talk(wanted=2)

    async def gone() -> None:
        while served.board.watched:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(gone(), 60))


def test_a_port_that_is_taken_is_said_in_one_line(served: Served) -> None:
    taken = LiveSettings(port=served.port)
    with pytest.raises(KbfError, match="choose another --port"), serving(Board(), taken):
        pass


def test_a_flood_of_connections_leaves_descriptors_and_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 8)
    served = Served()
    with serving(served.board, served.settings) as served.port:
        flood = [socket.create_connection(("127.0.0.1", served.port), 60) for _ in range(20)]
        hung_up = [connection for connection in flood[8:] if connection.recv(1) == b""]
        assert len(hung_up) == 12
        flood[0].sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert flood[0].recv(15) == b"HTTP/1.1 200 OK"
        for connection in flood:
            connection.close()
        # The server learns of each end in its own time.
        while True:
            with contextlib.suppress(ConnectionError, http.client.HTTPException):
                assert served.get("/")[0] == 200
                break

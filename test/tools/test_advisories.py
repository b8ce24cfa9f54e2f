"""Advisories are listed where the service answers, and called unknown where it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "advisories.py"


class Service(BaseHTTPRequestHandler):
    """Answers as osv.dev documents it: an object for each query, empty where nothing is known."""

    def do_POST(self) -> None:
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        bad = {"package": {"name": "numpy", "ecosystem": "PyPI"}, "version": "1.26.4"}
        results = [
            {"vulns": [{"id": "OSV-1"}, {"id": "OSV-2"}]} if q == bad else {} for q in queries
        ]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"results": results}).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Service) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def listed(service: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env={**os.environ, "KBF_OSV_SERVICE": service},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_every_advisory_is_listed_with_its_package(address: str) -> None:
    first, last = listed(address)
    assert first == "numpy==1.26.4: OSV-1, OSV-2"
    assert last.startswith("1 of ")


def test_without_the_service_it_says_so() -> None:
    (line,) = listed("http://127.0.0.1:9")
    assert "cannot be asked from here" in line

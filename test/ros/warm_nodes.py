"""Nodes forked from a process that has imported all that a node needs.

The imports are most of what a node's start takes, and the suite starts some fifty nodes. Each is
still a separate process that runs the same statement as one started from nothing, which tests
of the start itself have.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from kbf_localization.child_process import python_command

MAX_REQUEST = 1 << 20


class ForkedNode:
    """What NodeProcess uses of a `subprocess.Popen`."""

    def __init__(self, stdin: int, reports: int) -> None:
        self.stdin = os.fdopen(stdin, "wb")
        self._reports = os.fdopen(reports, "rb", buffering=0)
        self.pid = int(self._reports.readline())
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._exit_code(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._exit_code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("node", timeout or 0.0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _exit_code(self, timeout: float | None) -> int | None:
        if self._code is None and select.select([self._reports], [], [], timeout)[0]:
            self._code = int(self._reports.readline())
            self._reports.close()
        return self._code


class WarmNodes:
    """The process that nodes are forked from; `popen` takes the place of subprocess.Popen."""

    def __init__(self) -> None:
        self._here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            command = python_command("from test.ros.warm_nodes import serve; serve()")
            self._template = subprocess.Popen(
                [*command, str(there.fileno())],
                pass_fds=[there.fileno()],
                start_new_session=True,
            )

    def popen(
        self, command: list[str], *, stdout: IO[bytes], env: dict[str, str], **_as_given: Any
    ) -> ForkedNode:
        """A node with a pipe for its standard input, in a new session."""
        _python, _c, statement, *arguments = command
        (its_stdin, stdin), (reports, tell) = os.pipe(), os.pipe()
        request = json.dumps([statement, arguments, env, str(Path.cwd())]).encode()
        socket.send_fds(self._here, [request], [its_stdin, stdout.fileno(), tell])
        os.close(its_stdin)
        os.close(tell)
        return ForkedNode(stdin, reports)

    def close(self) -> None:
        self._here.close()
        self._template.wait()


def serve() -> None:
    """Fork a node for each request, until there are no more and all nodes have ended."""
    import kbf_localization.ros.localizer_node
    import kbf_localization.ros.node  # noqa: F401

    _import_type_supports()
    gc.freeze()
    requests = socket.socket(fileno=int(sys.argv[1]))
    while True:
        request, files, _, _ = socket.recv_fds(requests, MAX_REQUEST, 3)
        if not request:
            break
        if os.fork() == 0:
            requests.close()
            _watch(request, *files)
        for file in files:
            os.close(file)
        _reap(os.WNOHANG)
    _reap(0)


def _import_type_supports() -> None:
    """Import what rclpy does for a package's first message: a third of a forked node's start."""
    from rosidl_generator_py import import_type_support

    interfaces = [name for name in sys.modules if name.endswith((".msg", ".srv"))]
    for package in dict.fromkeys(name.partition(".")[0] for name in interfaces):
        import_type_support(package)


def _reap(options: int) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, options) != (0, 0):
            pass


def _watch(request: bytes, stdin: int, log: int, tell: int) -> NoReturn:
    """Fork the node, and tell its process id and then its exit code."""
    node = os.fork()
    if node == 0:
        os.close(tell)
        _run(request, stdin, log)
    os.close(stdin)
    os.close(log)
    os.write(tell, f"{node}\n".encode())
    _, status = os.waitpid(node, 0)
    with suppress(BrokenPipeError):
        os.write(tell, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _run(request: bytes, stdin: int, log: int) -> NoReturn:
    statement, arguments, environment, folder = json.loads(request)
    os.setsid()
    for given, number in ((stdin, 0), (log, 1), (log, 2)):
        os.dup2(given, number)
    os.close(stdin)
    os.close(log)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    code: Any = 1
    try:
        exec(statement, {"__name__": "__main__"})  # noqa: S102 (our own program)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

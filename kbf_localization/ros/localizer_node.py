"""The executable `localizer`: the node, and the signals that end it whatever it is doing."""

from __future__ import annotations

import gc
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from kbf_localization.errors import KbfError
from kbf_localization.limits import (
    MAX_PARAMETER_FILE_BYTES,
    MIN_NODE_BYTES,
    check_address_space,
)

MAX_SHUTDOWN_S = 1.6
"""Then the process ends as it is: what it writes is on the disk whole or not at all."""

PARAMETER_FILE_OPTION = "--params-file"

ECHO_S = 0.5
"""A signal so soon after another is its echo."""


class ShutdownSignals:
    """SIGINT, SIGTERM and SIGHUP, from before the first import to the end of the process.

    The first asks for a shutdown, and before there is anything to shut down ends the process; a
    second one ends it at once. One that comes with the first is the same order repeated: systemd
    tells all processes of a service, and launch then tells its own once more.

    A thread hears of them. Python runs a signal's handler on the main thread, and not before that
    one is back from the library that it waits in: a shutdown that hangs there would hear of none.
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._started, self._asked_at = False, 0.0
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(target=self._listen, args=(reader,), name="signals", daemon=True).start()
        # Started by nohup, the node is not to hear of the hang-up.
        hang_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
        for number in (signal.SIGINT, signal.SIGTERM, *hang_up):
            signal.signal(number, lambda *_: None)

    def start(self) -> threading.Event:
        """From now on there is something to shut down; the event says when."""
        self._started = True
        return self._asked

    def _listen(self, reader: int) -> None:
        while True:
            for number in os.read(reader, 100):
                self._received(number)

    def _received(self, number: int) -> None:
        if not self._started:
            os._exit(0)
        if self._asked.is_set():
            if time.monotonic() - self._asked_at > ECHO_S:
                os._exit(128 + number)
            return
        self._asked_at = time.monotonic()
        self._asked.set()
        last = threading.Timer(MAX_SHUTDOWN_S, os._exit, (0,))
        last.daemon = True
        last.start()


def main(arguments: list[str] | None = None) -> int:
    """Run the node until it is stopped; return 0, or 2 for an invalid parameter."""
    return _run(arguments, ShutdownSignals())


def _run(arguments: list[str] | None, signals: ShutdownSignals) -> int:
    from kbf_localization.sanitize import show_errors, shown
    from kbf_localization.threads import limit_threads

    show_errors()
    try:
        check_start(sys.argv if arguments is None else arguments)
    except KbfError as error:
        sys.stderr.write(f"localizer: {shown(str(error))}\n")
        return 2
    # Before NumPy is imported: the other core is for the messages.
    limit_threads(1)
    try:
        import rclpy
    except ModuleNotFoundError as error:
        sys.stderr.write(f"localizer: ROS 2 cannot be imported ({error}): source an installation\n")
        return 2
    from rclpy.exceptions import ParameterException
    from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor
    from rclpy.signals import SignalHandlerOptions

    from kbf_localization.ros.lifecycle import BREAK_TIMEOUT_S
    from kbf_localization.ros.node import LocalizerNode

    # The worker's thread must not delay a service for long.
    sys.setswitchinterval(0.001)
    asked = signals.start()
    # rclpy's own handlers end the communication before the node has closed its bond.
    try:
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:  # rclpy's, for arguments that are none
        reason = " ".join(str(error).split())
        # Of unknown ones it gives the list alone.
        unknown = "unknown ROS arguments " if reason.startswith("[") else ""
        sys.stderr.write(f"localizer: {shown(unknown + reason)}\n")
        return 2
    try:
        node = LocalizerNode(asked)
    except (ParameterException, RuntimeError) as error:
        rclpy.logging.get_logger("localizer").fatal(shown(f"cannot start: {error}"))
        rclpy.try_shutdown()
        return 2
    executor = MultiThreadedExecutor(num_threads=4)
    executor.add_node(node)
    try:
        node.disposal.spin(executor, asked, node.failed)
    except ExternalShutdownException:
        pass
    finally:
        # Nothing is destroyed while a transition is in progress.
        node.finish_transitions(1.0)
        bond = node.close()
        if bond is not None:
            node.disposal.spin(executor, bond.broken, node.failed, BREAK_TIMEOUT_S)
        executor.shutdown(timeout_sec=0.5)
        node.destroy_node()
        rclpy.try_shutdown()
    # The node leaves the ROS graph with its last handle; otherwise others see it for 20 s more.
    del bond, node, executor
    gc.collect()
    # A thread may still load a map, which must not run while Python is torn down.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def check_start(arguments: Sequence[str]) -> None:
    """Refuse too little address space, and parameter files that rcl would wait for for ever."""
    check_address_space(MIN_NODE_BYTES)
    for option, value in pairwise(arguments):
        if option != PARAMETER_FILE_OPTION:
            continue
        try:
            mode = Path(value).stat().st_mode
        except (OSError, ValueError):
            continue  # rcl says what is wrong with it
        # To open a pipe waits for whoever writes into it, and a device never ends.
        if not stat.S_ISREG(mode):
            raise KbfError(f"{PARAMETER_FILE_OPTION} {value}: is not a regular file")
        from kbf_localization.datasets.files import check_yaml, read_regular

        # rcl's parser takes minutes for a hundred kilobytes of "[", and hears no signal meanwhile.
        check_yaml(Path(value), read_regular(Path(value), MAX_PARAMETER_FILE_BYTES))


if __name__ == "__main__":
    sys.exit(main())

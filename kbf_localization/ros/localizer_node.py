"""The executable `localizer`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType

LONGEST_SHUTDOWN_S = 1.6
"""Then the process ends as it is: what it writes is on the disk whole or not at all."""


def main(arguments: list[str] | None = None) -> int:
    """Run the node until it is told to stop; 0 then, 2 where a parameter's value cannot be."""
    return _run(arguments, Ending())


ECHO_S = 0.5
"""A signal so soon after another is its echo."""


class Ending:
    """SIGINT, SIGTERM and SIGHUP, from before the first import to the end of the process.

    The first asks for a shutdown, and before there is anything to shut down ends the process; a
    second one ends it at once. One that comes with the first is the same order told twice: systemd
    tells all processes of a service, and launch then tells its own once more.
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._started, self._asked_at = False, 0.0
        # Started by nohup, the node is not to hear of the hang-up.
        hang_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
        for number in (signal.SIGINT, signal.SIGTERM, *hang_up):
            signal.signal(number, self._received)

    def start(self) -> threading.Event:
        """From now on there is something to shut down; the event says when."""
        self._started = True
        return self._asked

    def _received(self, number: int, _frame: FrameType | None) -> None:
        if not self._started:
            os._exit(0)
        if self._asked.is_set():
            if time.monotonic() - self._asked_at > ECHO_S:
                os._exit(128 + number)
            return
        self._asked_at = time.monotonic()
        self._asked.set()
        last = threading.Timer(LONGEST_SHUTDOWN_S, os._exit, (0,))
        last.daemon = True
        last.start()


def _run(arguments: list[str] | None, ending: Ending) -> int:
    from kbf_localization.foreign_text import show_errors, shown
    from kbf_localization.threads import limit_threads

    show_errors()
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

    from kbf_localization.ros.node import LocalizerNode

    # The worker's Python must not keep a service waiting for long.
    sys.setswitchinterval(0.001)
    asked = ending.start()
    # rclpy's own handlers end the communication before the node can say good-bye.
    rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = LocalizerNode(asked)
    except ParameterException as error:
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
        # Nothing is destroyed under the hands of a transition that is under way.
        node.finish_transitions(1.0)
        node.close()
        executor.shutdown(timeout_sec=0.5)
        node.destroy_node()
        rclpy.try_shutdown()
    # A map that was being loaded may still be: Python would end under that thread's hands.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())

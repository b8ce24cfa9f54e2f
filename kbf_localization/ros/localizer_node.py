"""The executable `localizer`."""

from __future__ import annotations

import signal
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run the node until it is told to stop; 0 then, 2 where a parameter's value cannot be."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:  # before or after the executor, which has its own handling
        return 0


def _run(arguments: list[str] | None) -> int:
    from kbf_localization.threads import limit_threads

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
    # rclpy's own handlers end the communication before the node can say good-bye.
    rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = LocalizerNode()
    except ParameterException as error:
        rclpy.logging.get_logger("localizer").fatal(f"cannot start: {error}")
        rclpy.try_shutdown()
        return 2
    executor = MultiThreadedExecutor(num_threads=4)
    executor.add_node(node)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: node.ending.set())
    try:
        while rclpy.ok() and not node.ending.is_set():
            executor.spin_once(timeout_sec=0.5)
    except ExternalShutdownException:
        pass
    finally:
        node.close()
        executor.shutdown(timeout_sec=1.0)
        node.destroy_node()
        rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The executable `localizer`."""

from __future__ import annotations

import gc
import os
import sys

from kbf_localization.ending import Ending


def main(arguments: list[str] | None = None) -> int:
    """Run the node until it is told to stop; 0 then, 2 where a parameter's value cannot be."""
    return _run(arguments, Ending())


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
    from rclpy.impl.implementation_singleton import rclpy_implementation
    from rclpy.signals import SignalHandlerOptions

    from kbf_localization.ros.node import LocalizerNode

    rcl_error = rclpy_implementation.RCLError
    # The worker's Python must not keep a service waiting for long.
    sys.setswitchinterval(0.001)
    asked = ending.start()
    # rclpy's own handlers end the communication before the node can say good-bye.
    try:
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:  # rclpy's, for arguments that are none
        sys.stderr.write(f"localizer: {shown(' '.join(str(error).split()))}\n")
        return 2
    try:
        node = LocalizerNode(asked)
    except (ParameterException, rcl_error) as error:
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
    # Only with its last handle does the node leave the ROS graph; else others see it for 20 s more.
    del node, executor
    gc.collect()
    # A map that was being loaded may still be: Python would end under that thread's hands.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())

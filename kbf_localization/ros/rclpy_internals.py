"""The parts of rclpy that are not its public interface: all of them, and why they are used.

Seen in rclpy 7.1 (Jazzy), 8.0 and 9.1 (Kilted), where they are the same, and in the type stubs of
Rolling's newer binding (nanobind), where the wait set and `take_message` have the same arguments;
test/ros/test_rclpy_internals.py names the version that it runs with. Humble's 3.3 lacks public
parts too, such as `Node.add_post_set_parameters_callback` and the publication's sequence number.

The wait set: rclpy's executors build a wait set of all entities for every message. To read 200
odometry messages and 30 compressed images a second takes 3.3 % of a core by a wait set of these two
subscriptions, 2.3 % while the robot stands and messages are read together, and 5.9 % by a
SingleThreadedExecutor with these subscriptions alone: the difference is half of the 8 % that
the whole node may take while it stands.
"""

from __future__ import annotations

from typing import Any

from rclpy.callback_groups import CallbackGroup
from rclpy.context import Context
from rclpy.guard_condition import GuardCondition
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.subscription import Subscription

RMWError: type[Exception] = _rclpy.RMWError
"""What `rclpy.serialization` raises for bytes that are no message."""


class OutsideExecutor(CallbackGroup):
    """Keep a subscription out of the executor's wait sets."""

    def can_execute(self, entity: Any) -> bool:
        return False

    def beginning_execution(self, entity: Any) -> bool:
        return False

    def ending_execution(self, entity: Any) -> None:
        pass


class SubscriptionWaitSet:
    """Wait for messages of a few subscriptions that no executor spins."""

    def __init__(self, context: Context, size: int) -> None:
        self._context = context
        self._wake = GuardCondition(None, None, context=context)
        with context.handle:
            self._waiting = _rclpy.WaitSet(size, 1, 0, 0, 0, 0, context.handle)

    def wait(self, subscriptions: list[Subscription], timeout_ns: int) -> list[Subscription]:
        """Return those that have a message as soon as one has; none after `wake` or a timeout."""
        with self._context.handle:
            self._waiting.clear_entities()
            for subscription in subscriptions:
                self._waiting.add_subscription(subscription.handle)
            self._waiting.add_guard_condition(self._wake.handle)
            self._waiting.wait(timeout_ns)
            ready = self._waiting.get_ready_entities("subscription")
        return [
            subscription for subscription in subscriptions if subscription.handle.pointer in ready
        ]

    def wake(self) -> None:
        """Make `wait` return; on any thread."""
        self._wake.trigger()

    def destroy(self) -> None:
        self._wake.destroy()


def take(subscription: Subscription, kind: type) -> tuple[bytes, dict[str, Any]] | None:
    """Take the bytes of a message with its information; None where there is none."""
    taken: tuple[bytes, dict[str, Any]] | None = subscription.handle.take_message(kind, True)
    return taken

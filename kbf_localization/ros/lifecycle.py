"""A lifecycle node whose transitions neither block its services nor end the process."""

from __future__ import annotations

import threading
from typing import Any

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.lifecycle import LifecycleNodeMixin
from rclpy.node import Node


class SafeLifecycleNode(LifecycleNodeMixin, Node):
    """rclpy's lifecycle node with two faults mended.

    A transition that the state does not allow raises in rclpy's service callback and so ends
    the process: here it is answered by success = false. And a transition that takes long, such as
    loading a map, does not keep `get_state` waiting.
    """

    def __init__(self, name: str, **arguments: Any) -> None:
        Node.__init__(self, name, **arguments)
        self.lifecycle_group = ReentrantCallbackGroup()
        LifecycleNodeMixin.__init__(self, callback_group=self.lifecycle_group)
        self._transition_lock = threading.Lock()
        self._unguarded_change_state = self._service_change_state.callback
        self._service_change_state.callback = self._change_state

    @property
    def state_label(self) -> str:
        """The lifecycle state, such as "active"."""
        return str(self._state_machine.current_state[1])

    def _change_state(self, request: Any, response: Any) -> Any:
        if not self._transition_lock.acquire(blocking=False):
            self.get_logger().warning("a transition is refused: another one is under way")
            response.success = False
            return response
        try:
            return self._unguarded_change_state(request, response)
        except (_rclpy.RCLError, TypeError, ValueError) as error:
            asked = request.transition.label or request.transition.id
            self.get_logger().warning(f"transition {asked} from {self.state_label}: {error}")
            response.success = False
            return response
        finally:
            self._transition_lock.release()

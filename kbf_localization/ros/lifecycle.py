"""A lifecycle node that Nav2's lifecycle manager can run, and whose entities may be destroyed.

An rclpy executor builds its wait set of the node's entities without a lock. An entity that another
thread destroys meanwhile raises InvalidHandle or RCLError there and ends the process; an executor
that is shut down while it spins loses the guard that it waits for. So entities are destroyed
between two spins, on the thread that spins, and an executor is shut down when it no longer spins.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.executors import Executor, ExternalShutdownException
from rclpy.lifecycle import LifecycleNodeMixin, LifecyclePublisher, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.service import Service
from rclpy.subscription import Subscription
from rclpy.timer import Timer

from kbf_localization.ros.diagnostics import SanitizingLogger
from kbf_localization.ros.rclpy_internals import (
    RCLError,
    lifecycle_label,
    replace_change_state,
    wrap_transitions,
)

logger = logging.getLogger(__name__)

_SPIN_TIMEOUT_S, _SPIN_PAUSE_S = 0.4, 0.001
"""Python's signal handlers run between two waits, each of which costs processor time."""
_WARNING_PERIOD_S = 5.0
_MAX_FAILURES = 100
"""More consecutive errors are the executor's own."""


class Disposal:
    """Destroys a node's entities between two spins; where nothing spins, at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor: Executor | None = None
        self._tasks: list[tuple[Callable[[], object], threading.Event]] = []

    def spin(
        self, executor: Executor, until: threading.Event, failed: Callable[[Exception], None]
    ) -> None:
        """Execute callbacks until the event, or until the context is shut down.

        A callback's error is handed to `failed`: it must not end the node.
        """
        failures = 0
        with self._lock:
            self._executor = executor
        try:
            while executor.context.ok() and not until.is_set():
                try:
                    executor.spin_once(timeout_sec=_SPIN_TIMEOUT_S)
                    failures = 0
                except ExternalShutdownException:
                    raise
                except Exception as error:
                    failures += 1
                    if failures > _MAX_FAILURES or not executor.context.ok():
                        raise
                    failed(error)
                self._run_tasks()
                # rclpy hands a callback out again and again until a thread has begun with it.
                time.sleep(_SPIN_PAUSE_S)
        finally:
            with self._lock:
                self._executor = None
            self._run_tasks()

    def destroy(self, destroy: Callable[..., object], *entities: object) -> None:
        """Have `destroy(entity)` called for each entity, by a method of the node; wait for it."""
        done = threading.Event()

        def task() -> None:
            for entity in entities:
                destroy(entity)

        with self._lock:
            spun = self._executor is not None
            if self._executor is not None:
                self._tasks.append((task, done))
                wake(self._executor)
        if spun:
            done.wait()
        else:
            task()

    def _run_tasks(self) -> None:
        with self._lock:
            tasks, self._tasks = self._tasks, []
        for task, done in tasks:
            try:
                task()
            finally:
                done.set()


def wake(executor: Executor) -> None:
    """Make the executor's spin_once return: a plain wake() only makes it wait again."""
    executor.create_task(lambda: None)


class SafeLifecycleNode(LifecycleNodeMixin, Node):
    """A lifecycle node that corrects four faults of rclpy's.

    A transition that the state does not allow raises in rclpy's service callback and so ends
    the process: here it is answered by success = false. A transition that takes long, such as
    loading a map, does not keep `get_state` waiting. An error in one is logged. And what one puts
    away by `dispose` is destroyed between two spins, for which `disposal` spins the node.
    """

    def __init__(self, name: str, **arguments: Any) -> None:
        self.disposal = Disposal()
        self.steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._sanitizing_logger: SanitizingLogger | None = None
        self._warned: dict[str, float] = {}
        Node.__init__(self, name, **arguments)
        self.lifecycle_group = ReentrantCallbackGroup()
        LifecycleNodeMixin.__init__(self, callback_group=self.lifecycle_group)
        wrap_transitions(self, self._with_logged_errors)
        self._transition_lock = threading.Lock()
        self._unguarded_change_state = replace_change_state(self, self._change_state)

    def get_logger(self) -> SanitizingLogger:
        if self._sanitizing_logger is None:
            self._sanitizing_logger = SanitizingLogger(super().get_logger().name)
        return self._sanitizing_logger

    @property
    def state_label(self) -> str:
        """The lifecycle state, such as "active"."""
        return lifecycle_label(self)

    def warn(self, kind: str, message: str) -> None:
        """Log a warning, the same kind at most every 5 seconds."""
        now = time.monotonic()
        if now - self._warned.get(kind, -1e9) >= _WARNING_PERIOD_S:
            self._warned[kind] = now
            self.get_logger().warning(message)

    def start_by_itself(self) -> None:
        """Configure and activate as soon as the node is spun."""

        def start() -> None:
            self.dispose(timer)
            with self._transition_lock:
                unconfigured = self.state_label == "unconfigured"
                if unconfigured and self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
                    self.trigger_activate()

        timer = self.create_timer(0.0, start, self.lifecycle_group, clock=self.steady)

    def dispose(self, *entities: Any) -> None:
        """Destroy timers, services, subscriptions and publishers; waits until it is done."""
        self.disposal.destroy(self._destroy, *entities)

    def _destroy(self, entity: Any) -> None:
        for kind, destroy in (
            (Timer, self.destroy_timer),
            (Service, self.destroy_service),
            (Subscription, self.destroy_subscription),
            (LifecyclePublisher, self.destroy_lifecycle_publisher),
            (Publisher, self.destroy_publisher),
        ):
            if isinstance(entity, kind):
                destroy(entity)
                return
        raise TypeError(f"cannot destroy {entity!r}")

    def finish_transitions(self, seconds: float) -> None:
        """Wait for a transition in progress; none begins afterwards."""
        self._transition_lock.acquire(timeout=seconds)

    def _with_logged_errors(self, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wrap a transition's callback so that its error is logged, which rclpy does not do."""

        def called(state: Any) -> Any:
            try:
                return callback(state)
            except Exception as error:
                logger.error("in a transition", exc_info=error)
                self.get_logger().error(f"{type(error).__name__} in a transition: {error}")
                raise

        return called

    def _change_state(self, request: Any, response: Any) -> Any:
        if not self._transition_lock.acquire(blocking=False):
            self.get_logger().warning("a transition is refused: another is in progress")
            response.success = False
            return response
        try:
            return self._unguarded_change_state(request, response)
        except (RCLError, TypeError, ValueError) as error:
            asked = request.transition.label or request.transition.id
            self.get_logger().warning(f"transition {asked} from {self.state_label}: {error}")
            response.success = False
            return response
        finally:
            self._transition_lock.release()

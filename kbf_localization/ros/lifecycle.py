"""A lifecycle node that Nav2's lifecycle manager can run, with its bond to that manager.

An rclpy executor builds its wait set of the node's entities without a lock. An entity that another
thread destroys meanwhile raises InvalidHandle or RCLError there and ends the process; an executor
that is shut down while it spins loses the guard that it waits for. So entities are destroyed
between two spins, on the thread that spins, and an executor is shut down when it no longer spins.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable
from enum import Enum
from typing import Any

from lifecycle_msgs.srv import ChangeState
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup, ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.executors import Executor, ExternalShutdownException
from rclpy.lifecycle import LifecycleNodeMixin, LifecyclePublisher, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from rclpy.service import Service
from rclpy.subscription import Subscription
from rclpy.timer import Timer

from kbf_localization.limits import shortened
from kbf_localization.sanitize import SanitizingLogger

logger = logging.getLogger(__name__)

_SPIN_TIMEOUT_S, _SPIN_PAUSE_S = 0.4, 0.001
"""Python's signal handlers run between two waits, each of which costs processor time."""
_WARNING_PERIOD_S = 5.0
_MAX_FAILURES = 100
"""More consecutive errors are the executor's own."""
_STATES = {
    "on_configure": ("configuring", "inactive", None),
    "on_cleanup": ("cleaningup", "unconfigured", None),
    "on_activate": ("activating", "active", None),
    "on_deactivate": ("deactivating", "inactive", None),
    "on_shutdown": ("shuttingdown", "finalized", "finalized"),
    "on_error": ("errorprocessing", "unconfigured", "finalized"),
}
"""The state during each transition, after its success and after its failure; None: that before."""
_TRANSITIONS = ("configure", "cleanup", "activate", "deactivate", "shutdown")
"""Names by which transitions are asked for."""


class Disposal:
    """Destroys a node's entities between two spins; where nothing spins, at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor: Executor | None = None
        self._tasks: list[tuple[Callable[[], object], threading.Event]] = []

    def spin(
        self,
        executor: Executor,
        until: threading.Event,
        failed: Callable[[Exception], None],
        seconds: float = math.inf,
    ) -> None:
        """Execute callbacks until the event, the end of the time, or the context's shutdown.

        A callback's error is handed to `failed`: it must not end the node.
        """
        failures, end = 0, time.monotonic() + seconds
        with self._lock:
            self._executor = executor
        try:
            while executor.context.ok() and not until.is_set():
                left = end - time.monotonic()
                if left <= 0.0:
                    break
                try:
                    executor.spin_once(timeout_sec=min(_SPIN_TIMEOUT_S, left))
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
        self._warned: dict[str, float] = {}
        Node.__init__(self, name, **arguments)
        self.lifecycle_group = ReentrantCallbackGroup()
        self.log = SanitizingLogger(self.get_logger())
        self.state_label = "unconfigured"
        # The mixin registers these attributes as the transitions' callbacks.
        for name in _STATES:
            setattr(self, name, self._followed(name, getattr(self, name)))
        LifecycleNodeMixin.__init__(self, callback_group=self.lifecycle_group)
        self._transition_lock = threading.Lock()
        (service,) = (item for item in self.services if item.srv_type is ChangeState)
        self._unguarded_change_state, service.callback = service.callback, self._change_state

    def warn(self, kind: str, message: str) -> None:
        """Log a warning, the same kind at most every 5 seconds."""
        now = time.monotonic()
        if now - self._warned.get(kind, -1e9) >= _WARNING_PERIOD_S:
            self._warned[kind] = now
            self.log.warning(message)

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

    def _followed(self, name: str, callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wrap a transition's callback: follow the state, and log an error, as rclpy does not."""
        during, after, failed = _STATES[name]

        def called(state: Any) -> Any:
            self.state_label = during
            try:
                result = callback(state)
            except Exception as error:
                logger.error("in a transition", exc_info=error)
                self.log.error(f"{type(error).__name__} in a transition: {error}")
                self.state_label = "errorprocessing" if name != "on_error" else "finalized"
                raise
            succeeded = result == TransitionCallbackReturn.SUCCESS
            self.state_label = after if succeeded else failed or state.label
            return result

        return called

    def _change_state(self, request: Any, response: Any) -> Any:
        if not self._transition_lock.acquire(blocking=False):
            self.log.warning("a transition is refused: another is in progress")
            response.success = False
            return response
        try:
            label = request.transition.label
            # rcl would print a name that it does not know as it is, control characters included.
            if label and label not in _TRANSITIONS:
                raise ValueError("there is no such transition")
            return self._unguarded_change_state(request, response)
        except (RuntimeError, TypeError, ValueError) as error:
            asked = shortened(request.transition.label or request.transition.id)
            self.log.warning(f"transition {asked} from {self.state_label}: {error}")
            response.success = False
            return response
        finally:
            self._transition_lock.release()


try:
    from bond.msg import Status as BondStatus
except ImportError:
    BondStatus = None

# As in the package bond; Nav2's nodes set the heartbeat timeout and never time out themselves.
_CONNECT_TIMEOUT_S = 10.0
_DISCONNECT_TIMEOUT_S = 2.0
BREAK_TIMEOUT_S = 1.0
"""For how long a node that ends waits for the manager's answer, as in bondcpp's destructor."""
_HEARTBEAT_TIMEOUT_S = 4.0


def make_bond(node: SafeLifecycleNode, period_s: float) -> Bond | None:
    """Make the bond with the lifecycle manager; None where it is off or not installed."""
    if period_s <= 0.0:
        return None
    if BondStatus is None:
        node.log.info(
            "the package bond is not installed: a lifecycle manager must have bond_timeout 0.0"
        )
        return None
    return Bond(node, period_s)


class _BondState(Enum):
    WAITING = "waiting for the manager"
    ALIVE = "alive"
    DYING = "waiting for the manager to know that it is broken"
    DEAD = "dead"


class Bond:
    """This node's side of the bond with Nav2's lifecycle manager, by the rules of bondcpp.

    Both sides send heartbeats on the topic `bond`, with the node's name as the bond's id. A node
    that is silent for too long, or says that it ends, makes the manager take all of Nav2 down.
    As Nav2's own nodes, this side does not mind a silent manager; it ends when the manager says so.
    `broken` is set when the manager has answered the end, or there is nothing to answer.
    """

    def __init__(self, node: SafeLifecycleNode, period_s: float) -> None:
        self._node, self._period_s = node, period_s
        self._id, self._instance = node.get_name(), str(uuid.uuid4())
        self._manager: str | None = None
        self._state, self._since = _BondState.WAITING, time.monotonic()
        self.broken = threading.Event()
        self._lock = threading.RLock()
        group = MutuallyExclusiveCallbackGroup()
        self._publisher = node.create_publisher(BondStatus, "bond", QoSProfile(depth=5))
        self._subscription = node.create_subscription(
            BondStatus, "bond", self._on_status, QoSProfile(depth=100), callback_group=group
        )
        self._timer = node.create_timer(period_s, self._tick, group, clock=node.steady)

    def end(self) -> None:
        """Announce that this node stops, and repeat it with each heartbeat until answered.

        A process must not end before the answer (`broken`): the manager's middleware forgets a
        participant that leaves on another thread than that which reads its messages, and may
        drop the last messages. The middleware's acknowledgment (`wait_for_all_acked`) comes with
        Fast DDS's next periodic heartbeat, of which there is one each 3 s.
        """
        with self._lock:
            if self._state is _BondState.DEAD:
                return
            alive = self._state is _BondState.ALIVE
            self._enter(_BondState.DYING if alive else _BondState.DEAD)
            self._send(active=False)

    def _tick(self) -> None:
        with self._lock:
            elapsed = time.monotonic() - self._since
            if self._state is _BondState.WAITING and elapsed > _CONNECT_TIMEOUT_S:
                self._enter(_BondState.DEAD)
            if self._state is _BondState.DYING and elapsed > _DISCONNECT_TIMEOUT_S:
                self._enter(_BondState.DEAD)
            if self._state is _BondState.DEAD:
                self._node.dispose(self._timer, self._subscription, self._publisher)
            else:
                self._send(active=self._state is not _BondState.DYING)

    def _on_status(self, message: Any) -> None:
        if message.id != self._id or message.instance_id == self._instance:
            return
        with self._lock:
            if self._manager is None:
                self._manager = message.instance_id
            if message.instance_id != self._manager:
                self._node.warn(
                    "bond",
                    f"a third party uses the bond '{self._id}': only a node and its lifecycle "
                    "manager may; are there two nodes or two managers of this name?",
                )
            elif message.active and self._state is _BondState.WAITING:
                self._enter(_BondState.ALIVE)
                self._node.log.info("bond with the lifecycle manager formed")
            elif not message.active and self._state in (_BondState.WAITING, _BondState.ALIVE):
                self._enter(_BondState.DEAD)
                self._send(active=False)
                self._node.log.warning("the lifecycle manager has ended the bond")
            elif not message.active:
                self._enter(_BondState.DEAD)

    def _enter(self, state: _BondState) -> None:
        self._state, self._since = state, time.monotonic()
        if state is _BondState.DEAD:
            self.broken.set()

    def _send(self, active: bool) -> None:
        message = BondStatus(
            id=self._id,
            instance_id=self._instance,
            active=active,
            heartbeat_timeout=_HEARTBEAT_TIMEOUT_S,
            heartbeat_period=float(self._period_s),
        )
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(message)

"""Whether a node is well after a fault."""

from __future__ import annotations

import numpy as np

from kbf_localization.ros.conversions import planar_pose
from kbf_localization.ros.node_process import NodeProcess
from test.ros.robot import Robot


class Survival:
    """Begins with a node that tracks, at the same place in every test, whatever came before."""

    def __init__(self, robot: Robot, node: NodeProcess) -> None:
        self.robot, self.node = robot, node
        robot.carry_to(0.0)
        robot.drive_until_tracking()
        robot.poses.clear()
        robot.tf.clear()

    def check(self, frames: int = 15) -> None:
        """It lives, all it published is finite, and within `frames` frames it tracks rightly."""
        robot = self.robot
        assert self.node.exit_code is None, self.node.log()
        assert any(self._tracks_rightly() for _ in range(frames)), robot.status
        for message in robot.poses:
            assert np.isfinite(planar_pose(message.pose.pose)).all()
            covariance = np.reshape(message.pose.covariance, (6, 6))
            assert np.isfinite(covariance).all()
            assert np.linalg.eigvalsh(covariance)[0] > -1e-9
        assert robot.transform_comes(), robot.status
        assert robot.count("unexpected_error") == 0, self.node.log()
        assert "Traceback" not in self.node.log(), self.node.log()

    def _tracks_rightly(self) -> bool:
        """Whether the next frame is answered by "tracking" within half a metre of the truth."""
        answer = self.robot.frame()
        state = self.robot.state_at(self.robot.stamp_ns)
        return answer is not None and state == "tracking" and self.robot.error(answer) < 0.5

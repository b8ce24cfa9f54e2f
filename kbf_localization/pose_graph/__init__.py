"""The poses of drives from wheel odometry and one camera: keyframes, closures, graph on SE(2)."""

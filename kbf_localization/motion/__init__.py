"""The odometry motion model."""

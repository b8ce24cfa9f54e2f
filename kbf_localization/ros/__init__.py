"""The ROS 2 node and what talks to it."""

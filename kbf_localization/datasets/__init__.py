"""Drives with images, odometry and known poses, whatever they are stored in."""

"""Odometry: its motion model, its noise, its readings and dead reckoning by them."""

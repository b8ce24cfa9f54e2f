"""From an image to its spatial pyramid, and the kernel between pyramids."""

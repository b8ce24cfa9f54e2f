"""What images are compared by: descriptions and their kernels, keypoints, and cameras."""

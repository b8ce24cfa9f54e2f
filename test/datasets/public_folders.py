"""Writes small drives in the layouts of public data sets, byte by byte as those have them."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from scipy.spatial.transform import Rotation

START_S = 1305031526
# A camera that looks along its base's x axis: z forward, y down, as columns in the base's frame.
OPTICAL = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])


def planar_path(frames: int, step: float = 0.025) -> np.ndarray:
    """Poses (frames, 3) on an arc of 2 m radius, `step` radians apart, that turn with the path."""
    angle = step * np.arange(frames) + 0.3
    return np.stack((2.0 * np.sin(angle), 2.0 - 2.0 * np.cos(angle), angle), axis=-1)


def matrices(poses: np.ndarray, world: np.ndarray | None = None) -> np.ndarray:
    """Camera-to-world transforms (t, 4, 4), level and 1.2 m high, in a turned world."""
    world = np.eye(3) if world is None else world
    result = np.tile(np.eye(4), (len(poses), 1, 1))
    base = Rotation.from_rotvec(poses[:, 2:] * [0.0, 0.0, 1.0]).as_matrix()
    result[:, :3, :3] = world @ base @ OPTICAL
    places = np.column_stack([poses[:, :2], np.full(len(poses), 1.2)])
    result[:, :3, 3] = places @ world.T
    return result


def write_image(path: Path, index: int, size: tuple[int, int] = (48, 64)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(index).integers(0, 256, (*size, 3), dtype=np.uint8)
    assert cv2.imwrite(str(path), noise)


def stamp(index: int, rate: float = 30.0) -> str:
    return f"{START_S + index / rate:.6f}"


def tum_lines(poses: np.ndarray, rate: float = 30.0, *, camera: bool = True) -> str:
    """Lines "stamp tx ty tz qx qy qz qw" with four decimals, as in TUM's groundtruth.txt."""
    lines = []
    for index, matrix in enumerate(matrices(poses)):
        rotation = matrix[:3, :3] if camera else matrix[:3, :3] @ OPTICAL.T
        values = np.r_[matrix[:3, 3], Rotation.from_matrix(rotation).as_quat()]
        lines.append(f"{stamp(index, rate)} " + " ".join(f"{value:.4f}" for value in values))
    return "\n".join(lines) + "\n"


def make_tum(folder: Path, frames: int = 20, bag: str = "rgbd_dataset_test") -> Path:
    """rgb.txt and groundtruth.txt with TUM's headers, rgb/<stamp>.png; truth at 90 Hz."""
    listed = ["# color images", f"# file: '{bag}.bag'", "# timestamp filename"]
    for index in range(frames):
        write_image(folder / "rgb" / f"{stamp(index)}.png", index)
        listed.append(f"{stamp(index)} rgb/{stamp(index)}.png")
    (folder / "rgb.txt").write_text("\n".join(listed) + "\n")
    head = "# ground truth trajectory\n# file: 'rgbd_dataset_test.bag'\n"
    head += "# timestamp tx ty tz qx qy qz qw\n"
    dense = planar_path(3 * frames, step=0.025 / 3)
    (folder / "groundtruth.txt").write_text(head + tum_lines(dense, 90.0))
    return folder


def make_openloris(folder: Path, frames: int = 20) -> Path:
    """color.txt, groundtruth.txt and odom.txt as OpenLORIS-Scene's extraction writes them."""
    listed = []
    for index in range(frames):
        write_image(folder / "color" / f"{stamp(index)}.png", index)
        listed.append(f"{stamp(index)} color/{stamp(index)}.png")
    (folder / "color.txt").write_text("\n".join(listed) + "\n")
    truth = tum_lines(planar_path(frames), camera=False)
    (folder / "groundtruth.txt").write_text("#Time px py pz qx qy qz qw\n" + truth)
    head = "#Time pose.position.x y z pose.orientation.x y z w twist.linear.x y z twist.angular.x y"
    readings = "".join(
        f"{line} 1.5 0.0 0.0 0.0 0.0 0.75\n"
        for line in tum_lines(planar_path(frames), camera=False).splitlines()
    )
    (folder / "odom.txt").write_text(f"{head} z\n{readings}")
    return folder


def make_seven_scenes(folder: Path, frames: int = 20) -> Path:
    """frame-NNNNNN.color.png and .pose.txt: four rows of tab-separated numbers."""
    for index, matrix in enumerate(matrices(planar_path(frames))):
        write_image(folder / f"frame-{index:06d}.color.png", index)
        rows = "\n".join("\t ".join(f"{value:.7e}" for value in row) + "\t " for row in matrix)
        (folder / f"frame-{index:06d}.pose.txt").write_text(rows + "\n")
    return folder


def make_kitti(folder: Path, frames: int = 20) -> Path:
    """dataset/sequences/03 with image_0/ and times.txt, dataset/poses/03.txt beside it.

    The world is the first camera's frame: x right, y down, z forward.
    """
    sequence = folder / "sequences" / "03"
    poses = matrices(planar_path(frames))
    poses = np.linalg.inv(poses[0]) @ poses
    for index in range(frames):
        write_image(sequence / "image_0" / f"{index:06d}.png", index)
    times = "".join(f"{index * 0.1:.6e}\n" for index in range(frames))
    (sequence / "times.txt").write_text(times)
    (folder / "poses").mkdir()
    lines = (" ".join(f"{value:.6e}" for value in pose[:3].ravel()) + "\n" for pose in poses)
    (folder / "poses" / "03.txt").write_text("".join(lines))
    return sequence


def make_folder(folder: Path, frames: int = 20, *, odometry: bool = True) -> Path:
    """Images named by their stamps, groundtruth.txt, and odometry.txt."""
    for index in range(frames):
        write_image(folder / "images" / f"{stamp(index)}.png", index)
    (folder / "groundtruth.txt").write_text(tum_lines(planar_path(frames)))
    if odometry:
        (folder / "odometry.txt").write_text(tum_lines(planar_path(frames), camera=False))
    return folder

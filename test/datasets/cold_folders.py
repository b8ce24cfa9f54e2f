"""Makes small drives in COLD's layout, with images that tell places apart."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from kbf_localization.datasets.drive import Drive

SIZE = (160, 120)
SECONDS_PER_FRAME = 0.2
METRES_PER_FRAME = 0.1
START_S = 1152212857


def frame_name(index: int, decimals: int = 7) -> str:
    """The name of frame `index` of a straight drive along x, in COLD's format."""
    micros = round(193444 + 1e6 * SECONDS_PER_FRAME * index)
    x = f"{METRES_PER_FRAME * index:.{decimals}f}"
    y, heading = f"{-0.25:.{decimals}f}", f"{0.125:.{decimals}f}"
    return f"t{START_S + micros // 10**6}.{micros % 10**6:06d}_x{x}_y{y}_a{heading}.jpeg"


def odometry_line(seconds: float, x: float, y: float, heading: float) -> str:
    """A line of odom.tdf: fields 3, 4, 8, 9 and 11 are seconds, microseconds, x, y, heading."""
    micros = round(1e6 * (seconds - int(seconds)))
    return f"odom 0 1 {int(seconds)} {micros} 0 0 0 {x!r} {y!r} 0 {heading!r}"


def make_cold_drive(folder: Path, frames: int = 30, *, decimals: int = 7, seed: int = 0) -> Path:
    """A drive along x past a long wall; the camera shows the stretch of wall beside it."""
    for part in ("std_cam", "odom_scans", "localization"):
        (folder / part).mkdir(parents=True)
    width, height = SIZE
    noise = np.random.default_rng(seed).uniform(size=(height, width + 20 * frames))
    wall = cv2.normalize(cv2.GaussianBlur(noise, (0, 0), 3.0), None, 20, 230, cv2.NORM_MINMAX)
    places, odometry = [], []
    for index in range(frames):
        name = frame_name(index, decimals)
        view = wall[:, 20 * index : 20 * index + width].astype(np.uint8)
        assert cv2.imwrite(str(folder / "std_cam" / name), view)
        places.append(f"{name} {'CR-A' if index < frames // 2 else '1PO-A'}")
    for tick in range(2 * frames + 2):
        seconds = START_S + 0.1 + SECONDS_PER_FRAME / 2 * tick
        x = 5.0 + METRES_PER_FRAME / 2 * tick
        odometry.append(odometry_line(seconds, x, 1.0, 0.5))
    (folder / "localization" / "places.lst").write_text("\n".join(places) + "\n")
    (folder / "odom_scans" / "odom.tdf").write_text("\n".join(odometry) + "\n")
    return folder


def write_cold_drive(folder: Path, drive: Drive) -> Path:
    """A drive with known poses in COLD's layout, its images byte for byte, stamps in µs."""
    for part in ("std_cam", "odom_scans"):
        (folder / part).mkdir(parents=True)
    for index, data in drive.encoded_images():
        seconds, micros = divmod(int(drive.stamps_ns[index]) // 1000, 10**6)
        x, y, heading = drive.poses[index]
        name = f"t{seconds}.{micros:06d}_x{x:.7f}_y{y:.7f}_a{heading:.7f}.jpeg"
        (folder / "std_cam" / name).write_bytes(data)
    with (folder / "odom_scans" / "odom.tdf").open("w") as file:
        for stamp, (x, y, heading) in zip(drive.odometry.stamps_ns, drive.odometry.poses):
            seconds, micros = divmod(int(stamp) // 1000, 10**6)
            file.write(f"odom 0 1 {seconds} {micros} 0 0 0 {x:.9f} {y:.9f} 0 {heading:.9f}\n")
    return folder

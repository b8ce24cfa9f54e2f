"""Opens a drive of whatever kind, recognized from its path."""

from __future__ import annotations

from pathlib import Path

from kbf_localization.datasets.cold import IMAGES
from kbf_localization.datasets.drive import NO_ODOMETRY, Drive
from kbf_localization.datasets.files import BAG_SUFFIXES, check_inside, check_links
from kbf_localization.datasets.parts import DrivePart, SimulatedOdometryDrive, parse_part
from kbf_localization.datasets.public import READERS, KittiDrive
from kbf_localization.datasets.simulated_odometry import parse_odometry_option
from kbf_localization.errors import DatasetError, MissingDriveError, naming_missing_extras


def open_drive(
    path: Path | str,
    *,
    odometry: str = "measured",
    part: str | None = None,
    follow_links: bool = False,
    **topics: str | None,
) -> Drive:
    """Return the drive at `path`: a bag, or a folder of COLD, a public data set, or anybody's.

    `odometry` "simulate[:scale,noise,seed]" derives it from the known poses; without it a drive
    that has no wheel odometry is refused. `part`, such as "0:0.7", takes some of its images.
    Symbolic links that lead out of the drive's folder are refused unless `follow_links`.
    `topics` (odom_topic, image_topic, pose_topic) choose among a bag's topics.
    """
    noise = parse_odometry_option(odometry)
    wanted = None if part is None else parse_part(part)
    drive = _open(Path(path), topics, follow_links)
    if noise is not None:
        drive = SimulatedOdometryDrive(drive, noise)
    elif drive.odometry_origin == NO_ODOMETRY:
        _ = drive.odometry  # says what to do instead
    return drive if wanted is None else DrivePart(drive, wanted)


def is_drive(path: Path) -> bool:
    """Tell whether `open_drive` would know what this is."""
    return any(reader.recognizes(path) for reader in READERS) or is_bag(path)


def is_bag(path: Path) -> bool:
    """Tell whether the path looks like a bag: a rosbag2 folder, or a bag's file."""
    files = path.iterdir() if path.is_dir() else (path,)
    return (path / "metadata.yaml").is_file() or any(file.suffix in BAG_SUFFIXES for file in files)


def _open(path: Path, topics: dict[str, str | None], follow_links: bool) -> Drive:
    try:
        if not path.exists():
            raise MissingDriveError(f"{path}: no such file or folder")
        for reader in READERS:
            if reader.recognizes(path):
                if not follow_links:
                    _check_links(path, reader)
                return reader(path)
        of_bag = is_bag(path)
        if of_bag and path.is_dir() and not follow_links:
            check_links(path)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error
    if of_bag:
        with naming_missing_extras():
            from kbf_localization.datasets.rosbag import RosbagDrive

        return RosbagDrive(path, **topics)
    raise DatasetError(_what_it_is_not(path))


def _check_links(path: Path, reader: type[Drive]) -> None:
    check_links(path)
    if reader is KittiDrive:
        data_set = path.resolve().parent.parent
        check_inside(data_set / "poses" / f"{path.resolve().name}.txt", data_set)


def _what_it_is_not(path: Path) -> str:
    if (path / "TrainSplit.txt").is_file():
        return f"{path}: a scene of 7-Scenes; give one of its sequences, such as {path}/seq-01"
    return (
        f"{path}: neither a COLD sequence (a folder with {IMAGES}/), nor one of TUM RGB-D, "
        "7-Scenes, KITTI or OpenLORIS, nor images with a groundtruth.txt, nor a bag "
        f"(metadata.yaml, {', '.join(BAG_SUFFIXES)})"
    )

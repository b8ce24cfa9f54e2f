"""Opens a drive of whatever kind, recognized from its path."""

from __future__ import annotations

from pathlib import Path

from kbf_localization.datasets.cold import IMAGES, PLACES, ColdDrive
from kbf_localization.datasets.drive import Drive
from kbf_localization.errors import DatasetError, naming_missing_extras

BAG_SUFFIXES = (".bag", ".mcap", ".db3")


def open_drive(path: Path | str, **topics: str | None) -> Drive:
    """The drive at `path`: a folder in COLD's layout, or a bag.

    `topics` (odom_topic, image_topic, pose_topic) choose among a bag's topics; a COLD folder has
    no use for them.
    """
    path = Path(path)
    try:
        if not path.exists():
            raise DatasetError(f"{path}: no such file or folder")
        if path.is_dir():
            if (path / IMAGES).is_dir() or (path / PLACES).is_file():
                return ColdDrive(path)
            is_bag = (path / "metadata.yaml").is_file() or any(
                entry.suffix in BAG_SUFFIXES for entry in path.iterdir()
            )
        else:
            is_bag = path.suffix in BAG_SUFFIXES
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error
    if is_bag:
        with naming_missing_extras():
            from kbf_localization.datasets.rosbag import RosbagDrive

        return RosbagDrive(path, **topics)
    raise DatasetError(
        f"{path}: neither a COLD sequence (a folder with {IMAGES}/) nor a bag "
        f"(metadata.yaml, {', '.join(BAG_SUFFIXES)})"
    )

from pathlib import Path

import pytest
from PIL import Image

from kbf_localization.errors import KbfError
from kbf_localization.evaluation.animation import save_animation
from kbf_localization.evaluation.run import Run
from test.evaluation.synthetic import SyntheticDrive, synthetic_map, synthetic_run

DRIVE, MAP = SyntheticDrive(24), synthetic_map(50)


def test_an_animation_has_every_so_many_frames_and_moves(tmp_path: Path) -> None:
    run = synthetic_run(DRIVE, MAP.poses, "kbf")
    save_animation(tmp_path / "run.gif", run, MAP, DRIVE, frames=5, every=4)
    with Image.open(tmp_path / "run.gif") as animation:
        assert animation.n_frames == 5
        pictures = []
        for frame in range(5):
            animation.seek(frame)
            pictures.append(animation.convert("RGB").tobytes())
    assert len(set(pictures)) == 5


def test_a_run_that_kept_no_belief_cannot_be_animated(tmp_path: Path) -> None:
    run = synthetic_run(DRIVE, MAP.poses, "kbf")
    without = Run(**{**vars(run), "beliefs": None})
    with pytest.raises(KbfError, match="beliefs"):
        save_animation(tmp_path / "run.gif", without, MAP, DRIVE)

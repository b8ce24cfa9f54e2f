from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kbf_localization.errors import KbfError
from kbf_localization.evaluation import animation
from kbf_localization.evaluation import video as video_files
from kbf_localization.evaluation.animation import SIZE
from kbf_localization.evaluation.metrics import kidnapping
from kbf_localization.evaluation.run import Run
from test.evaluation.chromium import Chromium
from test.evaluation.synthetic import SyntheticDrive, synthetic_map, synthetic_run

DRIVE, MAP = SyntheticDrive(24), synthetic_map(50)


def run_with_states(*states: str) -> Run:
    return replace(synthetic_run(DRIVE, MAP.poses, "kbf"), states=states)


KIDNAPPED = run_with_states(
    *["localizing"] * 3, *["tracking"] * 10, *["lost"] * 2, *["tracking"] * 9
)
SET_DOWN = 12


def test_an_animation_has_every_so_many_frames_and_moves(tmp_path: Path) -> None:
    run = synthetic_run(DRIVE, MAP.poses, "kbf")
    shots = animation.first_shots(run, count=3, every=4)
    assert [shot.row for shot in shots] == [0, 4, 8]
    frames = animation.draw_shots(shots, run, MAP, DRIVE)
    video_files.save_gif(tmp_path / "run.gif", frames)
    with Image.open(tmp_path / "run.gif") as moving:
        assert moving.n_frames == 3
        frames_read = []
        for frame in range(3):
            moving.seek(frame)
            frames_read.append(moving.convert("RGB").tobytes())
    assert len(set(frames_read)) == 3


def test_a_run_that_kept_no_belief_cannot_be_animated() -> None:
    without = replace(synthetic_run(DRIVE, MAP.poses, "kbf"), beliefs=None)
    with pytest.raises(KbfError, match="beliefs"):
        next(animation.draw_shots([animation.Shot(0)], without, MAP, DRIVE))


def test_a_kidnapping_is_described_by_its_states() -> None:
    kidnapped = kidnapping(KIDNAPPED, int(KIDNAPPED.stamps_ns[SET_DOWN]))
    assert (kidnapped.set_down_at, kidnapped.lost_at, kidnapped.tracking_again_at) == (12, 13, 15)
    stamps = KIDNAPPED.stamps_ns
    assert kidnapped.seconds_to_lost == pytest.approx((stamps[13] - stamps[12]) * 1e-9)
    assert kidnapped.seconds_to_recover == pytest.approx((stamps[15] - stamps[12]) * 1e-9)


def test_a_robot_that_stays_lost_has_not_found_itself() -> None:
    run = run_with_states(*["tracking"] * 13, *["lost"] * 11)
    kidnapped = kidnapping(run, int(run.stamps_ns[SET_DOWN]))
    assert kidnapped.lost_at == 13
    assert kidnapped.tracking_again_at is None and kidnapped.seconds_to_recover is None


def test_the_video_takes_fifteen_seconds_and_dwells_on_what_is_uncertain() -> None:
    kidnapped = kidnapping(KIDNAPPED, int(KIDNAPPED.stamps_ns[SET_DOWN]))
    shots = animation.kidnap_shots(KIDNAPPED, kidnapped)
    assert len(shots) == animation.VIDEO_S * animation.VIDEO_HZ
    carrying = [shot for shot in shots if shot.carried is not None]
    assert {shot.row for shot in carrying} == {SET_DOWN - 1}
    assert carrying[0].carried == 0.0 and carrying[-1].carried == 1.0
    assert sum(shot.row == 13 for shot in shots) == animation.FRAMES_WHILE_LOST
    assert [shot.row for shot in shots] == sorted(shot.row for shot in shots)


@pytest.mark.browser
def test_the_video_plays_in_a_browser(tmp_path: Path, browser: Chromium) -> None:
    pytest.importorskip("av", reason="without PyAV the video is VP9, which takes long")
    frames = [np.full((SIZE[1], SIZE[0], 3), 20 * number, dtype=np.uint8) for number in range(8)]
    video, small = tmp_path / "video.mp4", tmp_path / "video.gif"
    assert video_files.save_video(video, small, frames) == "H.264"
    with Image.open(small) as moving:
        assert moving.n_frames == len(frames) / video_files.GIF_EVERY
        assert moving.width == video_files.GIF_WIDTH
    page = tmp_path / "page.html"
    page.write_text('<video id="video" src="video.mp4" muted autoplay></video>', encoding="ascii")
    browser.open(page)
    browser.wait_for("document.getElementById('video').ended", 60.0)
    assert browser.run("document.getElementById('video').videoWidth") == SIZE[0]
    length = browser.run("document.getElementById('video').duration")
    assert length == pytest.approx(len(frames) / animation.VIDEO_HZ)

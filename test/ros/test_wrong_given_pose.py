"""Where a localizer looks for itself that was given a wrong pose, in the painted room."""

from pathlib import Path

import numpy as np
import pytest

from kbf_localization.datasets.image_decoding import grey_from_compressed
from kbf_localization.filters.base import GaussianPrior
from kbf_localization.geometry import compose, relative
from kbf_localization.localization import Localizer, State
from kbf_localization.training_map.map_file import read_map
from test.ros.world import World

FRAME_NS = 10**8
SIGMAS = np.array([0.3, 0.3, 0.1])


@pytest.mark.parametrize(
    ("start_m", "offset"), [(8.02, (0.47, 0.52, -2.98)), (8.79, (-0.17, -0.18, -2.60))]
)
def test_a_given_pose_that_looks_the_other_way_is_given_up_not_moved(
    world: World, landmark_map_file: Path, start_m: float, offset: tuple[float, float, float]
) -> None:
    """A third of the landmarks that match there agree on a pose metres away."""
    localizer = Localizer(read_map(landmark_map_file))
    poses = [world.route(start_m + 0.1 * number) for number in range(20)]
    localizer.add_odometry(FRAME_NS, np.zeros(3))
    localizer.set_pose(GaussianPrior(compose(poses[0], offset), np.diag(SIGMAS**2)))
    tracked = []
    for number, pose in enumerate(poses, start=2):
        localizer.add_odometry(number * FRAME_NS, relative(poses[0], pose))
        image = grey_from_compressed(world.jpeg(pose))
        assert image is not None
        found = localizer.add_image(number * FRAME_NS, image)
        assert found is not None
        if found.state is State.TRACKING:
            tracked.append(float(np.hypot(*(found.pose - pose)[:2])))
    assert tracked and max(tracked) < 0.1

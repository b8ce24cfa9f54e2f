"""What is computed before the first image changes only how long that one takes."""

import numpy as np

from kbf_localization.filters.kernel_bayes_filter import KernelBayesFilter
from test.filters.synthetic_world import World, drive, loop, run, synthetic_map


def test_a_prepared_filter_gives_the_same_estimates() -> None:
    world = World()
    world_map = synthetic_map(world, 150)
    test_drive = drive(world, loop(60, wobble=-0.1), seed=5)
    prepared = KernelBayesFilter(world_map)
    prepared.prepare()
    expected = run(KernelBayesFilter(world_map), world_map, test_drive)
    for ours, theirs in zip(run(prepared, world_map, test_drive), expected, strict=True):
        np.testing.assert_allclose(ours.pose, theirs.pose, rtol=0.0, atol=1e-9)

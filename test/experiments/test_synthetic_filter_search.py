import numpy as np
import pytest

from kbf_localization.experiments.synthetic_filter import (
    SETTINGS,
    BatchedUpdate,
    Grid,
    KernelFilter,
    TrainingPairs,
    filter_side_by_side,
    validation_errors,
)

MODEL = SETTINGS["mixture"].training
GRID = Grid((0.2, 0.8), (0.15, 0.4, 1.6), (1e-4, 1e-2), (1e-4, 1e-2, 1.0))


@pytest.fixture(scope="module")
def pairs() -> TrainingPairs:
    states, observations = MODEL.simulate(42, np.random.default_rng(0))
    return TrainingPairs(states[:-1], observations[:-1], states[1:])


def part_of(pairs: TrainingPairs, rows: slice) -> TrainingPairs:
    return TrainingPairs(pairs.states[rows], pairs.observations[rows], pairs.following[rows])


@pytest.mark.parametrize("model", [MODEL, None], ids=["model", "learnt"])
def test_errors_are_those_of_each_filter_on_its_own(pairs: TrainingPairs, model) -> None:
    """41 pairs: halves of 20 and 21."""
    together = validation_errors(pairs, GRID, model)
    assert together.shape == GRID.shape
    folds = slice(0, 20), slice(20, 41)
    for parameters, error in zip(GRID, together.ravel(), strict=True):
        alone = [
            KernelFilter(part_of(pairs, learn), parameters, model).mean_squared_error(
                pairs.states[hold], pairs.observations[hold]
            )
            for learn, hold in (folds, folds[::-1])
        ]
        assert error == pytest.approx(np.mean(alone), rel=1e-8), parameters


def test_weights_side_by_side_are_those_of_each_filter_on_its_own(pairs: TrainingPairs) -> None:
    observations = MODEL.simulate(12, np.random.default_rng(1))[1]
    # Nothing resembles this one: the prediction stands in.
    observations[5] = 1e6
    filters = [KernelFilter(pairs, parameters, MODEL) for parameters in GRID]
    alone = np.array([each.run(observations) for each in filters]).reshape(*GRID.shape, 12, 41)
    for column, observation_std in enumerate(GRID.observation_stds):
        ours = alone[:, column]
        initial = np.array([each.initial for each in filters]).reshape(*GRID.shape, 41)
        prediction = np.array([each.prediction for each in filters]).reshape(*GRID.shape, 41, 41)
        together = filter_side_by_side(
            initial[:, column, :, 0].reshape(-1, 41),
            prediction[:, column, :, 0].reshape(-1, 41, 41),
            GRID.deltas,
            BatchedUpdate(pairs.observations, observation_std),
            observations,
        )
        np.testing.assert_allclose(
            together.reshape(ours.shape), ours, rtol=0.0, atol=1e-8 * np.abs(ours).max()
        )


def test_settings_come_in_the_order_of_the_errors() -> None:
    settings = list(GRID)
    assert len(settings) == np.prod(GRID.shape)
    chosen = settings[int(np.ravel_multi_index((1, 2, 0, 1), GRID.shape))]
    assert (chosen.state_std, chosen.observation_std) == (0.8, 1.6)
    assert (chosen.epsilon, chosen.delta) == (1e-4, 1e-2)

import tarfile
from types import SimpleNamespace

import numpy as np
import pytest

from kbf_localization.errors import DatasetError
from kbf_localization.evaluation.results import ResultsFolder
from kbf_localization.experiments import localization
from kbf_localization.experiments.localization import (
    Fold,
    Setup,
    real_archives,
    real_paths,
)
from kbf_localization.filters.methods import METHODS
from kbf_localization.parallel import Serial
from test.filters.synthetic_world import drive, loop, pool_of


@pytest.mark.slow
@pytest.mark.usefixtures("quick_learning")
def test_runs_all_methods_and_writes_the_papers_figure(world, tmp_path, monkeypatch):
    pool = pool_of([drive(world, loop(18, wobble=0.03 * i), seed=i) for i in range(3)])
    monkeypatch.setattr(Fold, "describe", lambda *_: pool)
    named = SimpleNamespace(name="tested")
    outcome = localization.run_trials(
        Setup("synthetic", (Fold((named, named), named),)),
        trials=1,
        sizes=(8, 12),
        methods=list(METHODS),
        budget=1,
        tune_at=10,
        seed=0,
        journals=tmp_path,
        workers=Serial(),
    )
    found = localization.experiment_result(outcome, "synthetic")
    metrics = found.metrics
    assert list(metrics) == ["8", "12"]
    assert set(metrics["8"]) == {*METHODS, "kbf_untuned", "paper_untuned", "paper-iw_untuned"}
    rmse = metrics["12"]["nai"]["position_rmse_m"]
    of_trials = [
        trial.metrics["position_rmse_m"]
        for trial in outcome.trials
        if trial.method == "nai" and trial.poses == 12
    ]
    assert rmse == {"mean": np.mean(of_trials), "std": np.std(of_trials)}
    # Odometry without faults: both estimates of its noise are the mean of the squared errors.
    noises = outcome.noises["tested"]
    np.testing.assert_allclose(noises["robust"], noises["maximum_likelihood"], rtol=1e-12)
    found.write(ResultsFolder(tmp_path), {})
    assert (tmp_path / "localization.png").read_bytes().startswith(b"\x89PNG")
    assert len((tmp_path / "localization.csv").read_text().splitlines()) == 1 + 2 * (
        len(METHODS) + 3
    )


def test_takes_the_papers_sequences_unpacked_or_as_archives(tmp_path, office_drives):
    source = office_drives[0]
    place = tmp_path / "cold-saarbruecken" / "part_a"
    place.mkdir(parents=True)
    (place / "seq1_cloudy1").symlink_to(source, target_is_directory=True)
    for number in (2, 3):
        with tarfile.open(place / f"seq1_cloudy{number}.tar", "w") as archive:
            archive.add(source, f"seq1_cloudy{number}")
    setup = real_archives(tmp_path, tmp_path / "unpacked")
    assert [fold.test.name for fold in setup.folds] == [f"seq1_cloudy{i}" for i in (1, 2, 3)]
    for fold in setup.folds:
        assert fold.test not in fold.training and len(fold.training) == 2


def test_a_missing_sequence_is_named(tmp_path):
    with pytest.raises(DatasetError, match="seq1_cloudy1"):
        real_archives(tmp_path, tmp_path)


def test_a_broken_archive_is_named(tmp_path):
    for number in (1, 2, 3):
        (tmp_path / f"seq1_cloudy{number}.tar").write_bytes(b"not an archive")
    with pytest.raises(DatasetError, match="seq1_cloudy1.tar"):
        real_archives(tmp_path, tmp_path / "unpacked")


def test_real_paths_are_found_at_any_depth_saarbruecken_first(tmp_path):
    for place in ("cold-freiburg/part_a/seq1_cloudy1", "cold-saarbruecken/part_a/seq1_cloudy1",
                  "cold-saarbruecken/part_a/seq2_cloudy1"):  # fmt: skip
        (tmp_path / place / "localization").mkdir(parents=True)
        (tmp_path / place / "localization" / "places.lst").touch()
    saarbruecken = tmp_path / "cold-saarbruecken" / "part_a"
    assert real_paths(tmp_path) == (saarbruecken / "seq2_cloudy1", saarbruecken / "seq1_cloudy1")


def test_a_folder_without_the_paths_is_refused_by_name(tmp_path):
    with pytest.raises(DatasetError, match=f"{tmp_path}: has no seq2_cloudy1/localization/places"):
        real_paths(tmp_path)

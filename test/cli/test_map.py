"""`kbf map` from the command line."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kbf_localization.atomic_write import check_writable
from kbf_localization.datasets.floor_plan_image import FREE, write_floor_plan
from kbf_localization.mapping import load_map
from kbf_localization.training_map import TrainingMap, save_map
from test.cli.kbf import kbf
from test.conftest import learning_quickly
from test.datasets.cold_folders import make_cold_drive

pytestmark = pytest.mark.usefixtures("quick_learning")

LIKE = ("--vocabulary-from", "office.kbfmap", "--poses", 5, "--jobs", 1)


def kbf_map(*words: object, cwd: Path, exit_code: int = 0) -> str:
    """What `kbf map` prints in this folder."""
    before = Path.cwd()
    os.chdir(cwd)
    try:
        result = kbf("map", *words, width=120)
    finally:
        os.chdir(before)
    assert result.exit_code == exit_code, result.output
    return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a drive and the map that `kbf map build` made of it."""
    folder = tmp_path_factory.mktemp("maps")
    make_cold_drive(folder / "seq1_cloudy1", 24)
    (folder / "tuned.yaml").write_text("parameters: {power: 8, rule: plain}\n\n")
    with learning_quickly():
        built = kbf_map(
            *("build", "seq1_cloudy1", "--output", "office.kbfmap", "--poses", 10),
            *("--vocabulary-size", 20, "--jobs", 1, "--parameters", "tuned.yaml"),
            cwd=folder,
        )
    assert "seq1_cloudy1" in built
    return folder


def test_build_writes_the_map_with_its_parameters(folder: Path) -> None:
    built = load_map(folder / "office.kbfmap")
    assert len(built) == 10
    assert built.parameters == {"power": 8.0, "rule": "plain"}


def test_info_says_whose_frame_a_map_has(folder: Path) -> None:
    training_map = load_map(folder / "office.kbfmap")
    save_map(replace(training_map, own_frame=True), folder / "own.kbfmap")
    for name, whose in (("office.kbfmap", "given"), ("own.kbfmap", "its own")):
        shown = kbf_map("info", name, "--output", "shown", cwd=folder)
        (line,) = (line for line in shown.splitlines() if line.startswith("│ Frame "))
        assert whose in line


def test_info_shows_a_table_and_writes_a_plot(folder: Path) -> None:
    shown = kbf_map("info", "office.kbfmap", "--output", "shown", cwd=folder)
    for text in ("160 x 120", "cloudy", load_map(folder / "office.kbfmap").identity):
        assert text in shown
    assert (folder / "shown" / "map.png").read_bytes().startswith(b"\x89PNG")


def test_a_floor_plan_given_to_build_stays_in_the_map(folder: Path) -> None:
    grey = np.full((40, 60), FREE, dtype=np.uint8)
    write_floor_plan(folder, grey, 0.5, (-10.0, -10.0))
    plan = ("--floor-plan", "floor_plan.yaml")
    kbf_map("build", "seq1_cloudy1", *LIKE, *plan, "--output", "walls.kbfmap", cwd=folder)
    (folder / "floor_plan.pgm").unlink()
    kept = load_map(folder / "walls.kbfmap").floor_plan
    assert kept is not None and kept.origin == (-10.0, -10.0, 0.0)
    np.testing.assert_array_equal(kept.image, grey)
    shown = kbf_map("info", "walls.kbfmap", "--output", "with walls", cwd=folder)
    assert "30.0 x 20.0" in shown
    failed = kbf_map("info", "walls.kbfmap", *plan, cwd=folder, exit_code=2)
    assert "floor_plan.pgm: cannot be read" in failed


def test_info_leaves_the_latest_results_where_they_are(folder: Path) -> None:
    shown = kbf_map("info", "office.kbfmap", cwd=folder)
    path = shown.strip().splitlines()[-1].removeprefix("Plot: ")
    assert (folder / path).is_file()
    assert not (folder / "results" / "latest").exists()


def test_maps_of_the_same_words_merge(folder: Path) -> None:
    make_cold_drive(folder / "seq1_night1", 12, seed=4)
    kbf_map("build", "seq1_night1", *LIKE, "--output", "night.kbfmap", cwd=folder)
    kbf_map("merge", "office.kbfmap", "night.kbfmap", "--output", "both.kbfmap", cwd=folder)
    both = load_map(folder / "both.kbfmap")
    assert len(both) == 15
    assert [source.condition for source in both.sources] == ["cloudy", "night"]


def test_a_map_that_is_there_is_replaced_by_force_alone(folder: Path) -> None:
    make_cold_drive(folder / "seq1_sunny1", 12, seed=5)
    build = ("build", "seq1_sunny1", *LIKE, "--output", "sunny.kbfmap")
    kbf_map(*build, cwd=folder)
    before = (folder / "sunny.kbfmap").read_bytes()
    assert "--force" in kbf_map(*build, cwd=folder, exit_code=2)
    assert (folder / "sunny.kbfmap").read_bytes() == before
    kbf_map(*build, "--force", "--no-thumbnails", cwd=folder)
    assert not any(load_map(folder / "sunny.kbfmap").thumbnails)


@pytest.mark.parametrize(
    ("command", "output", "name"),
    [
        (("build", "seq1_cloudy1", *LIKE), "raced.kbfmap", "raced.kbfmap"),
        (("merge", "office.kbfmap"), "raced.kbfmap", "raced.kbfmap"),
        (("remove", "office.kbfmap", "--thumbnails"), "raced.kbfmap", "raced.kbfmap"),
        (("grid", "office.kbfmap"), "overtaken.yaml", "overtaken.pgm"),
    ],
    ids=["build", "merge", "remove", "grid"],
)
def test_a_map_that_another_wrote_meanwhile_is_not_replaced(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[object, ...],
    output: str,
    name: str,
) -> None:
    """Both writers found the name free when they began."""
    raced = folder / name
    raced.unlink(missing_ok=True)

    def check_and_be_overtaken(parent: Path) -> None:
        check_writable(parent)
        raced.write_text("of the other writer")

    monkeypatch.setattr("kbf_localization.cli.map_files.check_writable", check_and_be_overtaken)
    said = kbf_map(*command, "--output", output, cwd=folder, exit_code=2)
    assert f"{name}: is there by now" in " ".join(said.split())
    assert raced.read_text() == "of the other writer"
    assert [path.name for path in folder.glob(f"*{raced.stem}*")] == [name]


def test_a_drive_is_added_and_removed(folder: Path) -> None:
    make_cold_drive(folder / "seq1_night2", 12, seed=6)
    add = ("add", "office.kbfmap", "seq1_night2", "--poses", 5, "--jobs", 1)
    kbf_map(*add, "--output", "more.kbfmap", cwd=folder)
    assert [source.name for source in load_map(folder / "more.kbfmap").sources] == [
        "seq1_cloudy1",
        "seq1_night2",
    ]
    again = ("add", "more.kbfmap", "seq1_night2", "--output", "x.kbfmap")
    assert "is in the map already" in kbf_map(*again, cwd=folder, exit_code=2)
    less = ("remove", "more.kbfmap", "--source", "seq1_night2", "--output", "more.kbfmap")
    kbf_map(*less, "--force", cwd=folder)
    left, office = load_map(folder / "more.kbfmap"), load_map(folder / "office.kbfmap")
    assert left.identity == office.identity
    assert list(left.thumbnails) == list(office.thumbnails)


@pytest.mark.usefixtures("quick_check")
def test_a_check_below_the_bar_has_exit_code_one(tmp_path: Path, office_map: TrainingMap) -> None:
    save_map(office_map, tmp_path / "office.kbfmap")
    check = ("check", "office.kbfmap", "--json", "--output", "out", "--require-median")
    bad = kbf_map(*check, 1e-9, cwd=tmp_path, exit_code=1)
    printed = json.loads(bad[bad.index("{") :])
    assert printed == json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert printed["expected_median_m"] > 1e-9
    assert "flatters" in printed["verdict"]
    assert (tmp_path / "out" / "check.html").is_file()
    kbf_map(*check, printed["expected_median_m"], cwd=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("remove", "office.kbfmap", "--output", "x"), "nothing to remove"),
        (("remove", "office.kbfmap", "--box", -9, -9, -8, -8, "--output", "x"), "within the box"),
        (("merge", "office.kbfmap", "office.kbfmap", "--output", "x"), "in the map already"),
        (("check", "office.kbfmap"), "too small to be checked"),
        (("build", "nowhere", "--output", "x.kbfmap"), "nowhere: no such file"),
        (("build", "seq1_cloudy1", "--output", "no/where.kbfmap"), "folder that exists"),
        (("build", "seq1_cloudy1", "--output", "x", "--select", "best"), "select must be one of"),
        (("build", "seq1_cloudy1", "--output", "x", "--parameters", "no.yaml"), "no.yaml"),
        (("build", "seq1_cloudy1", "--output", "x", "--parameters", "bad.yaml"), "bad.yaml"),
        (("info", "nowhere.kbfmap"), "nowhere.kbfmap: cannot be read"),
        (("info", "tuned.yaml"), "tuned.yaml: not a training map"),
        (("merge", "office.kbfmap", "tuned.yaml", "--output", "x"), "not a training map"),
    ],
)
def test_a_users_mistake_is_one_line(
    folder: Path, arguments: tuple[object, ...], says: str
) -> None:
    (folder / "bad.yaml").write_text("parameters: [1, 2]")
    before = set(folder.iterdir())
    failed = kbf_map(*arguments, cwd=folder, exit_code=2)
    assert says in failed.strip().splitlines()[-1]
    assert "Traceback" not in failed
    assert set(folder.iterdir()) == before

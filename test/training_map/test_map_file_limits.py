"""Maps with right checksums whose numbers cannot be: one line, and no memory asked for."""

import io
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.cbook import is_math_text
from matplotlib.text import Text

from kbf_localization.embeddings.bayes_rule import FORMS
from kbf_localization.errors import MapError, ParameterError
from kbf_localization.evaluation.map_plot import draw_map
from kbf_localization.filters.methods import METHODS
from kbf_localization.filters.parameters import SEARCH_RANGES, ParticleParameters
from kbf_localization.filters.registry import make_filter
from kbf_localization.limits import CHOICES, MAX_MAP_SOURCES, PARAMETERS, check_parameter
from kbf_localization.mapping import load_map
from kbf_localization.training_map import TrainingMap, map_description, save_map
from test.filters.synthetic_world import SETTINGS
from test.training_map.forging import redescribe

LENGTH_AT = 14
"""Where in the seal the file's length stands."""


def put(*keys: str, value: object) -> Callable[[dict[str, Any]], object]:
    def change(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        put("parameters", "nn.particles", value=1e10),
        put("parameters", "kmcf.samples", value=10**400),
        put("parameters", "kbf.bandwidth", value=-1.0),
        put("parameters", "kbf.delta", value=float("nan")),
        put("parameters", "covariance_scale", value=-1e300),
        put("parameters", "power", value="12"),
        put("parameters", "kbf.rule", value="printed"),
        put("parameters", "paper.rule", value=1.0),
        put("parameters", "rule", value=["plain"]),
        put("parameters", "power", value=True),
        put("settings", "image_width", value=16384),
        put("settings", "vocabulary_size", value=10**400),
        put("settings", "flat_gradient", value=10**400),
        put("calibration", "similarity", "distance_m", value=0.0),
        put("calibration", "similarity", "distance_m", value=10**400),
        put("calibration", "motion_noise", "variance_per_m", value=[1.0, -1.0, 1.0]),
        put("calibration", "motion_noise", "variance_per_m", value=[1e308, 1.0, 1.0]),
        put("calibration", "place_evidence", value=[[[[]]]]),
        put("calibration", "drives", value=-(10**400)),
        put("warnings", value=[10**400]),
    ],
)
def test_a_number_that_cannot_be_is_one_line(
    tiny_map: TrainingMap, tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    path = tmp_path / "office.kbfmap"
    save_map(tiny_map, path)
    redescribe(path, change)
    with pytest.raises(MapError) as raised:
        load_map(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: not a valid map: ")
    assert "\n" not in message
    assert len(message) < 400


def test_the_redescribed_map_is_read_where_nothing_was_changed(
    tiny_map: TrainingMap, tmp_path: Path
) -> None:
    path = tmp_path / "office.kbfmap"
    save_map(tiny_map, path)
    redescribe(path, lambda content: None)
    assert load_map(path).identity == tiny_map.identity


def test_images_of_a_quarter_of_a_gigapixel_are_refused() -> None:
    with pytest.raises(ValueError, match="pixels"):
        replace(SETTINGS, image_width=16384, image_height=16384)
    with pytest.raises(ValueError, match="patches"):
        replace(SETTINGS, image_width=3000, image_height=3000, patch_size=8, grid_step=2)


def test_every_default_and_every_searched_value_is_within_its_limits(
    tiny_map: TrainingMap,
) -> None:
    for method in METHODS:
        make_filter(method, tiny_map)
        for name, ends in SEARCH_RANGES[method].items():
            assert name in PARAMETERS
            for end in ends:
                assert check_parameter(f"{method}.{name}", end) == end


def test_a_map_may_name_each_form_of_the_rule_and_no_other(tiny_map: TrainingMap) -> None:
    assert CHOICES["rule"] == FORMS
    for form in FORMS:
        for method in ("kbf", "paper", "paper-iw", "fkbf", "kmcf"):
            make_filter(method, tiny_map, {f"{method}.rule": form})
    with pytest.raises(ParameterError, match="choose from original, importance-weighted, plain"):
        make_filter("paper", tiny_map, {"rule": "printed"})


def test_particles_that_no_memory_holds_are_refused_before_the_filter_is_made() -> None:
    with pytest.raises(ParameterError, match="particles"):
        ParticleParameters(particles=1e10)


def test_a_pipe_a_device_and_a_folder_are_no_maps(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(MapError, match="is (a folder|not a regular file); a map is a file"):
            load_map(path)


def test_a_map_of_terabytes_that_are_not_there_is_refused_unread(
    tiny_map: TrainingMap, tmp_path: Path
) -> None:
    path, length = tmp_path / "office.kbfmap", 1 << 42
    save_map(tiny_map, path)
    with path.open("r+b") as file:
        file.seek(LENGTH_AT)
        file.write(length.to_bytes(8, "little"))
        file.truncate(length)
    with pytest.raises(MapError, match="4398 GB, more than 20"):
        load_map(path)


@pytest.mark.parametrize("name", [r"$\frac{$", "$_$", "a$b$c", r"\$5$ $"])
def test_names_are_drawn_as_they_are_not_as_formulas(tiny_map: TrainingMap, name: str) -> None:
    sources = tuple(replace(source, name=name, condition=name) for source in tiny_map.sources)
    figure = draw_map(replace(tiny_map, sources=sources))
    figure.savefig(io.BytesIO(), format="png")
    assert not any(is_math_text(text.get_text()) for text in figure.findobj(Text))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e10])
def test_a_map_that_could_not_be_read_again_is_not_written(
    tiny_map: TrainingMap, tmp_path: Path, value: float
) -> None:
    path = tmp_path / "office.kbfmap"
    with pytest.raises(MapError, match="cannot be written"):
        save_map(replace(tiny_map, parameters={"nn.particles": value}), path)
    noise = replace(tiny_map.calibration.motion_noise, per_metre=(value, 1.0, 1.0))
    with pytest.raises(MapError, match="cannot be written"):
        save_map(replace(tiny_map, fitted=replace(tiny_map.calibration, motion_noise=noise)), path)
    assert list(tmp_path.iterdir()) == []


SAVE_WITHOUT_ROOM = """
import resource, sys
from pathlib import Path
from kbf_localization.errors import MapError
from kbf_localization.mapping import load_map
from kbf_localization.training_map import save_map
path = Path(sys.argv[1])
known = load_map(path)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    save_map(known, path)
except MapError as error:
    print(error)
"""


def test_a_disk_without_room_is_one_line_and_the_map_stays(
    tiny_map: TrainingMap, tmp_path: Path
) -> None:
    path = tmp_path / "office.kbfmap"
    save_map(tiny_map, path)
    before = path.read_bytes()
    assert len(before) > 20_000
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-B", "-c", SAVE_WITHOUT_ROOM, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "the map cannot be written: File too large" in done.stdout
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_annotations_are_evaluated_once_for_each_class(
    tmp_path: Path, tiny_map: TrainingMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for each of thousands of sources: that took minutes."""

    def evaluate(kind: type) -> dict[str, Any]:
        raise AssertionError(f"the types of {kind} are evaluated again")

    monkeypatch.setattr(map_description, "get_type_hints", evaluate)
    content = description(tiny_map, tmp_path)
    content["sources"] *= 500
    found = map_description.parse_description(json.dumps(content).encode())
    assert len(found.sources) == len(content["sources"]) >= 500


def test_a_map_of_too_many_sources_is_refused(tmp_path: Path, tiny_map: TrainingMap) -> None:
    content = description(tiny_map, tmp_path)
    content["sources"] *= MAX_MAP_SOURCES + 1
    with pytest.raises(ValueError, match=f"sources, more than {MAX_MAP_SOURCES}"):
        map_description.parse_description(json.dumps(content).encode())


def description(training_map: TrainingMap, folder: Path) -> dict[str, Any]:
    """What the map's file says besides its arrays."""
    found: dict[str, Any] = {}
    save_map(training_map, folder / "described.kbfmap")
    redescribe(folder / "described.kbfmap", found.update)
    return found

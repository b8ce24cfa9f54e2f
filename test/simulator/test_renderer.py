"""The renderer puts walls, floors and furniture where a pinhole camera sees them."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from kbf_localization.simulator.floor_plan import CEILING_M
from kbf_localization.simulator.lighting import lighting_for
from kbf_localization.simulator.lookup import Camera
from kbf_localization.simulator.people import Walker
from kbf_localization.simulator.plans import PANEL_M, plan_corridor, plan_office
from kbf_localization.simulator.ray_casting import WallRays
from kbf_localization.simulator.renderer import Renderer
from kbf_localization.simulator.scene import scene
from kbf_localization.simulator.sensor import Sensor

CAMERA = Camera(320, 240)


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(scene(plan_office(1), lighting_for("cloudy", 1, 0), CAMERA.width), CAMERA)


# In the corridor of the invented office, looking along it.
POSE = np.array([4.0, 8.6, 0.0])


def test_the_camera_has_the_field_of_view_of_cold() -> None:
    camera = Camera()
    assert np.degrees(2 * np.arctan(camera.width / 2 / camera.focal)) == pytest.approx(68.9)
    assert np.degrees(2 * np.arctan(camera.height / 2 / camera.focal)) == pytest.approx(
        54.4, abs=0.1
    )


def test_ray_casting_agrees_with_marching_through_the_plan() -> None:
    plan = plan_office(1)
    angles = np.linspace(-np.pi, np.pi, 40, endpoint=False) + 0.01
    ray = (np.cos(angles), np.sin(angles))
    hits = WallRays(plan.faces()).cast((POSE[:1], POSE[1:2]), ray)
    steps = np.arange(0.0, 30.0, 0.005)
    for k, angle in enumerate(angles):
        points = POSE[:2] + steps[:, None] * np.array([np.cos(angle), np.sin(angle)])
        solid = np.flatnonzero(plan.room_at(points) == 0)
        # A wall between two rooms stops the ray before it leaves the plan's free cells.
        assert hits.distance[k] <= steps[solid[0]] + 0.01
        assert plan.room_at(points[steps < hits.distance[k] - 0.01]).min() > 0


def test_the_skirting_board_and_the_ceiling_are_where_they_meet_the_wall(
    renderer: Renderer,
) -> None:
    """Edges far stronger than the column's others, within three rows of the pinhole's."""
    facing = np.array([6.0, 8.6, np.pi])
    hits = WallRays(renderer.scene.faces).cast(
        (facing[:1], facing[1:2]), (np.array([-1.0]), np.array([0.0]))
    )
    depth = float(hits.distance[0])
    image = cv2.cvtColor(renderer.render(facing), cv2.COLOR_BGR2GRAY).astype(float)
    column = image[:, CAMERA.width // 2 - 2 : CAMERA.width // 2 + 2].mean(axis=1)
    edges = np.abs(np.diff(column))
    horizon = (CAMERA.height - 1) / 2
    foot = horizon + CAMERA.above_m * CAMERA.focal / depth
    top = horizon - (CEILING_M - CAMERA.above_m) * CAMERA.focal / depth
    assert 3 < top < horizon < foot < CAMERA.height - 4
    for row in (foot, top):
        assert edges[int(row) - 3 : int(row) + 4].max() > 10.0 * np.median(edges)


def test_turning_the_camera_shifts_the_image_by_the_tangent(renderer: Renderer) -> None:
    turn = 0.06
    here = cv2.cvtColor(renderer.render(POSE), cv2.COLOR_BGR2GRAY)
    there = cv2.cvtColor(renderer.render(POSE + np.array([0, 0, turn])), cv2.COLOR_BGR2GRAY)
    middle = slice(CAMERA.width // 2 - 30, CAMERA.width // 2 + 30)
    found = cv2.matchTemplate(there, here[80:160, middle], cv2.TM_CCOEFF_NORMED)
    _, score, _, place = cv2.minMaxLoc(found)
    # A turn to the left moves what is ahead to the right.
    assert place[0] - middle.start == pytest.approx(CAMERA.focal * np.tan(turn), abs=1.01)
    assert abs(place[1] - 80) <= 1
    assert score > 0.9


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_the_panels_of_a_corridor_cannot_be_told_apart(side: float) -> None:
    plan = plan_corridor(2)
    seen = Renderer(scene(plan, lighting_for("cloudy", 2, 0), CAMERA.width), CAMERA)

    def image(x: float) -> NDArray[np.float64]:
        return seen.render(np.array([x, 4.2, side * np.pi / 2])).astype(np.float64)

    for panels in (1, 3, 5):
        same = np.abs(image(6.3 + panels * PANEL_M) - image(6.3)).mean()
        other = np.abs(image(6.3 + (panels + 0.5) * PANEL_M) - image(6.3)).mean()
        assert same < 0.05 * other


def test_a_walker_hides_what_is_behind_and_a_wall_hides_the_walker(renderer: Renderer) -> None:
    empty = renderer.render(POSE)
    ahead = renderer.render(POSE, [Walker((7.0, 8.6), 0)])
    # Beyond the corridor's far end.
    hidden = renderer.render(POSE, [Walker((29.0, 8.6), 0)])
    changed = np.any(ahead != empty, axis=2)
    rows, columns = np.nonzero(changed)
    head = (CAMERA.height - 1) / 2 - (1.78 - CAMERA.above_m) * CAMERA.focal / 3.0
    assert rows.min() == pytest.approx(head, abs=2)
    assert np.median(columns) == pytest.approx(CAMERA.width / 2, abs=4)
    np.testing.assert_array_equal(hidden, empty)


def test_the_night_is_noisier_than_the_day() -> None:
    plan, camera = plan_office(1), Camera(160, 120)
    rng = np.random.default_rng(0)
    noise = {}
    for condition in ("cloudy", "night"):
        lighting = lighting_for(condition, 1, 0)
        light = Renderer(scene(plan, lighting, camera.width), camera).render(POSE)
        sensor = Sensor(camera, lighting)
        frame, other = (sensor.expose(light, 0.0, rng).astype(float) for _ in range(2))
        noise[condition] = (frame - frame.mean() - other + other.mean()).std()
    assert noise["night"] > 1.4 * noise["cloudy"]


def test_turning_fast_smears_upright_edges() -> None:
    camera, lighting = Camera(160, 120), lighting_for("night", 0, 0)
    light = np.zeros((120, 160, 3), np.uint8)
    light[:, 80:] = 120
    sensor, rng = Sensor(camera, lighting), np.random.default_rng(0)
    sharp = sensor.expose(light, 0.0, rng).astype(float).mean(axis=(0, 2))
    smeared = sensor.expose(light, 1.5, rng).astype(float).mean(axis=(0, 2))
    assert np.abs(np.diff(smeared)).max() < 0.5 * np.abs(np.diff(sharp)).max()

import numpy as np

from kbf_localization.geometry import wrap_angle
from kbf_localization.landmarks.bearings import bearings_of, spatial
from kbf_localization.landmarks.triangulation import (
    BASELINE_M,
    MAX_TURN_RAD,
    Sighting,
    choose_partners,
    triangulate,
)
from test.landmarks.scene import CAMERA, LEVEL, Room

POSES = np.array(
    [[0, 0, 0], [0.4, 0.2, 0.1], [-0.3, 0.3, -0.1], [0.1, -0.5, 0.2], [0.8, 0.1, 0.0]], dtype=float
)


def sightings(room, noise_px=0.0, rng=None):
    found = []
    for pose in POSES:
        keypoints, rows = room.image(spatial(pose), noise_px, rng)
        bearings = bearings_of(keypoints.pixels, CAMERA, LEVEL)
        found.append((Sighting(spatial(pose), bearings, keypoints.descriptors), rows))
    return found


def test_points_are_exact_without_noise():
    room = Room.of_seed(20)
    (image, rows), *others = sightings(room)
    found = triangulate(image, [partner for partner, _ in others])
    assert len(found.keypoints) > 0.8 * len(rows)
    truth = room.points[rows[found.keypoints]]
    np.testing.assert_allclose(found.points, truth, atol=1e-4)
    for (_, seen), column in zip([(image, rows), *others], found.matches.T):
        matched = column >= 0
        np.testing.assert_array_equal(seen[column[matched]], rows[found.keypoints[matched]])


def test_depth_covariance_is_that_of_many_draws():
    room = Room.of_seed(21, count=40)
    rng = np.random.default_rng(22)
    errors: dict[int, list] = {}
    covariances: dict[int, list] = {}
    for _ in range(80):
        (image, rows), *others = sightings(room, 0.5, rng)
        found = triangulate(image, [partner for partner, _ in others], sigma_px=0.5)
        for row, point, covariance in zip(rows[found.keypoints], found.points, found.covariances):
            errors.setdefault(row, []).append(point - room.points[row])
            covariances.setdefault(row, []).append(covariance)
    ratios = []
    for row, drawn in errors.items():
        if len(drawn) < 60:
            continue
        ray = room.points[row] - LEVEL.translation
        ray /= np.linalg.norm(ray)
        claimed = np.mean([ray @ covariance @ ray for covariance in covariances[row]])
        ratios.append(np.var(np.array(drawn) @ ray) / claimed)
    assert len(ratios) > 20
    # Robust weights count a good view by a little less than it tells: the claim is not too small.
    assert 0.5 < np.median(ratios) < 1.2


def test_a_wrong_match_is_left_out():
    room = Room.of_seed(23)
    (image, rows), *others = sightings(room)
    partners = [partner for partner, _ in others]
    swapped = partners[0].descriptors.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    partners[0] = Sighting(partners[0].state, partners[0].bearings, swapped)
    found = triangulate(image, partners)
    np.testing.assert_allclose(found.points, room.points[rows[found.keypoints]], atol=1e-3)


def test_images_without_keypoints_or_partners_have_no_points():
    room = Room.of_seed(24)
    (image, _), *others = sightings(room)
    empty = Sighting(image.state, image.bearings[:0], image.descriptors[:0])
    assert len(triangulate(empty, [others[0][0]]).keypoints) == 0
    assert len(triangulate(image, []).keypoints) == 0
    assert len(triangulate(image, [empty, empty]).keypoints) == 0


def test_images_at_one_place_give_no_points():
    room = Room.of_seed(25)
    (image, _), *_ = sightings(room)
    found = triangulate(image, [image, image, image])
    assert len(found.keypoints) == 0


def test_partners_have_a_baseline_and_overlap():
    rng = np.random.default_rng(26)
    poses = np.column_stack((rng.uniform(0, 3, (300, 2)), rng.uniform(-np.pi, np.pi, 300)))
    rows = np.arange(0, 300, 30)
    for row, partners in zip(rows, choose_partners(poses, rows)):
        assert len(partners) <= 10 and len(set(partners.tolist())) == len(partners)
        away = np.linalg.norm(poses[partners, :2] - poses[row, :2], axis=1)
        assert ((away >= BASELINE_M[0]) & (away <= BASELINE_M[1])).all()
        turn = wrap_angle(poses[partners, 2] - poses[row, 2])
        assert (np.abs(turn) < MAX_TURN_RAD).all()


def test_partners_in_a_sparse_drive_are_its_nearest_images():
    # A car at 24 m/s, ten images a second; its views overlap within the farthest baseline of 6 m.
    poses = np.column_stack((2.4 * np.arange(9), np.zeros(9), np.zeros(9)))
    (partners,) = choose_partners(poses, np.array([4]))
    assert sorted(partners.tolist()) == [2, 3, 5, 6]
    (partners,) = choose_partners(poses, np.array([4]), excluded=np.array([3]))
    assert sorted(partners.tolist()) == [2, 5, 6]
    (partners,) = choose_partners(3.0 * poses, np.array([4]))
    assert len(partners) == 0


def test_near_partners_suffice_where_there_are_four():
    poses = np.column_stack((0.3 * np.arange(9), np.zeros(9), np.zeros(9)))
    (partners,) = choose_partners(poses, np.array([4]))
    assert sorted(partners.tolist()) == [0, 1, 2, 3, 5, 6, 7, 8]

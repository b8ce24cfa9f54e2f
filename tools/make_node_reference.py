"""Write docs/node.md and config/localization.yaml.

Topics and services are those of a configured node, parameters those of their table.

python tools/make_node_reference.py [FOLDER]     (default: this project)
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np

PROJECT = Path(__file__).resolve().parents[1]
INTRODUCTION = """\
# The node `localizer`

A lifecycle node that configures and activates itself (`autostart`). It localizes the robot on a
`*.kbfmap` from wheel odometry and one camera. Its interface is AMCL's where a camera permits: the
same names of parameters, topics and services, the transform map → odom of REP-105, and `pose` with
a covariance.

## States

`uninitialized` → `localizing` ⇄ `tracking` ⇄ `degraded`;
`tracking` or `degraded` → `lost` → `tracking`.

| state | meaning | map→odom |
| --- | --- | --- |
| `uninitialized` | waits for images and odometry | not sent |
| `localizing` | the place is not certain, or not precise enough (`max_tracking_sigma`) | sent \
on a \
pose given by hand alone |
| `tracking` | images confirm the pose | sent |
| `degraded` | odometry alone carries a tracked pose: for `degraded_after_seconds` or \
`degraded_after_travel` no image comes, or none that confirms it (off the map, not recognized, \
repeated), or at once, landmarks measure another pose; or the transform is withheld \
| sent until the limits below |
| `lost` | images contradict the pose; its covariance is widened | not sent |

`status`, `/diagnostics` (a warning while degraded), the live page and the marker `state` in RViz
agree; `status` has `state_since_s`, `unconfirmed_s` and `unconfirmed_m` since the last image that
confirmed the pose, `dead_reckoned_s` and `dead_reckoned_m` since the last image, and the pose at
the newest odometry, `x_m`, `y_m` and `yaw_rad`, with the growing `sigma_m`. Every change of state
is logged with its reason, such as "degraded: no usable image for 2.3 s and 0.6 m" or "degraded:
images are not recognized for 2.1 s and 0.9 m". An image confirms the pose where landmarks measure
it, or where the map has images of the place and it fits them.

Every relative name is remapped as in any ROS 2 node; the launch file has arguments for the topics
and frames of a robot (`ros2 launch kbf_localization localization.launch.xml --show-args`), and its
argument `amcl_compatible` calls the node `amcl` and its pose `amcl_pose` ([with Nav2](nav2.md)).

## Without `ros2`

An environment of ROS 2 wheels, such as `.venv`, has no `ros2`. There the node is a program, which
takes the arguments of every ROS 2 node:

```
localizer --ros-args -p map:=office.kbfmap -r odom:=/robot/odom \\
    -r image/compressed:=/camera/image/compressed --params-file robot.yaml
```

It ends at Ctrl-C with exit code 0. `kbf live` shows its state in a browser.

## When the transform stops

Nav2 drives by the transform, not by `status`. It is therefore sent only while the pose can be
trusted: in the states `tracking` and `degraded`, and after an `initialpose` until images confirm or
refute it. Without images, odometry carries it for at most `dead_reckoning_max_seconds` and up to a
standard deviation of `dead_reckoning_max_sigma`. Then it stops, `status` gives the reason, and it
resumes with an image after which both are kept again. Its stamps are those of the odometry plus at
most `transform_tolerance`; at an image's stamp it agrees with the pose of that image.

## The odometry's noise

The map holds the motion noise of its drives (`kbf map info`). Where the odometry's own
`pose.covariance` grows as the robot drives, its increments replace the map's variances (forward,
left and heading), from a quarter of these up to a hundred times; beyond that they are ignored. So
is a covariance that is zero, constant, switches between constants, or shrinks while the robot
moves. `motion_noise` in `status` is `map` or `odometry`, for the last used image. Bags are read by
the same rule.

## Clocks

An image is used with the odometry of its stamp, so both must be stamped by the same clock. `status`
has `image_offset_s`, the images' stamps minus those of the odometry that arrives with them, and its
drift. Where no image can be used for `watchdog_timeout`, a warning gives the reason and the offset.
`kbf check time BAG` estimates the error of the images' stamps from a drive; `camera_time_offset`
is added to them.

## The camera's calibration and mount

The node reads the calibration from `camera_info` beside the images' topic, or from
`camera_info_topic`, and looks up the camera's frame in `base_frame_id` in `/tf_static`, and for
30 s in `/tf`. The first calibration and the first mount count until the node is configured again;
one that is invalid, changes, or is of images of another aspect ratio causes one warning. `status`
has both as `camera` and `camera_mount`. What is missing or cannot be used is taken from the map.

- Images of a topic whose name has a part that begins with `image_rect` are rectified: their
  projection `p` counts, without distortion.
- A frame of tf with an upright z axis, as `camera_link` has, is the camera's body (x ahead), unless
  its name contains `optical`.
- A mount with a joint, whose transform is in `/tf`, is looked at again for a second out of ten. A
  camera that moves on its robot, as on a pan unit, is not supported: the warning gives both mounts.
- A camera upside down on a map of an upright one, or the reverse, is named: its images match
  nothing.
- `camera_pitch_deg` (down) and `camera_roll_deg` (clockwise) in `status` are those of the last
  image against the map's, where landmarks show them. Beyond 1°, and 3 standard deviations of the
  map's own images, they are a warning. They are measured apart from the pose, which allows for a
  tilt as large as the map's images have: on a map of a level camera a pitch costs 1.7 cm a degree
  (of a camera 1.1 m high) and no pose is measured beyond 5°, or beyond 2° of roll.

## Raw images

Fast DDS loses most raw images at its default settings (of 30 images of 1280×720 a second 11 came).
Use `image_transport: compressed`, or give both the camera's process and the node the profile that
this package has:

```bash
export FASTRTPS_DEFAULT_PROFILES_FILE=\
$(ros2 pkg prefix --share kbf_localization)/config/fastdds_large_images.xml
```

`status` counts as `images_missing` what the camera's own rhythm lacks; a camera that becomes
slower, as in the dark, misses nothing. Of the odometry it has
`odometry_received`, which is `odometry_used` and what was refused, by reason; `odometry_missing`
never came, by the middleware's own numbers.

## Distributions and processors

| | |
| --- | --- |
| Jazzy (rclpy 7.1) | what the tests run with |
| Kilted (9.1), Rolling | what the node uses of rclpy beside its public interface, a wait set and \
`take_message`, is in one module with the figures for it, `ros/rclpy_internals.py`, and was \
compared with the sources of 8.0 and 9.1: the same. Of 62 public methods that the node calls, \
those of 8.0 have the same arguments, some with further ones. Newer Rolling binds by nanobind; by \
its type stubs the wait set and `take_message` have the same arguments. Not run there |
| Humble (3.3) | not supported: its rclpy has no `add_post_set_parameters_callback`, by which live \
parameters take effect, and does not number messages, by which lost odometry is counted |
| arm64 | PyPI has no ROS 2 wheels for it: ROS comes from the distribution (`apt`). NumPy, SciPy, \
OpenCV, h5py, matplotlib, Pillow, PyAV and onnxruntime have arm64 wheels, and this package is \
plain \
Python. A compiler is needed for `tf2_msgs`, `bond` and `nav2_msgs` beside PyPI's ROS wheels \
alone, \
so not there |

## Slow computers

Where the computer cannot use every image, the newest is used and the others are dropped and counted
(`image_dropped`); nothing queues up. While that happens, a tracked pose is measured by landmarks
every 0.15 m or 9° of travel, not at each image
([what that costs](performance.md#landmarks-at-a-lower-rate)). Two settings leave room for other
programs: smaller images from the camera (the map's own size suffices, `kbf map info`), and
`max_image_rate`, above which images are not even decoded.

`kbf bench node` has a stand-in for a small computer: a process that is stopped for half of the time
(10 ms of 20 ms), a map of 320×240 images. On a quiet machine a camera of 10 Hz with odometry at
50 Hz got 10 poses a second (19 ms from image to pose, 95 %: 30 ms) at 12.5 % of a core, a camera of
30 Hz with `max_image_rate: 10.0` 9.9 at 11.5 %. Beside a load of 9 on two slower cores it was 9.6
(287 of 300 images; 69 ms, 95 %: 184 ms) at 34 %, and 9.9. So, on a computer with half the speed of
such a core: 320×240, and `max_image_rate: 10.0`.

## Standing still

While the robot stands still, one image per `standing_update_period` updates the filter, since all
images show the same. Up to five images a second are looked at, reduced to 16×12 pixels, and one
that shows another view than the last used image is used at once: a robot that is carried away is
noticed within 0.3 s, or by its next image. Where people walk past the camera, these images are used
too. Where the robot is not tracked, this begins with the second image that leaves the state as it
is. Where the view jumps, or an image moves the pose, the robot does not stand, whatever the
odometry says: images are used until one agrees with the odometry again. `request_nomotion_update`
uses the next image at once. The pose is still published for every image. Odometry is then read with
the next image, or after 50 ms, instead of message by message; a queue of less than 100 messages
(`odom_queue_depth`) is always read at once.

## Stopping

SIGINT, SIGTERM and SIGHUP end the node in every state with exit code 0 within about two seconds;
the pose is saved and the bond broken. A second signal at least half a second later ends it at once.
One that comes sooner is ignored: systemd signals all processes of a service, and launch signals its
own again.
"""

# Every topic and service needs its line here: one that has none, or is no more, is an error.
PUBLISHED = {
    "pose": "the pose with its covariance, at the stamp of the image it comes from; kept for late "
    "subscribers. While it is not tracked its covariance is that of the whole belief, and its "
    "standard deviation at least 2 m while lost",
    "/tf": "the transform from `global_frame_id` to `odom_frame_id`, stamped as the odometry is, "
    "while the pose can be trusted",
    "belief": "the map's poses coloured by weight: positive blue, negative orange; made only while "
    "somebody subscribes",
    "belief_poses": "the map poses of highest weight",
    "particle_cloud": "the same with their weights, as AMCL publishes it; where nav2_msgs is "
    "installed",
    "hypotheses": "the places where the robot may be: ellipses of two standard deviations, arrows "
    "as opaque as they are probable, percentages; made only while somebody subscribes",
    "landmarks": "the landmarks on which the pose of the last image rests; empty where it has "
    "none. `u`, `v` are where the camera's image shows them, `map_u`, `map_v` where the map's "
    "image `map_image` does, as fractions of width and height, -1 where not. Single precision, as "
    "RViz draws it; beyond 16 km from the origin, as in UTM, x, y and z in double. Made only while "
    "somebody subscribes",
    "best_match/compressed": "the map's image with most inlier matches, else of highest weight; "
    "made only while somebody subscribes",
    "floor_plan": "the map's floor plan, where it has one, once, kept for late subscribers",
    "map_poses": "the map's poses, once, kept for late subscribers",
    "path": "the tracked poses so far, at most once a second; made only while somebody subscribes",
    "state": "the state and the standard deviation as a text at the pose, in the state's colour; "
    "made only while somebody subscribes",
    "status": "state, evidence and latency after each image, and once a second",
    "bond": "heartbeats to Nav2's lifecycle manager; where bond is installed",
    "/diagnostics": "once a second: the same as `status`, or that the node is not active",
}
SUBSCRIBED = {
    "odom": "wheel odometry; its frame must be `odom_frame_id`. With `odom_source: tf` the node "
    "takes it from `/tf` and `/tf_static` instead",
    "image": "raw images, with `image_transport: raw`",
    "image/compressed": "JPEG or PNG images, with `image_transport: compressed` (the default)",
    "camera_info": "the camera's calibration, beside the images' topic or as `camera_info_topic` "
    "says; once a second",
    "/tf": "the camera's mount, until it is known, and whether its joints move it; with "
    "`odom_source: tf` the odometry",
    "/tf_static": "the camera's mount",
    "initialpose": "a pose set by hand, as from RViz; its frame must be `global_frame_id`; kept "
    "where the node is configured but not active yet",
    "bond": "heartbeats of Nav2's lifecycle manager",
}
SERVICES = {
    "reinitialize_global_localization": "forget the pose and start from anywhere on the map",
    "request_nomotion_update": "use the next image even when the robot stands still",
    "set_initial_pose": "the same as `initialpose`; where nav2_msgs is installed",
}
# What every ROS 2 lifecycle node has; not this node's own.
COMMON = ("parameter", "type_description", "_state", "_transition", "rosout", "clock")


def make_reference() -> str:
    import rclpy
    from rclpy.parameter import Parameter

    from kbf_localization.ros.node import LocalizerNode

    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    with tempfile.TemporaryDirectory() as folder:
        rclpy.init()
        try:
            node = LocalizerNode(
                parameter_overrides=[
                    Parameter("autostart", value=False),
                    Parameter("map", value=str(_write_map(Path(folder)))),
                ]
            )
            node.trigger_configure()
            node.trigger_activate()
            own = (node.get_name(), node.get_namespace())
            published = node.get_publisher_names_and_types_by_node(*own)
            subscribed = node.get_subscriber_names_and_types_by_node(*own)
            services = node.get_service_names_and_types_by_node(*own)
            latched = {
                topic
                for topic, _ in published
                for info in node.get_publishers_info_by_topic(topic)
                if info.qos_profile.durability.name == "TRANSIENT_LOCAL"
            }
            node.trigger_deactivate()
            node.trigger_cleanup()
            node.destroy_node()
        finally:
            rclpy.try_shutdown()
    subscribed = [*subscribed, ("/image", ["sensor_msgs/msg/Image"])]
    return "\n".join(
        (
            "<!-- Made by tools/make_node_reference.py; do not edit. -->",
            INTRODUCTION,
            "## Topics it subscribes to\n",
            _table(subscribed, SUBSCRIBED, set()),
            "## Topics it publishes\n",
            _table(published, PUBLISHED, latched),
            "## Services\n",
            _table(services, SERVICES, set()),
            "Besides these it has the services of every lifecycle node (`change_state`, …) and of "
            "every node (`set_parameters`, …).\n",
            "## Parameters\n",
            "A *live* parameter can change while the node runs and does not lose the belief; the "
            "others can change while it is unconfigured.\n",
            parameters_as_markdown(),
        )
    )


def _table(found: list[tuple[str, list[str]]], texts: dict[str, str], latched: set[str]) -> str:
    types = {}
    for name, kinds in found:
        short = (
            name
            if name in ("/tf", "/tf_static", "/diagnostics")
            else name.lstrip("/").split("localizer/")[-1]
        )
        if not any(part in short for part in COMMON):
            types[short] = kinds[0].replace("/msg/", "/").replace("/srv/", "/")
            if name in latched:
                types[short] += " (transient local)"
    if set(types) - {"transition_event"} != set(texts):
        raise SystemExit(
            f"tools/make_node_reference.py describes {sorted(texts)}, the node has {sorted(types)}"
        )
    rows = [f"| `{name}` | {types[name]} | {text} |" for name, text in texts.items()]
    return "\n".join(("| name | type | what |", "| --- | --- | --- |", *rows, ""))


def parameters_as_yaml() -> str:
    from kbf_localization.ros.parameters import PARAMETERS

    lines = [
        "# Parameters of the node localizer with their defaults.",
        "# [live]: can change while it runs (ros2 param set); the others while it is unconfigured.",
        "/**:",
        "  ros__parameters:",
    ]
    for parameter in PARAMETERS:
        live = " [live]" if parameter.live else ""
        lines.append(f"    # {parameter.description} ({parameter.limits}){live}")
        lines.append(f"    {parameter.name}: {_yaml_value(parameter.default)}")
    return "\n".join(lines) + "\n"


def parameters_as_markdown() -> str:
    from kbf_localization.ros.parameters import PARAMETERS

    lines = ["| parameter | default | values | live | meaning |", "| --- | --- | --- | --- | --- |"]
    for parameter in PARAMETERS:
        limits = parameter.limits.replace("|", "\\|")
        live = "yes" if parameter.live else ""
        lines.append(
            f"| `{parameter.name}` | `{_yaml_value(parameter.default)}` | {limits} | {live} "
            f"| {parameter.description} |"
        )
    return "\n".join(lines) + "\n"


def _yaml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    return repr(value)


def _write_map(folder: Path) -> Path:
    """Return the smallest map that a node configures with."""
    from kbf_localization.datasets.open import open_drive
    from kbf_localization.mapping import build_map
    from kbf_localization.training_map import save_map

    drive = folder / "drive"
    (drive / "std_cam").mkdir(parents=True)
    (drive / "odom_scans").mkdir()
    rng, odometry = np.random.default_rng(0), []
    for number in range(12):
        name = f"t{1000 + number}.000000_x{number / 10:.6f}_y0.000000_a0.000000.jpeg"
        image = cv2.resize(rng.integers(0, 256, (12, 16), dtype=np.uint8), (160, 120))
        cv2.imwrite(str(drive / "std_cam" / name), image)
        odometry.append(f"a b c {1000 + number} 0 d e f {number / 10:.6f} 0.0 g 0.0\n")
    (drive / "odom_scans" / "odom.tdf").write_text("".join(odometry))
    path = folder / "smallest.kbfmap"
    save_map(build_map([open_drive(drive)], poses=12, words=8), path)
    return path


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else PROJECT)
    (folder / "docs" / "node.md").write_text(make_reference(), encoding="utf-8")
    (folder / "config" / "localization.yaml").write_text(parameters_as_yaml(), encoding="utf-8")

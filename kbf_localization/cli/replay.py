"""Play a bag to the real node through ROS and measure its poses' error.

Example: `kbf replay cloudy3 --map office.kbfmap --rate 2` starts the node, plays the bag at twice
its pace with /clock, and writes metrics.json, the trajectories and report.html into results/latest.
Watch it in RViz meanwhile: `rviz2 -d rviz/localization.rviz --ros-args -p use_sim_time:=true`
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from typer import Option

from kbf_localization.cli.console import command_line, print_line, print_methods
from kbf_localization.cli.describers import Model
from kbf_localization.cli.drives import FollowLinks, Topics, print_missing_truth
from kbf_localization.cli.options import Bag, Files, OnMap, takes_groups
from kbf_localization.cli.progress import show_progress
from kbf_localization.errors import KbfError

if TYPE_CHECKING:
    from kbf_localization.ros.replay import Replayed
    from kbf_localization.vision.describer import ImageDescription

app = typer.Typer(add_completion=False)


@app.command()
@takes_groups
def replay(
    bag: Bag,
    map_path: OnMap,
    rate: Annotated[float, Option(help="Playback speed, as a multiple of the recorded.")] = 1.0,
    loop: Annotated[bool, Option("--loop", help="Play again and again until Ctrl-C.")] = False,
    start: Annotated[float, Option(metavar="S", help="Seconds to leave out first.")] = 0.0,
    duration: Annotated[
        Optional[float], Option(metavar="D", help="Seconds of the bag to play.")
    ] = None,
    queue: Annotated[
        int, Option(help="Images that may wait in the node; 1 is what a robot has.", min=1)
    ] = 1,
    model: Model = None,
    follow_links: FollowLinks = False,
    *,
    topics: Topics,
    files: Files,
) -> None:
    from kbf_localization.datasets.files import check_links
    from kbf_localization.datasets.rosbag import RosbagDrive
    from kbf_localization.evaluation.evaluate import (
        ALIGNED_NOTE,
        SourceResult,
        evaluate_drives,
        write_results,
    )
    from kbf_localization.evaluation.results import ResultsFolder
    from kbf_localization.evaluation.run import with_beliefs, wrong_beyond_m
    from kbf_localization.mapping import load_map

    ros = ros_replay()
    training_map = load_map(map_path, model)
    if bag.is_dir() and not follow_links:
        check_links(bag)
    drive = RosbagDrive(bag, **vars(topics))
    settings = ros.ReplaySettings(rate, start, duration, loop)
    of_node = {"image_queue_depth": queue, "descriptor_model": str(model or "")}
    with show_progress() as progress:
        replayed = ros.replay_through_node(
            drive, map_path, settings, parameters=of_node, progress=progress
        )
        run = replace(replayed.run, wrong_beyond_m=wrong_beyond_m(training_map))
        descriptions: Sequence[ImageDescription | None] = ()
        if files.report and len(run) == len(drive):
            # The node publishes poses alone; the report's player also shows what it believed.
            (offline,) = evaluate_drives([drive], training_map, ["kbf"], progress=progress)
            run, _ = with_beliefs(run, offline.runs["kbf"])
            descriptions = offline.descriptions
        folder = ResultsFolder.create("replay", files.output)
        config = {
            "command": command_line(),
            "bag": bag,
            "map": map_path,
            "map_identity": training_map.identity,
            "rate": rate,
            "start_s": start,
            "duration_s": duration,
            "image_queue_depth": queue,
        }
        results = [SourceResult(drive, {"node": run}, descriptions)]
        metrics = write_results(
            folder, results, training_map, config, progress=progress, **files.wanted
        )
        folder.write_metrics({**metrics, "replay": replay_metrics(replayed, rate)})
    for line in [*drive.warnings, *_notes(replayed)]:
        print_line(f"Note: {line}")
    print_missing_truth([drive])
    print_methods(f"{drive.name} through the node, {rate:g} times as fast", metrics["methods"])
    if metrics.get("aligned"):
        print_line(f"Note: {ALIGNED_NOTE}")
    for warning in metrics.get("warnings", ()):
        print_line(f"Warning: {warning}", style="bold red")
    print_line(f"Results: {files.shown(folder)}")


def ros_replay() -> Any:
    """Return the module that needs ROS, or an error that says what is missing."""
    try:
        from kbf_localization.ros import replay as module
    except ImportError as error:
        raise KbfError(
            f"ROS 2 cannot be imported ({error}): source a ROS 2 installation, or run make demo "
            "in the project's folder, which installs one from PyPI"
        ) from error
    return module


def keep_to_this_computer() -> None:
    """Limit ROS discovery to this computer: no robot nearby hears the demo, or is heard."""
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    os.environ.setdefault("ROS_DOMAIN_ID", str(random.SystemRandom().randint(1, 101)))


def replay_metrics(replayed: Replayed, rate: float) -> dict[str, Any]:
    """Return how the replay itself went, for metrics.json."""
    return {
        "rate": rate,
        "passes": replayed.passes,
        "frames_played": len(replayed.played_frames),
        "messages": int(sum(replayed.played.counts.values())),
        "lateness_ms_p50": _lateness_ms(replayed, 50),
        "lateness_ms_p99": _lateness_ms(replayed, 99),
    }


def _lateness_ms(replayed: Replayed, percent: float) -> float:
    import numpy as np

    return float(np.percentile(replayed.played.lateness_ms, percent))


def _notes(replayed: Replayed) -> Iterator[str]:
    """Yield what a user should know about the replay beside its metrics."""
    yield from replayed.notes
    if replayed.run.frames_dropped:
        yield (
            f"the node dropped {replayed.run.frames_dropped} of {len(replayed.played_frames)} "
            "frames; play slower with --rate, or let more images wait with --queue"
        )
    late_ms = _lateness_ms(replayed, 99)
    if late_ms > 10.0:
        yield (
            f"1 % of the messages came {late_ms:.0f} ms or more after their time: this computer is "
            "too slow or too busy for this rate"
        )

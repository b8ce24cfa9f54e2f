"""Show the localization as it happens on a page in the browser.

Examples: `kbf live` shows the localizer that runs, `kbf live cloudy3 --map office.kbfmap` starts
one and plays the bag to it, again and again. Open the address that it prints. For other computers:
`kbf live --host 0.0.0.0`
"""

from __future__ import annotations

import secrets
import socket
import threading
from pathlib import Path
from typing import Annotated, Optional

import typer
from typer import Argument, Option

from kbf_localization.cli.console import print_line
from kbf_localization.cli.drives import FollowLinks
from kbf_localization.cli.options import PerhapsOnMap
from kbf_localization.cli.replay import keep_to_this_computer, ros_replay
from kbf_localization.errors import ParameterError

app = typer.Typer(add_completion=False)
_BAG = Argument(metavar="[BAG]", help="Play this bag to a new localizer; needs --map.")
_HOST = Option(help="Address to serve at; others than loopback need a token.")
_TOKEN = Option(help="Access token of the page. Default: none on loopback, else a random token.")


@app.command()
def live(
    bag: Annotated[Optional[Path], _BAG] = None,
    map_path: PerhapsOnMap = None,
    rate: Annotated[float, Option(help="Playback speed, as a multiple of the recorded.")] = 1.0,
    node: Annotated[str, Option(metavar="NAME", help="The localizer's full name.")] = "/localizer",
    host: Annotated[str, _HOST] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="0: any free port.")] = 8642,
    token: Annotated[Optional[str], _TOKEN] = None,
    read_only: Annotated[
        bool, Option("--read-only", help="Do not let clicks set the pose.")
    ] = False,
    follow_links: FollowLinks = False,
) -> None:
    from kbf_localization.datasets.files import check_links
    from kbf_localization.live.server import Board, LiveSettings, is_loopback, serving

    if (bag is None) != (map_path is None):
        raise ParameterError("a bag needs --map, and --map a bag: kbf live BAG --map MAP")
    if not node.startswith("/") or node.endswith("/"):
        raise ParameterError(f"--node {node}: give its full name, such as /robot1/localizer")
    if token == "" or (token is None and not is_loopback(host)):
        token = secrets.token_urlsafe(16)
    if bag is not None:
        if bag.is_dir() and not follow_links:
            check_links(bag)
        keep_to_this_computer()
    ros = ros_replay()
    from kbf_localization.ros import live as ros_live

    board = Board()
    with ros_live.listening(node, board) as listener:
        set_pose = None if read_only else listener.set_pose
        with serving(board, LiveSettings(host, port, token, set_pose)) as served_at:
            print_line(f"Open {_address(host, served_at, token)}")
            print_line("Ctrl-C ends it.")
            if bag is None or map_path is None:
                threading.Event().wait()
            else:
                from kbf_localization.datasets.rosbag import RosbagDrive

                settings = ros.ReplaySettings(rate=rate, loop=True)
                ros.replay_through_node(RosbagDrive(bag), map_path, settings)


def _address(host: str, port: int, token: str | None) -> str:
    """Return what to open; the token stands where no server's log gets to see it."""
    name = socket.gethostname() if host in ("0.0.0.0", "::", "") else host  # noqa: S104
    if ":" in name:
        name = f"[{name}]"
    return f"http://{name}:{port}/" + ("" if token is None else f"#token={token}")

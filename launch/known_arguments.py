"""Ends a launch whose command line names an argument that the launch file does not have.

ros2 launch passes over such an argument in silence, and a mistyped topic is then searched for in
vain. A launch file includes this one with `launch_file`, its own path. Included by the launch file
of somebody else, the command line's arguments may be meant for that one: nothing is checked.
"""

import sys
from pathlib import Path
from xml.etree import ElementTree

from launch import LaunchContext, LaunchDescription
from launch.actions import OpaqueFunction


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription([OpaqueFunction(function=_check)])


def _check(context: LaunchContext) -> None:
    path = Path(context.launch_configurations["launch_file"])
    if path.name not in (Path(word).name for word in sys.argv):
        return
    arguments = ElementTree.parse(path).getroot().findall("arg")  # noqa: S314 (our own file)
    known = [str(argument.get("name")) for argument in arguments]
    for given in context.argv:
        name, is_argument, _ = given.partition(":=")
        if is_argument and name not in known:
            raise RuntimeError(f"{path.name} has no argument '{name}'; it has: {', '.join(known)}")

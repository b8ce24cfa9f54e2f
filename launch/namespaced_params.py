"""Put the sections of `params_file` under `namespace`, as nav2_bringup's RewrittenYaml does.

A section `amcl:` is that of the node /amcl alone, and would be ignored in a namespace. A launch
file that includes this has `params_file` rewritten from there on; absolute sections, such as `/**`
or `/robot/amcl`, stay as they are, so that a file may be rewritten twice.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from launch import LaunchContext, LaunchDescription


def generate_launch_description() -> LaunchDescription:
    from launch import LaunchDescription
    from launch.actions import OpaqueFunction

    return LaunchDescription([OpaqueFunction(function=_rewrite)])


def _rewrite(context: LaunchContext) -> None:
    configurations = context.launch_configurations
    path, namespace = Path(configurations["params_file"]), configurations["namespace"].strip("/")
    if not namespace:
        return
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for, a device never ends
            raise ValueError("it is not a regular file")
        text = under_namespace(path.read_text(encoding="utf-8"), namespace)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise RuntimeError(
            f"params_file {path} cannot be put under /{namespace}: {error}"
        ) from error
    folder = tempfile.mkdtemp(prefix="kbf-params-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    rewritten = Path(folder) / path.name
    rewritten.write_text(text, encoding="utf-8")
    configurations["params_file"] = str(rewritten)


def under_namespace(text: str, namespace: str) -> str:
    """Return the parameter file `text` with its relative sections under `namespace`.

    ValueError where it has no sections. Values keep their spelling, and so their types.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is None:
        return text
    if not isinstance(root, yaml.MappingNode):
        raise ValueError("it has no sections such as 'amcl:'")
    for section, _ in root.value:
        if not isinstance(section, yaml.ScalarNode):
            raise ValueError("a section's name is no text")
        if not section.value.startswith("/"):
            section.value = f"/{namespace}/{section.value}"
    return yaml.serialize(root, Dumper=yaml.SafeDumper, allow_unicode=True)

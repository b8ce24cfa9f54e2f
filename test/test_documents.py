"""The pages that describe the code name only files that exist."""

import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = Path(__file__).resolve().parents[1]
PACKAGE = PROJECT / "kbf_localization"


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = (PROJECT / page).read_text(encoding="utf-8")
    names = re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|txt|md|xml|yaml))`", text)
    assert names
    for name in names:
        assert (PROJECT / name).exists() or (PACKAGE / name).exists(), name


def test_the_layers_drawn_are_those_that_import_linter_checks() -> None:
    text = (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition("## Layering")[2]
    *packages, modules = section.split("```")[1].strip().splitlines()
    drawn = [re.findall(r"\b([a-z_]+)(?:/|\.py) ", line) for line in packages] + [
        modules.split(", ")
    ]
    contract = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = contract["tool"]["importlinter"]["contracts"][0]["layers"]
    assert drawn == [re.split(r" [|:] ", layer) for layer in layers]


@pytest.mark.parametrize("life", ["an image", "an odometry reading", "a map"])
def test_the_tree_of_a_life_is_how_the_files_import_each_other(life: str) -> None:
    """A file hangs below one that imports it, or imports its package."""
    text = (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    tree = text.partition(f"## Life of {life}\n")[2].split("```")[1].strip().splitlines()
    path: list[str] = []
    for line in tree:
        match = re.search(r"[\w/]+\.py", line)
        assert match, line
        name, depth = match.group(), match.start() // 3
        path[depth:] = [name]
        if depth:
            module = name.removesuffix(".py").replace("/", ".")
            source = (PACKAGE / path[depth - 1]).read_text(encoding="utf-8")
            imported = (module, module.rpartition(".")[0])
            assert any(f"from kbf_localization.{name} import" in source for name in imported), line

"""How Sphinx makes the site from these pages and the docstrings: `make docs`."""

from importlib.metadata import version as installed_version
from typing import Any

project = "kbf_localization"
author = copyright = "the kbf_localization maintainers"  # noqa: A001
version = release = installed_version(project)

extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"{project} {release}"

myst_heading_anchors = 3
# The docstrings write `name` where reStructuredText wants two backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_type_aliases = {"ArrayLike": "ArrayLike", "Array": "Array", "Form": "Form"}
autodoc_preserve_defaults = True
add_module_names = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
autodoc_default_options = {"members": True, "show-inheritance": True, "special-members": "__call__"}


def escape_bars(
    _app: Any, _what: str, _name: str, _it: Any, _options: Any, lines: list[str]
) -> None:
    """|β| is a norm here, not reStructuredText's substitution."""
    lines[:] = [line if line.startswith("    ") else line.replace("|", r"\|") for line in lines]


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", escape_bars)

"""The pages that describe the code name only files that exist."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
PACKAGE = PROJECT / "kbf_localization"


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = (PROJECT / page).read_text(encoding="utf-8")
    names = re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|txt|md|xml|yaml))`", text)
    assert names
    for name in names:
        assert (PROJECT / name).exists() or (PACKAGE / name).exists(), name


def test_every_folder_of_the_package_stands_in_the_architecture() -> None:
    text = (PROJECT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for folder in (path for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()):
        assert f"{folder.name}/ " in text


def test_the_version_is_the_same_everywhere() -> None:
    from kbf_localization import __version__

    assert f"<version>{__version__}</version>" in (PROJECT / "package.xml").read_text()
    assert f'version="{__version__}"' in (PROJECT / "setup.py").read_text()
    assert f"\n{__version__} (" in (PROJECT / "CHANGELOG.rst").read_text()

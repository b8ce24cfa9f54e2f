"""Links within the project lead to files and headings that exist.

Where a link leads outside, only its form can be checked: tests need no network.
"""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").glob("*.md")])


def text_of(page: Path) -> str:
    """The page without its blocks and spans of code, in which nothing is a link or a heading."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    return re.sub(r"`[^`\n]*\]\([^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """The headings' anchors as GitHub and the site make them."""
    headings = re.findall(r"^#+ +(.+?) *$", text_of(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_to_what_exists(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        target, _, anchor = link.partition("#")
        if "://" in target or target.startswith("mailto:"):
            parts = urlsplit(target)
            assert parts.scheme == "https" and "." in parts.netloc, link
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists() and file.is_relative_to(PROJECT), link
        if anchor:
            assert anchor in anchors(file), link

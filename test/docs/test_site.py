"""The site can be made, and no link between its pages leads nowhere."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="`make docs` installs Sphinx")
PROJECT = Path(__file__).resolve().parents[2]


def make_site(pages: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    places = ["-c", str(PROJECT / "docs"), str(pages), str(site)]
    return subprocess.run([*command, *places], capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_site_has_every_page(tmp_path: Path) -> None:
    done = make_site(PROJECT / "docs", tmp_path)
    assert done.returncode == 0, done.stderr
    for page in (PROJECT / "docs").glob("*.md"):
        assert (tmp_path / f"{page.stem}.html").is_file(), page
    assert "ModelBasedSumRule" in (tmp_path / "api.html").read_text()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("link", ["nowhere.md", "index.md#nowhere"])
def test_broken_link_fails(tmp_path: Path, link: str) -> None:
    (tmp_path / "index.md").write_text(f"# Title\n\n[a link]({link})\n")
    done = make_site(tmp_path, tmp_path / "site")
    assert done.returncode != 0 and "nowhere" in done.stderr

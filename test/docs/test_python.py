"""Every example of docs/python.md runs as it stands, one after the other."""

import re
from pathlib import Path

import pytest

import kbf_localization

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.mark.slow
def test_examples_run_and_print(
    office_drives: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "drives").symlink_to(office_drives[0].parent, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    printed = {}
    for example in EXAMPLES:
        heading = PAGE[: PAGE.index(example)].rpartition("\n## ")[2].partition("\n")[0]
        exec(compile(example, f"docs/python.md, {heading}", "exec"), {})  # noqa: S102
        printed[heading] = capsys.readouterr().out
    assert "seq1_cloudy1: 150 images" in printed["Open a drive"]
    assert "TrainingMap(120 poses of seq1_cloudy1) (120, 3)" in printed["Build a map"]
    assert len(printed["Localize a drive"].splitlines()) > 50
    assert "tracking" in printed["Localize live"]
    assert (tmp_path / "evaluation" / "report.html").is_file()
    assert printed["Errors"].strip() in PAGE


def test_page_names_everything_that_is_exported() -> None:
    for name in kbf_localization.__all__:
        if not name.endswith("Error") and name != "__version__":
            assert f"`{name}`" in PAGE, name

"""What the hosting site and pre-commit read is well-formed and names what exists."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[1]
FORMS = sorted(
    path
    for path in (PROJECT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")
    if path.name != "config.yml"
)
INPUTS = {"markdown", "textarea", "input", "dropdown", "checkboxes"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def make_targets() -> set[str]:
    return set(re.findall(r"^(\w+):", (PROJECT / "Makefile").read_text("utf-8"), re.M))


def test_continuous_integration_runs_what_exists() -> None:
    jobs = read(PROJECT / ".github" / "workflows" / "ci.yml")["jobs"]
    lines = [
        line.strip()
        for job in jobs.values()
        for step in job["steps"]
        for line in step.get("run", "").splitlines()
    ]
    assert ".ci/run" in lines
    targets = {line.split()[1] for line in lines if line.startswith("make ")}
    assert {"demo", "test", "docs"} <= targets <= make_targets()
    assert all(job["runs-on"] == "ubuntu-24.04" for job in jobs.values())


def test_every_action_is_pinned_to_a_version() -> None:
    text = (PROJECT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", action) for action in used)


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.name)
def test_an_issue_form_asks_questions(form: Path) -> None:
    content = read(form)
    assert content["name"] and content["description"]
    questions = [part for part in content["body"] if part["type"] != "markdown"]
    identities = [part["id"] for part in questions]
    assert len(set(identities)) == len(identities) > 0
    assert all(part["type"] in INPUTS for part in content["body"])
    assert all(part["attributes"]["label"] for part in questions)
    assert any(part.get("validations", {}).get("required") for part in questions)


def test_hooks_run_tools_and_files_that_exist() -> None:
    (local,) = read(PROJECT / ".pre-commit-config.yaml")["repos"]
    pinned = (PROJECT / "tools" / "constraints.txt").read_text("utf-8")
    for hook in local["hooks"]:
        program, *words = hook["entry"].split()
        if program == "make":
            assert words[-1] in make_targets()
        elif program == ".venv/bin/ruff":
            assert re.search(r"^ruff==", pinned, re.M)
        else:
            assert program == ".venv/bin/python"
        for word in words:
            assert not word.startswith("test/") or (PROJECT / word).is_file(), word

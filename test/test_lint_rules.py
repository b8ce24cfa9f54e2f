"""The lint rules refuse code that could run what it reads, and printing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("import pickle", "TID251"),
        ("from pickle import loads", "TID251"),
        ("import numpy as np\n\nnp.load('a', allow_pickle=True)", "TID251"),
        ("import joblib\n\njoblib.load('a')", "TID251"),
        ("eval('1')", "S307"),
        ("exec('1')", "S102"),
        ("import os\n\nos.system('ls')", "S605"),
        ("import yaml\n\nyaml.load('1', Loader=yaml.Loader)", "S506"),
        ("import subprocess\n\nsubprocess.run('ls', shell=True)", "S602"),
        ("print(1)", "T201"),
    ],
)
def test_a_source_of_the_package_may_not(source: str, rule: str) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.is_file():
        pytest.skip(f"no {ruff}; `make test` installs it")
    found = subprocess.run(
        [str(ruff), "check", "--output-format=json", "--stdin-filename=kbf_localization/x.py", "-"],
        cwd=PROJECT,
        input=source,
        capture_output=True,
        text=True,
    )
    assert rule in {offence["code"] for offence in json.loads(found.stdout)}

"""Nothing that is read from a file or a message is ever run."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
SOURCES = [*(PROJECT / "kbf_localization").rglob("*.py"), *(PROJECT / "tools").rglob("*.py")]
RUN_CODE = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "code"}
"""Modules whose readers run what they read; joblib's and Dask's workers use pickle among
themselves, for this program's own data alone."""


def offences(tree: ast.AST) -> Iterator[str]:
    """What in a module could run code from data, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module or "").split(".")[0]}
        else:
            names = set()
        for name in names & RUN_CODE:
            yield f"line {node.lineno}: imports {name}"
        if isinstance(node, ast.Call):
            yield from _call_offences(node)


def _call_offences(call: ast.Call) -> Iterator[str]:
    name = ast.unparse(call.func)
    keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    if name in ("eval", "exec", "compile", "__import__", "os.system", "os.popen"):
        yield f"line {call.lineno}: calls {name}"
    if name in ("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load", "joblib.load"):
        yield f"line {call.lineno}: calls {name}"
    if keywords.get("allow_pickle", "False") != "False":
        yield f"line {call.lineno}: lets numpy unpickle"
    if keywords.get("shell", "False") != "False":
        yield f"line {call.lineno}: runs a shell"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_no_code_is_run_from_data(path: Path) -> None:
    found = list(offences(ast.parse(path.read_text(encoding="utf-8"))))
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "eval('1')",
        "yaml.load(text, Loader=yaml.Loader)",
        "np.load(path, allow_pickle=True)",
        "subprocess.run(line, shell=True)",
    ],
)
def test_the_search_finds_what_it_looks_for(source: str) -> None:
    assert list(offences(ast.parse(source)))

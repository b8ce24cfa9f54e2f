"""Measure speed, as ratios against a named reference measured in the same run.

Example: `kbf bench rules vision`
"""

import importlib
import os
import pkgutil
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from kbf_localization import benchmarks
from kbf_localization.cli.console import format_cell, print_line, print_table
from kbf_localization.cli.options import Results
from kbf_localization.cli.progress import show_progress
from kbf_localization.errors import KbfError
from kbf_localization.threads import limit_threads

app = typer.Typer(add_completion=False)


def available() -> list[str]:
    """Return the benchmarks' names, which are those of their modules."""
    modules = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    return sorted(name for name in modules if not name.startswith("_"))


@app.command()
def bench(
    names: Annotated[
        Optional[list[str]], typer.Argument(metavar="NAME", help="Benchmarks; all by default.")
    ] = None,
    output: Results = None,
) -> None:
    # As in the node: the filter's matrices are small.
    limit_threads(1)
    known = available()
    chosen = names or known
    for name in chosen:
        if name not in known:
            raise KbfError(f"no benchmark {name!r}; there are: {', '.join(known)}")

    from kbf_localization.evaluation.results import ResultsFolder

    results = ResultsFolder.create("bench", output)
    results.write_config({"benchmarks": chosen, "machine": machine()})
    metrics: dict[str, Mapping[str, Any]] = {}
    for name in chosen:
        with show_progress() as progress:
            module = importlib.import_module(f"{benchmarks.__name__}.{name}")
            metrics[name] = module.run(progress)
        results.write_metrics(metrics)
    _print(metrics)
    print_line(f"Written to {results.path / 'metrics.json'}")


def machine() -> dict[str, Any]:
    """Return what the benchmarks were run on."""
    import cv2
    import numpy
    import scipy

    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS", "all"),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "opencv": cv2.__version__,
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _print(metrics: Mapping[str, Mapping[str, Any]]) -> None:
    rows: list[tuple[object, ...]] = []
    for name, cases in metrics.items():
        for case, values in cases.items():
            if isinstance(values, Mapping):
                ours, reference = (
                    _with_unit(key, values.get(key)) for key in ("ours_ms", "reference_ms")
                )
                ratio = values.get("ratio")
                faster = None if ratio is None else f"{format_cell(ratio)} times"
                rows.append((f"{name}.{case}", ours, reference, faster, values.get("reference")))
            else:
                rows.append((f"{name}.{case}", _with_unit(case, values), None, None, None))
    columns = ("Benchmark", "Ours", "Reference", "As fast", "Measured against")
    print_table("Benchmarks", columns, rows)


def _with_unit(name: str, value: float | None) -> str | None:
    """Return the value with the unit that its name tells."""
    from kbf_localization.evaluation.metric_texts import unit_of

    unit = "frames" if "frames" in name else unit_of(name)
    return None if value is None else f"{format_cell(value)} {unit}".strip()

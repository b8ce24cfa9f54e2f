"""Reproduce the paper's experiments: CSV, PNG, and a table of mean ± standard deviation."""

import typer

from kbf_localization.cli.experiments.ablation import ablation
from kbf_localization.cli.experiments.faults import faults
from kbf_localization.cli.experiments.localization import localization
from kbf_localization.cli.experiments.map_check import map_check
from kbf_localization.cli.experiments.public import public
from kbf_localization.cli.experiments.recovery import recovery
from kbf_localization.cli.experiments.sum_rule import sum_rule
from kbf_localization.cli.experiments.synthetic import synthetic

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def experiment() -> None:
    """Reproduce the paper's experiments: CSV, PNG, and a table of mean ± standard deviation."""


app.command("sum-rule", epilog="Example: [bold]kbf experiment sum-rule --trials 30[/bold]")(
    sum_rule
)
app.command("synthetic", epilog="Example: [bold]kbf experiment synthetic --trials 3[/bold]")(
    synthetic
)
app.command(
    "localization",
    epilog="Example: [bold]kbf experiment localization --trials 3 --sizes 100,400[/bold]. The "
    "paper's own data: [bold]kbf experiment localization --cold COLD[/bold]",
)(localization)
app.command("recovery", epilog="Example: [bold]kbf experiment recovery --trials 20[/bold]")(
    recovery
)
app.command("public", epilog="Example: [bold]kbf experiment public ~/datasets/7scenes[/bold]")(
    public
)
app.command(
    "faults", epilog="Example: [bold]kbf experiment faults --only covered,kidnapped[/bold]"
)(faults)
app.command("map-check", epilog="Example: [bold]kbf experiment map-check --buildings 4[/bold]")(
    map_check
)
app.command(
    "ablation", epilog="Example: [bold]kbf experiment ablation --trials 2 --sizes 200[/bold]"
)(ablation)

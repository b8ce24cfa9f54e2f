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

EXPERIMENTS = (sum_rule, synthetic, localization, recovery, public, faults, map_check, ablation)
for experiment in EXPERIMENTS:
    app.command()(experiment)

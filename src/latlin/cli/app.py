"""The commands and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import latlin
from latlin.cli.demo import run_demo

app = typer.Typer(help="Deterministic Bayesian inference in latent linear models.", no_args_is_help=True)


@app.callback(invoke_without_command=True)
def latlin_command(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Posteriors, their evidence, and what that number is worth."""
    if version:
        typer.echo(f"latlin {latlin.__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the table and the figure.")] = Path("latlin-demo"),
) -> None:
    """Bayesian logistic regression on the breast-cancer data, by every engine, next to each other."""
    run_demo(out)

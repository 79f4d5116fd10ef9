"""The commands and their options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from latlin.cli.explore import cluster, factors, smooth
from latlin.cli.options import (
    Categorical,
    Coding,
    CommandWithFlags,
    Data,
    Dates,
    Debug,
    Decimal,
    Drop,
    EngineNames,
    Event,
    Exposure,
    FamilyName,
    FamilyNames,
    FoldsOfFit,
    Formula,
    Formulas,
    Frequency,
    Graph,
    Group,
    GroupWithFlags,
    Hyperparameters,
    Levels,
    Missing,
    MissingValues,
    ModelFile,
    Numbers,
    PredictionOptions,
    PriorScale,
    Quantile,
    Quiet,
    Reference,
    SafeCsv,
    Scheduler,
    Separator,
    TargetName,
    Time,
    Trials,
    load_table,
    names_of,
    read_file,
    split_list,
)
from latlin.cli.screen import mask_controls, mask_lines, report_errors, screen, show_steps
from latlin.version import __version__

if TYPE_CHECKING:
    from latlin.cli.models import FittedModel

app = typer.Typer(
    cls=GroupWithFlags,
    help="Bayesian regression, hierarchical models, curves, factors and clusters of a table. "
    "Start with 'latlin demo', or 'latlin fit data.csv --target COLUMN'.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def latlin_command(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Posteriors, their evidence, and whether it is exact, a bound or an approximation."""
    if version:
        typer.echo(f"latlin {__version__}")
        raise typer.Exit


@app.command(cls=CommandWithFlags)
def fit(
    data: Data,
    target: TargetName = "",
    formula: Formula = "",
    graph: Graph = None,
    family: FamilyName = "auto",
    engine: Annotated[str, typer.Option(help="auto, map, laplace, lvb, ep, gkl, ai-kl or mean-field.")] = "auto",
    prior_scale: PriorScale = "auto",
    hyperparameters: Hyperparameters = "auto",
    out: Annotated[Path, typer.Option(help="The model file to write.")] = Path("model.latlin"),
    missing: Missing = "error",
    drop: Drop = None,
    categorical: Categorical = None,
    dates: Dates = None,
    numbers: Numbers = None,
    levels: Levels = "",
    exposure: Exposure = "",
    trials: Trials = "",
    event: Event = "",
    quantile: Quantile = None,
    frequency: Frequency = "",
    coding: Coding = "treatment",
    reference: Reference = None,
    missing_values: MissingValues = "",
    sep: Separator = None,
    decimal: Decimal = ".",
    folds: FoldsOfFit = None,
    draws: Annotated[int, typer.Option(min=200, help="Draws for the check of the approximation.")] = 4000,
    scheduler: Scheduler = None,
    quiet: Quiet = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the steps of the engine.")] = False,
    debug: Debug = False,
) -> None:
    """Fit a regression, a classification or a hierarchical model to a table, and write it to a file."""
    given = dict(locals())
    target = target if formula else _needed(target)
    with report_errors(debug):
        with show_steps("Loading", 1, quiet):
            from latlin.cli.models import Fitting, check_folds, fit_model, scale_of
            from latlin.cli.prepare import prepare
            from latlin.numerics.atomic import check_place

        check_place(out)
        place = (data, sep, decimal, missing_values, frequency)
        if formula:
            from latlin.cli.formula import FormulaOptions, fit_formula

            ways = (_stated(given, family), FormulaOptions(engine, graph, draws, hyperparameters))
            fit_formula(load_table(quiet, *place), formula, *ways, out, screen(), quiet)
            return
        levelling, others, kinds = (coding, reference), (exposure, trials, event, quantile), (dates, numbers, decimal)
        choices = _choices(target, family, missing, drop, categorical, levels, levelling, others, kinds)
        folds_of_table = 5 if folds is None else check_folds(folds)
        how = Fitting(engine, scale_of(prior_scale), folds_of_table, quiet or verbose, verbose, draws, hyperparameters)
        if _in_memory(data, scheduler, frequency):
            model = fit_model(prepare(load_table(quiet, *place), choices, _answer(), quiet), how)
        else:
            from latlin.cli.models import fit_blocks
            from latlin.cli.options import compute_with

            with compute_with(scheduler or "threads"):
                model = fit_blocks(str(data), choices, how._replace(folds=folds or 0), _answer())
        _save_and_tell(model, out, quiet)


@app.command(cls=CommandWithFlags)
def predict(
    model: ModelFile,
    data: Annotated[
        Path, typer.Argument(help="A table: .csv, .tsv (also .gz) or .parquet; or a pattern of such files, in quotes.")
    ],
    interval: Annotated[float, typer.Option(help="Probability of the intervals: 0.9 for 90 %.")] = 0.9,
    out: Annotated[Path | None, typer.Option(help="A table to write; standard output (CSV) unless given.")] = None,
    missing: Annotated[
        str | None, typer.Option(help="error, drop, mean, …; as the model was fitted unless given.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the columns of the table beside the predictions.")] = False,
    missing_values: MissingValues = "",
    sep: Separator = None,
    decimal: Decimal = ".",
    safe_csv: SafeCsv = False,
    debug: Debug = False,
) -> None:
    """Predict the rows of a table, with intervals."""
    with report_errors(debug):
        with show_steps("Loading", 1):
            from latlin.cli.formula import load_additive, predict_formula
            from latlin.cli.models import load_model
        from latlin.cli.predict import predict_files
        from latlin.datasets.table import append_rows, guard_text, table_files

        reading = {"sep": sep, "decimal": decimal, "missing_values": split_list(missing_values)}
        asking = PredictionOptions(interval, missing, keep, reading)
        if (additive := load_additive(model)) is not None:
            rows = predict_formula(additive, read_file(data, sep, decimal, missing_values), asking)
            if out is None:
                _printing()(guard_text(rows) if safe_csv else rows)
            else:
                _write_rows(out, rows.to_dict("records"), safe_csv)
            return
        given = (load_model(model), table_files(data), asking)
        if out is None:
            write = _printing()
            predict_files(*given, (lambda rows: write(guard_text(rows))) if safe_csv else write)
            return
        with show_steps("Predicting", 1), append_rows(out) as add:
            count = predict_files(*given, (lambda rows: add(guard_text(rows))) if safe_csv else add)
        screen().print(f"Saved {count} predictions to {mask_controls(out)}")


@app.command(cls=CommandWithFlags)
def compare(
    data: Data,
    target: TargetName = "",
    formula: Formulas = None,
    graph: Graph = None,
    family: FamilyNames = "",
    engine: EngineNames = "",
    prior_scale: PriorScale = "auto",
    out: Annotated[Path | None, typer.Option(help="Also write the table to this file.")] = None,
    missing: Missing = "error",
    drop: Drop = None,
    categorical: Categorical = None,
    dates: Dates = None,
    numbers: Numbers = None,
    levels: Levels = "",
    exposure: Exposure = "",
    trials: Trials = "",
    event: Event = "",
    quantile: Quantile = None,
    frequency: Frequency = "",
    coding: Coding = "treatment",
    reference: Reference = None,
    missing_values: MissingValues = "",
    sep: Separator = None,
    decimal: Decimal = ".",
    folds: Annotated[int, typer.Option(min=0, help="Folds of held-out rows; 0 for the evidence alone.")] = 5,
    group: Group = "",
    time: Time = "",
    scheduler: Scheduler = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compare families and engines, or formulas: how well they predict held-out rows, and their evidence."""
    given = dict(locals())
    target = target if formula else _needed(target)
    with report_errors(debug):
        with show_steps("Loading", 1, quiet):
            from latlin.cli.compare import ComparisonOptions, compare_blocks, compare_table, tell_comparison
            from latlin.cli.models import check_folds, scale_of
            from latlin.datasets.table import table_ending
            from latlin.numerics.atomic import check_place

        place = (data, sep, decimal, missing_values, frequency)
        if out is not None:
            table_ending(check_place(out))
        if formula:
            from latlin.cli.formula import FormulaOptions, compare_formulas

            stated, ways = _stated(given | {"folds": None}, family or "auto"), FormulaOptions(engine or "auto", graph)
            return _write_rows(out, compare_formulas(load_table(quiet, *place), formula, stated, ways, screen(), quiet))
        families, engines = split_list(family), split_list(engine)
        levelling, others, kinds = (coding, reference), (exposure, trials, event, quantile), (dates, numbers, decimal)
        choices = _choices(target, [*families, "auto"][0], missing, drop, categorical, levels, levelling, others, kinds)
        how = ComparisonOptions(families, engines, scale_of(prior_scale), check_folds(folds), quiet, group, time)
        if _in_memory(data, scheduler, frequency):
            found = compare_table(load_table(quiet, *place), choices, how, _answer())
        else:
            from latlin.cli.options import compute_with

            with compute_with(scheduler or "threads"):
                found = compare_blocks(str(data), choices, how, _answer())
        tell_comparison(found, folds, screen())
        return _write_rows(out, found.rows)


@app.command(cls=CommandWithFlags)
def report(
    model: ModelFile,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Its title.")] = None,
    debug: Debug = False,
) -> None:
    """Write one HTML page about a model: no network, no script, for screens, phones and paper."""
    with report_errors(debug):
        from latlin.cli.formula import load_additive, report_formula
        from latlin.cli.models import load_model
        from latlin.numerics.atomic import write_text
        from latlin.report.sections import render

        if (additive := load_additive(model)) is not None:
            write_text(out, report_formula(additive, title))
            screen().print(f"Saved {mask_controls(out)}")
            return
        facts = load_model(model).facts
        write_text(out, render(facts if title is None else facts.with_(title=title)))
        screen().print(f"Saved {mask_controls(out)}")


@app.command(cls=CommandWithFlags)
def summary(
    model: ModelFile,
    interval: Annotated[float, typer.Option(help="Probability of the intervals: 0.9 for 90 %.")] = 0.9,
    out: Annotated[Path | None, typer.Option(help="Also write the table to this file.")] = None,
    safe_csv: SafeCsv = False,
    debug: Debug = False,
) -> None:
    """Print the coefficients of a model with their intervals, all of them."""
    with report_errors(debug):
        from latlin.cli.formula import load_additive
        from latlin.cli.models import check_interval, load_model
        from latlin.cli.tell import tell

        if (additive := load_additive(model)) is not None:
            found = additive.estimator.summary(check_interval(interval))
            screen().print(mask_lines("\n".join([*additive.facts.conclusion(), repr(found)])))
            return _write_rows(out, found.rows)
        loaded = load_model(model)
        rows = loaded.estimator.summary(check_interval(interval)).rows
        effects = {row["name"]: row["effect"] for row in loaded.facts.coefficients}
        shown = [{**row, "effect": effects.get(row["name"], 1.0)} for row in rows]
        tell(loaded.facts.with_(coefficients=shown, coverage=interval), screen(), most=len(shown))
        return _write_rows(out, rows, safe_csv)


app.command(cls=CommandWithFlags)(cluster)
app.command(cls=CommandWithFlags)(factors)
app.command(cls=CommandWithFlags)(smooth)


@app.command(cls=CommandWithFlags)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for what the tour writes.")] = Path("latlin-demo"),
    debug: Debug = False,
) -> None:
    """The tour in a minute: fit real data, compare engines, write a report, and fit a hierarchical model."""
    with report_errors(debug):
        from latlin.cli.demo import run_demo

        run_demo(_folder(out), screen())


def _in_memory(data: Path, scheduler: str | None, frequency: str) -> bool:
    """Whether the table is read as a whole; rows in blocks are not repeated."""
    whole = scheduler is None and not _is_pattern(data)
    if frequency and not whole:
        raise ValueError("--frequency is for one table in memory: repeat the rows of the files instead")
    return whole


def _save_and_tell(model: FittedModel, path: Path, quiet: bool) -> None:
    """Write the model and say what it is."""
    from latlin.cli.models import save_model
    from latlin.cli.tell import tell

    with show_steps("Writing", 1, quiet):
        save_model(path, model)
    tell(model.facts, screen())
    saved = mask_controls(path)
    screen().print(f"\nSaved {saved}. Next: latlin report {saved}, or latlin predict {saved} new.csv")


def _needed(target: str) -> str:
    if not target:
        raise typer.BadParameter("say what to explain: --target COLUMN, or --formula 'y ~ x + (1 | g)'")
    return target


def _choices(
    target: str,
    family: str,
    missing: str,
    drop: list[str] | None,
    categorical: list[str] | None,
    levels: str,
    levelling: tuple[str, list[str] | None],
    others: tuple[str, str, str, float | None],
    kinds: tuple[list[str] | None, list[str] | None, str],
) -> Any:
    from latlin.cli.prepare import Choices
    from latlin.datasets.columns import Levelling

    (coding, reference), (dates, numbers, decimal) = levelling, kinds
    references = Levelling(coding, _references(reference))
    columns = (names_of(drop), names_of(categorical), ordered := tuple(split_list(levels)), references)
    # who orders three levels or more has said that the target is ordinal
    family = "ordinal" if family == "auto" and len(ordered) > 2 else family
    family = "quantile" if family == "auto" and others[-1] is not None else family
    return Choices(target, family, missing, *columns, *others, names_of(dates), names_of(numbers), decimal)


def _stated(given: dict[str, Any], family: str) -> Any:
    """What the options say of the table of a formula."""
    from latlin.cli.formula import TableOptions, refuse_beside_formula

    refuse_beside_formula(given)
    return TableOptions(
        family,
        given["missing"],
        exposure=given["exposure"],
        trials=given["trials"],
        event=given["event"],
        numbers=names_of(given["numbers"]),
        references=_references(given["reference"]),
        decimal=given["decimal"],
    )


def _references(given: list[str] | None) -> dict[str, str]:
    """The level that others are compared with, by column."""
    return dict(_pair(part) for words in given or () for part in split_list(words))


def _pair(words: str) -> tuple[str, str]:
    name, mark, level = words.partition("=")
    if not mark or not name or not level:
        raise ValueError(f"reference must be COLUMN=LEVEL, got {words!r}")
    return name.strip(), level.strip()


def _answer() -> Any:
    """Who is asked about the family: the person at the terminal, if there is one."""
    from latlin.cli.prepare import refuse_guess

    return _ask if _somebody_is_there() else refuse_guess


def _printing() -> Any:
    """Rows go to standard output as CSV, the names of the columns before the first of them."""
    header = iter([True])
    return lambda rows: typer.echo(rows.to_csv(index=False, header=next(header, False)), nl=False)


def _folder(out: Path) -> Path:
    """A folder that is there or can be made."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"out must be a folder, and {out} is a file")
    return out


def _is_pattern(data: Path) -> bool:
    return not data.exists() and any(mark in data.name for mark in "*?[")


def _somebody_is_there() -> bool:
    return sys.stdin.isatty()


def _ask(guess: Any) -> str:
    """Let the person at the terminal say which family it is."""
    question = f"{mask_controls(guess.reason)}. Which family, {' or '.join(guess.choices)}?"
    answer = str(typer.prompt(question, default=guess.choices[0])).strip()
    if answer not in guess.choices:
        raise ValueError(f"the family must be {' or '.join(guess.choices)}, got {answer!r}")
    return answer


def _write_rows(path: Path | None, rows: list[dict[str, Any]], safe_csv: bool = False) -> None:
    """Write a table, if a place is given for it."""
    if path is None:
        return
    from latlin.datasets.table import guard_text, need_pandas, write_table

    frame = need_pandas().DataFrame(rows)
    write_table(path, guard_text(frame) if safe_csv else frame)
    screen().print(f"Saved {mask_controls(path)}")

"""`latlin cluster`, `latlin factors` and `latlin smooth`: structure without a regression, each with its page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from latlin.cli.options import (
    Categorical,
    Data,
    Debug,
    Decimal,
    Drop,
    MissingValues,
    Numbers,
    Quiet,
    Separator,
    load_table,
    names_of,
)
from latlin.cli.screen import mask_controls, report_errors, screen, show_steps

Page = Annotated[Path, typer.Option(help="The page to write.")]
TableOut = Annotated[Path | None, typer.Option(help="Also write the answers, one per row, to this table.")]
ModelOut = Annotated[Path | None, typer.Option(help="Also write the model, for latlin.load.")]
#: rows up to which a smooth curve is a Gaussian process
PROCESS_ROWS = 800
#: rows without missing cells, per column, that tell the number of factors
ROWS_PER_COLUMN = 10


def cluster(
    data: Data,
    clusters: Annotated[
        int, typer.Option(min=1, help="The largest number of clusters; those that are not needed stay empty.")
    ] = 12,
    out: Page = Path("clusters.html"),
    table: TableOut = None,
    model: ModelOut = None,
    drop: Drop = None,
    numbers: Numbers = None,
    missing_values: MissingValues = "",
    sep: Separator = None,
    decimal: Decimal = ".",
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Find clusters of rows by their columns of numbers: how many, what sets them apart, how sure each row is."""
    with report_errors(debug):
        with show_steps("Loading", 1, quiet):
            from latlin.mixture import BayesianGaussianMixture
            from latlin.report.clusters import conclusion, differences, rank_labels, render_clusters

        frame = _read_with_numbers(names_of(numbers), quiet, data, sep, decimal, missing_values)
        names, X, notes = number_columns(frame, names_of(drop))
        centre, scale = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
        with show_steps("Fitting", 2, quiet) as advance:
            # one unit per column, so that none rules by its scale
            found = BayesianGaussianMixture(clusters, random_state=0).fit((X - centre) / scale)
            advance("Drawing the page")
            shares = found.predict_proba((X - centre) / scale)
            label, size = rank_labels(shares)
            notes += conclusion(size, shares, differences(X, label, len(size)), names)
            page = render_clusters(_InUnits(found, centre, scale), X, names, f"Clusters of {data.name}")
            advance()
        answers = {"cluster": label + 1, "probability": shares.max(axis=1)}
        _write(out, page, notes, table, frame.assign(**answers), model, found)


def factors(
    data: Data,
    count: Annotated[int, typer.Option("--factors", min=0, help="How many; 0 chooses by BIC.")] = 0,
    out: Page = Path("factors.html"),
    table: TableOut = None,
    model: ModelOut = None,
    drop: Drop = None,
    categorical: Categorical = None,
    numbers: Numbers = None,
    missing_values: MissingValues = "",
    sep: Separator = None,
    decimal: Decimal = ".",
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Find a few factors behind many columns, which may hold numbers, texts, truth values and missing cells."""
    with report_errors(debug):
        with show_steps("Loading", 1, quiet):
            from latlin.report.factors import conclusion, correlations, render_factors

        frame = _read_with_numbers(names_of(numbers), quiet, data, sep, decimal, missing_values)
        rows, notes = _columns_for_factors(frame, names_of(drop), names_of(categorical))
        with show_steps("Fitting", 2, quiet) as advance:
            found, X, chosen = _factor_model(rows, count)
            advance("Drawing the page")
            notes += [chosen, *conclusion(*correlations(found))]
            scores = found.transform(X)
            answers = {f"factor {k + 1}": scores[:, k] for k in range(scores.shape[1])}
            page = render_factors(found, X, f"Factors of {data.name}")
            advance()
        _write(out, page, notes, table, frame.assign(**answers), model, found)


def smooth(
    data: Data,
    target: Annotated[
        str, typer.Option("--target", "-t", metavar="COLUMN", help="The column that the curve describes.")
    ],
    along: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column along which the curve runs: numbers or dates.")
    ],
    out: Page = Path("curve.html"),
    table: TableOut = None,
    model: ModelOut = None,
    numbers: Numbers = None,
    missing_values: MissingValues = "",
    sep: Separator = None,
    decimal: Decimal = ".",
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Draw a smooth curve with its band through one column along another."""
    with report_errors(debug):
        with show_steps("Loading", 1, quiet):
            from latlin.report.processes import conclude_curve, render_curves

        frame = _read_with_numbers(names_of(numbers), quiet, data, sep, decimal, missing_values)
        x, y, kept = _pairs(frame, target, along)
        with show_steps("Fitting", 1, quiet) as advance:
            found, curve, fitted = _smooth_model(x, y, along)
            advance()
        left = len(frame) - len(y)
        notes = [f"{left} rows with missing values were left out."] if left else []
        page = render_curves([curve], (x, y), found, target, f"{target} along {along}")
        answers = dict(zip(("smooth", "low", "high"), fitted, strict=True))
        _write(out, page, [*notes, conclude_curve(curve, target)], table, frame[kept].assign(**answers), model, found)


def _read_with_numbers(
    names: tuple[str, ...], quiet: bool, data: Path, sep: str | None, decimal: str, missing_values: str
) -> Any:
    """A table from a file; columns of numbers that were written for people, such as $1,200, as numbers."""
    from latlin.datasets.columns import read_numbers
    from latlin.datasets.problems import refuse_unknown

    frame = load_table(quiet, data, sep, decimal, missing_values)
    refuse_unknown(frame.columns, names)
    return frame.assign(**{name: read_numbers(frame[name], decimal) for name in names})


class _InUnits:
    """A mixture of scaled columns that is asked in the units of the table."""

    def __init__(self, mixture: Any, centre: Any, scale: Any) -> None:
        self._mixture, self._centre, self._scale = mixture, centre, scale

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mixture, name)

    def predict_proba(self, X: Any) -> Any:
        return self._mixture.predict_proba((X - self._centre) / self._scale)


def number_columns(frame: Any, drop: tuple[str, ...]) -> tuple[list[str], Any, list[str]]:
    """Columns of numbers that vary, their values with NaN in gaps, and what was left out."""
    from latlin.cli.prepare import describe_counting
    from latlin.datasets.columns import column_of_numbers, join_names, looks_written
    from latlin.datasets.problems import refuse_unknown

    refuse_unknown(frame.columns, drop)
    columns, texts = {}, []
    for name in (name for name in frame.columns if name not in drop):
        values = column_of_numbers(frame[name])
        if values is None:
            texts.append(name)
        elif np.nanstd(values) > 0.0:
            columns[name] = values
    if not columns:
        raise ValueError("the table has no column of numbers that vary")
    notes = [f"Left out, because they are no numbers: {join_names(texts)}."] if texts else []
    written = [name for name in texts if looks_written(frame[name])]
    notes += [f"Prices and the like are read with --numbers {','.join(written)}."] if written else []
    notes += [f"Only one column is left, {join_names(columns)}: clusters are ranges of its values."] * (
        len(columns) == 1
    )
    notes += describe_counting(columns)
    return list(columns), np.column_stack(list(columns.values())), notes


def _columns_for_factors(frame: Any, drop: tuple[str, ...], categorical: tuple[str, ...]) -> tuple[Any, list[str]]:
    """The columns that factors can explain; names and the like are left out with a note."""
    from latlin.datasets.columns import join_names
    from latlin.datasets.encoding import learn_column
    from latlin.datasets.problems import refuse_unknown

    refuse_unknown(frame.columns, (*drop, *categorical))
    kept: list[str] = []
    left: list[str] = []
    for name in (name for name in frame.columns if name not in drop):
        try:
            useful = learn_column(frame[name], "categorical" if name in categorical else "") is not None
        except ValueError:
            useful = False
        (kept if useful else left).append(name)
    if len(kept) < 3:
        raise ValueError(f"factors need at least three columns that vary, got {join_names(kept)}")
    rows = frame[kept].copy()
    for name in categorical:
        rows[name] = rows[name].astype("string").astype(object)
    return rows, [
        f"Left out, because they are names, dates or the same in every row: {join_names(left)}."
    ] if left else []


def _factor_model(rows: Any, count: int) -> tuple[Any, Any, str]:
    """Plain factors of numbers, mixed ones of a table with texts; the rows as it takes them; how many and why."""
    from latlin.datasets.columns import column_of_numbers
    from latlin.factor import FactorAnalysis, MixedFactorAnalysis

    numbers = {name: column_of_numbers(rows[name]) for name in rows.columns}
    if any(values is None for values in numbers.values()):
        why = "as asked" if count else "which is the default for a table with texts; --factors takes another number"
        return MixedFactorAnalysis(count or 2, random_state=0).fit(rows), rows, f"{_counted(count or 2)}, {why}."
    X = type(rows)(numbers)
    complete = X.dropna()
    gaps = len(complete) < len(X)
    # with gaps a fit takes many steps: rows without them tell the number where they are many
    few = gaps and len(complete) >= ROWS_PER_COLUMN * X.shape[1]
    rows = complete if few else X
    most = max(1, min(X.shape[1] // 3, 20, len(rows) - 2))
    wanted = count or len(FactorAnalysis("bic", max_components=most).fit(rows).components_)
    why = (
        "as asked"
        if count
        else "chosen by BIC" + (f" of the {len(complete)} rows without missing cells" if few else "")
    )
    if not count and wanted == most > 1:
        why += "; more were not tried, --factors takes another number"
    return (
        FactorAnalysis(wanted, method="em" if gaps else "ml", rotate="varimax").fit(X),
        X,
        f"{_counted(wanted)}, {why}.",
    )


def _counted(count: int) -> str:
    return f"{count} factor{'s' * (count != 1)}"


def _pairs(frame: Any, target: str, along: str) -> tuple[Any, Any, Any]:
    """Numbers of two columns, dates as years, of the rows that have both."""
    from latlin.datasets.columns import column_of_numbers, looks_written
    from latlin.datasets.dates import YEAR, days_of, looks_dated
    from latlin.datasets.problems import refuse_unknown

    refuse_unknown(frame.columns, (target, along))
    if target == along:
        raise ValueError(f"target and along must be two columns, got {target!r} for both")
    x, y = column_of_numbers(frame[along]), column_of_numbers(frame[target])
    if x is None and looks_dated(frame[along]):
        x = 1970.0 + days_of(frame[along]) / YEAR
    for name, values in ((along, x), (target, y)):
        if values is None:
            written = f": read them with --numbers {name}" if looks_written(frame[name]) else ""
            raise ValueError(f"column {name!r} must hold numbers" + (" or dates" if name == along else "") + written)
    assert x is not None
    assert y is not None
    kept = np.isfinite(x) & np.isfinite(y)
    if len(np.unique(x[kept])) < 5:
        raise ValueError(f"a curve along {along!r} needs at least five different values")
    return x[kept], y[kept], kept


def _smooth_model(x: Any, y: Any, along: str) -> tuple[Any, Any, Any]:
    """The model, its curve, and the band at the rows: a process, or a spline where rows are many."""
    from latlin.additive import AdditiveModel
    from latlin.gp import GaussianProcessRegressor
    from latlin.report.processes import PLACES, Curve, band

    places = np.linspace(x.min(), x.max(), PLACES)
    found: Any
    at: Any
    rows: Any
    if len(x) <= PROCESS_ROWS:
        found = GaussianProcessRegressor(normalise_y=True, hyperparameters="maximise").fit(x[:, None], y)
        at, rows = places[:, None], x[:, None]
    else:
        found = AdditiveModel("y ~ s(x)", hyperparameters="maximise").fit({"x": x, "y": y})
        at, rows = {"x": places}, {"x": x}
    curve = Curve(along, places, *band(*found.predict_latent(at, return_std=True)))
    return found, curve, band(*found.predict_latent(rows, return_std=True))


def _write(
    out: Path, page: str, notes: list[str], table: Path | None, rows: Any, model: Path | None, found: Any
) -> None:
    """The page, the table and the model, and what was found on the screen."""
    from latlin.datasets.table import write_table
    from latlin.numerics.atomic import write_text

    console = screen()
    for note in notes:
        console.print(mask_controls(note))
    write_text(out, page)
    console.print(f"Saved {mask_controls(out)}")
    if table is not None:
        write_table(table, rows)
        console.print(f"Saved {mask_controls(table)}")
    if model is not None:
        found.save(model)
        console.print(f"Saved {mask_controls(model)}")

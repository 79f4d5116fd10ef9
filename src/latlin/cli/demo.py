"""The tour: fit, compare the engines, diagnose and report the breast-cancer data; radon in counties with few houses."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from latlin.cli.models import Fitting, fit_model, make_estimator, save_model
from latlin.cli.prepare import Choices, Prepared, prepare
from latlin.cli.screen import format_number, show_steps, table
from latlin.cli.tell import tell_assessment, tell_coefficients
from latlin.datasets.bundled import load_dataset
from latlin.datasets.table import need_pandas, read_table, write_table
from latlin.numerics.atomic import replace_file, write_text
from latlin.report.facts import Facts
from latlin.report.sections import render

#: draws for the check of the approximation: few leave it undecided
DRAWS = 12_000

#: rows to learn from when engines are compared, and how often
FEW, SPLITS = 160, 5
ENGINES = ("map", "laplace", "lvb", "ep", "gkl")
COLUMNS = ("engine", "log evidence", "kind", "seconds", "held-out log p", "Brier", "rows learnt from", "rows held out")


def run_demo(folder: Path, console: Console) -> None:
    """Write the table, the model, the comparison, a figure and the report into `folder`, and say what they show."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "breast-cancer.csv"
    write_table(data, load_dataset("breast-cancer").to_pandas().astype({"benign": int}))
    prepared = prepare(read_table(data), Choices("benign", family="logistic"))
    console.print(f"1  Fit: {len(prepared.y)} tumours, {prepared.X.shape[1]} features. The same by hand:")
    console.print(f"   latlin fit {data} --target benign --out {folder / 'model.latlin'}\n")
    compile_engines(prepared)
    model = fit_model(prepared, Fitting(draws=DRAWS))
    console.print(f"Log evidence {model.facts.log_evidence[0][1]:.2f} ({model.facts.evidence_kind})")
    tell_assessment(model.facts, console)
    tell_coefficients(model.facts, console, 6)

    console.print(
        f"\n2  Compare the engines at the prior scale found: {FEW} tumours to learn from, the others held out; "
        f"means over {SPLITS} splits.\n"
    )
    rows = compare_engines(prepared, float(model.estimator.prior_scale_))
    console.print(table(COLUMNS, map(format_row, rows)))
    console.print(
        "\nA lower bound says that the log evidence is at least that. An approximation may lie on either side; a point "
        "estimate has none."
    )
    write_table(folder / "engines.csv", need_pandas().DataFrame(rows, columns=list(COLUMNS)))

    console.print("\n3  Diagnose, by importance sampling from the posterior:\n")
    console.print(table(("", ""), model.facts.diagnosis))

    facts = model.facts.with_(
        title="Breast cancer: log odds of a benign tumour",
        engines=[dict(zip(COLUMNS, format_row(row), strict=True)) for row in rows],
    )
    save_model(folder / "model.latlin", model._replace(facts=facts))
    draw(folder / "coefficients.png", facts)
    write_text(folder / "report.html", render(facts))
    tell_counties(folder, console)
    console.print(f"\n5  Report: open {folder / 'report.html'} in a browser; it needs no network.")
    console.print(f"Also saved in {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")


def compile_engines(prepared: Prepared) -> None:
    """Run every engine on a few rows, so that the seconds below are those of the work and not of the compiler."""
    with show_steps("Compiling, the first time only", len(ENGINES)) as advance:
        for engine in ENGINES:
            make_estimator(prepared.target, engine, 1.0).fit(prepared.X[:60], prepared.y[:60])
            advance()


def compare_engines(prepared: Prepared, prior_scale: float) -> list[dict[str, Any]]:
    """Every engine on the same splits of the rows: what it says, and how it predicts the rest, on average."""
    orders = [np.random.default_rng(split).permutation(len(prepared.y)) for split in range(SPLITS)]
    lines = []
    with show_steps("Comparing the engines", len(ENGINES)) as advance:
        for engine in ENGINES:
            found = [try_engine(prepared, engine, prior_scale, order[:FEW], order[FEW:]) for order in orders]
            evidence, seconds, density, brier = np.mean([values for values, _ in found], axis=0).tolist()
            rows = (FEW, len(prepared.y) - FEW)
            lines.append(
                dict(zip(COLUMNS, (engine, evidence, found[0][1], seconds, density, brier, *rows), strict=True))
            )
            advance()
    return lines


def try_engine(
    prepared: Prepared, engine: str, prior_scale: float, train: Any, test: Any
) -> tuple[tuple[float, float, float, float], str]:
    """Log evidence, seconds, held-out log density and Brier score of one fit, and the kind of its evidence."""
    started = time.perf_counter()
    fitted = make_estimator(prepared.target, engine, prior_scale).fit(prepared.X.iloc[train], prepared.y[train])
    seconds = time.perf_counter() - started
    probability = fitted.predict_proba(prepared.X.iloc[test])[:, 1]
    density = float(fitted.log_predictive_density(prepared.X.iloc[test], prepared.y[test]).mean())
    brier = float(np.mean((probability - prepared.y[test]) ** 2))
    return (float(fitted.log_evidence_), seconds, density, brier), fitted.evidence_kind_


def format_row(row: dict[str, Any]) -> list[str]:
    """Numbers as people read them; what does not exist is a dash."""
    forms = {"log evidence": ".2f", "seconds": ".3f", "held-out log p": ".4f", "Brier": ".4f"}
    return [format_number(row[name], forms[name]) if name in forms else str(row[name]) for name in COLUMNS]


def draw(path: Path, facts: Facts) -> None:
    """What one standard deviation of each feature does, as a forest plot."""
    from matplotlib.figure import Figure

    from latlin import plot

    figure = Figure(figsize=(7, 8), layout="constrained")
    rows = [
        {"name": row["name"]} | {end: row["effect"] * row[end] for end in ("mean", "low", "high")}
        for row in facts.coefficients
    ]
    axes = plot.forest(rows, figure.subplots())
    axes.set_xlabel("coefficient of the standardised feature, with 90 % interval")
    axes.set_title(facts.title)
    with replace_file(path) as fresh:
        figure.savefig(fresh, dpi=150, format="png")


# --- Where the posterior wins over the mode: many counties with few houses each.

#: share of the houses to learn from
LEARNT = 0.35


def tell_counties(folder: Path, console: Console) -> None:
    """Radon in the counties of Minnesota: the mode, every county alone, beside the posterior, all counties together."""
    from latlin.additive import AdditiveModel

    houses = load_dataset("radon").to_pandas()
    is_learnt = np.random.default_rng(0).random(len(houses)) < LEARNT
    train, test = houses[is_learnt], houses[~is_learnt]
    test = test[test["county"].isin(train["county"])]
    alone, level, noise = fit_counties_alone(train)
    model = AdditiveModel("log_radon ~ floor + (1 | county)").fit(train)
    residual = (test["log_radon"] - alone(test)).to_numpy() / noise
    mode = float(np.mean(-0.5 * residual**2 - np.log(noise) - 0.5 * np.log(2.0 * np.pi)))
    posterior = float(np.mean(model.log_predictive_density(test)))
    size = train["county"].value_counts()
    counties = f"{len(size)} counties, half of them with {size.median():.0f} houses or fewer"
    console.print(
        f"\n4  Few rows per group: radon in {len(train)} houses of {counties}; {len(test)} houses held out.\n"
    )
    rows = [("mode, every county alone", f"{mode:.3f}"), ("posterior, all counties together", f"{posterior:.3f}")]
    console.print(table(("", "held-out log p per house"), rows))
    console.print(f"The picture is {folder / 'counties.png'}: most of what single counties seem to say is chance.")
    draw_counties(folder / "counties.png", model, level, test)


def fit_counties_alone(train: Any) -> tuple[Any, dict[Any, float], float]:
    """Least squares with one level per county: its predictions, the levels, and the noise."""
    counties = np.unique(train["county"])

    def rows(houses: Any) -> Any:
        return np.column_stack([houses["floor"], houses["county"].to_numpy()[:, None] == counties]).astype(float)

    weight = np.linalg.lstsq(rows(train), train["log_radon"], rcond=None)[0]
    noise = float(np.std(train["log_radon"] - rows(train) @ weight))
    return lambda houses: rows(houses) @ weight, dict(zip(counties, weight[1:], strict=True)), noise


def draw_counties(path: Path, model: Any, level: dict[Any, float], test: Any) -> None:
    """Before and after: what each county alone, and what all together say, against the houses that were held out."""
    from matplotlib.figure import Figure

    floor = float(model.effects()["floor"]["mean"])
    corrected = test["log_radon"] - floor * test["floor"]
    later = corrected.groupby(test["county"]).agg(["mean", "size"])
    later = later[later["size"] >= 3]
    new = {"county": later.index.to_numpy(), "floor": np.zeros(len(later))}
    mean, std = model.predict_latent(new, return_std=True)
    alone = np.array([level[county] for county in later.index])
    figure = Figure(figsize=(9, 4.4), layout="constrained")
    for axes, x, error, title in zip(
        figure.subplots(1, 2, sharex=True, sharey=True),
        (alone, mean),
        (None, 1.64 * std),
        ("mode: every county alone", "posterior: all counties together"),
        strict=True,
    ):
        axes.errorbar(x, later["mean"], xerr=error, fmt="o", ms=4, alpha=0.7, elinewidth=0.8)
        ends = [float(alone.min()) - 0.2, float(alone.max()) + 0.2]
        axes.plot(ends, ends, color="#666666", lw=0.8)
        wrong = float(np.sqrt(np.mean((later["mean"] - x) ** 2)))
        axes.set_title(f"{title} (error {wrong:.2f})")
        axes.set_xlabel("log radon of a county, learnt")
        axes.set_ylabel("mean of its held-out houses")
    with replace_file(path) as fresh:
        figure.savefig(fresh, dpi=150, format="png")

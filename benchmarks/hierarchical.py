"""Hierarchical models whose answers are known: posteriordb's data and moments against `latlin.additive`.

    python benchmarks/hierarchical.py [--data FOLDER] [--engine ep] [--only eight_schools …]
                                      [--nuts [--limit 120]] [--peers]

FOLDER holds gzip'd JSON files with `data` and `reference` (names, mean, sd, mcse) of posteriors of posteriordb
(Magnusson and others 2024) or of long NUTS runs. One line per posterior: the largest error of a mean in units of its sd
(and how far it is beyond three Monte Carlo errors), the largest error of an sd in per cent, over coefficients and
hyperparameters, and the processor seconds of the fit. With `--nuts` each has beside it NUTS of NumPyro, 4 chains of
1,000 draws after 1,000 for warming up, one thread, compiling not counted: its errors, its seconds (those of all
iterations, by the share that was made within the limit), and how often a fit fits into them; where there is no
reference, the moments of NUTS with their Monte Carlo errors are one. With `--peers` there are GPBoost and statsmodels,
which maximise the scales, where they have the model: the shortest of five fits, alternating with ours, and how often
theirs fits into ours.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from _suite import run_alone
from _task import DATA, Task, Trial, by
from latlin import GaussianFactor, LatentLinearModel, SiteFactor, integrate_evidence, potentials
from latlin.additive import AdditiveModel, Fixed, Group
from latlin.priors import Beta, Flat, Gamma, HalfCauchy, HalfNormal, Uniform

Moments = dict[str, tuple[float, float]]
FOLDER = DATA / "posteriors"


class Case(NamedTuple):
    """A posterior: its file, the model in a few lines, and its moments by the reference's names."""

    file: str
    fit: Callable[[dict[str, Any], str], tuple[Any, dict[str, Any]]]
    moments: Callable[[Any, dict[str, Any]], Moments]


def flat(*names: str) -> dict[str, Any]:
    return {name: Flat() for name in names}


def table(data: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: np.asarray(data[name]) for name in names}


def coefficients(model: AdditiveModel, names: dict[str, str]) -> Moments:
    """Coefficients by the reference's names."""
    rows = model.effects()
    return {theirs: (rows[ours]["mean"], rows[ours]["sd"]) for ours, theirs in names.items()}


def learnt(model: AdditiveModel, names: dict[str, str]) -> Moments:
    rows = model.hyperparameters_
    return {theirs: (rows[ours]["mean"], rows[ours]["sd"]) for ours, theirs in names.items()}


def by_own_names(model: AdditiveModel) -> Moments:
    """Coefficients and hyperparameters where there is no reference to name them."""
    names = {name: name for name in model.effects().names}
    return {**coefficients(model, names), **learnt(model, {name: name for name in model.hyperparameters_.names})}


def predictors(model: AdditiveModel, frame: dict[str, Any], name: str) -> Moments:
    mean, sd = model.predict_latent(frame, return_std=True)
    return {f"{name}[{k + 1}]": (float(m), float(s)) for k, (m, s) in enumerate(zip(mean, sd, strict=True))}


def levels(model: AdditiveModel, term: str, name: str) -> Moments:
    rows = model.effects(term).rows
    return {f"{name}[{k + 1}]": (row["mean"], row["sd"]) for k, row in enumerate(rows)}


# --- the models, a few lines each ---------------------------------------------------------------------------------


def eight_schools(data: dict[str, Any], engine: str) -> tuple[AdditiveModel, dict[str, Any]]:
    frame = {**table(data, "y", "sigma"), "school": np.arange(data["J"])}
    priors = {"Intercept": 5.0, "sd(school)": HalfCauchy(5.0)}
    return AdditiveModel("y | se(sigma) ~ 1 + (1 | school)", priors=priors).fit(frame), frame


def kidiq(data: dict[str, Any], engine: str) -> tuple[AdditiveModel, dict[str, Any]]:
    frame = table(data, "kid_score", "mom_hs", "mom_iq")
    priors = {**flat("Intercept", "mom_hs", "mom_iq"), "sigma": HalfCauchy(2.5)}
    return AdditiveModel("kid_score ~ mom_hs + mom_iq", priors=priors).fit(frame), frame


def mesquite(data: dict[str, Any], engine: str) -> tuple[AdditiveModel, dict[str, Any]]:
    frame = table(data, "weight", "diam1", "diam2", "canopy_height", "total_height", "density", "group")
    sizes = ["log(diam1)", "log(diam2)", "log(canopy_height)", "log(total_height)", "log(density)", "group"]
    priors = {**flat("Intercept", *sizes), "sigma": Flat()}
    return AdditiveModel(f"log(weight) ~ {' + '.join(sizes)}", priors=priors).fit(frame), frame


def nes(data: dict[str, Any], engine: str) -> tuple[AdditiveModel, dict[str, Any]]:
    frame = table(data, "partyid7", "real_ideo", "race_adj", "educ1", "gender", "income")
    age = np.asarray(data["age_discrete"])
    frame |= {f"age{k}": (age == k).astype(float) for k in (2, 3, 4)}
    names = ["real_ideo", "race_adj", "age2", "age3", "age4", "educ1", "gender", "income"]
    priors = {**flat("Intercept", *names), "sigma": Flat()}
    return AdditiveModel(f"partyid7 ~ {' + '.join(names)}", priors=priors).fit(frame), frame


def glmm_poisson(data: dict[str, Any], engine: str) -> tuple[AdditiveModel, dict[str, Any]]:
    year = np.asarray(data["year"], float)
    frame = {"C": data["C"], "year": year, "year2": year**2, "year3": year**3, "row": np.arange(len(year))}
    priors = {**flat("Intercept", "year", "year2", "year3"), "sd(row)": Uniform(0.0, 5.0)}
    formula = "C ~ year + year2 + year3 + (1 | row)"
    return AdditiveModel(formula, family="poisson", engine=engine, priors=priors).fit(frame), frame


def glm_binomial(data: dict[str, Any], engine: str) -> tuple[AdditiveModel, dict[str, Any]]:
    year = np.asarray(data["year"], float)
    frame = {"C": data["C"], "N": data["N"], "year": year, "year2": year**2}
    priors = {"Intercept": 100.0, "year": 100.0, "year2": 100.0}
    return AdditiveModel("C | trials(N) ~ year + year2", family="binomial", engine=engine, priors=priors).fit(
        frame
    ), frame


def seeds(data: dict[str, Any], engine: str) -> tuple[AdditiveModel, dict[str, Any]]:
    frame = {**table(data, "n", "N", "x1", "x2"), "plate": np.arange(data["I"])}
    frame["x12"] = frame["x1"] * frame["x2"]
    terms = [Fixed("x1", "x2", "x12"), Group("plate", centred=True)]
    priors = {"Intercept": 1.0, "x1": 1.0, "x2": 1.0, "x12": 1.0, "sd(plate)": HalfCauchy(1.0)}
    model = AdditiveModel(response="n | trials(N)", terms=terms, family="binomial", engine=engine, priors=priors)
    return model.fit(frame), frame


def radon_mn(data: dict[str, Any], engine: str) -> tuple[AdditiveModel, dict[str, Any]]:
    frame = table(data, "log_radon", "county_idx")
    priors = {"Intercept": 10.0, "sd(county_idx)": HalfNormal(1.0), "sigma": HalfNormal(1.0)}
    return AdditiveModel("log_radon ~ (1 | county_idx)", priors=priors).fit(frame), frame


def wells(data: dict[str, Any], engine: str) -> tuple[AdditiveModel, dict[str, Any]]:
    frame = {"y": data["switched"], "dist": np.asarray(data["dist"]) / 100.0, "arsenic": np.asarray(data["arsenic"])}
    priors = flat("Intercept", "dist", "arsenic")
    return AdditiveModel("y ~ dist + arsenic", family="bernoulli", engine=engine, priors=priors).fit(frame), frame


def wells_inter(data: dict[str, Any], engine: str) -> tuple[AdditiveModel, dict[str, Any]]:
    columns = {
        "d": np.asarray(data["dist"]) / 100.0,
        "a": np.asarray(data["arsenic"]),
        "e": np.asarray(data["educ"]) / 4.0,
    }
    frame = {name: np.asarray(x, float) - np.mean(x) for name, x in columns.items()}
    frame |= {"da": frame["d"] * frame["a"], "de": frame["d"] * frame["e"], "ae": frame["a"] * frame["e"]}
    names = list(frame)
    model = AdditiveModel(f"y ~ {' + '.join(names)}", "bernoulli", engine=engine, priors=flat("Intercept", *names))
    return model.fit({**frame, "y": data["switched"]}), frame


def election(data: dict[str, Any], engine: str) -> tuple[AdditiveModel, dict[str, Any]]:
    frame = table(data, "y", "black", "female", "v_prev_full", "age", "edu", "age_edu", "state", "region_full")
    frame["both"] = frame["female"] * frame["black"]
    groups = ("age", "edu", "age_edu", "state", "region_full")
    names = ("black", "female", "v_prev_full", "both")
    priors = {**dict.fromkeys(("Intercept", *names), 100.0), **{f"sd({g})": Uniform(0.0, 100.0) for g in groups}}
    formula = f"y ~ {' + '.join(names)} + {' + '.join(f'(1 | {g})' for g in groups)}"
    return AdditiveModel(formula, "bernoulli", engine=engine, priors=priors).fit(frame), frame


def radon_all(data: dict[str, Any], engine: str) -> tuple[AdditiveModel, dict[str, Any]]:
    frame = table(data, "log_radon", "log_uppm", "floor_measure", "county_idx")
    scales = {"sd(county_idx)": HalfNormal(1.0), "sigma": HalfNormal(1.0)}
    priors = {**dict.fromkeys(("Intercept", "log_uppm", "floor_measure"), 10.0), **scales}
    return AdditiveModel("log_radon ~ log_uppm + floor_measure + (1 | county_idx)", priors=priors).fit(frame), frame


def rats(data: dict[str, Any], engine: str) -> tuple[AdditiveModel, dict[str, Any]]:
    frame = {"y": data["y"], "x": np.asarray(data["x"], float) - data["xbar"], "rat": data["rat"]}
    priors = {"Intercept": 100.0, "x": 100.0, "sd(rat)": Flat(), "sd(rat:x)": Flat(), "sigma": Flat()}
    return AdditiveModel("y ~ x + (1 + x || rat)", priors=priors).fit(frame), frame


def new_york(data: dict[str, Any], engine: str) -> tuple[AdditiveModel, dict[str, Any]]:
    edges = list(zip(data["node1"], data["node2"], strict=True))
    frame = {"y": data["y"], "E": np.asarray(data["E"], float), "area": np.arange(1, data["N"] + 1)}
    priors = {"Intercept": 1.0, "sd(bym2(area))": HalfNormal(1.0), "rho(bym2(area))": Beta(0.5, 0.5)}
    model = AdditiveModel("y ~ bym2(area) + offset(log(E))", family="poisson", engine=engine, priors=priors)
    return model.fit(frame, graph=edges), frame


def poisson_process(data: dict[str, Any], engine: str) -> tuple[Any, dict[str, Any]]:
    """A squared exponential process, which no term is: a model by hand, its two numbers integrated."""
    x = np.asarray(data["x"], float)

    def build(rho: float, alpha: float) -> LatentLinearModel:
        K = alpha**2 * np.exp(-0.5 * ((x[:, None] - x) / rho) ** 2) + 1e-10 * np.eye(len(x))
        return LatentLinearModel([GaussianFactor(cov=K), SiteFactor(None, potentials.Poisson(data["k"]))])

    priors = {"rho": Gamma(25.0, 4.0), "alpha": HalfNormal(2.0)}
    found = integrate_evidence(build, {"rho": 5.0, "alpha": 2.0}, priors=priors, engine="ep")
    kind = found.posterior.evidence_kind
    return SimpleNamespace(found=found, log_evidence_=found.log_evidence, evidence_kind_=kind), {}


def process_moments(model: Any, frame: dict[str, Any]) -> Moments:
    table, posterior = model.found.hyperparameters, model.found.posterior
    places = enumerate(zip(posterior.mean, np.sqrt(posterior.variance), strict=True))
    return {
        **{name: (table[name]["mean"], table[name]["sd"]) for name in ("rho", "alpha")},
        **{f"f[{k + 1}]": (float(m), float(s)) for k, (m, s) in places},
    }


def numbered(*names: str) -> dict[str, str]:
    return {name: f"beta[{k + 1}]" for k, name in enumerate(names)}


def sigma(model: AdditiveModel) -> Moments:
    return learnt(model, {"sigma": "sigma"})


CASES = {
    "eight_schools": Case(
        "eight_schools-eight_schools_noncentered",
        eight_schools,
        lambda m, f: {
            **predictors(m, f, "theta"),
            **coefficients(m, {"Intercept": "mu"}),
            **learnt(m, {"sd(school)": "tau"}),
        },
    ),
    "kidiq": Case(
        "kidiq-kidscore_momhsiq",
        kidiq,
        lambda m, f: {**coefficients(m, numbered("Intercept", "mom_hs", "mom_iq")), **sigma(m)},
    ),
    "mesquite": Case(
        "mesquite-logmesquite",
        mesquite,
        lambda m, f: {**coefficients(m, numbered(*m.effects().names)), **sigma(m)},
    ),
    "nes1972": Case("nes1972-nes", nes, lambda m, f: {**coefficients(m, numbered(*m.effects().names)), **sigma(m)}),
    "glmm_poisson": Case(
        "GLMM_Poisson_data-GLMM_Poisson_model",
        glmm_poisson,
        lambda m, f: {
            **coefficients(m, {"Intercept": "alpha", "year": "beta1", "year2": "beta2", "year3": "beta3"}),
            **levels(m, "row", "eps"),
            **learnt(m, {"sd(row)": "sigma"}),
        },
    ),
    "glm_binomial": Case(
        "GLM_Binomial_data-GLM_Binomial_model",
        glm_binomial,
        lambda m, f: coefficients(m, {"Intercept": "b0", "year": "b1", "year2": "b2"}),
    ),
    "seeds": Case(
        "seeds_data-seeds_centered_model",
        seeds,
        lambda m, f: {
            **coefficients(m, {"Intercept": "alpha0", "x1": "alpha1", "x2": "alpha2", "x12": "alpha12"}),
            **levels(m, "plate", "b"),
            **learnt(m, {"sd(plate)": "sigma"}),
        },
    ),
    "radon_mn": Case(
        "radon_mn-radon_partially_pooled_centered",
        radon_mn,
        lambda m, f: {
            **predictors(m, {"county_idx": np.arange(1, 86)}, "alpha"),
            **coefficients(m, {"Intercept": "mu_alpha"}),
            **learnt(m, {"sd(county_idx)": "sigma_alpha", "sigma": "sigma_y"}),
        },
    ),
    "wells": Case(
        "wells_data-wells_dist100ars_model",
        wells,
        lambda m, f: coefficients(m, {"Intercept": "b0", "dist": "b1", "arsenic": "b2"}),
    ),
    "wells_inter": Case(
        "wells_data-wells_dae_inter_model",
        wells_inter,
        lambda m, f: coefficients(m, {name: f"b{k}" for k, name in enumerate(m.effects().names)}),
    ),
    "gp_pois_regr": Case("gp_pois_regr-gp_pois_regr", poisson_process, process_moments),
    "election88": Case("election88-election88_full", election, lambda m, f: by_own_names(m)),
    "radon_all": Case("radon_all-radon_hierarchical_intercept_noncentered", radon_all, lambda m, f: by_own_names(m)),
    "rats": Case("rats_data-rats_model", rats, lambda m, f: by_own_names(m)),
    "new_york": Case("traffic_accident_nyc-bym2_offset_only", new_york, lambda m, f: by_own_names(m)),
}


class Score(NamedTuple):
    """How far a fit is from the reference."""

    worst_mean: float
    beyond: float
    worst_sd: float
    worst_name: str
    compared: int


def compare(found: Moments, reference: dict[str, Any]) -> Score:
    """The largest errors over the names that both have."""
    names = [name for name in reference["names"] if name in found]
    mean, sd, noise = (dict(zip(reference["names"], reference[key], strict=True)) for key in ("mean", "sd", "mcse"))
    error = np.array([abs(found[n][0] - mean[n]) / sd[n] for n in names])
    # what Monte Carlo noise does not excuse
    beyond = np.array([max(abs(found[n][0] - mean[n]) - 3.0 * noise[n], 0.0) / sd[n] for n in names])
    spread = np.array([found[n][1] / sd[n] - 1.0 for n in names])
    worst = int(np.argmax(np.abs(spread)))
    return Score(float(error.max()), float(beyond.max()), 100.0 * float(spread[worst]), names[worst], len(names))


def read(folder: Path, case: Case) -> dict[str, Any]:
    """Data and reference of a posterior."""
    with gzip.open(folder / f"{case.file}.json.gz", "rt") as file:
        return dict(json.load(file))


def tasks(size: str) -> list[Task]:
    """Every posterior with its scales integrated; GPBoost maximises those of the two large ones."""
    small = ("eight_schools", "kidiq", "seeds", "radon_mn")
    found = [Task(name, "latlin.additive", partial(trial, name)) for name in (small if size == "small" else CASES)]
    if size == "full":
        found += [Task(name, "gpboost, maximised", partial(gpboost_trial, name), **by("gpboost")) for name in GPBOOST]
    for manner in ("maximise", "integrate"):
        case = f"logistic, {ROWS:,} rows, {GROUPS:,} groups, {manner}"
        found.append(Task(case, "latlin.additive", partial(groups_trial, manner)))
        found.append(Task(case, "gpboost, maximised", partial(groups_trial, ""), **by("gpboost")))
    return found


#: rows and groups of the logistic model whose one scale is learnt
ROWS, GROUPS = 10_000, 1_000


def groups_trial(manner: str) -> Trial:
    """Drawn data; GPBoost where there is no manner."""
    rng = np.random.default_rng(0)
    group, x = rng.integers(GROUPS, size=ROWS), rng.standard_normal(ROWS)
    eta = -0.5 + 0.3 * x + 0.7 * rng.standard_normal(GROUPS)[group]
    y = (rng.random(ROWS) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    if manner:
        model = AdditiveModel("y ~ x + (1 | g)", family="bernoulli", hyperparameters=manner)
        frame = {"y": y, "x": x, "g": group}
        return Trial(lambda: model.fit(frame), lambda found: {"scale": found.hyperparameters_["sd(g)"]["mean"]})
    import gpboost

    def fit() -> Any:
        theirs = gpboost.GPModel(group_data=group, likelihood="bernoulli_logit")
        theirs.fit(y=y, X=np.column_stack([np.ones(ROWS), x]))
        return theirs

    return Trial(fit, lambda found: {"scale": float(np.sqrt(np.ravel(found.get_cov_pars())[0]))})


def trial(name: str) -> Trial:
    case = CASES[name]
    stored = read(FOLDER, case)

    def judge(found: tuple[AdditiveModel, dict[str, Any]]) -> dict[str, float | str]:
        if not stored.get("reference"):
            return {"log evidence": float(found[0].log_evidence_)}
        score = compare(case.moments(*found), stored["reference"])
        return {"worst mean, sd": score.worst_mean, "beyond 3 mcse": score.beyond, "worst sd, %": score.worst_sd}

    return Trial(lambda: case.fit(stored["data"], "auto"), judge)


#: posteriors that GPBoost fits too: likelihood, response, coefficients, groups
GPBOOST = {
    "radon_all": ("gaussian", "log_radon", ("log_uppm", "floor_measure"), ("county_idx",)),
    "election88": (
        "bernoulli_logit",
        "y",
        ("black", "female", "v_prev_full"),
        ("age", "edu", "age_edu", "state", "region_full"),
    ),
}


def gpboost_trial(name: str) -> Trial:
    import gpboost

    likelihood, response, columns, groups = GPBOOST[name]
    data = read(FOLDER, CASES[name])["data"]
    y = np.asarray(data[response], float)
    X = np.column_stack([np.ones(len(y)), *(np.asarray(data[column], float) for column in columns)])
    if name == "election88":
        X = np.column_stack([X, X[:, 1] * X[:, 2]])
    labels = np.column_stack([np.asarray(data[group]) for group in groups])

    def fit() -> Any:
        model = gpboost.GPModel(group_data=labels, likelihood=likelihood)
        model.fit(y=y, X=X)
        return model

    return Trial(fit, lambda model: {"negative log likelihood": float(model.get_current_neg_log_likelihood())})


def sampled(name: str, data: dict[str, Any], limit: float) -> Any:
    """NUTS of one posterior, on one thread."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    from _nuts import sample

    return sample(name, data, limit)


def as_reference(nuts: Any) -> dict[str, Any]:
    """Moments and Monte Carlo errors of NUTS as those of a reference."""
    names = list(nuts.moments)
    mean, sd = zip(*nuts.moments.values(), strict=True)
    return {"names": names, "mean": mean, "sd": sd, "mcse": [nuts.mcse[name] for name in names]}


#: posteriors that statsmodels fits too: a formula and the groups
STATSMODELS = {
    "radon_mn": ("log_radon ~ 1", "county_idx"),
    "radon_all": ("log_radon ~ log_uppm + floor_measure", "county_idx"),
}


def statsmodels_trial(name: str) -> Trial:
    import pandas as pd
    import statsmodels.formula.api as smf

    formula, group = STATSMODELS[name]
    data = read(FOLDER, CASES[name])["data"]
    columns = {key: value for key, value in data.items() if np.size(value) == np.size(data["log_radon"])}
    frame = pd.DataFrame(columns)
    return Trial(
        lambda: smf.mixedlm(formula, frame, groups=frame[group]).fit(reml=False),
        lambda found: {"log likelihood": float(found.llf)},
    )


def beside(name: str, ours: Callable[[], Any]) -> list[str]:
    """Lines of a table: peers that have the model, and the ratio of the shortest fits."""
    trials = {"GPBoost": (GPBOOST, gpboost_trial), "statsmodels": (STATSMODELS, statsmodels_trial)}
    lines = []
    for peer, (known, make) in trials.items():
        if name not in known:
            continue
        try:
            theirs = make(name).action
        except ImportError:
            lines.append(f"| | {peer} | – | – | – | – | – | – | not installed |")
            continue
        theirs()
        times = [(_seconds(ours), _seconds(theirs)) for _ in range(5)]
        mine, its = (min(column) for column in zip(*times, strict=True))
        lines.append(f"| | {peer} | – | – | – | – | – | {its:.3f} | latlin {mine:.3f}, {mine / its:.1f} × |")
    return lines


def _seconds(fit: Callable[[], Any]) -> float:
    start = time.process_time()
    fit()
    return time.process_time() - start


def errors(found: Moments, reference: dict[str, Any] | None) -> str:
    if not reference or not found:
        return "– | – | – | – | –"
    score = compare(found, reference)
    return (
        f"{score.compared} | {score.worst_mean:.3f} | {score.beyond:.3f} | {score.worst_sd:+.1f} | {score.worst_name}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=FOLDER)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--only", nargs="*", default=list(CASES))
    parser.add_argument("--nuts", action="store_true", help="NumPyro beside")
    parser.add_argument("--peers", action="store_true", help="GPBoost and statsmodels beside")
    parser.add_argument("--limit", type=float, default=120.0, help="processor seconds of NUTS for one posterior")
    options = parser.parse_args()
    print("| posterior | by | numbers | mean, sd | beyond 3 mcse | sd, % | at | seconds | log evidence |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in options.only:
        case = CASES[name]
        stored = read(options.data, case)
        case.fit(stored["data"], options.engine)
        start = time.process_time()
        model, frame = case.fit(stored["data"], options.engine)
        took = time.process_time() - start
        reference, evidence = stored.get("reference"), f"{model.log_evidence_:.3f} ({model.evidence_kind_})"
        nuts = sampled(name, stored["data"], options.limit) if options.nuts else None
        if not reference and nuts is not None and nuts.moments:
            reference = as_reference(nuts)
        ours = errors(case.moments(model, frame), reference)
        print(f"| {name} | latlin | {ours} | {took:.2f} | {evidence} |", flush=True)
        if nuts is not None:
            theirs = errors(nuts.moments, stored.get("reference"))
            whole = nuts.seconds / nuts.finished
            note = f"{whole / took:.0f} ×, R̂ {nuts.r_hat:.3f}, {100 * nuts.finished:.0f} % made"
            print(f"| | NUTS | {theirs} | {whole:.1f} | {note} |", flush=True)
        for line in beside(name, partial(case.fit, stored["data"], options.engine)) if options.peers else []:
            print(line, flush=True)


if __name__ == "__main__":
    run_alone(__file__, main)

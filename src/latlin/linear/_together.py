"""Several classes in one model with one evidence: one vector of coefficients per class, joined by a `ClassLink`.

`BayesianLogisticRegression(multi_class="softmax")` and the estimators of `multinomial.py` fit and predict by these
functions; `inference/gaussian_kl/classes.py` has the bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.utils import gen_even_slices

from latlin.densities.density import Mixture, MixtureMarginals
from latlin.distributed.blocks import Block
from latlin.hyper.learn import Learnt, integrate, maximise
from latlin.hyper.space import Evaluation
from latlin.inference.diagnosis.diagnose import UNKNOWN
from latlin.inference.gaussian_kl.class_rows import BlockClasses, Classes
from latlin.inference.gaussian_kl.classes import ClassesFit, fit_coefficients
from latlin.inference.model import LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.linear._blocks import BlockRows
from latlin.linear._fitting import SMALL, name_wide_priors, settle_hyperparameters
from latlin.linear._learning import Learning, LearntFit, Unknowns, fit_of, fixed_table
from latlin.linear._predict import LinearPredictors
from latlin.linear._problem import Design, LabelCoding, LinearProblem, offset_of
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Rules
from latlin.numerics.threads import blas_threads_for
from latlin.potentials.class_links import ClassLink
from latlin.potentials.gaussian import Gaussian

RULES = Rules(1e-4, 1e-9, 500, monotone=True, remedy="give a smaller prior_scale")
FINE = 1e-8
#: where the search for the prior scale begins, in its unit: wide priors on separable classes take many steps
START = 0.3
#: most that a search for the scale goes beyond the scales it knows, as a logarithm: a fit far out took half a minute
STRIDE = 2.5
#: draws of the latents for intervals
DRAWS = 2000
#: least precision of a stand-in
LEAST = 1e-12
#: numbers that are made at a time
NUMBERS = 2 * 10**6
CAUTION = "this is one class of a joint fit, in which Gaussians stand for the likelihood, so that its draws say nothing"


def fit_together(
    link: ClassLink,
    problems: list[LinearProblem],
    given: Mapping[str, Any],
    wish: Learning,
    earlier: Sequence[LearntFit],
    verbose: bool,
) -> list[LearntFit]:
    """One fit per class, all of one model; `given` and `wish` say what its prior scale is, `earlier` fits start it."""
    problem, data = problems[0], _classes_of(problems)
    values, free = settle_hyperparameters(problem, dict(given), False)
    with blas_threads_for(problem.longest_product(len(problems))):
        if not free or wish.manner == "fixed":
            found = _fitted(link, problem, data, values, None, verbose)
            return [
                LearntFit(_posterior(link.name, each, values, found, k), dict(values), table=fixed_table(values))
                for k, each in enumerate(problems)
            ]
        values["prior_scale"] = earlier[0].values["prior_scale"] if earlier else START * problem.unit
        unknowns = Unknowns(problem, values, free, wish.priors)
        learnt, fits = _learn(link, problem, data, unknowns, wish, verbose), []
        for k, each in enumerate(problems):
            of_class = [
                part._replace(fit=_posterior(link.name, each, unknowns.assembled(part.values), part.fit, k))
                for part in learnt.components
            ]
            fit = fit_of(replace(learnt, components=tuple(of_class)), unknowns)
            caution = fit.posterior.caution or (UNKNOWN, CAUTION)
            fits.append(fit._replace(posterior=replace(fit.posterior, caution=caution)))
        return fits


def _learn(
    link: ClassLink,
    problem: LinearProblem,
    data: Classes | BlockClasses,
    unknowns: Unknowns,
    wish: Learning,
    verbose: bool,
) -> Learnt:
    """Maximise the evidence in the prior scale, or average over it."""
    count, known = problem.design.n_features, list[float]()

    def evaluate(values: dict[str, float], before: Any, slopes: bool) -> Evaluation:
        place = float(np.log(values["prior_scale"]))
        if known and min(abs(place - other) for other in known) > STRIDE:
            return Evaluation(-np.inf, {"prior_scale": 0.0}, before)
        known.append(place)
        found = _fitted(link, problem, data, values, before, False)
        # ∂⟨log N(w|0, s²)⟩/∂s = (⟨w²⟩/s² − 1)/s
        gradient = float(np.sum(found.square[:count] - len(found.densities))) / values["prior_scale"]
        return Evaluation(found.ascent.state.bound, {"prior_scale": gradient}, found)

    search: dict[str, Any] = {"gradient": 1e-4, "gain": 1e-12, "verbose": verbose}
    if wish.manner == "integrate":
        return integrate(unknowns.space, evaluate, **search)
    return maximise(unknowns.space, evaluate, curvature=False, **search)


def attributes_of_all(fits: list[LearntFit]) -> dict[str, Any]:
    """Fitted attributes that all classes share, by name: there is one evidence, one search and one prior scale."""
    first = fits[0]
    return {
        "log_evidence_": float(first.posterior.log_evidence),
        "n_iter_": max(first.posterior.n_iter, 1),
        "trace_": first.posterior.trace,
        "prior_scale_": first.values["prior_scale"],
        "prior_mean_": 0.0,
        "hyperparameters_": first.table,
    }


def _averaged(latents: list[LinearPredictors]) -> list[tuple[float, Array, Array]]:
    """Weights, and the means and variances (n, K) of the latents of all classes, one for each prior scale."""
    first = latents[0].marginals
    if not isinstance(first, MixtureMarginals):
        mean, variance = (np.stack([getattr(at, name) for at in latents], axis=1) for name in ("mean", "variance"))
        return [(1.0, mean, variance)]
    found = []
    for j, weight in enumerate(first.weights.tolist()):
        own = [(at.marginals.parts[j], at.offset) for at in latents]
        mean = np.stack([part.mean + offset for part, offset in own], axis=1)
        found.append((weight, mean, np.stack([np.maximum(part.variance, 0.0) for part, _ in own], axis=1)))
    return found


def log_probabilities(link: ClassLink, latents: list[LinearPredictors]) -> Array:
    """Logarithms of the probabilities of all classes, shape (n, K), the posterior integrated."""
    logs = [
        np.log(weight) + link.log_probabilities(mean, np.sqrt(variance))
        for weight, mean, variance in _averaged(latents)
    ]
    return logs[0] if len(logs) == 1 else np.asarray(logsumexp(logs, axis=0))


def probability_quantiles(link: ClassLink, latents: list[LinearPredictors], q: Array, dtype: Any) -> Array:
    """Quantiles of each class's probability, shape (n, K, number of quantiles).

    They are those of 2,000 draws of the latents, the same for every row and every call.
    """
    weights, means, variances = zip(*_averaged(latents), strict=True)
    mean, sd = np.stack(means, axis=1), np.sqrt(np.stack(variances, axis=1))
    rng, shape = np.random.default_rng(0), means[0].shape
    noise, label = rng.standard_normal((DRAWS, shape[1])), rng.choice(len(weights), DRAWS, p=weights)
    found = np.empty((*shape, len(q)), dtype)
    for part in gen_even_slices(len(mean), -(-means[0].size * DRAWS // NUMBERS)):
        draws = mean[part][:, label] + sd[part][:, label] * noise
        flat = draws.reshape(-1, shape[1])
        share = np.exp(link.log_probabilities(flat, np.zeros_like(flat))).reshape(draws.shape)
        found[part] = np.moveaxis(np.quantile(share, q, axis=1), 0, -1)
    return found


def draw_places(
    link: ClassLink, fits: list[LearntFit], rows: Any, offset: Any, count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draws of the class of each row as its place, shape (n, count); a column belongs to one draw of coefficients."""
    best, label = np.full((rows.shape[0], count), -np.inf), np.zeros((rows.shape[0], count), np.int64)
    # one prior scale for the coefficients of all classes
    part = rng.choice(len(weights), count, p=weights) if (weights := fits[0].weights).size else None
    for k, fit in enumerate(fits):
        own = offset_of(offset, k)
        if part is not None and isinstance(fit.posterior.density, Mixture):
            w = fit.posterior.density.sample_of(part, rng)
        else:
            w = fit.posterior.sample(count, rng)
        x = np.asarray(rows @ w.T) + (0.0 if own is None else own[:, None])
        # the class of the largest f_k + noise is drawn
        x = x + link.noise(rng, x.shape)
        best, label = np.maximum(best, x), np.where(x > best, k, label)
    return label


@dataclass(frozen=True)
class ClassReading:
    """Rows of features and labels as `Classes`; rows of weight zero are left out.

    Parameters
    ----------
    design : Design
    codings : tuple of LabelCoding
        One per class.
    """

    design: Design
    codings: tuple[LabelCoding, ...]

    def __call__(self, block: Block) -> Classes | None:
        count = block.n_rows
        weight = np.ones(count) if block.weight is None else np.asarray(block.weight, float)
        kept = weight > 0.0
        if not kept.any():
            return None
        y = np.asarray(block.y).reshape(count)[kept]
        label = np.stack([coding(y) for coding in self.codings], axis=1)
        offset = np.zeros((count, 1)) if block.offset is None else np.asarray(block.offset, float).reshape(count, -1)
        return Classes(self.design.rows(block.X[kept]), label, weight[kept, None], offset[kept] + np.zeros_like(label))


def _classes_of(problems: list[LinearProblem]) -> Classes | BlockClasses:
    """Rows and classes of all responses, which share their design."""
    first: Any = problems[0].observed
    observed: list[Any] = [problem.observed for problem in problems]
    if isinstance(first, BlockRows):
        reading = ClassReading(problems[0].design, tuple(each.coding for each in observed))
        return BlockClasses(first.blocks, reading, len(problems))
    count = first.n_rows
    label = np.stack([np.asarray(each.targets.y > 0.0, float) for each in observed], axis=1)
    weight = np.ones(count) if first.targets.weight is None else first.targets.weight
    offsets = [np.zeros(count) if e.targets.offset is None else e.targets.offset for e in observed]
    return Classes(first.rows, label, weight[:, None], np.stack(offsets, axis=1))


def _fitted(
    link: ClassLink,
    problem: LinearProblem,
    data: Classes | BlockClasses,
    values: dict[str, Any],
    start: Any,
    verbose: bool,
) -> ClassesFit:
    prior: Any = problem.prior.factor(problem.design, problem.intercept, values)
    scale = np.sqrt(np.broadcast_to(prior.cov, problem.design.dim)).astype(float)
    mean = np.broadcast_to(prior.mean, problem.design.dim).astype(float)
    # small problems go on to nearly all digits, so that equal problems give equal answers
    rules = replace(RULES, gradient_tol=FINE) if problem.n_entries <= SMALL else RULES
    with name_wide_priors(problem, values):
        return fit_coefficients(link, data, mean, scale, rules, start, verbose, RULES.gradient_tol)


def _posterior(name: str, problem: LinearProblem, values: dict[str, Any], found: ClassesFit, k: int) -> Posterior:
    """The Gaussian of a class, with stand-ins of its sites for a model."""
    prior: Any = problem.prior.factor(problem.design, problem.intercept, values)
    ascent, in_memory = found.ascent, bool(found.sites)
    return Posterior(
        model=LatentLinearModel([prior, _row_sites(problem, prior, found, k) if in_memory else _stand_in(found, k)]),
        density=found.densities[k],
        log_evidence=ascent.state.bound,
        evidence_kind="lower bound",
        engine=name,
        converged=ascent.converged,
        n_iter=ascent.n_iter,
        trace=ascent.trace,
        elapsed=ascent.elapsed,
        message=f"{name} of {len(found.densities)} classes together: {ascent.message}",
        sites=found.sites[k] if in_memory else None,
        caution=(UNKNOWN, CAUTION),
    )


def _row_sites(problem: LinearProblem, prior: Any, found: ClassesFit, k: int) -> SiteFactor:
    """A Gaussian stand-in for each row."""
    gamma, nu = found.sites[k]
    held: Any = problem.observed
    precision = np.maximum(gamma, LEAST)
    centre = nu / precision + np.asarray(held.rows @ np.broadcast_to(prior.mean, problem.design.dim))
    return SiteFactor(held.rows, Gaussian(centre, 1.0 / np.sqrt(precision)))


def _stand_in(found: ClassesFit, k: int) -> SiteFactor:
    """One Gaussian in place of all rows in blocks: what the posterior N(m, P⁻¹) has and the prior N(0, I) has not.

    In whitened coordinates, along an eigenvector v of P with eigenvalue 1 + λ, it is N(vᵀw̃ | (1 + 1/λ)vᵀm, 1/λ).
    """
    m, precision = found.ascent.state.place.m.reshape(len(found.densities), -1)[k], found.precisions[k]
    value, vector = np.linalg.eigh(precision.factor.T @ precision.factor)
    beyond = np.maximum(value - 1.0, LEAST)
    rows = vector.T / found.scale
    centre = (1.0 + 1.0 / beyond) * (vector.T @ m) + rows @ found.mean
    return SiteFactor(rows, Gaussian(centre, 1.0 / np.sqrt(beyond)))

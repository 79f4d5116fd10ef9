"""Several classes by one model with one evidence: softmax regression and multinomial probit regression."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

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
from latlin.linear import _checks
from latlin.linear._base import shared_options
from latlin.linear._checks import LabelCoding, OneLabel
from latlin.linear._design import Design
from latlin.linear._fitting import SMALL, settled
from latlin.linear._learning import LearntFit, Unknowns, fit_of, fixed_table
from latlin.linear._predict import LinearPredictors, tails
from latlin.linear._problem import BlockRows, LinearProblem
from latlin.linear.classifiers import Classification
from latlin.numerics.arrays import Array
from latlin.numerics.ascent import Rules
from latlin.numerics.options import whole
from latlin.numerics.rng import RandomState
from latlin.potentials.class_links import CLASS_LINKS, ClassLink
from latlin.potentials.families import FAMILIES, Family
from latlin.potentials.gaussian import Gaussian

RULES = Rules(1e-4, 1e-9, 500, monotone=True, remedy="give a smaller prior_scale")
FINE = 1e-8
#: where the search for the prior scale begins, in its unit: wide priors on separable classes take many steps
START = 0.3
#: most that a search for the scale goes beyond the scales it knows, as a logarithm: a fit far out took half a minute
STRIDE = 2.5
#: prior standard deviations, in their unit, beyond which precisions may be lost in rounding
WIDEST = 1e6
#: draws of the latents for intervals
DRAWS = 2000
#: least precision of a stand-in
LEAST = 1e-12
#: numbers that are made at a time
NUMBERS = 2 * 10**6
CAUTION = "this is one class of a joint fit, in which Gaussians stand for the likelihood, so that its draws say nothing"


class JointClasses(Classification):
    """One vector of coefficients per class, the probabilities of all classes from all of them by a `ClassLink`."""

    #: name of the link
    _link_name: str
    _has_residuals = False

    def __init__(
        self,
        *,
        prior_scale: Any = "auto",
        fit_intercept: bool = True,
        intercept_scale: float | None = None,
        standardise: bool = True,
        hyperparameters: str = "auto",
        priors: Any = None,
        warm_start: bool = False,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(**shared_options(locals()))

    def _family(self) -> Family:
        return FAMILIES[self._link_name]

    @property
    def _class_link(self) -> ClassLink:
        return CLASS_LINKS[self._link_name]

    def _codings(self) -> list[LabelCoding]:
        return [OneLabel(label) for label in self.classes_]

    def _response_names(self) -> list[str]:
        return [f"{label}: " for label in self.classes_]

    def _fit_in_blocks(self, problems: list[LinearProblem], checkpoint: Any) -> list[LearntFit]:
        if checkpoint is not None:
            raise ValueError("checkpoint is for one fit per class, and all classes are fitted together: leave it out")
        return self._fit_all(problems)

    def _store(self, design: Design, fits: list[LearntFit], dtype: Any) -> Self:
        super()._store(design, fits, dtype)
        first = fits[0]
        self.log_evidence_ = float(first.posterior.log_evidence)
        self.n_iter_, self.trace_ = max(first.posterior.n_iter, 1), first.posterior.trace
        self.prior_scale_, self.hyperparameters_ = first.values["prior_scale"], first.table
        return self

    def _fit_all(self, problems: list[LinearProblem]) -> list[LearntFit]:
        wish, name = self._wish(), self._class_link.name
        problem, data = problems[0], _classes_of(problems)
        given, free = settled(problem, self._given(), False)
        if not free or wish.manner == "fixed":
            found = _fitted(self._class_link, problem, data, given, None, self.verbose)
            return [
                LearntFit(_posterior(name, each, given, found, k), dict(given), table=fixed_table(given))
                for k, each in enumerate(problems)
            ]
        earlier = getattr(self, "_fits", None) if self.warm_start else None
        given["prior_scale"] = earlier[0].values["prior_scale"] if earlier else START * problem.unit
        unknowns = Unknowns(problem, given, free, wish.priors)
        learnt, fits = self._learn(problem, data, unknowns), []
        for k, each in enumerate(problems):
            of_class = [
                part._replace(fit=_posterior(name, each, unknowns.assembled(part.values), part.fit, k))
                for part in learnt.components
            ]
            fit = fit_of(replace(learnt, components=tuple(of_class)), unknowns)
            caution = fit.posterior.caution or (UNKNOWN, CAUTION)
            fits.append(fit._replace(posterior=replace(fit.posterior, caution=caution)))
        return fits

    def _learn(self, problem: LinearProblem, data: Classes | BlockClasses, unknowns: Unknowns) -> Learnt:
        """Maximise the evidence in the prior scale, or average over it."""
        count, known = problem.design.n_features, list[float]()

        def evaluate(values: dict[str, float], before: Any, slopes: bool) -> Evaluation:
            place = float(np.log(values["prior_scale"]))
            if known and min(abs(place - other) for other in known) > STRIDE:
                return Evaluation(-np.inf, {"prior_scale": 0.0}, before)
            known.append(place)
            found = _fitted(self._class_link, problem, data, values, before, False)
            # ∂⟨log N(w|0, s²)⟩/∂s = (⟨w²⟩/s² − 1)/s
            gradient = float(np.sum(found.square[:count] - len(found.densities))) / values["prior_scale"]
            return Evaluation(found.ascent.state.bound, {"prior_scale": gradient}, found)

        search: dict[str, Any] = {"gradient": 1e-4, "gain": 1e-12, "verbose": self.verbose}
        if self._wish().manner == "integrate":
            return integrate(unknowns.space, evaluate, **search)
        return maximise(unknowns.space, evaluate, curvature=False, **search)

    def _averaged(self, latents: list[LinearPredictors]) -> list[tuple[float, Array, Array]]:
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

    def _log_probabilities(self, latents: list[LinearPredictors]) -> Array:
        logs = [
            np.log(weight) + self._class_link.log_probabilities(mean, np.sqrt(variance))
            for weight, mean, variance in self._averaged(latents)
        ]
        return logs[0] if len(logs) == 1 else np.asarray(logsumexp(logs, axis=0))

    def predict_interval(self, X: Any, coverage: float = 0.9, offset: Any = None) -> Array:
        """The central posterior interval of each class's probability, shape (n, classes, 2): low and high.

        Its ends are quantiles of 2,000 draws of the latents, the same for every row and every call.
        """
        _, latents, dtype = self._latents(X, offset)
        weights, means, variances = zip(*self._averaged(latents), strict=True)
        mean, sd = np.stack(means, axis=1), np.sqrt(np.stack(variances, axis=1))
        rng, ends, shape = np.random.default_rng(0), tails(coverage), means[0].shape
        noise, label = rng.standard_normal((DRAWS, shape[1])), rng.choice(len(weights), DRAWS, p=weights)
        found = np.empty((*shape, 2), dtype)
        for part in gen_even_slices(len(mean), -(-means[0].size * DRAWS // NUMBERS)):
            draws = mean[part][:, label] + sd[part][:, label] * noise
            flat = draws.reshape(-1, shape[1])
            share = np.exp(self._class_link.log_probabilities(flat, np.zeros_like(flat))).reshape(draws.shape)
            found[part] = np.moveaxis(np.quantile(share, ends, axis=1), 0, -1)
        return found

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: RandomState = None, offset: Any = None
    ) -> NDArray[Any]:
        """Draws of labels at the rows, shape (n, n_samples); a column belongs to one draw of the coefficients."""
        X = self._check_rows(X)
        count, rng = whole("n_samples", n_samples), self._generator(random_state)
        shift, rows = _checks.offsets(offset, X.shape[0], len(self._fits)), self._design.rows(X)
        best, label = np.full((X.shape[0], count), -np.inf), np.zeros((X.shape[0], count), int)
        # one prior scale for the coefficients of all classes
        part = rng.choice(len(weights), count, p=weights) if (weights := self._fits[0].weights).size else None
        for k, fit in enumerate(self._fits):
            own = _checks.column(shift, k)
            if part is not None and isinstance(fit.posterior.density, Mixture):
                w = fit.posterior.density.sample_of(part, rng)
            else:
                w = fit.posterior.sample(count, rng)
            x = np.asarray(rows @ w.T) + (0.0 if own is None else own[:, None])
            # the class of the largest f_k + noise is drawn
            x = x + self._class_link.noise(rng, x.shape)
            best, label = np.maximum(best, x), np.where(x > best, k, label)
        return self.classes_[label]


class BayesianSoftmaxRegression(JointClasses):
    """P(y = k) ∝ exp(xᵀw_k + b_k), w_kj ~ N(0, (prior_scale/sd_j)²): all classes in one model with one evidence.

    `BayesianLogisticRegression` fits each class against the rest instead.

    Parameters
    ----------
    prior_scale : "auto", float or array of shape (n_features,)
        Prior standard deviation of a coefficient, for features of standard deviation one when `standardise`; the same
        for all classes. "auto" learns it (see `hyperparameters`).
    fit_intercept : bool
        Include one intercept per class, with a wide prior of its own.
    intercept_scale : float, optional
        Standard deviation of that prior, 10 unless given.
    standardise : bool
        Measure `prior_scale` in standard deviations of the features. Coefficients stay in the user's units.
    hyperparameters : {"auto", "maximise", "integrate", "fixed"}
        "auto" maximises; "integrate" averages over the posterior of the prior scale, which then is a mean.
    priors : mapping or Prior, optional
        Of "prior_scale".
    warm_start : bool
        Start the search from the last prior scale.
    random_state : int, Generator, RandomState or None
        For draws.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_, coef_std_ : ndarray of shape (n_classes, n_features)
    intercept_ : ndarray of shape (n_classes,)
    posterior_ : list of Posterior
        One per class, independent, up to a shift of all classes, on which no probability depends; the differences
        between classes vary as in the Gaussian of all coefficients together (exactly for three classes).
    log_evidence_ : float
        A lower bound on log p(y) of all classes together: Gaussian KL with the tilted bound of Knowles and Minka (2011)
        on the expectation of log Σ exp. Integrated: of the average over the prior scale.
    prior_scale_ : float or ndarray

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianSoftmaxRegression
    >>> X = np.array([[-2.0], [-1.5], [-1.0], [0.1], [0.3], [0.2], [1.2], [2.5], [1.5]])
    >>> model = BayesianSoftmaxRegression(prior_scale=2.0).fit(X, list("aaabbbccc"))
    >>> model.predict([[-1.7], [2.0]]).tolist(), model.evidence_kind_
    (['a', 'c'], 'lower bound')
    """

    _name = "softmax"
    _link_name = "logit"


class BayesianMultinomialProbitRegression(JointClasses):
    """The class of the largest xᵀw_k + b_k + ε_k, ε_k ~ N(0, 1): all classes in one model with one evidence.

    `BayesianProbitRegression` fits each class against the rest instead. Parameters and attributes are those of
    `BayesianSoftmaxRegression`; `log_evidence_` is a lower bound by Gaussian KL, in which the noise of the observed
    class is one more unknown per row.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianMultinomialProbitRegression
    >>> X = np.array([[-2.0], [-1.5], [-1.0], [0.1], [0.3], [0.2], [1.2], [2.5], [1.5]])
    >>> model = BayesianMultinomialProbitRegression(prior_scale=2.0).fit(X, list("aaabbbccc"))
    >>> model.predict([[-1.7], [2.0]]).tolist(), model.evidence_kind_
    (['a', 'c'], 'lower bound')
    """

    _name = "multinomial probit"
    _link_name = "probit"


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
    try:
        return fit_coefficients(link, data, mean, scale, rules, start, verbose, RULES.gradient_tol)
    except ValueError as error:
        if scale.max() <= WIDEST * max(problem.unit, 1.0):
            raise
        raise ValueError(
            f"prior_scale or intercept_scale is too large to fit all classes together, got {scale.max():.3g}: {error}"
        ) from error


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

"""Several classes by one model with one evidence: softmax regression and multinomial probit regression."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import gen_even_slices

from latlin.hyper.learn import Learnt, maximise
from latlin.hyper.space import Evaluation
from latlin.inference.gaussian_kl.classes import Classes, ClassesFit, fit_coefficients
from latlin.inference.model import LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.linear import _checks
from latlin.linear._checks import LabelCoding, OneLabel
from latlin.linear._design import Design
from latlin.linear._fitting import SMALL, settled
from latlin.linear._learning import LearntFit, Unknowns, fixed_table
from latlin.linear._predict import LinearPredictors, tails
from latlin.linear._problem import HeldRows, LinearProblem
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
#: draws of the latents for intervals
DRAWS = 2000
#: numbers that are made at a time
NUMBERS = 2 * 10**6
CAUTION = (
    "this is one class of a joint fit, in which Gaussians stand for the likelihood: a diagnosis of it says nothing"
)


class JointClasses(Classification):
    """One vector of coefficients per class, the probabilities of all classes from all of them by a `ClassLink`."""

    #: name of the link
    _link_name: str

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
        super().__init__(
            prior_scale=prior_scale,
            fit_intercept=fit_intercept,
            intercept_scale=intercept_scale,
            standardise=standardise,
            hyperparameters=hyperparameters,
            priors=priors,
            warm_start=warm_start,
            random_state=random_state,
            verbose=verbose,
        )

    def _family(self) -> Family:
        return FAMILIES[self._link_name]

    @property
    def _class_link(self) -> ClassLink:
        return CLASS_LINKS[self._link_name]

    def _codings(self) -> list[LabelCoding]:
        return [OneLabel(label) for label in self.classes_]

    def _response_names(self) -> list[str]:
        return [f"{label}: " for label in self.classes_]

    def _fit_blocks(self, X: Any, y: Any, weight: Any, offset: Any, checkpoint: Any) -> Self:
        raise ValueError(
            "X is in blocks of rows, which cannot be fitted with all classes together: use one class against the rest"
        )

    def _store(self, design: Design, fits: list[LearntFit], dtype: Any) -> Self:
        super()._store(design, fits, dtype)
        first = fits[0]
        self.log_evidence_ = float(first.posterior.log_evidence)
        self.n_iter_, self.trace_ = max(first.posterior.n_iter, 1), first.posterior.trace
        self.prior_scale_, self.hyperparameters_ = first.values["prior_scale"], first.table
        return self

    def _fit_all(self, problems: list[LinearProblem]) -> list[LearntFit]:
        manner = self._wish().manner
        if manner == "integrate":
            raise ValueError("hyperparameters='integrate' is not for all classes together: use 'maximise', or 'fixed'")
        problem, data = problems[0], _classes_of(problems)
        given, free = settled(problem, self._given(), False)
        free = [] if manner == "fixed" else free
        if free:
            earlier = getattr(self, "_fits", None) if self.warm_start else None
            given["prior_scale"] = earlier[0].values["prior_scale"] if earlier else START * problem.unit
            learnt = self._learn(problem, data, given, free)
            values, found, n_fits, table = learnt.values, learnt.fit, learnt.n_fits, learnt.table
        else:
            values, found, n_fits, table = (
                given,
                _fitted(self._class_link, problem, data, given, None, self.verbose),
                1,
                fixed_table(given),
            )
        return [
            LearntFit(
                _posterior(self._class_link.name, each, dict(values), found, k), dict(values), n_fits, table=table
            )
            for k, each in enumerate(problems)
        ]

    def _learn(self, problem: LinearProblem, data: Classes, given: dict[str, Any], free: list[str]) -> Learnt:
        """Maximise the evidence in the prior scale."""
        space = Unknowns(problem, given, free, self._wish().priors).space
        count, known = problem.design.n_features, list[float]()

        def evaluate(values: dict[str, float], before: Any, slopes: bool) -> Evaluation:
            place = float(np.log(values["prior_scale"]))
            if known and min(abs(place - other) for other in known) > STRIDE:
                return Evaluation(-np.inf, {"prior_scale": 0.0}, before)
            known.append(place)
            found = _fitted(self._class_link, problem, data, values, before, False)
            # ∂⟨log N(w|0, s²)⟩/∂s = (⟨w²⟩/s² − 1)/s
            gradient = float(np.sum(found.square[:count] - data.label.shape[1])) / values["prior_scale"]
            return Evaluation(found.ascent.state.bound, {"prior_scale": gradient}, found)

        return maximise(space, evaluate, gradient=1e-4, gain=1e-12, curvature=False, verbose=self.verbose)

    def _log_probabilities(self, latents: list[LinearPredictors]) -> Array:
        mean, variance = (np.stack([getattr(at, name) for at in latents], axis=1) for name in ("mean", "variance"))
        return self._class_link.log_probabilities(mean, np.sqrt(variance))

    def predict_interval(self, X: Any, coverage: float = 0.9, offset: Any = None) -> Array:
        """The central posterior interval of each class's probability, shape (n, classes, 2): low and high.

        Its ends are quantiles of 2,000 draws of the latents, the same for every row and every call.
        """
        _, latents, dtype = self._latents(X, offset)
        mean, variance = (np.stack([getattr(at, name) for at in latents], axis=1) for name in ("mean", "variance"))
        noise, ends = np.random.default_rng(0).standard_normal((DRAWS, mean.shape[1])), tails(coverage)
        found = np.empty((*mean.shape, 2), dtype)
        for part in gen_even_slices(len(mean), -(-mean.size * DRAWS // NUMBERS)):
            draws = mean[part, None] + np.sqrt(variance[part, None]) * noise
            flat = draws.reshape(-1, mean.shape[1])
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
        for k, fit in enumerate(self._fits):
            own = _checks.column(shift, k)
            x = np.asarray(rows @ fit.posterior.sample(count, rng).T) + (0.0 if own is None else own[:, None])
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
        for all classes. "auto" maximises the evidence.
    fit_intercept : bool
        Include one intercept per class, with a wide prior of its own.
    intercept_scale : float, optional
        Standard deviation of that prior, 10 unless given.
    standardise : bool
        Measure `prior_scale` in standard deviations of the features. Coefficients stay in the user's units.
    hyperparameters : {"auto", "maximise", "fixed"}
        "auto" maximises.
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
        on the expectation of log Σ exp.
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


def _classes_of(problems: list[LinearProblem]) -> Classes:
    """Rows and classes of all responses, which share their design."""
    held = [problem.observed for problem in problems]
    assert all(isinstance(each, HeldRows) for each in held)  # blocks are refused
    first: Any = held[0]
    count = first.n_rows
    label = np.stack([np.asarray(each.targets.y > 0.0, float) for each in held], axis=1)  # type: ignore[union-attr]
    weight = np.ones(count) if first.targets.weight is None else first.targets.weight
    offsets = [np.zeros(count) if e.targets.offset is None else e.targets.offset for e in held]  # type: ignore[union-attr]
    return Classes(first.rows, label, weight[:, None], np.stack(offsets, axis=1))


def _fitted(
    link: ClassLink, problem: LinearProblem, data: Classes, values: dict[str, Any], start: Any, verbose: bool
) -> ClassesFit:
    prior: Any = problem.prior.factor(problem.design, problem.intercept, values)
    scale = np.sqrt(np.broadcast_to(prior.cov, problem.design.dim)).astype(float)
    mean = np.broadcast_to(prior.mean, problem.design.dim).astype(float)
    # small problems go on to nearly all digits, so that equal problems give equal answers
    rules = replace(RULES, gradient_tol=FINE) if problem.n_entries <= SMALL else RULES
    return fit_coefficients(link, data, mean, scale, rules, start, verbose, RULES.gradient_tol)


def _posterior(name: str, problem: LinearProblem, values: dict[str, Any], found: ClassesFit, k: int) -> Posterior:
    """The Gaussian of a class, with the stand-ins of its sites for a model."""
    gamma, nu = found.sites[k]
    prior: Any = problem.prior.factor(problem.design, problem.intercept, values)
    held: Any = problem.observed
    precision = np.maximum(gamma, 1e-12)
    centre = nu / precision + np.asarray(held.rows @ np.broadcast_to(prior.mean, problem.design.dim))
    sites = SiteFactor(held.rows, Gaussian(centre, 1.0 / np.sqrt(precision)))
    ascent = found.ascent
    return Posterior(
        model=LatentLinearModel([prior, sites]),
        density=found.densities[k],
        log_evidence=ascent.state.bound,
        evidence_kind="lower bound",
        engine=name,
        converged=ascent.converged,
        n_iter=ascent.n_iter,
        trace=ascent.trace,
        elapsed=ascent.elapsed,
        message=f"{name} of {len(found.sites)} classes together: {ascent.message}",
        sites=found.sites[k],
        caution=("rough", CAUTION),
    )

"""The scikit-learn face of binary latent factors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from latlin.factor.binary.latents import MOST_ENUMERATED, BernoulliField, Enumeration, LatentEngine
from latlin.factor.binary.model import (
    STARTS,
    BinaryOptions,
    BinaryState,
    FeaturePrior,
    PointFeatures,
    RelevantFeatures,
    binary_fit,
    row_problem,
)
from latlin.factor.fit import LatentDraws, NamedEvidence
from latlin.numerics.archive import Archived
from latlin.numerics.arrays import LOG_SQRT_2PI, check_numeric, check_summable
from latlin.numerics.ascent import Ascent, Rules
from latlin.numerics.linalg import Array
from latlin.numerics.options import check_choice, check_choices, check_jobs, check_number, check_whole
from latlin.numerics.rng import RandomState, generator

_ENGINES: dict[str, LatentEngine] = {"mean-field": BernoulliField(), "exact": Enumeration()}


class BinaryFactorAnalysis(
    NamedEvidence, LatentDraws, Archived, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Observations as sums of features that are on or off: x = Σ s_i μ_i + noise, s_i in {0, 1}.

    Parameters
    ----------
    n_components : int
        Number of factors K; with `ard` the most there can be.
    ard : bool
        Features with a prior N(0, α_i⁻¹I) whose precisions are learnt, so that factors the data do not need are removed
        and the bound is comparable between values of K. Without it the features are points of maximum likelihood and K
        stays.
    inference : {"mean-field", "exact"}
        Posterior of the latents: independent probabilities, or all 2^K states of a row (K at most 14).
    starts : sequence of {"nmf", "ica", "random"}
        Kinds of starts: non-negative matrix factorisation (negative data are shifted), independent components, chance.
    n_init : int
        Starts of each kind; the one with the highest bound is carried on. Compared on at most 1000 rows.
    n_jobs : int, optional
        Processes for the starts, as joblib counts them; it changes the last digits at most.
    tol : float
        Largest change of a feature, relative to the largest entry of all, at convergence.
    max_iter : int
        Steps at most.
    noise_floor : float
        Least noise variance, as a share of the features' mean variance.
    random_state : int, Generator, RandomState or None
        For the starts.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    components_ : ndarray of shape (n_active_, d)
        Features μ_i (posterior means), those that explain most first.
    component_covariance_ : ndarray of shape (n_active_, n_active_)
        Posterior covariance of the factors' weights, the same for every feature; zero without `ard`.
    relevance_ : ndarray of shape (n_active_,)
        Prior precisions α_i; zero without `ard`.
    probabilities_ : ndarray of shape (n_active_,)
        How often a factor is on, π_i.
    noise_variance_ : float
    n_active_ : int
        Factors left.
    lower_bound_ : float
        Bound on log p(X), every constant included.
    evidence_kind_ : {"lower bound", "exact"}
        "exact" for exact inference without `ard`.
    trace_, converged_, n_iter_, message_ : ndarray, bool, int, str

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.factor import BinaryFactorAnalysis
    >>> rng = np.random.default_rng(0)
    >>> on = rng.random((300, 2)) < 0.4
    >>> X = on @ np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0]]) + 0.1 * rng.standard_normal((300, 4))
    >>> model = BinaryFactorAnalysis(6, random_state=0).fit(X)
    >>> model.n_active_, (model.components_.round(1) + 0.0).tolist()
    (2, [[0.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    """

    _saved = (
        *("components_[K, D]", "component_covariance_[K, K]", "relevance_[K]", "probabilities_[K]", "trace_[*]"),
        *("noise_variance_", "n_active_", "lower_bound_", "evidence_kind_", "converged_", "n_iter_", "message_"),
        *("n_features_in_", "feature_names_in_?[D]"),
    )

    def __init__(
        self,
        n_components: int = 8,
        *,
        ard: bool = True,
        inference: str = "mean-field",
        starts: tuple[str, ...] = ("nmf", "ica", "random"),
        n_init: int = 4,
        n_jobs: int | None = None,
        tol: float = 1e-5,
        max_iter: int = 1000,
        noise_floor: float = 1e-6,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.ard = ard
        self.inference = inference
        self.starts = starts
        self.n_init = n_init
        self.n_jobs = n_jobs
        self.tol = tol
        self.max_iter = max_iter
        self.noise_floor = noise_floor
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> BinaryFactorAnalysis:
        """Fit to the rows of `X` of shape (n, d)."""
        options = self._options()
        rows = check_summable(
            "X", validate_data(self, check_numeric("X", X), dtype=np.float64, order="C", ensure_min_samples=2)
        )
        if not rows.var(axis=0).mean() > 0.0:
            raise ValueError("X has the same row everywhere: there is no noise variance to learn")
        self._store(binary_fit(rows, options, generator(self.random_state)))
        return self

    def transform(self, X: Any, *, return_std: bool = False) -> Any:
        """Posterior probabilities p that each factor is on, shape (n, n_active_); if asked with √(p (1 − p))."""
        p = self._describe(X)[0]
        return (p, np.sqrt(p * (1.0 - p))) if return_std else p

    def inverse_transform(self, S: Any) -> Array:
        """Means of the observations given activations, or probabilities of them: S components_."""
        check_is_fitted(self, "components_")
        s = check_array(check_numeric("S", S), dtype=np.float64, ensure_min_features=min(1, self.n_active_))
        if s.shape[1] != self.n_active_:
            raise ValueError(f"S must have {self.n_active_} columns, one per factor, got {s.shape[1]}")
        return s @ self.components_

    def cut_features(self, level: float = 0.4) -> NDArray[np.bool_]:
        """Which entries belong to each feature, shape (n_active_, d): those of at least `level` times its largest.

        For features that are themselves on or off, such as shapes in images (Lau (2020), Figure 3, where the largest
        entry is one).
        """
        check_is_fitted(self, "components_")
        check_number("level", level, above=0.0, below=1.0)
        strongest = np.argmax(np.abs(self.components_), axis=1)[:, None]
        return self.components_ / np.take_along_axis(self.components_, strongest, axis=1) >= level

    def score_samples(self, X: Any) -> Array:
        """Bound on the log density of every row, constants included; exact for exact inference without `ard`."""
        return self._describe(X)[1]

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, *, random_state: RandomState = None) -> tuple[Array, Array]:
        """Draws from the fitted model: observations of shape (n_samples, d) and the activations behind them."""
        check_is_fitted(self, "components_")
        rng = generator(random_state)
        on = (rng.random((check_whole("n_samples", n_samples), self.n_active_)) < self.probabilities_).astype(
            np.float64
        )
        noise = rng.standard_normal((n_samples, self.components_.shape[1]))
        return on @ self.components_ + np.sqrt(self.noise_variance_) * noise, on

    def _draw_posterior(self, X: Any, count: int, rng: np.random.Generator) -> Array:
        rows = self._rows(X)
        if not self.n_active_:
            return np.zeros((count, len(rows), 0))
        return _ENGINES[self.inference].draw(row_problem(rows, self._state()), count, rng)

    def _check_before_saving(self) -> None:
        check_is_fitted(self, "components_")

    def _after_loading(self) -> None:
        self._options()
        check_number("noise_variance_", self.noise_variance_, above=0.0)
        if check_whole("n_active_", self.n_active_) != len(self.components_):
            raise ValueError(f"n_active_ is {self.n_active_}, and there are {len(self.components_)}")

    def _options(self) -> BinaryOptions:
        for name in ("n_components", "n_init"):
            check_whole(name, getattr(self, name), 1)
        check_choice("inference", self.inference, sorted(_ENGINES))
        check_number("tol", self.tol, least=0.0)
        check_jobs(self.n_jobs)
        if self.inference == "exact" and self.n_components > MOST_ENUMERATED:
            raise ValueError(
                f"inference='exact' enumerates 2^n_components states and needs n_components of at most "
                f"{MOST_ENUMERATED}, got {self.n_components}"
            )
        starts = check_choices("starts", self.starts, sorted(STARTS))
        check_number("noise_floor", self.noise_floor, least=0.0, below=1.0)
        prior: FeaturePrior = RelevantFeatures() if self.ard else PointFeatures()
        remedy = "raise max_iter or tol"
        rules = Rules(self.tol, 1e-3 * self.tol, self.max_iter, True, remedy)
        engine = _ENGINES[self.inference]
        count = int(self.n_components)
        return BinaryOptions(
            count, prior, engine, starts, self.n_init, self.n_jobs, self.noise_floor, rules, self.verbose
        )

    def _store(self, found: Ascent[BinaryState]) -> None:
        state = found.state
        order = np.argsort(-state.means.sum(axis=0) * (state.features**2).sum(axis=1), kind="stable")
        self.components_ = state.features[order]
        self.component_covariance_ = state.covariance[np.ix_(order, order)]
        self.relevance_, self.probabilities_ = state.relevance[order], state.probability[order]
        self.noise_variance_, self.n_active_ = float(state.noise), len(order)
        self.lower_bound_, self.trace_ = float(found.trace[-1]), found.trace
        self.evidence_kind_ = "exact" if self.inference == "exact" and not self.ard else "lower bound"
        self.converged_, self.n_iter_, self.message_ = found.converged, found.n_iter, found.message

    def _rows(self, X: Any) -> Array:
        check_is_fitted(self, "components_")
        return check_summable("X", validate_data(self, check_numeric("X", X), reset=False, dtype=np.float64, order="C"))

    def _describe(self, X: Any) -> tuple[Array, Array]:
        rows = self._rows(X)
        means, values = np.zeros((len(rows), 0)), np.zeros(len(rows))
        if self.n_active_:
            means, values = _ENGINES[self.inference].describe(row_problem(rows, self._state()))
        square = np.einsum("nd,nd->n", rows, rows) / self.noise_variance_
        constant = rows.shape[1] * (LOG_SQRT_2PI + 0.5 * np.log(self.noise_variance_))
        return means, values - 0.5 * square - constant

    def _state(self) -> BinaryState:
        """What was learnt, with no rows."""
        k = self.n_active_
        latents = np.zeros((0, k)), np.zeros((k, k)), 0.0, np.zeros_like(self.components_)
        features = self.components_, self.component_covariance_, self.relevance_
        return BinaryState(*latents, *features, self.probabilities_, self.noise_variance_)

    @property
    def _n_features_out(self) -> int:
        return self.n_active_

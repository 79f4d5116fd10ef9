"""The scikit-learn face of noisy independent component analysis."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import digamma
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from latlin.factor.fit import LatentDraws, NamedEvidence
from latlin.factor.ica.engines import ENGINES
from latlin.factor.ica.fit import IcaOptions, ica_fit, normalise_sources
from latlin.factor.ica.model import DF_RANGE, FAMILIES, IcaState, RateOneSource, SourceModel
from latlin.numerics.archive import Archived
from latlin.numerics.arrays import LOG_SQRT_2PI, check_numeric, check_summable
from latlin.numerics.ascent import Ascent, Rules
from latlin.numerics.linalg import Array
from latlin.numerics.options import check_choice, check_jobs, check_number, check_whole
from latlin.numerics.rng import RandomState, generator


class Separation(NamedTuple):
    """Sources with their uncertainty, and what is left of the observations."""

    sources: Array
    std: Array
    residual: Array


class NoisyICA(NamedEvidence, LatentDraws, Archived, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Independent heavy-tailed sources, mixed and observed with noise: x = c + Az + ε.

    Variational Bayes: the mixing matrix and the noise have a posterior, the shape of the sources is learnt, and so is
    their number.

    Parameters
    ----------
    n_sources : int or None
        Number of sources K; None takes that of the features. With `ard` the most there can be. With more sources than
        features all stay, with one shape, because the bound of a factorised q prefers fewer: starts are sparse codes.
    source : {"student-t", "laplace"}
        Density of the sources, a Gaussian scale mixture.
    learn_shape : bool
        Learn the degrees of freedom of each Student-t source.
    shape : float
        Degrees of freedom to start from, or to keep.
    factorisation : {"block", "source"}
        "block": the sources of an observation together, their scales apart. "source": each source together with its
        scale, sources apart; exact in the shape of one source's posterior, and blind to what sources know of each
        other.
    ard : bool or "shape"
        Remove sources that the data do not need: those whose prior precision is best infinite, and those without which
        the bound is higher. "shape": the columns of A have one prior and u_k ~ Gamma(α_k/2, 1), which tells superfluous
        sources by an α that grows; they go where the bound is higher without them. Without it all sources stay.
    n_init : int
        Rounds of starts: two from FastICA and one random rotation each. The highest bound goes on.
    n_jobs : int, optional
        Processes for the starts, as joblib counts them; it changes the last digits at most.
    tol : float
        Largest change of a loading, relative to the largest, at convergence.
    max_iter : int
        Steps at most.
    random_state : int, Generator, RandomState or None
        For the starts.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    mixing_ : ndarray of shape (d, n_sources_)
        Posterior mean of A for sources of scale 1; each source's largest loading is positive, those that explain most
        are first.
    mixing_std_ : ndarray of shape (d, n_sources_)
        Posterior standard deviations of A.
    mean_ : ndarray of shape (d,)
        c, the means of the features.
    noise_variance_ : ndarray of shape (d,)
        Posterior means of the noise variances.
    shape_ : ndarray of shape (n_sources_,)
        Degrees of freedom ("student-t").
    n_sources_ : int
    lower_bound_ : float
        Bound on log p(X), every constant included.
    trace_, converged_, n_iter_, message_ : ndarray, bool, int, str

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.factor import NoisyICA
    >>> rng = np.random.default_rng(0)
    >>> sources = rng.standard_t(3, (800, 2))
    >>> X = sources @ np.array([[1.0, 0.0, 1.0, 0.5], [0.0, 1.0, 1.0, -0.5]]) + 0.1 * rng.standard_normal((800, 4))
    >>> model = NoisyICA(random_state=0).fit(X)
    >>> model.n_sources_
    2
    """

    evidence_kind_ = "lower bound"
    _saved = (
        *("mean_[D]", "mixing_[D, K]", "mixing_std_[D, K]", "mixing_covariance_[K, K]", "relevance_[K]", "shape_[K]"),
        *("noise_rate_[D]", "noise_variance_[D]", "trace_[*]", "noise_shape_", "n_sources_", "lower_bound_"),
        *("converged_", "n_iter_", "message_", "n_features_in_", "feature_names_in_?[D]"),
    )

    def __init__(
        self,
        n_sources: int | None = None,
        *,
        source: str = "student-t",
        learn_shape: bool = True,
        shape: float = 5.0,
        factorisation: str = "block",
        ard: bool | str = True,
        n_init: int = 2,
        n_jobs: int | None = None,
        tol: float = 1e-4,
        max_iter: int = 1000,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.n_sources = n_sources
        self.source = source
        self.learn_shape = learn_shape
        self.shape = shape
        self.factorisation = factorisation
        self.ard = ard
        self.n_init = n_init
        self.n_jobs = n_jobs
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> NoisyICA:
        """Fit to the rows of `X` of shape (n, d)."""
        self._check()
        rows = check_summable(
            "X", validate_data(self, check_numeric("X", X), dtype=np.float64, order="C", ensure_min_samples=2)
        )
        mean, variance = rows.mean(axis=0), rows.var(axis=0)
        flat = np.flatnonzero(variance <= (1e-14 * mean) ** 2)
        if len(flat):
            raise ValueError(f"X is constant in column(s) {flat[:10].tolist()}: drop them, they have no noise variance")
        options = self._options(rows.shape[1])
        self._store(ica_fit(np.ascontiguousarray(rows - mean), options, generator(self.random_state)), mean)
        return self

    def transform(self, X: Any, *, return_std: bool = False) -> Any:
        """Posterior means of the sources, shape (n, n_sources_), and if asked their standard deviations."""
        found = self.separate(X)
        return (found.sources, found.std) if return_std else found.sources

    def separate(self, X: Any) -> Separation:
        """Posterior means and standard deviations of the sources, and the observations without them.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        Separation
            `sources` and `std` of shape (n, n_sources_), `residual` of shape (n, d).
        """
        rows = self._rows(X)
        means, squares, _ = self._describe(rows)
        std = np.sqrt(np.maximum(squares - means**2, 0.0))
        return Separation(means, std, rows - means @ self.mixing_.T)

    def inverse_transform(self, Z: Any) -> Array:
        """Means of the observations given sources: Z mixing_ᵀ + mean_."""
        check_is_fitted(self, "mixing_")
        z = check_array(check_numeric("Z", Z), dtype=np.float64)
        if z.shape[1] != self.n_sources_:
            raise ValueError(f"Z must have {self.n_sources_} columns, one per source, got {z.shape[1]}")
        return z @ self.mixing_.T + self.mean_

    def score_samples(self, X: Any) -> Array:
        """Bound on the log density of every row under the posterior of A and Ψ, every constant included."""
        rows = self._rows(X)
        a, b = self.noise_shape_, self.noise_rate_
        log_noise = float(np.log(b).sum()) - len(b) * digamma(a)
        square = (rows**2) @ (a / b)
        return self._describe(rows)[2] - 0.5 * (square + log_noise) - len(b) * LOG_SQRT_2PI

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def _draw_posterior(self, X: Any, count: int, rng: np.random.Generator) -> Array:
        model = SourceModel(FAMILIES[self.source], False)
        return ENGINES[self.factorisation].draw(self._rows(X), self._state(), model, count, rng)

    def _check_before_saving(self) -> None:
        check_is_fitted(self, "mixing_")

    def _after_loading(self) -> None:
        self._check()
        check_number("noise_shape_", self.noise_shape_, above=1.0)
        if check_whole("n_sources_", self.n_sources_) != self.mixing_.shape[1]:
            raise ValueError(f"n_sources_ is {self.n_sources_}, and there are {self.mixing_.shape[1]}")

    def _check(self) -> None:
        for name, known in (("source", FAMILIES), ("factorisation", ENGINES)):
            check_choice(name, getattr(self, name), known)
        if np.ndim(self.ard) or self.ard not in (True, False, "shape"):
            raise ValueError(f"ard must be True, False or 'shape', got {self.ard!r:.80}")
        if self.ard == "shape" and (self.source, self.factorisation, self.learn_shape) != ("student-t", "block", True):
            raise ValueError("ard='shape' needs source='student-t', factorisation='block' and learn_shape=True")
        check_whole("n_init", self.n_init, 1)
        check_number("shape", self.shape, least=DF_RANGE[0], most=DF_RANGE[1])
        check_number("tol", self.tol, least=0.0)
        check_jobs(self.n_jobs)

    def _options(self, dim: int) -> IcaOptions:
        count = dim if self.n_sources is None else self.n_sources
        check_whole("n_sources", count, 1)
        over = int(count) > dim
        rules = Rules(self.tol, 1e-3 * self.tol, self.max_iter, True, "raise max_iter or tol")
        by_shape = self.ard == "shape"
        family = RateOneSource() if by_shape else FAMILIES[self.source]
        model = SourceModel(family, self.learn_shape and not over)
        relevance = "common" if over or by_shape else "separate" if self.ard else "slow"
        return IcaOptions(
            *(int(count), model, ENGINES[self.factorisation], bool(self.ard) and not over, relevance),
            *(self.shape, self.n_init, self.n_jobs, rules, self.verbose),
        )

    def _store(self, found: Ascent[IcaState], mean: Array) -> None:
        state = normalise_sources(found.state)
        self.mean_, self.mixing_, self.mixing_covariance_ = mean, state.mixing, state.spread
        self.relevance_, self.shape_ = state.relevance, state.shape
        self.noise_shape_, self.noise_rate_ = float(state.noise_shape), state.noise_rate
        self.noise_variance_ = state.noise_rate / (state.noise_shape - 1.0)
        self.mixing_std_ = np.sqrt(np.outer(self.noise_variance_, np.diagonal(state.spread)))
        self.n_sources_ = state.mixing.shape[1]
        self.lower_bound_, self.trace_ = float(found.trace[-1]), found.trace
        self.converged_, self.n_iter_, self.message_ = found.converged, found.n_iter, found.message

    def _rows(self, X: Any) -> Array:
        check_is_fitted(self, "mixing_")
        return (
            check_summable("X", validate_data(self, check_numeric("X", X), reset=False, dtype=np.float64)) - self.mean_
        )

    def _describe(self, rows: Array) -> tuple[Array, Array, Array]:
        model = SourceModel(FAMILIES[self.source], False)
        return ENGINES[self.factorisation].describe(rows, self._state(), model)

    def _state(self) -> IcaState:
        """What was learnt, with no rows."""
        k = self.n_sources_
        none = np.zeros((0, k))
        return IcaState(
            *(none, none, np.zeros((k, k)), np.zeros((k, len(self.mean_))), np.zeros((3, k)), np.zeros(k), 0.0),
            *(self.mixing_, self.mixing_covariance_, self.noise_shape_, self.noise_rate_, 1.0, 1.0),
            *(self.relevance_, self.shape_, np.ones(k)),
        )

    @property
    def _n_features_out(self) -> int:
        return self.n_sources_

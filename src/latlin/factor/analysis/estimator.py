"""Factor analysis: x = c + Fh + ε with h ~ N(0, I) and ε ~ N(0, Ψ), Ψ diagonal, fitted by maximum likelihood.

Sources: Brownlie (2021), chapter 3 (online algorithms, corrected); Challis (2013), §2.1.2 and A.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from latlin.distributed.blocks import Blocks, make_rows_dense
from latlin.distributed.checkpoints import digest_of, signature
from latlin.distributed.opening import is_blocked, open_blocks, refuse_checkpoint, remember_columns
from latlin.factor.analysis.batch import batch_gradient_fit, complete_em_fit, log_prior, ml_fit, rules_of
from latlin.factor.analysis.blocks import BLOCK_METHODS, RememberedBlocks, read_columns
from latlin.factor.analysis.choice import choose_onwards, heywood_features, warn_heywood
from latlin.factor.analysis.moments import SampleMoments, mean_and_variance, missing_fit, moments
from latlin.factor.analysis.online import RULES, feed, open_stream, stream_fit
from latlin.factor.analysis.queries import ROTATIONS, FactorQueries
from latlin.factor.fit import FactorFit, LatentDraws, NamedEvidence, make_canonical, parameter_count
from latlin.numerics.archive import Archived
from latlin.numerics.arrays import check_numeric, check_summable
from latlin.numerics.ascent import Checkpoint
from latlin.numerics.linalg import Array
from latlin.numerics.options import check_choice, check_number, check_whole
from latlin.numerics.rng import RandomState, generator

#: factors that are tried at most where nobody says how many
MOST = 20
_NO_GAPS = "X has missing values (NaN): method='em' fits them, {!r} does not"


def _streams(model: FactorAnalysis) -> bool:
    if not isinstance(model.method, str) or model.method not in RULES:
        raise AttributeError(f"partial_fit needs method 'online-em' or 'gradient', got {model.method!r}")
    return True


class FactorAnalysis(NamedEvidence, LatentDraws, Archived, FactorQueries):
    """Factor analysis in memory or on a stream, with missing data, evidence-ready likelihoods and exact queries.

    Parameters
    ----------
    n_components : int, "bic" or "held-out"
        Number of factors K, less than the number of features; or the criterion that chooses it among
        1 … `max_components`.
    method : {"ml", "em", "batch-gradient", "online-em", "gradient"}
        "ml": Newton steps on the profile likelihood, the fast default. "em": batch EM with parameter expansion,
        also for data with missing entries (NaN). "batch-gradient": gradient ascent by L-BFGS, which also takes priors
        of loadings and noise and then gives their most probable values. "online-em": one pass of stochastic EM.
        "gradient": one pass of stochastic gradient ascent.
    noise : {"diagonal", "isotropic"}
        One noise variance per feature, or one for all (probabilistic PCA).
    rotate : {"varimax", None}
        Rotation of the loadings. Without one FᵀΨ⁻¹F is diagonal and falls ("ml" and "em").
    tol : float
        Largest gradient of the mean log-likelihood in log ψ ("ml"), or largest change of ψ as a share of the
        feature's variance ("em"), at convergence.
    max_iter : int
        Steps at most ("ml", "em").
    noise_floor : float
        Least noise variance as a share of the feature's variance.
    loading_prior : float or None
        Standard deviation of the loadings' normal prior, in standard deviations of their feature ("batch-gradient").
    noise_prior : (float, float) or None
        Shape and scale of an inverse gamma prior of a feature's share of noise ("batch-gradient"). Its mode is
        scale/(shape + 1); it keeps noise variances off zero.
    max_components : int or None
        Largest K tried when it is chosen; by default a third of the features, and more for as long as the last is the
        best; at most 20.
    batch_size : int
        Rows per update ("online-em", "gradient").
    n_passes : int
        Passes over the data in `fit` ("online-em", "gradient").
    shuffle : bool
        Visit the rows in random order in `fit` ("online-em", "gradient").
    warm_up : int or None
        Rows kept before the first estimate of a stream; 2K by default, K + 4 where that is more.
    step_offset, step_power : float
        γ_t = (t + step_offset)^−step_power.
    optimizer : {"scaled", "sgd", "adam"}
        Steps of "gradient": preconditioned by the expanded scale, plain, or Adam.
    learning_rate : float or None
        Of the optimizer; 1 (scaled), 0.01 (sgd) or 0.05 (adam) by default.
    average : bool
        Average the iterates of "gradient", late ones most.
    random_state : int, Generator, RandomState or None
        For the order of the rows.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    components_ : ndarray of shape (K, d)
        Loadings, one factor per row.
    mean_, noise_variance_ : ndarray of shape (d,)
    log_evidence_, evidence_kind_ : float, "exact"
        log p(X) at the fit, every constant included (`fit` only); `log_likelihood_` is the same.
    log_prior_ : float
        Log density of the priors at the fit, 0 without them ("batch-gradient").
    trace_ : ndarray
        Log-likelihood after each step or pass; with priors their log density is added.
    converged_, n_iter_, message_ : bool, int, str
    heywood_ : ndarray of int
        Features whose noise variance is at its floor.
    n_samples_seen_ : int
    n_floored_ : int
        Noise variances that met the floor in the last update of a stream.
    choice_ : ComponentChoice
        When K was chosen.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.factor import FactorAnalysis
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 2)) @ rng.standard_normal((2, 8)) + 0.5 * rng.standard_normal((500, 8))
    >>> model = FactorAnalysis(n_components=2).fit(X)
    >>> model.transform(X).shape, model.converged_
    ((500, 2), True)
    """

    #: the likelihood is that of the fitted parameters, latents integrated out
    evidence_kind_ = "exact"
    _saved = (
        *("mean_[D]", "components_[K, D]", "noise_variance_[D]", "n_features_in_", "feature_names_in_?[D]"),
        *("n_samples_seen_", "log_likelihood_?", "trace_?[*]", "converged_?", "n_iter_?", "message_?"),
        *("heywood_?", "n_floored_?", "log_prior_?", "_stream_state?"),
    )

    def __init__(
        self,
        n_components: int | str = 1,
        *,
        method: str = "ml",
        noise: str = "diagonal",
        rotate: str | None = None,
        tol: float = 1e-6,
        max_iter: int = 2000,
        noise_floor: float = 1e-6,
        loading_prior: float | None = None,
        noise_prior: tuple[float, float] | None = None,
        max_components: int | None = None,
        batch_size: int = 32,
        n_passes: int = 1,
        shuffle: bool = True,
        warm_up: int | None = None,
        step_offset: float = 0.0,
        step_power: float = 0.97,
        optimizer: str = "scaled",
        learning_rate: float | None = None,
        average: bool = False,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.noise = noise
        self.rotate = rotate
        self.tol = tol
        self.max_iter = max_iter
        self.noise_floor = noise_floor
        self.loading_prior = loading_prior
        self.noise_prior = noise_prior
        self.max_components = max_components
        self.batch_size = batch_size
        self.n_passes = n_passes
        self.shuffle = shuffle
        self.warm_up = warm_up
        self.step_offset = step_offset
        self.step_power = step_power
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.average = average
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, checkpoint: Any = None) -> FactorAnalysis:
        """Fit to the rows of `X` of shape (n, d); NaN marks missing entries, which method="em" fits.

        Where the number of components is chosen, missing entries make "ml" become "em" by itself, and the message says
        so.

        X may be a Dask array or data frame, a large memory-mapped array or `latlin.distributed` blocks; then only sums
        over its rows are asked for, and the online methods visit one block after the other. With these a `checkpoint`
        (a path) keeps the state of "ml" and "em", and a fit goes on from it.
        """
        self._check_options()
        if is_blocked(X):
            return self._fit_blocks(X, checkpoint)
        refuse_checkpoint(checkpoint)
        kinds = [np.float64, np.float32] if self.method in RULES else np.float64
        rows = validate_data(
            self, check_numeric("X", X), dtype=kinds, ensure_all_finite="allow-nan", ensure_min_samples=2
        )
        check_summable("X", rows)
        if isinstance(self.n_components, str) and self.method == "ml" and np.isnan(rows.sum(dtype=np.float64)):
            return self._choose(rows, rows.shape[0], rows.shape[1], method="em")
        variance = self._check_rows(rows)
        if isinstance(self.n_components, str):
            return self._choose(rows, *rows.shape)
        self._check_rank(self.n_components, *rows.shape)
        return self._conclude(_METHODS[self.method](self, rows), len(rows), variance)

    def _fit_blocks(self, X: Any, checkpoint: Any) -> FactorAnalysis:
        blocks: Blocks = X if isinstance(X, RememberedBlocks) else make_rows_dense(open_blocks(X))
        columns = read_columns(blocks)
        remember_columns(self, X, blocks.n_columns)
        if not columns.complete and self.method != "em":
            raise ValueError(_NO_GAPS.format(self.method))
        _check_observed(columns.counts)
        if isinstance(self.n_components, str):
            return self._choose(RememberedBlocks(blocks), columns.n, blocks.n_columns)
        self._check_rank(self.n_components, columns.n, blocks.n_columns)
        saved = None if checkpoint is None else Checkpoint(checkpoint, signature(self, digest_of(blocks, checkpoint)))
        fit, variance = BLOCK_METHODS[self.method](self, blocks, columns, saved)
        return self._conclude(fit, columns.n, variance)

    def _conclude(self, fit: FactorFit, n: int, variance: Array) -> FactorAnalysis:
        self.log_likelihood_ = float(fit.trace[-1])
        if self.method == "batch-gradient":
            priors = self.loading_prior, self.noise_prior
            self.log_prior_ = log_prior(fit.loadings.T, fit.noise, variance, *priors)[0]
            self.log_likelihood_ -= self.log_prior_
        self.trace_, self.converged_, self.n_iter_, self.message_ = fit.trace, fit.converged, fit.n_iter, fit.message
        self.n_samples_seen_ = n
        if self.method not in RULES:
            fit = fit._replace(loadings=make_canonical(fit.loadings, fit.noise))
        self._store(fit)
        self.heywood_ = heywood_features(fit.noise, variance, self.noise_floor)
        warn_heywood(self.heywood_, fit.noise, getattr(self, "feature_names_in_", None))
        return self

    @available_if(_streams)
    def partial_fit(self, X: Any, y: Any = None) -> FactorAnalysis:
        """Learn from one more observation (d,) or a block (n, d), with method "online-em" or "gradient".

        The model can be asked after two observations; until the warm-up is complete it is that of the rows so far.
        """
        self._check_options()
        first = not hasattr(self, "stream_")
        X = np.atleast_2d(X) if np.ndim(X) == 1 else X
        rows = validate_data(
            self, check_numeric("X", X), dtype=[np.float64, np.float32], reset=first, ensure_min_samples=1
        )
        check_summable("X", rows)
        if first:
            self._check_rank(self.n_components, None, rows.shape[1])
            self.stream_ = open_stream(self, rows.shape[1], rows.dtype)
        feed(self.stream_, rows, self.batch_size)
        self.n_samples_seen_ = self.stream_.count
        self.n_floored_ = self.stream_.floored
        if self.stream_.count >= 2:
            mean, loadings, noise = self.stream_.density()
            self.mean_, self.noise_variance_ = mean, noise  # type: ignore[assignment]
            self.components_ = self._rotated(loadings)
        return self

    def bic(self, X: Any) -> float:
        """−2 log p(X) + p log n with p free parameters; lower is better."""
        scores = self.score_samples(X)
        count = parameter_count(len(self.mean_), len(self.components_), self.noise == "isotropic")
        return float(-2.0 * scores.sum() + count * np.log(len(scores)))

    @property
    def _stream_state(self) -> dict[str, Any]:
        """What a stream needs to go on."""
        return self.stream_.arrays()

    @_stream_state.setter
    def _stream_state(self, arrays: dict[str, Any]) -> None:
        self.stream_ = open_stream(self, self.n_features_in_, self.mean_.dtype)
        self.stream_.restore(arrays)

    def _check_options(self) -> None:
        for name, known in (("method", _METHODS), ("noise", ("diagonal", "isotropic"))):
            check_choice(name, getattr(self, name), sorted(known))
        check_choice("rotate", self.rotate, [None, *sorted(ROTATIONS)])
        for name in ("batch_size", "n_passes", "max_iter"):
            check_whole(name, getattr(self, name), 1)
        check_number("tol", self.tol, least=0.0)
        check_number("noise_floor", self.noise_floor, least=0.0, below=1.0)
        if isinstance(self.n_components, str):
            check_choice("n_components", self.n_components, ("bic", "held-out"))
        self._check_priors()

    def _check_priors(self) -> None:
        given = {name: getattr(self, name) for name in ("loading_prior", "noise_prior")}
        for name, value in given.items():
            if value is not None and self.method != "batch-gradient":
                raise ValueError(f"{name} is for method='batch-gradient', got {value!r} with method={self.method!r}")
        if self.loading_prior is not None:
            check_number("loading_prior", self.loading_prior, above=0.0)
        if self.noise_prior is not None:
            if not isinstance(self.noise_prior, tuple | list) or len(self.noise_prior) != 2:
                raise ValueError(f"noise_prior must be a pair (shape, scale), got {self.noise_prior!r}")
            for name, value in zip(("noise_prior's shape", "noise_prior's scale"), self.noise_prior, strict=True):
                check_number(name, value, above=0.0)

    def _check_rows(self, rows: np.ndarray) -> Array:
        """Refuse NaN where it cannot be handled, empty and constant columns; returns the variances."""
        if not np.isnan(rows.sum(dtype=np.float64)):
            centre, variance = mean_and_variance(rows)
        elif self.method != "em":
            raise ValueError(_NO_GAPS.format(self.method))
        else:
            _check_observed((~np.isnan(rows)).sum(axis=0))
            centre, variance = np.nanmean(rows, axis=0), np.nanvar(rows, axis=0)
        flat = np.flatnonzero(variance <= (1e-14 * centre) ** 2)
        if len(flat):
            raise ValueError(f"X is constant in column(s) {flat[:10].tolist()}: drop them, they have no noise variance")
        return variance

    @staticmethod
    def _check_rank(rank: Any, n: int | None, dim: int) -> None:
        if not isinstance(rank, int | np.integer) or isinstance(rank, bool) or not 1 <= rank < dim:
            raise ValueError(
                f"n_components must be an integer from 1 to {dim - 1} (X has n_features = {dim}), got {rank!r}"
            )
        if n is not None and rank > n - 2:
            raise ValueError(
                f"n_components={rank} needs more than {rank + 1} samples, got n_samples = {n}: "
                "with fewer the likelihood has no maximum"
            )

    def _choose(self, rows: Any, n: int, dim: int, method: str | None = None) -> FactorAnalysis:
        """The fit with the best number of factors; by `method` where the own one cannot fit these rows."""
        most = self.max_components or max(1, min(dim // 3, MOST, n - 2))
        last = self.max_components or max(most, min(dim - 1, MOST, n - 2))
        options = self.get_params() | ({} if method is None else {"method": method})
        base = type(self)(**{**options, "n_components": 1})
        choice = choose_onwards(base, rows, most, last, str(self.n_components))
        chosen = type(self)(**{**options, "n_components": choice.n_components}).fit(rows)
        chosen.message_ += "" if method is None else f"; X has missing cells, so method={method!r} was used"
        if choice.n_components == last < dim - 1:
            chosen.message_ += (
                f"; the largest number that was tried, {last}, was best: raise max_components to try more"
            )
        names = ("feature_names_in_", "n_features_in_")
        self.__dict__.update({k: v for k, v in vars(chosen).items() if k.endswith("_") and k not in names})
        self.choice_ = choice
        return self

    def _rotated(self, loadings: np.ndarray) -> np.ndarray:
        return loadings if self.rotate is None else ROTATIONS[self.rotate](np.asarray(loadings, dtype=np.float64))

    def _store(self, fit: FactorFit) -> None:
        self.mean_, self.noise_variance_ = fit.mean, fit.noise
        self.components_ = self._rotated(fit.loadings)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        chooses = isinstance(self.n_components, str) and self.method == "ml"
        tags.input_tags.allow_nan = self.method == "em" or chooses
        return tags


def _check_observed(counts: np.ndarray) -> None:
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        raise ValueError(f"X has no observed entry in column(s) {empty[:10].tolist()}")


def _moments(rows: Array) -> tuple[SampleMoments, Array]:
    mean = rows.mean(axis=0)
    return moments(rows, mean), mean


def _fit_ml(model: FactorAnalysis, rows: Array) -> FactorFit:
    return ml_fit(model, *_moments(rows))


def _fit_em(model: FactorAnalysis, rows: Array) -> FactorFit:
    if not np.isnan(rows).any():
        return complete_em_fit(model, *_moments(rows))
    rank, isotropic = int(model.n_components), model.noise == "isotropic"
    return missing_fit(rows, rank, isotropic, model.noise_floor, rules_of(model), model.verbose)


def _fit_batch_gradient(model: FactorAnalysis, rows: Array) -> FactorFit:
    return batch_gradient_fit(model, *_moments(rows))


def _fit_stream(model: FactorAnalysis, rows: np.ndarray) -> FactorFit:
    model.stream_ = open_stream(model, rows.shape[1], rows.dtype)
    fit = stream_fit(model.stream_, rows, model, generator(model.random_state))
    model.n_floored_ = model.stream_.floored
    return fit


_METHODS: dict[str, Callable[[FactorAnalysis, Any], FactorFit]] = {
    "ml": _fit_ml,
    "em": _fit_em,
    "batch-gradient": _fit_batch_gradient,
    "online-em": _fit_stream,
    "gradient": _fit_stream,
}

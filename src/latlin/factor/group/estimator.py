"""Group factor analysis: several views of the same samples, factors that act in some of the views only.

Source: Mancevo (2016), corrected; see `latlin.factor.group.updates` for the updates and the bound.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln
from sklearn.utils.validation import validate_data

from latlin.distributed.blocks import make_rows_dense
from latlin.distributed.checkpoints import CheckpointFiles, digest_of, signature
from latlin.distributed.opening import is_blocked, open_blocks, refuse_checkpoint, remember_columns
from latlin.factor.fit import LatentDraws, NamedEvidence
from latlin.factor.group.blocks import RowsInBlocks, prepare_blocks
from latlin.factor.group.data import (
    GroupData,
    Name,
    Scaling,
    Views,
    fit_scaling,
    has_blocks,
    is_views,
    matrix_views,
    open_views,
    prepare,
    read_matrix,
    read_views,
)
from latlin.factor.group.fit import Sweep, climb, order_factors, signals, strengths
from latlin.factor.group.queries import FactorActivity, GroupPosterior, GroupQueries
from latlin.factor.group.rows import RowsInMemory
from latlin.factor.group.updates import GammaRelevance, GroupModel, GroupState, LowRankRelevance, Relevance, bound
from latlin.numerics.archive import Archived
from latlin.numerics.arrays import check_numeric, check_summable
from latlin.numerics.ascent import Ascent, Rules
from latlin.numerics.linalg import Array
from latlin.numerics.options import check_choice, check_jobs, check_number, check_pair, check_whole, is_name
from latlin.numerics.rng import RandomState, generator
from latlin.numerics.threads import blas_threads_for

#: shape of a gamma prior below which it is next to improper, and the log of the units of log precision it counts for
IMPROPER, FLAT = 1e-3, float(np.log(10.0))


class GroupClimb(NamedTuple):
    """A fit with one kind of noise, and its bound as far as kinds can be compared."""

    noise: str
    model: GroupModel
    ascent: Ascent[Any]
    views: Views
    scaling: Scaling
    comparable: float


def _price(shape: float, rate: float) -> float:
    """What a bound gets back per precision whose prior is next to improper, so that it counts as a flat one."""
    return 0.0 if shape >= IMPROPER else float(gammaln(shape) - shape * np.log(rate)) - FLAT


class GroupFactorAnalysis(NamedEvidence, LatentDraws, Archived, GroupQueries):
    """Factors shared by all, some or one of several views, by variational Bayes.

    x_nd = μ_d + w_dᵀz_n + ε with z ~ N(0, I), loadings w_dk ~ N(0, 1/α_mk) for the features d of view m, and noise of
    one precision per view or per feature. A factor that a view has no use for has its loadings there driven to zero, so
    start with more factors than you expect.

    Parameters
    ----------
    n_components : int
        Number of factors K to start with; those that explain nothing are removed.
    rank : "full" or int
        "full": independent gamma priors on every α_mk. An integer R: log α = UVᵀ + μ_u1ᵀ + 1μ_vᵀ with R columns in U
        and V, which lets views that share factors share strength.
    noise : {"auto", "view", "feature"}
        One noise precision for a whole view, or one per feature; "auto" fits both and keeps the one of higher bound. A
        prior that is next to improper (shape below 0.001) counts there as one that is flat over ten units of log
        precision.
    scale : {"view", "feature", "none"}
        Divide every view by its mean standard deviation, every feature by its own, or nothing. Answers and bounds are
        in the units of the data.
    rotate : bool
        Rotate the factors now and then so that the bound rises; without it convergence takes far longer.
    prune : bool
        Remove factors that explain nothing, and doubt weak ones.
    n_init : int
        Climbs; the first starts at principal components, the others at random, the best bound is kept.
    n_jobs : int, optional
        Processes for the climbs, as joblib counts them; it changes the last digits at most. Of rows in blocks the
        climbs come one after the other, whatever this says: there the blocks are worked on side by side.
    tol : float
        Largest change of a log noise level and relative change of the loadings at convergence.
    max_iter : int
        Sweeps at most.
    noise_prior, relevance_prior : pair of float
        Shape and rate of the gamma priors on noise precisions and on α (rank="full").
    rank_penalty : float
        Precision λ of the normal priors on U and V.
    random_state : int, Generator, RandomState or None
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    components_ : ndarray of shape (K, D)
        Mean loadings, one factor per row, strongest factor first, the largest loading of each positive (in units of the
        views' scales), in the units of the data. For a matrix in the order of its columns, for several views one view
        after the other.
    loadings_ : dict, list or ndarray
        The same, in the form of the data.
    latents_ : ndarray of shape (n, K)
        Posterior means of the latents of the fitted rows, when these were in memory.
    noise_ : str
        "view" or "feature".
    mean_, noise_variance_ : ndarray of shape (D,)
    factor_activity_ : FactorActivity
        Which factor is active in which view; `print` it.
    explained_variance_ : ndarray of shape (views, K)
        Share of each view's variance that each factor explains.
    relevance_ : ndarray of shape (views, K)
        Posterior mean of α, for scaled data.
    n_factors_ : int
        Factors left.
    lower_bound_, evidence_kind_ : float, str
        Bound on log p(X), every constant included; a "penalised lower bound" when `rank` is a number.
    trace_, n_iter_, converged_, message_ : ndarray, int, bool, str
    views_ : Views
        Names and sizes of the views.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.factor import GroupFactorAnalysis
    >>> rng = np.random.default_rng(0)
    >>> z = rng.standard_normal((200, 2))
    >>> genes = z @ rng.standard_normal((2, 20)) + rng.standard_normal((200, 20))
    >>> lipids = z[:, :1] @ rng.standard_normal((1, 10)) + rng.standard_normal((200, 10))
    >>> model = GroupFactorAnalysis(5, random_state=0).fit({"genes": genes, "lipids": lipids})
    >>> model.factor_activity_.n_shared, model.factor_activity_.n_private
    (1, 1)
    >>> model.predict_view("lipids", {"genes": genes[:3]}).shape
    (3, 10)
    """

    _saved = (
        *("posterior_", "views_", "factor_activity_", "relevance_[V, K]", "trace_[*]", "latents_?[N, K]"),
        *("lower_bound_", "evidence_kind_", "message_", "converged_", "n_iter_", "noise_?"),
        *("posterior_.loading[D, K]", "posterior_.basis[C, K, K]", "posterior_.spread[D, K]", "posterior_.column[D]"),
        *("posterior_.precision[D]", "posterior_.centre[D]", "posterior_.scale[D]", "views_.order[D]"),
        *("factor_activity_.share[V, K]", "factor_activity_.signal[V, K]"),
    )

    def __init__(
        self,
        n_components: int = 10,
        *,
        rank: str | int = "full",
        noise: str = "auto",
        scale: str = "view",
        rotate: bool = True,
        prune: bool = True,
        n_init: int = 1,
        n_jobs: int | None = None,
        tol: float = 1e-3,
        max_iter: int = 2000,
        noise_prior: tuple[float, float] = (1e-14, 1e-14),
        relevance_prior: tuple[float, float] = (1e-14, 1e-14),
        rank_penalty: float = 0.1,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.rank = rank
        self.noise = noise
        self.scale = scale
        self.rotate = rotate
        self.prune = prune
        self.n_init = n_init
        self.n_jobs = n_jobs
        self.tol = tol
        self.max_iter = max_iter
        self.noise_prior = noise_prior
        self.relevance_prior = relevance_prior
        self.rank_penalty = rank_penalty
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any = None, *, groups: Sequence[Name] | None = None, checkpoint: Any = None
    ) -> GroupFactorAnalysis:
        """Fit to several views of the same samples.

        Parameters
        ----------
        X : dict or list of arrays of shape (n, D_m), or one array of shape (n, D)
            NaN marks missing entries; a sample without a view has NaN in all of its columns. The arrays may be Dask
            arrays or data frames, or large memory-mapped arrays, and X may be `latlin.distributed` blocks: a sweep
            is then one pass over blocks of rows, and `latents_` is left to `transform`.
        y : ignored
        groups : sequence of D labels
            The view of every column when X is one array; one view for all without.
        checkpoint : path, optional
            Of rows in blocks: where to keep the state (`checkpoint.0` and so on, a file a climb), and to go on from.
        """
        self._check_options()
        if not (is_blocked(X) or has_blocks(X)):
            refuse_checkpoint(checkpoint)
        if self.noise != "auto":
            found = self._climb(X, groups, self.noise, checkpoint)
        else:
            beside = None if checkpoint is None else f"{os.fspath(checkpoint)}.feature"
            climbs = [self._climb(X, groups, "view", checkpoint), self._climb(X, groups, "feature", beside)]
            found = max(climbs, key=lambda climb: climb.comparable)
        ascent = found.ascent
        self.noise_, self.trace_, self.n_iter_, self.converged_ = (
            found.noise,
            ascent.trace,
            ascent.n_iter,
            ascent.converged,
        )
        self.message_ = ascent.message + (f"; noise per {found.noise} was chosen" if self.noise == "auto" else "")
        self._store(found.model, ascent.state, found.views, found.scaling)
        return self

    def _climb(
        self, X: Any, groups: Sequence[Name] | None, noise: str, checkpoint: str | os.PathLike[str] | None
    ) -> GroupClimb:
        """The fit with one noise precision per view or per feature."""
        blocked = is_blocked(X) or has_blocks(X)
        data, views, scaling = (self._open if blocked else self._prepare)(X, groups, noise == "feature")
        model = GroupModel(data, self._relevance(data.sizes), *self.noise_prior)
        remedy = "raise max_iter or tol, or start with fewer components"
        rules = Rules(self.tol, 1e-3 * self.tol, self.max_iter, True, remedy)
        step = Sweep(model, self.rotate, self.prune)
        digest = digest_of(data.rows.blocks, checkpoint) if isinstance(data.rows, RowsInBlocks) else ""
        files = CheckpointFiles(checkpoint, signature(self, data.view, scaling.centre, scaling.scale, digest))
        rng = generator(self.random_state)
        jobs = None if blocked else self.n_jobs
        # the longest product is that of the rows and the loadings
        longest = data.rows.x.size * float(self.n_components) if isinstance(data.rows, RowsInMemory) else np.inf
        with blas_threads_for(longest):
            ascent = climb(model, self.n_components, self.n_init, jobs, step, rules, rng, self.verbose, files)
        precisions = len(scaling.centre) if noise == "feature" else len(data.sizes)
        comparable = float(ascent.trace[-1]) + precisions * _price(*self.noise_prior)
        return GroupClimb(noise, model, ascent, views, scaling, comparable)

    def _after_loading(self) -> None:
        self.posterior_.check(self.views_)
        self._describe(self.views_)
        # a file that is not ours may hold numbers that do not go together: they must answer
        self._predict(self.posterior_.centre[None], slice(None), True)

    def _check_options(self) -> None:
        for name, known in (("noise", ("auto", "view", "feature")), ("scale", ("view", "feature", "none"))):
            check_choice(name, getattr(self, name), known)
        for name in ("n_components", "n_init", "max_iter"):
            check_whole(name, getattr(self, name), 1)
        check_number("tol", self.tol, least=0.0)
        check_jobs(self.n_jobs)
        if not is_name(self.rank, "full") and not (isinstance(self.rank, int | np.integer) and self.rank >= 0):
            raise ValueError(f"rank must be 'full' or an integer of at least 0, got {self.rank!r:.80}")
        for name in ("noise_prior", "relevance_prior"):
            check_pair(name, getattr(self, name), "shape and rate")

    def _prepare(self, X: Any, groups: Sequence[Name] | None, by_feature: bool) -> tuple[GroupData, Views, Scaling]:
        views, rows = self._read(X, groups)
        scaling = fit_scaling(rows, views, self.scale)
        return prepare(rows, views, scaling, by_feature), views, scaling

    def _open(self, X: Any, groups: Sequence[Name] | None, by_feature: bool) -> tuple[GroupData, Views, Scaling]:
        """The same for rows in blocks."""
        if is_views(X):
            _refuse_groups(groups)
            views, blocks = open_views(X)
        else:
            blocks = make_rows_dense(open_blocks(X))
            views = matrix_views(blocks.n_columns, groups)
            remember_columns(self, X, blocks.n_columns)
        data, scaling = prepare_blocks(blocks, views, self.scale, by_feature)
        return data, views, scaling

    def _read(self, X: Any, groups: Sequence[Name] | None) -> tuple[Views, Array]:
        if is_views(X):
            _refuse_groups(groups)
            views, rows = read_views(X)
            self.n_features_in_ = views.n_columns
            if len(rows) < 2:
                raise ValueError(f"X must have at least 2 samples, got {len(rows)}")
            return views, rows
        rows = validate_data(
            self, check_numeric("X", X), dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2
        )
        return read_matrix(check_summable("X", rows), groups)

    def _relevance(self, sizes: Array) -> Relevance:
        if self.rank == "full":
            return GammaRelevance(sizes, *self.relevance_prior)
        return LowRankRelevance(sizes, int(self.rank), self.rank_penalty)

    def _store(self, model: GroupModel, state: GroupState, views: Views, scaling: Scaling) -> None:
        state = order_factors(model, state)
        self.lower_bound_, self.evidence_kind_ = bound(model, state), model.relevance.kind
        self.posterior_ = GroupPosterior(
            state.loading,
            state.basis,
            state.spread,
            model.data.patterns.column,
            model.noise_precision(state),
            scaling.centre,
            scaling.scale,
        )
        self.__dict__.pop("latents_", None)
        if isinstance(model.data.rows, RowsInMemory):
            self.latents_ = state.latent
        self.relevance_ = model.relevance.moments(state.theta).mean
        self.factor_activity_ = FactorActivity(views.names, strengths(model, state), signals(model, state))
        self._describe(views)

    def _describe(self, views: Views) -> None:
        """The public attributes, in the user's units and order."""
        post = self.posterior_
        self.views_, self.n_features_in_ = views, views.n_columns
        self.n_factors_ = post.loading.shape[1]
        self.explained_variance_ = self.factor_activity_.share
        back = np.empty_like(views.order)
        back[views.order] = np.arange(len(back))
        self.components_ = (post.loading.T * post.scale)[:, back]
        self.mean_, self.noise_variance_ = post.centre[back], (post.scale**2 / post.precision)[back]
        self.loadings_ = views.split(post.loading.T * post.scale)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _refuse_groups(groups: Sequence[Name] | None) -> None:
    if groups is not None:
        raise ValueError("groups go with one matrix; X is already several views")

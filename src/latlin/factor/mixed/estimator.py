"""Factor analysis of tables with real, binary, count, ordinal and categorical columns.

Source: Challis (2013), §2.2.2 and A.3; see `latlin.factor.mixed.fit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from latlin.factor.fit import LatentDraws, NamedEvidence, latent_moments
from latlin.factor.mixed.columns import (
    BESIDE,
    TYPES,
    Column,
    Prediction,
    draw_column,
    is_frame,
    make_table,
    predict_column,
)
from latlin.factor.mixed.fit import MixedProblem, climb, infer_new_rows, make_engine, project_rows, unit_student_t
from latlin.factor.mixed.rows import COUNTS
from latlin.factor.mixed.sites import family_of
from latlin.inference.diagnosis.dispersion import dispersion_about
from latlin.numerics.alerts import MisfitWarning, alert
from latlin.numerics.archive import Archived
from latlin.numerics.arrays import Array, check_numeric, check_visible
from latlin.numerics.ascent import Rules
from latlin.numerics.options import check_choice, check_number, check_whole, is_name
from latlin.numerics.rng import RandomState, generator
from latlin.numerics.stored import storable_as
from latlin.potentials import Gaussian, Laplace
from latlin.potentials.base import Potential
from latlin.potentials.families import SUCCESSES

LATENTS = ("gaussian", "laplace", "student-t")
ENGINES = ("gkl", "mean-field", "lvb", "laplace", "ep", "quadrature")
#: families of columns that have a quadratic bound and nothing else to learn, or are Gaussian
BOUNDED = ("gaussian", "logit", "binomial")
#: degrees of freedom from which on they are learnt
FIRST_DF = 5.0
KIND = "latlin.factor.MixedFactorAnalysis"
#: results that are written to an archive as they are
RESULTS = ("lower_bound", "evidence_kind", "n_iter", "converged", "message")


class MixedFactorAnalysis(
    NamedEvidence, LatentDraws, Archived, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """K latents behind a table of mixed columns, by approximate EM; missing entries are integrated out.

    Column j of a row depends on its latents w through η = b_j + f_jᵀw: real columns are N(η, ψ_j), binary ones
    logistic, counts Poisson with rate e^η, ordinal ones ordered logistic with cuts; a categorical column is one binary
    column per level, against the rest. Other types are the families of `latlin.potentials` of that name.

    Parameters
    ----------
    n_components : int
        Number of latents K.
    types : dict, sequence or None
        "real", "binary", "count", "ordinal", "categorical" or the name of a family ("negative-binomial", "gamma",
        "beta", "student-t" and others) by name (or position) for some columns, or one per column.
        The rest follows from the dtype: bool, or the values 0 and 1: binary; ordered categories: ordinal; other
        categories and text: categorical; integers of a data frame: count; anything else: real.
    beside : dict or None
        Columns that belong to others and are not explained themselves: {"wins": "games"} names the trials of a column
        of type "binomial" or "beta-binomial", {"weeks": "seen"} the events (1 seen, 0 comes later, 2 came earlier) of
        one of times. Successes need their trials; times without events were all seen.
    engine : {"gkl", "mean-field", "lvb", "laplace", "ep", "quadrature"}
        How the posteriors of the rows are approximated. The first three give bounds that never fall: "mean-field" of
        independent latents, "lvb" by quadratic bounds on binary columns (and real, categorical, binomial ones);
        neither is higher than that of "gkl" for the same parameters. "quadrature" assumes nothing of their shape, for
        at most three latents.
    latents : {"gaussian", "laplace", "student-t"}
        Density of the latents, of unit variance. The last two fix the rotation of the factors; "ep" and "quadrature"
        need the first, and "laplace" latents have a kink that the Laplace engine cannot use.
    df : float or "auto"
        Degrees of freedom of Student-t latents, more than 2; "auto" learns them.
    penalty : float
        λ of the penalty ½λ‖F‖² on the loadings (those of real columns in units of their standard deviations), which
        keeps those of separable columns finite.
    noise_floor : float
        Least noise variance of a real column, as a share of its variance.
    tol : float
        Largest change at convergence of a loading, or of noise and other parameters relative to one plus their size.
    max_iter : int
        Sweeps at most.
    random_state : int, Generator, RandomState or None
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    components_ : ndarray of shape (K, encoded columns)
        Loadings on η; real columns in their units.
    intercepts_ : ndarray
    df_ : float
        Degrees of freedom of Student-t latents.
    table_ : Table
        Kinds and levels of the columns, and where they stand among the encoded ones.
    lower_bound_, evidence_kind_ : float, str
        Bound on (or approximation of) log p(X) at the fitted parameters, without the penalty, every constant included.
    trace_ : ndarray
        Penalised bound after each E-step.
    n_iter_, converged_, message_ : int, bool, str
    dispersion_ : dict
        Of Poisson and binomial columns, by name: Pearson's statistic per degree of freedom, about one where they fit.
    finding_ : str
        Columns that vary more than their family allows, and which type to try; empty where there are none.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.factor import MixedFactorAnalysis
    >>> rng = np.random.default_rng(0)
    >>> w = rng.standard_normal(300)
    >>> binary = rng.random(300) < 1 / (1 + np.exp(-3 * w))
    >>> X = np.column_stack([w + 0.5 * rng.standard_normal(300), rng.poisson(np.exp(w)), binary])
    >>> X[::7, 1] = np.nan
    >>> model = MixedFactorAnalysis(1, types=["real", "count", "binary"], random_state=0).fit(X)
    >>> model.impute(X).shape, model.evidence_kind_
    ((300, 3), 'lower bound')
    """

    _saved = (
        *(
            "table_",
            "sites_",
            "trace_[*]",
            "lower_bound_",
            "evidence_kind_",
            "n_iter_",
            "converged_",
            "message_",
            "dispersion_?",
            "finding_?",
        ),
        *("sites_.loading[D, K]", "sites_.intercept[D]"),
    )

    def __init__(
        self,
        n_components: int = 2,
        *,
        types: Mapping[Any, str] | Sequence[str] | None = None,
        beside: Mapping[Any, Any] | None = None,
        engine: str = "gkl",
        latents: str = "gaussian",
        df: float | str = 5.0,
        penalty: float = 1.0,
        noise_floor: float = 1e-3,
        tol: float = 1e-2,
        max_iter: int = 500,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.types = types
        self.beside = beside
        self.engine = engine
        self.latents = latents
        self.df = df
        self.penalty = penalty
        self.noise_floor = noise_floor
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> MixedFactorAnalysis:
        """Fit to a data frame or an array of shape (n, columns); NaN (or None) marks missing entries."""
        self._check_options()
        X = self._validated(X, True)
        self.table_ = make_table(X, self.types, self.beside)
        rows = self.table_.encode(X)
        self.df_ = FIRST_DF if self.df == "auto" else float(self.df)
        engine = self._engine
        expand = self.latents == "gaussian"
        families, levels = self.table_.families, self.table_.levels
        weights = (self.penalty, self.noise_floor)
        problem = MixedProblem(rows, families, levels, engine, expand, *weights, self.table_.beside)
        remedy = "raise max_iter, tol or penalty, or use fewer components"
        rules = Rules(self.tol, 1e-2 * self.tol, self.max_iter, engine.monotone, remedy)
        self._check_bounded(families)
        learnt = self.df_ if self.df == "auto" and self.latents == "student-t" else None
        ascent = climb(problem, self.n_components, rules, generator(self.random_state), self.verbose, learnt)
        state, values = problem.expect(ascent.state, 100, 1e-8)
        self.sites_, self.df_ = state.sites, self.df_ if state.df is None else state.df
        self.trace_, self.n_iter_, self.converged_ = ascent.trace, ascent.n_iter, ascent.converged
        self.message_ = ascent.message
        self.lower_bound_ = float(np.sum(values - self.table_.log_scale(rows)))
        self.evidence_kind_ = engine.kind
        self._describe()
        self._look_at_counts(rows, state.means, state.covs)
        return self

    def _look_at_counts(self, rows: Array, means: Array, covs: Array) -> None:
        """How the entries of columns vary whose family leaves that no freedom."""
        self.dispersion_, said = {}, []
        for column, where in zip(self.table_.columns, self.table_.slices, strict=True):
            wider = family_of(TYPES[column.kind]).wider if column.width == 1 else ""
            if not wider:
                continue
            place, seen = where.start, ~np.isnan(rows[:, where.start])
            sites = self.sites_.potential(place, self.sites_.observed(rows, seen, place))
            theta = np.append(self.sites_.loading[place], self.sites_.intercept[place])
            found = dispersion_about(sites, *project_rows(theta, means[seen], covs[seen]))
            self.dispersion_[column.name] = found.ratio
            said += [f"column {column.name!r} is {words}" for words in [found.words(wider, "type")] if words]
        self.finding_ = "; ".join(said)
        if said:
            alert(self.finding_, MisfitWarning)

    def transform(self, X: Any, *, return_std: bool = False, return_cov: bool = False) -> Any:
        """Posterior means of the latents, (n, K); if asked with standard deviations or covariances, (n, K, K)."""
        means, covs, _ = self._posterior(X)
        return latent_moments(means, lambda: covs, return_std, return_cov)

    def score_samples(self, X: Any) -> Array:
        """A bound on (or approximation of) log p(observed entries) of every row, constants included."""
        rows = self._encoded(X)
        values = infer_new_rows(self._engine, rows, self.sites_)[2]
        return values - self.table_.log_scale(rows)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`."""
        return float(self.score_samples(X).mean())

    def impute(self, X: Any, *, return_probabilities: bool = False) -> Any:
        """Fill missing entries: means of real and count columns, most probable levels of the others.

        Successes stay missing where their trials are, and so do trials and events, which are not explained.

        Parameters
        ----------
        X : data frame or array-like of shape (n, columns)
        return_probabilities : bool
            Also return, by column name, the probabilities of the levels (n, levels), 0 and 1 where observed; for real
            and count columns the standard deviations (n,), 0 where observed.

        Returns
        -------
        The table filled, in the form of X, or a pair of it and a dict.
        """
        X = self._validated(X, False)
        rows = self.table_.encode(X)
        means, covs, _ = infer_new_rows(self._engine, rows, self.sites_)
        filled, certainty = [], {}
        places = self.table_.places
        for column, where in zip(self.table_.columns, self.table_.slices, strict=True):
            if column.kind == BESIDE:
                filled.append(rows[:, places[column.name]])
                continue
            gap = np.isnan(rows[:, where.start])
            trials = rows[gap, places[column.beside]] if column.kind in SUCCESSES else None
            found = self._predict(column, where, means[gap], covs[gap], trials)
            values, certainty[column.name] = found.merged(column, rows[:, where])
            filled.append(values)
        table = self.table_.refill(X, filled)
        return (table, certainty) if return_probabilities else table

    def sample(
        self, n_samples: int = 1, *, random_state: RandomState = None, trials: Mapping[Any, Any] | None = None
    ) -> Any:
        """Draws from the fitted model: one array per column, by name; of successes among `trials`, by their column."""
        check_is_fitted(self, "sites_")
        rng = generator(random_state)
        sites = self.sites_
        eta = self._draw_latents(check_whole("n_samples", n_samples), rng) @ sites.loading.T + sites.intercept
        return {
            column.name: draw_column(
                column, eta[:, where], sites.parameters[where.start], rng, (trials or {}).get(column.name)
            )
            for column, where in zip(self.table_.columns, self.table_.slices, strict=True)
            if column.kind != BESIDE
        }

    def _check_before_saving(self) -> None:
        check_is_fitted(self, "sites_")

    def _options_to_save(self) -> dict[str, Any]:
        """`types` are those of the fitted columns, degrees of freedom those that were learnt."""
        types = {column.name: column.kind for column in self.table_.columns if column.kind != BESIDE}
        return super()._options_to_save() | {"types": types, "df": self.df_}

    def _after_loading(self) -> None:
        self.df_ = float(self.df)
        if self.sites_.beside != self.table_.beside:
            raise ValueError(f"trials and events are at {self.table_.beside} of the table, got {self.sites_.beside}")
        self.n_features_in_ = len(self.table_.columns)
        if self.table_.frame:
            self.feature_names_in_ = np.array([column.name for column in self.table_.columns], dtype=object)
        self._describe()

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    @property
    def _density(self) -> Potential:
        """The density of a latent, of unit variance."""
        if self.latents == "laplace":
            return Laplace(0.0, np.sqrt(0.5))
        if self.latents == "student-t":
            return unit_student_t(self.df_)
        return Gaussian(0.0, 1.0)

    @property
    def _engine(self) -> Any:
        return make_engine(self.engine, self._density)

    def _draw_latents(self, n: int, rng: np.random.Generator) -> Array:
        return self._density.sample(np.zeros((n, self.sites_.loading.shape[1])), rng)

    def _predict(self, column: Column, where: slice, means: Array, covs: Array, trials: Array | None) -> Prediction:
        loading = self.sites_.loading[where]
        m = means @ loading.T + self.sites_.intercept[where]
        v = np.maximum(np.einsum("ck,nkl,cl->nc", loading, covs, loading, optimize=True), 0.0)
        return predict_column(column, m, v, self.sites_.parameters[where.start], trials)

    def _posterior(self, X: Any) -> tuple[Array, Array, Array]:
        return infer_new_rows(self._engine, self._encoded(X), self.sites_)

    def _encoded(self, X: Any) -> Array:
        X = self._validated(X, False)
        return self.table_.encode(X)

    def _validated(self, X: Any, reset: bool) -> Any:
        if not reset:
            check_is_fitted(self, "sites_")
        if is_frame(X):
            validate_data(self, check_visible("X", X), reset=reset, skip_check_array=True)
            if reset and len(X) < 2:
                raise ValueError(f"X must have at least 2 samples, got {len(X)}")
            return X
        kind: Any = np.float64 if self.types is None else None
        least = 2 if reset else 1
        return validate_data(
            self,
            check_numeric("X", X),
            reset=reset,
            dtype=kind,
            ensure_all_finite="allow-nan",
            ensure_min_samples=least,
        )

    def _check_options(self) -> None:
        for name, known in (("engine", ENGINES), ("latents", LATENTS)):
            check_choice(name, getattr(self, name), known)
        check_whole("n_components", self.n_components, 1)
        if self.engine == "quadrature" and self.n_components not in COUNTS:
            raise ValueError(f"engine 'quadrature' takes at most {max(COUNTS)} components, got {self.n_components}")
        if not is_name(self.df, "auto"):
            check_number("df", self.df, above=2.0)
        for name in ("penalty", "tol"):
            check_number(name, getattr(self, name), least=0.0)
        check_number("noise_floor", self.noise_floor, least=0.0, below=1.0)
        if self.beside is not None and not isinstance(self.beside, Mapping):
            raise ValueError(f"beside must be a dict of columns by columns, got {self.beside!r:.80}")
        if self.types is not None and not isinstance(self.types, Mapping | Sequence):
            raise ValueError(f"types must be a dict or a sequence of kinds of columns, got {self.types!r:.80}")

    def _check_bounded(self, families: tuple[str, ...]) -> None:
        other = sorted(set(families) - set(BOUNDED))
        if self.engine == "lvb" and other:
            raise ValueError(
                f"engine 'lvb' needs real, binary, categorical or binomial columns, got {', '.join(other)}; use 'gkl'"
            )

    def _describe(self) -> None:
        """Loadings and intercepts in the units of real columns."""
        scale: NDArray[Any] = np.ones(len(self.sites_.families))
        centre = np.zeros(len(self.sites_.families))
        for column, where in zip(self.table_.columns, self.table_.slices, strict=True):
            scale[where], centre[where] = column.scale, column.centre
        self.components_ = self.sites_.loading.T * scale
        self.intercepts_ = self.sites_.intercept * scale + centre
        noise = [values.get("scale", np.nan) for values in self.sites_.parameters]
        self.noise_variance_ = (np.array(noise) * scale) ** 2

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _taken_apart(model: MixedFactorAnalysis) -> dict[str, Any]:
    names = [name.removesuffix("?") for name in model._saved if not set(name) & set(".[")]
    held = [name for name in (*names, "trace_") if hasattr(model, name)]
    return {"options": model._options_to_save(), "fitted": {name: getattr(model, name) for name in held}}


# a fitted model can be part of another one, which imputes by it
storable_as(MixedFactorAnalysis, _taken_apart, lambda options, fitted: MixedFactorAnalysis._made_from(options, fitted))

"""What all linear estimators share: rows in, posteriors kept, coefficients, tables and draws out."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from latlin.diagnostics.model_checks import Check, ModelChecks
from latlin.distributed.blocks import Blocks
from latlin.distributed.checkpoints import digest_of
from latlin.distributed.opening import is_blocked, open_blocks, remember_columns, rowwise
from latlin.inference.engine import Engine
from latlin.inference.posterior import Posterior
from latlin.linear._blocks import BlockRows, FirstPass, Summarised, describe
from latlin.linear._description import MOST_NAMES, Description
from latlin.linear._fitting import fit_problem, number_checkpoint, settle_hyperparameters
from latlin.linear._learning import Learning, LearntFit, check_learning, fixed_table
from latlin.linear._model_checks import Labels, LookBack, with_feature_names
from latlin.linear._predict import AveragedLikelihood, Likelihood, LinearPredictors, latent_covariance, predictors_of
from latlin.linear._problem import (
    CoefficientPrior,
    Design,
    GaussianPrior,
    HeldRows,
    LabelCoding,
    LinearProblem,
    LocatedPrior,
    Targets,
    check_offsets,
    design_of,
    design_of_moments,
    offset_of,
)
from latlin.linear._rows import Numbers, column_of, encode_rows, read_rows, validate_rows
from latlin.numerics.archive import Archived
from latlin.numerics.arrays import Array, check_measurable, check_summable, check_visible, stack_answers, stack_traces
from latlin.numerics.options import AutoOrNumbers, PerRow, Rows, StrPath, check_size, check_whole
from latlin.numerics.reported import Reported
from latlin.numerics.rng import RandomState, generator
from latlin.potentials.families import Family
from latlin.priors.base import PriorsLike

KINDS = (np.float64, np.float32)


def shared_options(given: dict[str, Any]) -> dict[str, Any]:
    """Of a constructor's arguments those of every linear estimator; scikit-learn wants all in each signature."""
    return {name: given[name] for name in LinearEstimator._get_param_names() if name in given}


class LinearEstimator(Description, Archived, Reported, BaseEstimator):
    """One or several posteriors over coefficients and an intercept.

    A subclass says its likelihood (`_family`), its prior (`_prior`) and which numbers the user gave (`_given`), and
    gets `fit` and the predictions from `Regression` or `Classification`.
    """

    #: cut points or the like make up for a shift of the features
    _absorbs_shifts = False
    #: the response is a label, not a number
    _labelled = False
    #: fitted numbers besides those that follow from the posteriors
    _extras: tuple[str, ...] = ()
    #: the models of the posteriors are those of the rows
    _has_residuals = True
    _saved: ClassVar[tuple[str, ...]] = (
        "_design",
        "_fits",
        "_dtype",
        "n_features_in_",
        "feature_names_in_?[D]",
        "classes_?[*]",
        "checks_?",
        "encoding_?",
        "columns_?",
    )

    def __init_subclass__(cls, **options: Any) -> None:
        cls._saved = (*LinearEstimator._saved, *(f"{name}?" for name in cls._extras))
        super().__init_subclass__(**options)

    def __init__(
        self,
        *,
        engine: str | Engine = "auto",
        prior_scale: AutoOrNumbers = "auto",
        prior_mean: ArrayLike = 0.0,
        ard: bool = False,
        fit_intercept: bool = True,
        intercept_scale: float | None = None,
        standardise: bool = True,
        hyperparameters: str = "auto",
        priors: PriorsLike = None,
        warm_start: bool = False,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.engine = engine
        self.prior_scale = prior_scale
        self.prior_mean = prior_mean
        self.ard = ard
        self.fit_intercept = fit_intercept
        self.intercept_scale = intercept_scale
        self.standardise = standardise
        self.hyperparameters = hyperparameters
        self.priors = priors
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    # --- what a subclass says -------------------------------------------------------------------

    def _family(self) -> Family:
        raise NotImplementedError

    def response_family(self) -> Family:
        """The density of an observation, and how its mean depends on the linear predictor."""
        return self._family()

    def _prior(self) -> CoefficientPrior:
        plain = not isinstance(self.prior_mean, str) and np.ndim(self.prior_mean) == 0 and self.prior_mean == 0.0
        return GaussianPrior() if plain else LocatedPrior()

    def _given(self) -> dict[str, Any]:
        """Hyperparameters by name, as the user gave them."""
        return {"prior_scale": self.prior_scale}

    def _requested(self) -> dict[str, Any]:
        """The same with the prior mean, where there is one."""
        own = {"prior_mean": self.prior_mean} if "prior_mean" in self._prior().parameters else {}
        return {**self._given(), **own}

    def _columns(self) -> int:
        """Numbers that belong to the response of one row."""
        return 1

    # --- fitting --------------------------------------------------------------------------------

    def _read(self, X: Rows, options: dict[str, Any], **given: Any) -> dict[str, Any]:
        """X as numbers and what belongs to its rows; a data frame may hold all of it."""
        return read_rows(self, X, given, options)

    def _training(self, X: Rows, y: PerRow, *, reset: bool = True, **options: Any) -> tuple[Any, Any]:
        """Checked X and y, as they are used."""
        kinds = {"accept_sparse": ("csr", "csc"), "dtype": list(KINDS)}
        X, y = validate_rows(self, X, check_visible("y", y), reset=reset, **kinds, **options)
        return check_summable("X", X), check_measurable("y", y)

    def _problems(self, X: Rows, codes: list[Array], weight: Array | None, offset: Array | None) -> list[LinearProblem]:
        """One problem per response."""
        X, codes, weight, offset = self._kept(X, codes, weight, offset)
        absorbed = self._has_intercept() or self._absorbs_shifts
        design = design_of(X, weight, standardise=self.standardise, intercept=self._has_intercept(), absorbed=absorbed)
        return self._on_design(design, X, codes, weight, offset)

    @staticmethod
    def _kept(X: Rows, codes: list[Array], weight: Array | None, offset: Array | None) -> tuple[Any, ...]:
        """Without the rows of weight zero."""
        if weight is None or np.all(weight > 0.0):
            return X, codes, weight, offset
        kept = weight > 0.0
        return X[kept], [y[kept] for y in codes], weight[kept], None if offset is None else offset[kept]

    def _on_design(
        self, design: Design, X: Rows, codes: list[Array], weight: Array | None, offset: Array | None
    ) -> list[LinearProblem]:
        rows, family = design.rows(X), self._family()
        problems = []
        for index, y in enumerate(codes):
            targets = Targets(np.asarray(y, float), weight, offset_of(offset, index))
            centre, width = family.intercept(targets)
            width = width if self.intercept_scale is None else check_size("intercept_scale", self.intercept_scale)
            problems.append(LinearProblem(HeldRows(rows, targets), design, family, self._prior(), (centre, width)))
        return problems

    def _fit_one(self, problem: LinearProblem, before: LearntFit | None) -> LearntFit:
        """One response, from where an earlier fit of the same size ended when asked to."""
        values, free, start = self._beginning(problem, before)
        return fit_problem(problem, self.engine, values, free, start, self.verbose, wish=self._wish())

    def _wish(self) -> Learning:
        """How hyperparameters are to be learnt."""
        return check_learning(self.hyperparameters, self.priors)

    def _beginning(
        self, problem: LinearProblem, before: LearntFit | None
    ) -> tuple[dict[str, Any], list[str], Posterior | None]:
        """Hyperparameters to start from, those to learn, and a posterior to start from."""
        values, free = settle_hyperparameters(problem, self._requested(), self.ard)
        if self._wish().manner == "fixed":
            free = []
        start = None
        if before is not None and len(before.posterior.mean) == problem.design.dim and not before.shares:
            start = before.posterior
            values |= {
                name: before.values[name] for name in free if np.shape(before.values[name]) == np.shape(values[name])
            }
        return values, free, start

    def _fit_blocks(self, X: Rows, y: PerRow, weight: PerRow, offset: PerRow, checkpoint: StrPath | None) -> Self:
        """`fit` for rows in blocks: a first pass for what all fits need, then one fit per response."""
        blocks = open_blocks(X, y, weight, offset)
        table = describe(blocks, self._labelled, self._columns())
        remember_columns(self, X, blocks.n_columns)
        problems = self._block_problems(blocks, table, digest_of(blocks, checkpoint))
        if table.width not in (1, len(problems)):
            raise ValueError(f"offset must have one column or {len(problems)}, got {table.width}")
        fits = self._fit_in_blocks(problems, checkpoint)
        self._store(problems[0].design, fits, np.float32 if table.single else np.float64)
        return self._look_back(problems)

    def _fit_in_blocks(self, problems: list[LinearProblem], checkpoint: StrPath | None) -> list[LearntFit]:
        """One fit per response, one after the other."""
        fits = []
        for index, (problem, before) in enumerate(zip(problems, self._earlier(len(problems)), strict=True)):
            values, free, start = self._beginning(problem, before)
            file = number_checkpoint(checkpoint, index, len(problems))
            options = (self.engine, values, free, start, self.verbose, file, self._wish())
            fits.append(fit_problem(problem, *options))
        return fits

    def _block_problems(self, blocks: Blocks, table: FirstPass, digest: str) -> list[LinearProblem]:
        """One problem per response."""
        codings, targets = self._described_codings(table)
        absorbed = self._has_intercept() or self._absorbs_shifts
        moments, options = table.features, {"standardise": self.standardise, "intercept": self._has_intercept()}
        centred = absorbed and not table.sparse
        design = design_of_moments(moments.mean, moments.variance, centred=centred, **options)
        family = self._family()
        centre, width = family.intercept(targets)
        width = width if self.intercept_scale is None else check_size("intercept_scale", self.intercept_scale)
        return [
            LinearProblem(
                BlockRows(blocks, table, targets, coding, index, digest),
                design,
                family,
                self._prior(),
                (centre, width),
            )
            for index, coding in enumerate(codings)
        ]

    def _described_codings(self, table: FirstPass) -> tuple[list[LabelCoding], Summarised]:
        """How the responses of blocks become numbers, and what is known of them."""
        return [Numbers()], Summarised(table)

    def _earlier(self, count: int) -> list[LearntFit | None]:
        """Fits to start from."""
        earlier = getattr(self, "_fits", []) if self.warm_start else []
        return list(earlier) if len(earlier) == count else [None] * count

    def _has_intercept(self) -> bool:
        return bool(self.fit_intercept)

    def _store(self, design: Design, fits: list[LearntFit], dtype: Any) -> Self:
        names = self._coordinate_names(design)
        fits = [fit._replace(posterior=with_feature_names(fit.posterior, names)) for fit in fits]
        self._design, self._fits, self._dtype = design, fits, np.dtype(dtype)
        posteriors = [fit.posterior for fit in fits]
        single = len(fits) == 1
        self.posterior_ = posteriors[0] if single else posteriors
        self.log_evidence_ = _one_or_array([float(p.log_evidence) for p in posteriors])
        self.evidence_kind_ = posteriors[0].evidence_kind
        self.converged_ = all(p.converged for p in posteriors)
        self.n_iter_ = _one_or_array([max(p.n_iter, 1) for p in posteriors])
        self.trace_ = stack_traces([p.trace for p in posteriors])
        self.prior_scale_ = _one_or_array([fit.values["prior_scale"] for fit in fits])
        self.prior_mean_ = _one_or_array([fit.values.get("prior_mean", 0.0) for fit in fits])
        tables = [fit.table or fixed_table(fit.values) for fit in fits]
        self.hyperparameters_ = tables[0] if single else tables
        self._store_coefficients()
        return self

    def _look_back(self, problems: list[LinearProblem], labels: Labels | None = None) -> Self:
        """Keep what `checks_` will look at. Rows in blocks may be gone by then: they are looked at now."""
        self.__dict__.pop("checks_", None)
        own = self._checks_of_family()
        names, how = self._feature_names(), (self._has_residuals, self.family_name() == "log-normal")
        self._kept_look = LookBack(problems, self._fits, self._requested(), names, own, labels, *how)
        if isinstance(problems[0].observed, BlockRows):
            self.checks_  # noqa: B018
        return self

    @cached_property
    def checks_(self) -> ModelChecks:
        """What the fit shows of the model, looked for when it is first asked for."""
        if "_kept_look" not in vars(self):
            raise AttributeError(f"this {type(self).__name__} has no checks: they belong to the rows of `fit`")
        found: ModelChecks = self._kept_look.find()
        del self._kept_look
        return found

    def _checks_of_family(self) -> list[Check]:
        """What can be said of the family once it is fitted; nothing unless a subclass knows."""
        return []

    def _store_coefficients(self) -> None:
        pairs = [self._design.coefficients(fit.posterior.mean) for fit in self._fits]
        spreads = [np.sqrt(np.maximum(fit.posterior.variance, 0.0))[: self._design.n_features] for fit in self._fits]
        self.coef_ = self._shaped(np.stack([coef for coef, _ in pairs]))
        self.intercept_ = self._shaped(np.array([float(shift) for _, shift in pairs]))
        self.coef_std_ = self._shaped(np.stack(spreads))

    def _shaped(self, values: Array) -> Any:
        """Attributes with one leading axis per response; dropped where there is one by definition."""
        return self._cast(values)

    def _cast(self, values: Any) -> Any:
        return np.asarray(values).astype(self._dtype, copy=False)

    def _feature_names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(self.n_features_in_)] if names is None else list(names)

    def _coordinate_names(self, design: Design) -> tuple[str, ...] | None:
        """Names of the unknowns, for messages; none where they are too many to be read."""
        if design.dim > MOST_NAMES:
            return None
        return tuple([*map(str, self._feature_names()), "intercept"][: design.dim])

    # --- asking ---------------------------------------------------------------------------------

    def _check_rows(self, X: Rows) -> Any:
        """Checked rows of features for a fitted model."""
        check_is_fitted(self, "posterior_")
        if is_blocked(X) and not isinstance(X, np.ndarray):
            raise ValueError("X is in blocks of rows, and this answer is for rows in memory: ask block by block")
        X = encode_rows(X, getattr(self, "encoding_", None))
        return check_summable("X", validate_rows(self, X, reset=False, accept_sparse=("csr", "csc"), dtype=list(KINDS)))

    def _latents(self, X: Rows, offset: PerRow) -> tuple[Any, list[LinearPredictors], Any]:
        """Rows of the model, the linear predictors of each response, and the kind of numbers to answer in."""
        offset, X = column_of(self, X, "offset", offset), self._check_rows(X)
        shift = check_offsets(offset, X.shape[0], len(self._fits))
        rows = self._design.rows(X)
        return rows, [predictors_of(f.posterior, rows, offset_of(shift, k)) for k, f in enumerate(self._fits)], X.dtype

    def _likelihood(self, index: int = 0) -> Likelihood:
        """The potential of a response at its hyperparameters, of no particular observation, or several with weights."""
        fit, family = self._fits[index], self._family()
        if not (fit.shares and family.parameters):
            return family.kind(fit.values)
        return AveragedLikelihood(fit.weights, tuple(family.kind(share.values) for share in fit.shares))

    def _observed(self, y: Array) -> Likelihood:
        """The sites of observations of the only response, or several with weights."""
        fit, family = self._fits[0], self._family()
        if not (fit.shares and family.parameters):
            return family.potential(y, fit.values)
        return AveragedLikelihood(fit.weights, tuple(family.potential(y, share.values) for share in fit.shares))

    @rowwise
    def predict_latent(
        self, X: Rows, offset: PerRow = None, *, return_std: bool = False, return_cov: bool = False
    ) -> Any:
        """The linear predictor xᵀw (+ offset) of each row: its posterior mean and, if asked, how uncertain it is.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, n_features)
        offset : array of shape (n,), optional
        return_std, return_cov : bool
            Also return standard deviations (n,) or the covariance matrix (n, n). Several classes: one more axis.

        Returns
        -------
        mean, or (mean, std), or (mean, cov)
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov cannot both be True; the diagonal of cov holds the variances")
        rows, latents, dtype = self._latents(X, offset)
        mean = stack_answers([at.mean for at in latents]).astype(dtype)
        if return_std:
            return mean, stack_answers([np.sqrt(at.variance) for at in latents]).astype(dtype)
        if return_cov:
            return mean, stack_answers([latent_covariance(f.posterior, rows) for f in self._fits]).astype(dtype)
        return mean

    def sample_posterior(self, n_samples: int = 1, random_state: RandomState = None) -> Array:
        """Draws of the coefficients, the intercept at x = 0 last.

        Returns
        -------
        ndarray of shape (n_samples, n_features + 1) or, for several classes, (n_samples, n_classes, n_features + 1);
        without the last column if there is no intercept.
        """
        check_is_fitted(self, "posterior_")
        rng = self._generator(random_state)
        draws = [self._user_units(fit.posterior.sample(check_whole("n_samples", n_samples), rng)) for fit in self._fits]
        return draws[0] if len(draws) == 1 else np.stack(draws, axis=1)

    def _user_units(self, w: Array) -> Array:
        coef, shift = self._design.coefficients(w)
        return np.column_stack([coef, shift]) if self._design.intercept else coef

    def _fitted_value(self, name: str) -> Any:
        """A hyperparameter of the only response; AttributeError before `fit`, as of any fitted attribute."""
        if not hasattr(self, "_fits"):
            raise AttributeError(f"this {type(self).__name__} is not fitted yet")
        values = self._fits[0].values
        if name not in values:
            raise AttributeError(f"the families of this {type(self).__name__} have no parameter {name!r}")
        return values[name]

    @property
    def parameters_(self) -> dict[str, Any]:
        """The likelihood's own parameters, given or learnt, by name."""
        return {name: self._fitted_value(name) for name in self._family().parameters}

    def _generator(self, random_state: RandomState) -> np.random.Generator:
        return generator(self.random_state if random_state is None else random_state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that `latlin.load` reads and that never runs code.

        The training data are not in it: what was read back predicts and draws the very same numbers, but what needs
        the data (`posterior_.diagnose()`, `to_arviz()`) asks for a new fit.
        """
        super().save(path)

    def _check_before_saving(self) -> None:
        check_is_fitted(self, "posterior_")

    def _after_loading(self) -> None:
        if any(len(fit.posterior.mean) != self._design.dim for fit in self._fits) or not self._fits:
            raise ValueError(f"its posteriors are not over the {self._design.dim} coefficients of its design")
        if not hasattr(self, "feature_names_in_") and self.n_features_in_ != self._design.n_features:
            raise ValueError(f"n_features_in_ must be {self._design.n_features}, got {self.n_features_in_!r:.80}")
        self._store(self._design, list(self._fits), self._dtype)
        # a file that is not ours may hold parts that do not go together: they must answer
        self._answer([predictors_of(fit.posterior, np.zeros((1, self._design.dim)), None) for fit in self._fits])

    def _answer(self, latents: list[LinearPredictors]) -> None:
        """Predict from linear predictors, to see that it can be done."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _one_or_array(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else np.array(values)

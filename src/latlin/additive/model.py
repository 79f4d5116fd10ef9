"""`AdditiveModel`: a formula and a table in, effects with intervals and predictions out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from latlin.additive import effects, learning, predict
from latlin.additive.blocks import block_problem
from latlin.additive.checks import CheckedFit
from latlin.additive.effects import Effects, check_coverage, curve_rows, differences_of, effects_of, marginal_rows
from latlin.additive.family import ObservedResponse, family_of, observe, observe_without_response
from latlin.additive.fixed import FixedPart
from latlin.additive.formula import Formula, collect_terms, read_formula
from latlin.additive.frame import check_n_rows, replace_column
from latlin.additive.group import GroupPart
from latlin.additive.loo import LeaveOneOut, leave_out
from latlin.additive.predict import PosteriorDraws, SeenGroups
from latlin.additive.problem import AdditiveProblem, make_problem, merge_copies, offset_of, resolve_gaps, spans_of
from latlin.additive.term import Part, Term
from latlin.distributed.opening import is_large_frame
from latlin.inference.engine import Engine
from latlin.numerics.archive import Archived
from latlin.numerics.arrays import Array
from latlin.numerics.options import PerRow, Table, check_mapping, check_whole
from latlin.numerics.reported import Reported
from latlin.numerics.rng import RandomState, generator
from latlin.potentials.base import Potential
from latlin.potentials.predictive import residuals_of

#: draws behind an interval of a response that is not Gaussian
DRAWS = 4000


class AdditiveModel(CheckedFit, PosteriorDraws, SeenGroups, Archived, Reported, BaseEstimator):
    """A response explained by a sum of terms: coefficients, groups, smooth functions, seasons, maps.

    Parameters
    ----------
    formula : str, optional
        `y ~ x + sex + (1 + x | clinic) + s(week) + besag(region) + offset(log(days))`. Groups are `(1 | g)`,
        `(1 + x | g)` with correlated slopes, `(1 + x || g)` without correlation, `a/b` nested; `s`, `te`, `gp`, `rw1`,
        `rw2`, `ar1`, `seasonal(t, 12)`, `besag`, `bym2` and `lattice` are terms of `latlin.additive`. The response is
        `y`, `cbind(successes, failures)`, `y | trials(n)`, `y | se(s)`, `y | event(seen)` (with `+ upper(end)` for
        intervals) or `y | weights(w)`.
    family : str or Potential
        A family of `latlin.potentials.families`: "gaussian", "student-t", "bernoulli", "binomial", "poisson",
        "negative-binomial", "hurdle-poisson", "tweedie", "weibull", "ordinal", …, or "cloglog"; "logistic-noise" is
        the noise of that name. A potential stands for its family with some of its arguments chosen, as
        `potentials.AsymmetricLaplace(0.9)` or `potentials.Ordinal(0, [0], "logit")` do. Of ordered classes the
        intercept is minus the first cut point and "gap(1)", … are the gaps between it and the others.
    terms : list of Term, optional
        In place of a formula, with `response` and `offset`; `Fixed(intercept=False)` leaves the intercept out.
    response, offset : str, optional
        The response, and what is added to the linear predictor, when there is no formula.
    engine : str or engine object
        How the posterior at given hyperparameters is found; see `latlin.infer`. "auto" is exact for Gaussian
        responses, else expectation propagation where the family is log-concave and there are up to 3,000 distinct
        rows (up to 30,000 with less than eight per coefficient), and Gaussian KL elsewhere.
    hyperparameters : {"auto", "integrate", "maximise", "fixed"}
        Standard deviations of groups and noise, correlations, lengths: averaged over their posterior, at the optimum
        of evidence and prior, or at their starts (and where `priors` gives them numbers). "auto" integrates while
        that is cheap.
    priors : dict, optional
        By the name of a hyperparameter: a prior of `latlin.priors`, or a number that fixes it. By the name of a
        coefficient: a standard deviation, a pair (mean, standard deviation) or `Flat()`. The defaults are those of
        `Fixed`, and half Student t densities with 3 degrees of freedom and scale 2.5 units for standard deviations;
        a unit is the standard deviation of the response, or one where the family has a link.
    random_state : int, Generator or RandomState, optional
        Of draws.
    verbose : bool
        Show progress.

    Attributes
    ----------
    posterior_ : Posterior
        Of all coefficients: a mixture over the hyperparameters when these are integrated.
    hyperparameters_ : HyperparameterTable
    classes_ : ndarray or None
        The labels of the response in their order, where it has such.
    checks_ : ModelChecks
    log_evidence_, evidence_kind_, message_ : float, str, str
    converged_, n_iter_, trace_ : bool, int, ndarray

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> group = np.repeat(list("abcdefgh"), 12)
    >>> x = rng.normal(size=96)
    >>> y = rng.poisson(np.exp(0.5 + 0.3 * x + np.repeat(rng.normal(0, 0.5, 8), 12)))
    >>> model = AdditiveModel("y ~ x + (1 | group)", family="poisson").fit({"y": y, "x": x, "group": group})
    >>> model.hyperparameters_.names
    ('sd(group)',)
    >>> 0.2 < model.effects()["x"]["mean"] < 0.4
    True
    """

    _saved: ClassVar[tuple[str, ...]] = (
        "_read_",
        "_parts",
        "_values",
        "_average",
        "classes_",
        "posterior_",
        "hyperparameters_",
        *("n_features_in_", "dispersion_?", "finding_?", "family_checks_?"),
    )

    def __init__(
        self,
        formula: str | None = None,
        family: str | Potential = "gaussian",
        *,
        terms: Sequence[Term] | None = None,
        response: str | None = None,
        offset: str | None = None,
        engine: str | Engine = "auto",
        hyperparameters: str = "auto",
        priors: Mapping[str, Any] | None = None,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.formula = formula
        self.family = family
        self.terms = terms
        self.response = response
        self.offset = offset
        self.engine = engine
        self.hyperparameters = hyperparameters
        self.priors = priors
        self.random_state = random_state
        self.verbose = verbose

    # --- fitting --------------------------------------------------------------------------------

    def fit(
        self, frame: Table, y: PerRow = None, *, missing: str = "error", graph: Any = None, checkpoint: Any = None
    ) -> Self:
        """Fit to the rows of a table.

        Parameters
        ----------
        frame : data frame, dict of arrays, structured array, or rows in blocks
            A Dask data frame, a dict of memory-mapped columns of more than 64 MiB, and blocks of
            `latlin.distributed.frame_blocks` are fitted by passes over the rows that return sums.
        y : array of shape (n,), optional, in place of the table's own response
        missing : {"error", "drop", "mean", "model"}
            What missing cells of the columns in the formula do: stop the fit; drop their row; or become the mean (the
            most frequent level) of their column, or what the other columns predict, by `MixedFactorAnalysis`.
        graph : optional
            Neighbours for `besag` and `bym2`: an adjacency matrix (dense, sparse, or a data frame with labels), a dict
            label → neighbours, a list of pairs (tuples), or a networkx graph.
        checkpoint : path, optional
            Fits keep their states in the files `checkpoint` and ".0", ".1", …; the same fit goes on from them.
        """
        read, priors, family = self._read(), check_mapping("priors", self.priors), family_of(self.family)

        def problem_of(table: Table) -> AdditiveProblem:
            return make_problem(read, family, table, graph, priors)

        if y is not None:
            frame = replace_column(frame, read.response.y, y)
        if missing != "error" or (self.formula and not is_large_frame(frame)):
            # also where nothing is dropped or filled: one message names all missing and odd cells
            frame = resolve_gaps(frame, self.formula, self.response, missing)
        if is_large_frame(frame):
            problem, frame = block_problem(read, frame, problem_of, checkpoint), None
        else:
            problem = merge_copies(problem_of(frame))
        how = (self.engine, self.hyperparameters, priors, self.random_state, self.verbose)
        learnt, posterior = learning.learn(problem, *how, checkpoint)
        self._read_, self._parts = read, problem.parts
        self._problem_, self._frame = problem, frame
        self._values = [component.values for component in learnt.components]
        self._fits = [component.fit for component in learnt.components]
        self._average = float(np.average(problem.observed.y, weights=problem.observed.weight))
        self.classes_ = problem.observed.classes
        self.posterior_ = posterior.with_names(problem.names)
        self.hyperparameters_ = learnt.table
        self.n_features_in_ = len(self._parts)
        self._after_loading()
        self._look_back(problem, posterior)
        return self

    def _after_loading(self) -> None:
        """What follows from the stored attributes."""
        if not all(isinstance(part, Part) for part in self._parts) or not isinstance(self._read_, Formula):
            raise ValueError("every part of the model must be that of a term, and its formula one that was read")
        posterior = self.posterior_
        self._family = family_of(self.family)
        self._components = predict.components_of(posterior.density, self._values)
        self.log_evidence_, self.evidence_kind_ = posterior.log_evidence, posterior.evidence_kind
        self.converged_, self.n_iter_ = posterior.converged, max(posterior.n_iter, 1)
        self.message_, self.trace_ = posterior.message, np.asarray(posterior.trace, float)
        if not hasattr(self, "_fits"):
            # a model from a file has no training rows
            self._fits, self._frame = [], None

    def _options_to_save(self) -> dict[str, Any]:
        """Without graphs, which are in the fitted terms."""
        options = super()._options_to_save()
        if options["terms"] is not None:
            options["terms"] = [replace(t, graph=None) if hasattr(t, "graph") else t for t in options["terms"]]
        return options

    def _read(self) -> Formula:
        if self.formula is not None:
            if self.terms is not None or self.response is not None or self.offset is not None:
                raise ValueError("give a formula, or terms with a response and an offset, not both")
            return read_formula(self.formula)
        return collect_terms(self.terms, self.response, self.offset)

    # --- effects --------------------------------------------------------------------------------

    @property
    def term_names_(self) -> list[str]:
        """Labels of the terms."""
        check_is_fitted(self, "posterior_")
        return [part.label for part in self._parts]

    @property
    def references_(self) -> dict[str, str]:
        """Of columns of labels among the coefficients: the label that the others are compared with."""
        fixed = (part.coding.references for part in self._parts if isinstance(part, FixedPart))
        return {column: label for found in fixed for column, label in found.items()}

    def summary(self, coverage: float = 0.9) -> Effects:
        """The coefficients with their intervals, and below them the hyperparameters and the evidence."""
        table = self.effects(None, coverage=coverage)
        stated = f"log evidence {self.log_evidence_:.3f} ({self.evidence_kind_})"
        kind = {"none": "no absolute evidence (a prior is flat)"}.get(self.evidence_kind_, stated)
        sizes = "; ".join(f"{part.label}: {part.size} coefficients" for part in self._parts if part.label != "fixed")
        learnt = repr(self.hyperparameters_) if len(self.hyperparameters_) else ""
        pairs = ", ".join(f"{column} with {label}" for column, label in self.references_.items())
        compared = f"Levels are compared: {pairs}." * bool(pairs)
        cuts = self._family.cut_words(table.rows, self.hyperparameters_.rows, self.classes_)
        computed = f"how it was computed: {self.message_}"
        lines = [compared, cuts, learnt, sizes, kind, computed, getattr(self, "finding_", "")]
        title = f"{self.formula or self._read_.response.y}, family {self._family.name}"
        title += self._scale_words() + ("" if self.converged_ else ", NOT converged")
        return Effects(table.rows, coverage, title, "\n".join(filter(None, lines)))

    def _scale_words(self) -> str:
        """What coefficients change, and which class counts as a success."""
        words = self._family.scale_words(self._read_.response.success(self.classes_) if self._family.binary else "")
        return f"; coefficients change {words}" if words else ""

    def effects(self, name: str | None = None, *, coverage: float = 0.9, frame: Table = None) -> Effects:
        """Effects with central intervals, on the scale of the linear predictor.

        Parameters
        ----------
        name : str, optional
            A term ("g", "s(t)", "besag(region)"): its effect at every level or node. A column of the linear part:
            marginal means, the average linear predictor of the coefficients over the rows of the training table with
            this column set to each of its labels, or to five of its quantiles. None: the coefficients.
        coverage : float
        frame : table, optional
            Rows to average over, in place of the training table.
        """
        return effects_of(self.posterior_, *self._functions(name, frame), check_coverage(coverage))

    def contrasts(self, name: str, *, coverage: float = 0.9, frame: Table = None) -> Effects:
        """All pairwise differences between the levels of a term or of a column, with intervals; slopes with slopes."""
        rows, names = self._functions(name, frame)
        if len(names) > 200:
            raise ValueError(f"{name!r} has {len(names)} levels; contrasts are for at most 200")
        kinds = {part.label: len(part.sds) for part in self._parts if isinstance(part, GroupPart)}
        found = differences_of(rows, names, kinds.get(name, 1))
        return effects_of(self.posterior_, *found, check_coverage(coverage))

    def _functions(self, name: str | None, frame: Table) -> tuple[sparse.csr_array, list[str]]:
        """Rows over all coefficients, and their names."""
        check_is_fitted(self, "posterior_")
        for part, span in zip(self._parts, spans_of(self._parts), strict=True):
            if part.label == (name or "fixed"):
                return self._placed(part.report(), span), list(part.names)
        if name is None:
            return sparse.csr_array((0, spans_of(self._parts)[-1].stop)), []
        frame = self._frame if frame is None else frame
        if frame is None:
            raise ValueError(f"effects of the column {name!r} average over rows of a table: give frame=")
        known = marginal_rows(name, frame, self._parts)
        if known is None:
            labels = ", ".join(part.label for part in self._parts)
            raise ValueError(f"{name!r} is neither a term ({labels}) nor a column of the linear part")
        return self._placed(known[0], spans_of(self._parts)[0]), known[1]

    def _placed(self, rows: sparse.csr_array, span: slice) -> sparse.csr_array:
        dim = spans_of(self._parts)[-1].stop
        before, after = (sparse.csr_array((rows.shape[0], size)) for size in (span.start, dim - span.stop))
        return sparse.csr_array(sparse.hstack([before, rows, after], format="csr"))

    def curve(self, name: str, points: int = 200, *, level: Any = None, coverage: float = 0.9) -> tuple[Array, Effects]:
        """A smooth term, walk or series along its column: places and the effect there.

        Parameters
        ----------
        name : str
            The term: "s(t)", "rw1(week)", "gp(x)", "s(t):sex" for one with `by="sex"`, ….
        points : int
            Places of a spline; walks and processes answer at their nodes.
        level : optional
            Of a term with a curve per label: the label.
        coverage : float
        """
        check_is_fitted(self, "posterior_")
        for part, span in zip(self._parts, spans_of(self._parts), strict=True):
            if part.label == name:
                x, rows = curve_rows(part, check_whole("points", points, 2), level)
                names = [f"{name}[{place:.6g}]" for place in x]
                return x, effects_of(self.posterior_, self._placed(rows, span), names, check_coverage(coverage))
        raise ValueError(f"name must be one of the terms {', '.join(self.term_names_)}, got {name!r}")

    def variance_components(self, coverage: float = 0.9) -> Effects:
        """Variances of groups, fields and noise, correlations of effects, and the shares of terms in the total.

        The variance of a slope is per squared unit of its column. The share of a group is that of its intercepts and
        slopes together, zᵀΣz averaged over the training rows.
        Noise is on the scale of the linear predictor: π²/3 for a logit, log(1 + V/μ²) at the mean for a log link.
        """
        check_is_fitted(self, "posterior_")
        held = (self._components, self._parts, self._family, self._average)
        return effects.variance_components(*held, coverage, self.hyperparameters_)

    def intraclass_correlation(self, group: str | None = None) -> float:
        """The share of a group in the variance of groups and noise; with slopes, its average over the training rows."""
        check_is_fitted(self, "posterior_")
        groups = [part.label for part in self._parts if isinstance(part, GroupPart)]
        if not groups or (group is not None and group not in groups):
            raise ValueError(f"group must be one of {', '.join(groups) or 'none'}, got {group!r}")
        return effects.share_of_group(self._components, self._parts, self._family, self._average, group or groups[0])

    # --- predictions ----------------------------------------------------------------------------

    def _predict_latents(
        self, frame: Table, marginal: Any
    ) -> tuple[list[predict.PredictorMoments], Array, tuple[str, ...]]:
        check_is_fitted(self, "posterior_")
        offset = offset_of(self._read_, frame, check_n_rows(frame))
        apart = predict.groups_to_average(self._parts, marginal)
        return predict.predictor_moments(self._components, self._parts, frame, offset, apart), offset, apart

    def _blank(self, frame: Table) -> ObservedResponse:
        return observe_without_response(self._read_.response, self._family, frame)

    def predict(self, frame: Table, *, marginal: Any = None, return_std: bool = False) -> Any:
        """The expected response of each row: of a binomial response the expected share of successes, of ordered classes
        the expected number of the class, counted from zero, of a model of a quantile (`AsymmetricLaplace`) that one.

        Parameters
        ----------
        frame : table
            Groups that were not seen (`unseen_groups` lists them) have the variance of groups; walks go on beyond ends.
        marginal : bool, str or list of str, optional
            Groups to average over, as if every row were of a new one; True for all groups.
        return_std : bool
            Also return the standard deviations of new responses; of a model of a quantile, those of the quantile.
        """
        parts = self._predict_latents(frame, marginal)[0]
        mean, variance = predict.response_moments(parts, self._family, self._blank(frame))
        return (mean, np.sqrt(variance)) if return_std else mean

    def predict_latent(
        self, frame: Table, *, marginal: Any = None, return_std: bool = False, return_cov: bool = False
    ) -> Any:
        """The linear predictor of each row, offsets included; with standard deviations or a covariance if wanted."""
        if return_std and return_cov:
            raise ValueError("return_std and return_cov cannot both be True; the diagonal of cov holds the variances")
        mean, variance = predict.pool_moments(parts := self._predict_latents(frame, marginal)[0])
        if return_cov:
            return mean, predict.pooled_covariance(
                self._components, self._parts, frame, parts, predict.groups_to_average(self._parts, marginal)
            )
        return (mean, np.sqrt(variance)) if return_std else mean

    def predict_proba(self, frame: Table, *, marginal: Any = None) -> Array:
        """Probabilities of the classes, one row each, in the order of `classes_`; for binary and ordered families."""
        check_is_fitted(self, "posterior_")
        if not (self._family.binary or self._family.ordered):
            raise AttributeError(f"family {self._family.name!r} has no classes")
        if self._family.ordered:
            parts = self._predict_latents(frame, marginal)[0]
            return predict.class_probabilities(parts, self._family, self._blank(frame))
        p = self.predict(frame, marginal=marginal)
        return np.column_stack([1.0 - p, p])

    def predict_interval(
        self, frame: Table, coverage: float = 0.9, *, marginal: Any = None, random_state: RandomState = None
    ) -> Array:
        """Ends of intervals of new observations, of shape (rows, 2).

        They are central; of whole numbers, one end moves to where the probability is nearest to `coverage`. A Gaussian
        response has quantiles in closed form; those of others are of 4,000 draws.
        """
        check_is_fitted(self, "posterior_")
        q = 0.5 + 0.5 * np.array([-1.0, 1.0]) * check_coverage(coverage)
        if self._family.template.gaussian and self._family.link == "identity":
            parts = self._predict_latents(frame, marginal)[0]
            return effects.gaussian_quantiles(parts, self._family, self._blank(frame), q).T
        draws = self.sample_predictive(frame, DRAWS, marginal=marginal, random_state=random_state)
        return predict.interval_of_draws(draws, coverage, self._family).T

    def sample_predictive(
        self, frame: Table, count: int = 1000, *, marginal: Any = None, random_state: RandomState = None
    ) -> Array:
        """Draws of new observations of all rows together, of shape (count, rows)."""
        check_is_fitted(self, "posterior_")
        rng = generator(self.random_state if random_state is None else random_state)
        offset = offset_of(self._read_, frame, check_n_rows(frame))
        apart = predict.groups_to_average(self._parts, marginal)
        held = (self._components, self._parts, frame, offset)
        draws = predict.draw_predictors(*held, check_whole("count", count, 1), rng, apart)
        return predict.draw_responses(draws, self._family, self._blank(frame), rng)

    def log_predictive_density(self, frame: Table, *, marginal: Any = None) -> Array:
        """The log predictive density of each row's own response."""
        parts, _, _ = self._predict_latents(frame, marginal)
        observed = observe(self._read_.response, self._family, frame, self.classes_)
        return predict.log_density(parts, self._family, observed)

    def quantile_residuals(self, frame: Table, *, marginal: Any = None, random_state: RandomState = 0) -> Array:
        """Randomised quantile residuals of each row's own response: standard normal if the model is right."""
        parts, rng = self._predict_latents(frame, marginal)[0], generator(random_state)
        observed = observe(self._read_.response, self._family, frame, self.classes_)
        return residuals_of(predict.integral_transforms(parts, self._family, observed, rng))

    def score(self, frame: Table, y: PerRow = None) -> float:
        """The mean log predictive density of the rows' own responses; larger is better."""
        check_is_fitted(self, "posterior_")
        rows = frame if y is None else replace_column(frame, self._read_.response.y, y)
        return float(np.mean(self.log_predictive_density(rows)))

    def loo(self, group: str | None = None) -> LeaveOneOut:
        """Leave-one-out log densities without refits, of rows or of whole groups.

        Parameters
        ----------
        group : str, optional
            A column: leave out all rows of a label at a time.
        """
        check_is_fitted(self, "posterior_")
        return leave_out(self._components, self._fits, getattr(self, "_problem_", None), self._frame, group)

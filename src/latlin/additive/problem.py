"""The latent linear model of a table: parts side by side, and its evidence with slopes in every hyperparameter."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latlin.additive.expression import evaluate
from latlin.additive.family import LearntParameter, ObservedResponse, ResponseFamily, observe
from latlin.additive.fixed import Fixed
from latlin.additive.formula import Formula, absent_columns
from latlin.additive.frame import check_n_rows, column, names_of_columns
from latlin.additive.places import join_columns
from latlin.additive.term import Part, PredictorRows, Slope, Surroundings, Values
from latlin.datasets.gaps import fill_formula
from latlin.datasets.problems import absent_words, refuse_all
from latlin.datasets.table import need_pandas
from latlin.densities.sparse_precision import ProbedPrecisionCovariance, SparsePrecisionCovariance
from latlin.distributed.opening import is_large_frame
from latlin.hyper.space import Evaluation, Hyperparameter
from latlin.inference.engine import Engine
from latlin.inference.evidence.gradient import PrecisionSlopes
from latlin.inference.evidence.terms import ExpectedEvidence, TiltedEvidence
from latlin.inference.exact import noise_slope
from latlin.inference.forms.dense import site_form
from latlin.inference.infer import infer
from latlin.inference.model import Constraint, GaussianFactor, LatentLinearModel, SiteFactor
from latlin.inference.posterior import Posterior
from latlin.numerics.arrays import LOG_2PI, Array
from latlin.potentials.base import Potential
from latlin.potentials.checks import naming_rows

#: ⟨r_i r_j⟩ on the entries of a block of the prior's precision, by where it begins and how many there are
Moments = dict[tuple[int, int], tuple[NDArray[Any], Array]]
#: share of distinct rows up to which equal ones become one row with a weight
SAVED = 0.67
#: coefficients at most whose names messages use
MOST_NAMES = 10_000
#: rows of a sample that say whether rows repeat
SAMPLED = 5_000


@dataclass(frozen=True)
class AdditiveProblem:
    """Everything that a fit needs.

    Attributes
    ----------
    parts : tuple of Part
    family : Family
    observed : Observed
    offset : array of shape (n,)
    design : sparse matrix of shape (n, dim)
    unit : float
        Natural size of the linear predictor.
    copies : array of shape (rows of the table,) or None
        Which row of this problem each row of the table became, where equal rows are one row with a weight.
    """

    parts: tuple[Part, ...]
    family: ResponseFamily
    observed: ObservedResponse
    offset: Array
    design: sparse.csr_array
    unit: float
    copies: NDArray[np.int64] | None = None

    @property
    def dim(self) -> int:
        return int(self.design.shape[1])

    @cached_property
    def spans(self) -> tuple[slice, ...]:
        """Where the coefficients of each part are."""
        return spans_of(self.parts)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Of the coefficients; None where they are too many to be read."""
        return tuple(name for part in self.parts for name in part.names) if self.dim <= MOST_NAMES else None

    @cached_property
    def mean(self) -> Array:
        return np.concatenate([part.mean for part in self.parts])

    @cached_property
    def hyperparameters(self) -> tuple[Hyperparameter, ...]:
        own = [hyper for part in self.parts for hyper in part.hyperparameters]
        return (*own, *self.family.hyperparameters(self.observed, self.offset, self.unit))

    @cached_property
    def constraint(self) -> sparse.csr_array | None:
        """A of A w = 0 for all parts together."""
        blocks = []
        for part, span in zip(self.parts, self.spans, strict=True):
            if part.constraint is not None:
                before = sparse.csr_array((part.constraint.shape[0], span.start))
                after = sparse.csr_array((part.constraint.shape[0], self.dim - span.stop))
                blocks.append(sparse.hstack([before, part.constraint, after], format="csr"))
        return sparse.csr_array(sparse.vstack(blocks, format="csr")) if blocks else None

    def model(self, values: Values) -> LatentLinearModel:
        """The model at given hyperparameters; rows, patterns and constraints are those of the first one."""
        first = self.first_model
        sites = first.sites[0] if not self._moving else first.sites[0].with_potential(self._potential(values))
        # coefficients that are all flat have no prior at all
        prior = [factor.with_precision(*self._precision(values)) for factor in first.gaussians]
        return first.among([*prior, sites])

    @cached_property
    def starts(self) -> dict[str, float]:
        """Where the hyperparameters begin."""
        return {hyper.name: hyper.start for hyper in self.hyperparameters}

    @property
    def first_potential(self) -> Potential:
        """The sites at the starts of the hyperparameters."""
        return self.first_model.sites[0].potential

    @property
    def n_rows(self) -> int:
        """Rows that a pass goes over."""
        return int(self.design.shape[0])

    @cached_property
    def first_model(self) -> LatentLinearModel:
        """The model at the starts of the hyperparameters, with every check."""
        Q, log_det = self._precision(self.starts)
        offset = self.offset if np.any(self.offset) else None
        sites = SiteFactor(self.design, self._potential(self.starts), weight=self.observed.weight, offset=offset)
        prior = [GaussianFactor(self.mean, precision=Q, rank=self._rank, log_det=log_det)] if self._rank else []
        constraints = () if self.constraint is None else (Constraint(self.constraint),)
        return LatentLinearModel([*prior, sites], constraints=constraints)

    def _potential(self, values: Values) -> Potential:
        return self.family.potential(self.observed, values)

    @cached_property
    def _moving(self) -> bool:
        """Whether the potential has parameters to learn."""
        return bool(self.family.learnt(self.observed))

    @cached_property
    def _rank(self) -> int:
        fixed = 0 if self.constraint is None else self.constraint.shape[0]
        return self.dim - fixed - sum(part.flat for part in self.parts)

    def _precision(self, values: Values) -> tuple[sparse.csc_array, float]:
        """Q of all parts, and the determinant that makes the factor's constant the prior's own.

        That constant is ½ log|Q| − ½ rank log 2π.
        """
        priors = [part.prior(values) for part in self.parts]
        log_det = 2.0 * sum(prior.log_normaliser for prior in priors) + self._rank * LOG_2PI
        return block_diagonal([prior.precision for prior in priors]), float(log_det)

    def fit(self, values: Values, engine: str | Engine, start: Posterior | None, checkpoint: Any = None) -> Posterior:
        """The posterior at given hyperparameters."""
        model = self.model(values)
        # Gaussian sites are exact in one step, from wherever
        start = None if model.sites[0].potential.gaussian else start
        return infer(model, engine, start=start, checkpoint=checkpoint)

    def evaluate(
        self,
        values: dict[str, float],
        engine: Any,
        start: Any,
        slopes: bool,
        free: Any = None,
        checkpoint: str | None = None,
    ) -> Evaluation:
        """Fit, and differentiate the evidence in the hyperparameters named in `free` (all) where that is asked for."""
        posterior = self.fit(values, engine, start, checkpoint)
        kept: Moments = {}
        found = self.slopes(posterior, values, free, kept) if slopes else None
        held = None if found is None else partial(self.held_slopes, posterior, free=free, kept=kept)
        return Evaluation(posterior.log_evidence, found, posterior, held)

    def held_slopes(self, posterior: Posterior, values: Values, free: Any = None, kept: Moments | None = None) -> Any:
        """Derivatives at other values with the stand-ins of the sites held: one factorisation in place of a fit.

        Gaussian sites, whose noise moves, are their own: there the posterior is held, with the moments in `kept`. So it
        is where the factor would fill.
        """
        in_memory = isinstance(self.first_model, LatentLinearModel)
        factorised = not isinstance(getattr(posterior.density, "structure", None), ProbedPrecisionCovariance)
        if posterior.sites is not None and not posterior.model.gaussian and in_memory and factorised:
            model = self.model(values)
            form = site_form(model)
            solution = form.solve(posterior.sites)
            if solution is not None:
                return self.slopes(replace(posterior, model=model, density=form.density(solution)), values, free)
        return self.slopes(posterior, values, free, kept)

    def slopes(
        self, posterior: Posterior, values: Values, free: Any = None, kept: Moments | None = None
    ) -> Mapping[str, float] | None:
        """Derivatives of the log evidence; None where the engine has no closed form for one of them.

        At other values than those of the posterior: derivatives with the posterior held. Its moments are put into
        `kept` and taken from there.
        """
        names = {hyper.name for hyper in self.hyperparameters} if free is None else set(free)
        found: dict[str, float] = {}
        by_precision = PrecisionSlopes(posterior)
        for part, span in zip(self.parts, self.spans, strict=True):
            if not names.intersection(hyper.name for hyper in part.hyperparameters):
                continue
            for name, slope in part.slopes(values).items():
                if name in names:
                    found[name] = self._precision_slope(by_precision, slope, span, {} if kept is None else kept)
        for one in self.family.learnt(self.observed):
            if one.name in names:
                by_parameter = self._family_slope(posterior, one, values)
                if by_parameter is None:
                    return None
                found[one.name] = by_parameter
        return found

    def _precision_slope(self, slopes: PrecisionSlopes, slope: Slope, span: slice, kept: Moments) -> float:
        """½ d log|Q|₊ − ½ Σ dQ_ij ⟨r_i r_j⟩ for a change of one block of the prior's precision."""
        block, posterior = slope.precision, slopes.posterior
        structure = getattr(posterior.density, "structure", None)
        if not (isinstance(structure, SparsePrecisionCovariance) and isinstance(posterior.model, LatentLinearModel)):
            turn = _placed(block, span, self.dim)
            return slopes(turn, log_det_slope=2.0 * slope.log_normaliser)
        key = (span.start, block.nnz)
        if key not in kept or not np.array_equal(kept[key][0], block.indices):
            i = block.indices + span.start
            j = np.repeat(np.arange(span.start, span.stop), np.diff(block.indptr))
            kept[key] = (block.indices, slopes.moments(i, j, structure.entries(i, j)))
        return slope.log_normaliser - 0.5 * float(block.data @ kept[key][1])

    def _family_slope(self, posterior: Posterior, one: LearntParameter, values: Values) -> float | None:
        """Slope in a number of the family: of ⟨ψ⟩, or of the tilted integrals of expectation propagation."""
        expected = isinstance(posterior.evidence_term, ExpectedEvidence)
        by_sums = noise_slope(posterior, values[one.name]) if expected and one.parameter == "scale" else None
        if by_sums is not None:
            return by_sums
        weight = np.ones(len(self.observed.y)) if self.observed.weight is None else self.observed.weight
        at = posterior.project(self.design)
        if expected:
            sites = self._potential(values)
            slopes = sites.expected_parameter_derivative(one.parameter, at.mean + self.offset, at.variance)
            return one.slope(np.broadcast_to(slopes, (*slopes.shape[:-1], len(weight))) @ weight)
        tilted = isinstance(posterior.evidence_term, TiltedEvidence)
        if not tilted or posterior.sites is None or posterior.power != 1.0:
            return None
        mean, variance, _ = cavities(posterior, self.design, self.mean, self.offset)
        (hyper,) = (hyper for hyper in self.hyperparameters if hyper.name == one.name)
        u, step = hyper.coordinate(values[one.name]), 1e-4
        ends = [self._potential({**values, one.name: float(hyper.value(u + sign * step))}) for sign in (1.0, -1.0)]
        ahead, behind = (float(np.sum(end.tilted_moments(mean, variance, weight).log_z)) for end in ends)
        return (ahead - behind) / (2.0 * step * hyper.slope(u))


def make_problem(
    read: Formula, family: ResponseFamily, frame: Any, graph: Any, priors: Mapping[str, Any]
) -> AdditiveProblem:
    """The problem of a table: every term is prepared for its rows, and the priors that were given are known ones."""
    observed = observe(read.response, family, frame)
    if family.binary and observed.trials is None and not np.all(np.isin(observed.y, (-1.0, 0.0, 1.0))):
        raise ValueError(
            f"family {family.name!r} takes two labels, or 0 and 1, per row, got {_other(observed.y):g}: where rows "
            "have several trials write successes | trials(n) or cbind(successes, failures)"
        )
    if not family.ordered:
        with naming_rows():
            family.potential(observed, {})
    offset = offset_of(read, frame, check_n_rows(frame))
    unit = family.unit(observed, offset)
    around = Surroundings(unit, family.centre(observed, offset), graph, priors)
    fixed = tuple(term.prepare(frame, around) for term in read.terms if isinstance(term, Fixed))
    around = replace(around, coefficients=tuple(name for part in fixed for name in part.names))
    parts = (*fixed, *(term.prepare(frame, around) for term in read.terms if not isinstance(term, Fixed)))
    labels = [part.label for part in parts]
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise ValueError(f"the term {twice} is there twice")
    starts = {hyper.name: hyper.start for part in parts for hyper in part.hyperparameters}
    design = rows_of(parts, frame, starts).design
    problem = AdditiveProblem(parts, family, observed, offset, design, unit)
    refuse_unknown_priors(priors, problem)
    family.potential(observed, {hyper.name: hyper.start for hyper in problem.hyperparameters})
    return problem


def _other(y: Array) -> float:
    """The first number that is no label."""
    return float(y[np.argmin(np.isin(y, (-1.0, 0.0, 1.0)))])


def merge_copies(problem: AdditiveProblem) -> AdditiveProblem:
    """Equal rows (of design, offset and observation) as one row with a weight, where that saves a third of the rows."""
    observed = problem.observed
    if observed.weight is not None or observed.se is not None:
        return problem
    # equal rows have equal products with any vector, and others have not, with probability one
    probes = np.random.default_rng(0).standard_normal((problem.dim, 2))
    none = np.zeros_like(observed.y)
    beside = [none if part is None else part for part in (observed.trials, observed.event, observed.upper)]
    keys = np.stack([*(problem.design @ probes).T, problem.offset, observed.y, *beside])
    first, copies, count = _distinct_columns(keys)
    if len(first) > SAVED * keys.shape[1]:
        return problem
    return replace(
        problem,
        design=sparse.csr_array(problem.design[first]),
        offset=problem.offset[first],
        observed=replace(observed.select(first), weight=count.astype(float)),
        copies=copies,
    )


def _distinct_columns(keys: Array) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The first of each kind of equal columns, the kind of every column, and how many there are of each kind.

    Columns are put into the order of one random sum of their entries, where equal ones are neighbours.
    """
    mixed = np.random.default_rng(1).standard_normal(len(keys)) @ keys
    # equal columns fall into the same of sixteen parts, so that one part tells how many are equal
    some = mixed[(mixed.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(60) == 0]
    if len(some) > SAMPLED and len(np.unique(some)) >= (SAVED + 0.1) * len(some):
        none = np.arange(len(mixed))
        return none, none, np.ones(len(none), np.int64)
    order = np.argsort(mixed, kind="stable")
    if np.sum(np.diff(mixed[order]) != 0.0) >= SAVED * len(order):
        return order, order, np.ones(len(order), np.int64)
    new = np.concatenate([[True], np.any(np.diff(keys[:, order], axis=1) != 0.0, axis=0)])
    copies = np.empty(len(order), np.int64)
    copies[order] = np.cumsum(new) - 1
    return order[new], copies, np.diff(np.append(np.flatnonzero(new), len(order)))


class Cavity(NamedTuple):
    """Linear predictors without their own site."""

    mean: Array
    variance: Array
    pareto_k: Array


def cavities(
    fit: Posterior, design: sparse.csr_array, prior_mean: Array, offset: Array, share: Array | float = 1.0
) -> Cavity:
    """q(x_n)/exp(−½γx² + νx), x counted from the prior mean: variance 1/(1/s² − γ).

    `share` is what is taken out of a site: one copy of a row with a weight.
    """
    assert fit.sites is not None  # checked by the caller
    gamma, nu = (share * part for part in fit.sites)
    at = fit.project(design)
    start = design @ prior_mean
    s2 = np.maximum(np.asarray(at.variance), 1e-300)
    k = np.clip(gamma * s2, None, 1.0 - 1e-6)
    variance = s2 / (1.0 - k)
    mean = variance * ((at.mean - start) / s2 - nu)
    return Cavity(mean + start + offset, variance, k)


def spans_of(parts: tuple[Part, ...]) -> tuple[slice, ...]:
    """Where the coefficients of each part are among all."""
    ends = np.cumsum([0, *(part.size for part in parts)])
    return tuple(slice(int(a), int(b)) for a, b in itertools.pairwise(ends))


def rows_of(parts: tuple[Part, ...], frame: Any, values: Values, apart: tuple[str, ...] = ()) -> PredictorRows:
    """Rows of a table over the coefficients of all parts; parts named in `apart` as if nothing of them was seen."""
    found = [part.apart(frame, values) if part.label in apart else part.rows(frame, values) for part in parts]
    design = join_columns([rows.design for rows in found])
    fresh = [rows.fresh for rows in found if rows.fresh is not None]
    return PredictorRows(design, sparse.csr_array(sparse.hstack(fresh, format="csr")) if fresh else None)


def block_diagonal(blocks: list[sparse.csc_array]) -> sparse.csc_array:
    """Blocks on the diagonal of one matrix; by hand, since this is done for every value of the hyperparameters."""
    size = np.cumsum([0, *(block.shape[0] for block in blocks)])
    count = np.cumsum([0, *(block.nnz for block in blocks)])
    indices = np.concatenate([block.indices + start for block, start in zip(blocks, size[:-1], strict=True)])
    starts = [block.indptr[:-1] + before for block, before in zip(blocks, count[:-1], strict=True)]
    data = np.concatenate([block.data for block in blocks])
    return sparse.csc_array((data, indices, np.concatenate([*starts, count[-1:]])), shape=(size[-1], size[-1]))


def _placed(block: sparse.csc_array, span: slice, dim: int) -> sparse.csc_array:
    """A block on the diagonal of a larger matrix."""
    ends = np.concatenate([np.zeros(span.start, int), block.indptr, np.full(dim - span.stop, block.indptr[-1])])
    return sparse.csc_array((block.data, block.indices + span.start, ends), shape=(dim, dim))


def offset_of(read: Formula, frame: Any, rows: int) -> Array:
    """What is added to the linear predictor of every row."""
    total = np.zeros(rows)
    for source in read.offsets:
        total += evaluate(source, frame)
    return total


def refuse_unknown_priors(given: Mapping[str, Any], problem: AdditiveProblem) -> None:
    """Priors of things that are not there."""
    names = {hyper.name for hyper in problem.hyperparameters}
    names |= {name for part in problem.parts if part.label == "fixed" for name in part.names}
    unknown = [name for name in given if name not in names and name != "sd"]
    if unknown:
        raise ValueError(f"priors has {unknown[0]!r}, which is none of {', '.join(sorted(names))}")


def resolve_gaps(frame: Any, formula: str | None, response: str | None, missing: str) -> Any:
    """The columns of a formula, or all where there is none, which must be there, missing cells dropped or filled."""
    if is_large_frame(frame):
        raise ValueError(f"missing={missing!r} is for a table in memory: drop or fill the rows in their blocks")
    absent = absent_columns(formula, frame) if formula else []
    said = [absent_words(absent, names_of_columns(frame))] if absent else []
    if missing == "error" and not hasattr(frame, "iloc"):
        refuse_all(said)
        return frame
    table = frame
    if not hasattr(frame, "iloc"):
        table = need_pandas().DataFrame({name: column(frame, name) for name in names_of_columns(frame)})
    names = formula or f"{response} ~ {' + '.join(map(str, table.columns))}"
    return fill_formula(table, names, missing, said)[0]

"""How far to trust a posterior: importance sampling against the model it came from.

Half of the draws are the posterior's own and give k̂, the effective number and the IWAE and χ² bounds; the others come
from wider copies and from the prior (`latlin.inference.diagnosis.proposals`), so that the corrected evidence and
moments also see what a posterior that is too narrow or has missed a mode
leaves out. Gutteridge (2021), §5.4 and §6 ask the question.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from numbers import Integral

import numpy as np

from latlin.densities.density import PointMass
from latlin.densities.gaussian import Gaussian
from latlin.densities.mixture import Mixture
from latlin.densities.precision import PrecisionCovariance, SubspaceCovariance
from latlin.densities.sparse_precision import SparsePrecisionCovariance
from latlin.diagnostics.verdict import (
    FEWEST_EFFECTIVE,
    Findings,
    Verdict,
    Word,
    cautioned,
    certainty,
    judge,
    moment_gap,
)
from latlin.diagnostics.weights import (
    LARGEST_K,
    CorrectedMoments,
    DefendedEvidence,
    WeightSummary,
    corrected_moments,
    defended_evidence,
    response,
    summarise_weights,
)
from latlin.inference.diagnosis.log_joint import log_joint
from latlin.inference.diagnosis.proposals import DiagnosedPosterior, ProposalDraws, draws_for
from latlin.inference.evidence.engine_terms import BoundEvidence, CurvedEvidence, ExpectedEvidence, FreeFormEvidence
from latlin.inference.model import in_memory
from latlin.numerics.arrays import Array
from latlin.numerics.rng import RandomState, generator
from latlin.potentials.cauchy import Cauchy
from latlin.potentials.student_t import StudentT

#: numbers in a block of draws, and the largest covariance that is corrected as a matrix
NUMBERS = 200_000
DENSE = 2000
#: draws at most and at least where nobody says how many, and log densities of sites that they should not exceed
DRAWS, FEWEST, DENSITIES = 4000, 1000, 8 * 10**6
#: standard errors on either side, and the probability that a bound which holds for any weights is wrong
REACH, WRONG = 3.3, 0.005
#: sites with polynomial tails
HEAVY = (Cauchy, StudentT)
#: relative accuracy of a log density
ROUNDING = 1e-9


@dataclass(frozen=True)
class Diagnosis:
    """How accurate a posterior is.

    Attributes
    ----------
    verdict : {"accurate", "rough", "wrong"}
    reason : str
        Why, in a sentence.
    next_engine : str
        What to try for better, or empty.
    k_hat : float
        Shape of the tail of the weights p/q at the posterior's own draws; above 0.7 they cannot be trusted.
    ess : float
        Effective number of the posterior's own draws (half of n), smoothed.
    log_evidence, log_evidence_se : float
        log Z by importance sampling from the posterior, wider copies and the prior, and its standard error; raised to
        the lower end of the interval where the engine proved more.
    evidence_interval : (float, float)
        For log Z, 99.9 % if the estimate is normal. The lower end is not below a lower bound that the engine itself
        proved. The upper end is infinite when the weights have no reliable mean.
    lower_bound, upper_bound : float
        IWAE and χ² (CUBO) bounds, estimated from the posterior's own draws.
    upper_bound_reliable : bool
        The squares of the weights have a mean that n draws can estimate.
    mean, variance : ndarray of shape (dim,)
        Corrected moments of w.
    covariance : ndarray of shape (dim, dim) or None
        Corrected; None above 2,000 dimensions.
    corrected_k_hat, corrected_ess : float
        The same as `k_hat` and `ess` for all draws together, on which the corrections rest.
    n : int
        Number of draws.
    """

    verdict: Word
    reason: str
    next_engine: str
    k_hat: float
    ess: float
    log_evidence: float
    log_evidence_se: float
    evidence_interval: tuple[float, float]
    lower_bound: float = field(repr=False)
    upper_bound: float = field(repr=False)
    upper_bound_reliable: bool = field(repr=False)
    mean: Array = field(repr=False)
    variance: Array = field(repr=False)
    covariance: Array | None = field(repr=False)
    corrected_k_hat: float = field(repr=False)
    corrected_ess: float = field(repr=False)
    n: int = field(repr=False)

    def __str__(self) -> str:
        low, high = self.evidence_interval
        lines = [
            f"{self.verdict}: {self.reason}",
            f"k̂ {self.k_hat:.2f}, {self.ess:.0f} effective draws of {self.n // 2}",
            f"log Z {self.log_evidence:.4f} ± {self.log_evidence_se:.2g}, in [{low:.4f}, {high:.4f}]",
        ]
        return "\n".join([*lines, f"next: {self.next_engine}"] if self.next_engine else lines)


def diagnose(posterior: DiagnosedPosterior, n: int | None = None, random_state: RandomState = None) -> Diagnosis:
    """Check a posterior against its model with n draws; see `Posterior.diagnose`."""
    if n is not None and (not isinstance(n, Integral) or n < 200):
        raise ValueError(f"n must be an integer of at least 200, or None, got {n!r}")
    if isinstance(posterior.density, PointMass):
        return _of_a_point(posterior)
    model = in_memory(posterior.model)
    n = _enough(sum(model.site_count(factor) for factor in model.sites)) if n is None else n
    block = max(8, min(int(n), NUMBERS // model.dim))
    draws = draws_for(posterior, int(n), generator(random_state), block=block)
    log_p, log_components = _evaluated(posterior, draws)
    log_weights = log_p[: draws.counts[0]] - log_components[: draws.counts[0], 0]
    own = summarise_weights(log_weights)
    defended = defended_evidence(log_p, log_components, draws.shares)
    moments = _moments(posterior, draws, defended)
    low, high, below = _interval(posterior, defended)
    findings = Findings(
        own.k_hat,
        own.ess / draws.counts[0],
        defended.k_hat,
        defended.ess,
        moment_gap(posterior.mean, posterior.variance, moments, posterior.names),
        posterior.converged,
        below,
        response(draws.own_blocks(), log_weights, posterior.mean, posterior.variance, certainty(model.dim)),
        _divergence(low, log_weights) / model.dim,
    )
    verdict = cautioned(judge(findings), posterior.caution)
    return _assembled(posterior, own, defended, moments, (low, high), verdict, int(n))


def _enough(sites: int) -> int:
    """Draws that a verdict needs; fewer for many sites, whose posterior is nearer to a Gaussian."""
    return int(np.clip(DENSITIES // max(sites, 1), FEWEST, DRAWS))


def _divergence(low: float, log_weights: Array) -> float:
    """What KL(q‖p) = log Z − ⟨log p/q⟩ is at least, with log Z at the low end of its interval."""
    error = float(log_weights.std()) / np.sqrt(len(log_weights))
    found = low - float(log_weights.mean()) - REACH * error
    return found if np.isfinite(found) else 0.0


def _evaluated(posterior: DiagnosedPosterior, draws: ProposalDraws) -> tuple[Array, Array]:
    joint = log_joint(in_memory(posterior.model))
    log_p = np.empty(draws.total)
    log_components = np.empty((draws.total, len(draws.proposals)))
    for span, w in draws.blocks():
        log_p[span], log_components[span] = joint(w), draws.log_components(w)
    return log_p, log_components


def _moments(posterior: DiagnosedPosterior, draws: ProposalDraws, defended: DefendedEvidence) -> CorrectedMoments:
    covariance = posterior.covariance() if posterior.model.dim <= DENSE else None
    blocks: Iterator[tuple[slice, Array]] = draws.blocks()
    return corrected_moments(
        blocks, defended.weights, defended.reference, posterior.mean, posterior.variance, covariance
    )


def _interval(posterior: DiagnosedPosterior, found: DefendedEvidence) -> tuple[float, float, bool]:
    """Ends, and whether the engine's own lower bound lies above what the draws find."""
    slack = ROUNDING * (1.0 + abs(posterior.log_evidence)) + posterior.bound_error
    proven = posterior.evidence_kind == "lower bound"
    own = posterior.log_evidence - slack if proven else -np.inf
    if found.k_hat > LARGEST_K or found.ess < FEWEST_EFFECTIVE:
        # P(Ẑ > Z/δ) ≤ δ holds for any weights (Markov)
        low, high = found.log_evidence + np.log(WRONG), np.inf
    else:
        reach = REACH * found.standard_error * (2.0 if found.k_hat > 0.5 else 1.0)
        reach += ROUNDING * (1.0 + abs(found.log_evidence))
        low, high = found.log_evidence + np.log(max(1.0 - reach, WRONG)), found.log_evidence + np.log1p(reach)
    below = own > high
    return float(max(low, own)), np.inf if below else float(high), bool(below)


def _assembled(
    posterior: DiagnosedPosterior,
    own: WeightSummary,
    defended: DefendedEvidence,
    moments: CorrectedMoments,
    interval: tuple[float, float],
    verdict: Verdict,
    n: int,
) -> Diagnosis:
    word, reason = verdict
    if word != "accurate":
        reason += _tails(posterior, own.k_hat)
    return Diagnosis(
        verdict=word,
        reason=reason,
        next_engine="" if word == "accurate" else next_engine(posterior),
        k_hat=own.k_hat,
        ess=own.ess,
        log_evidence=max(defended.log_evidence, interval[0]),
        log_evidence_se=defended.standard_error,
        evidence_interval=interval,
        lower_bound=own.lower_bound,
        upper_bound=own.upper_bound,
        upper_bound_reliable=own.upper_bound_reliable,
        mean=moments.mean,
        variance=moments.variance,
        covariance=moments.covariance,
        corrected_k_hat=defended.k_hat,
        corrected_ess=defended.ess,
        n=n,
    )


def _tails(posterior: DiagnosedPosterior, k_hat: float) -> str:
    """A word on sites with polynomial tails, where the weights show them or no Gaussian factor cuts them off."""
    heavy = sorted({type(p).__name__ for p in posterior.model.potentials if isinstance(p, HEAVY)})
    if not heavy or (k_hat <= 0.5 and posterior.model.gaussians):
        return ""
    return f" ({' and '.join(heavy)} sites have tails heavier than those of any Gaussian)"


def _of_a_point(posterior: DiagnosedPosterior) -> Diagnosis:
    nan, mean = float("nan"), posterior.mean
    return Diagnosis(
        verdict="wrong",
        reason="a point estimate says nothing about uncertainty, so there is nothing to check",
        next_engine=next_engine(posterior),
        k_hat=np.inf,
        ess=0.0,
        log_evidence=nan,
        log_evidence_se=nan,
        evidence_interval=(-np.inf, np.inf),
        lower_bound=-np.inf,
        upper_bound=np.inf,
        upper_bound_reliable=False,
        mean=mean,
        variance=np.full_like(mean, nan),
        covariance=None,
        corrected_k_hat=np.inf,
        corrected_ess=0.0,
        n=0,
    )


#: largest dimension for a full covariance, and for an affine-independent density
FULL, AFFINE = 2000, 60


def next_engine(posterior: DiagnosedPosterior) -> str:
    """A short name, with a word on options where they matter."""
    dim, term = posterior.model.dim, posterior.evidence_term
    if isinstance(posterior.density, PointMass) or isinstance(term, CurvedEvidence | BoundEvidence | FreeFormEvidence):
        return "gkl" if dim <= FULL else "gkl with covariance='chevron'"
    if not isinstance(posterior.density, Gaussian | Mixture):
        return "ai-kl with another base, or more draws"
    if not _is_full(posterior):
        return "gkl with covariance='full'" if dim <= FULL else "gkl with a richer covariance, such as 'chevron'"
    if dim <= AFFINE:
        return "ai-kl"
    return "ep" if isinstance(term, ExpectedEvidence) else "gkl, whose bound is proven"


def _is_full(posterior: DiagnosedPosterior) -> bool:
    density = posterior.density
    # an average over hyperparameters is as full as its parts
    density = density.components[0] if isinstance(density, Mixture) else density
    structure = getattr(density, "structure", None)
    return isinstance(structure, PrecisionCovariance | SubspaceCovariance | SparsePrecisionCovariance)

"""How far to trust a posterior: importance sampling against the model it came from.

Half of the draws are the posterior's own and give k̂, the effective number and the IWAE and χ² bounds; the others come
from wider copies and from the prior (`latlin.inference.diagnosis.log_joint`), so that the corrected evidence and
moments also see what a posterior that is too narrow or has missed a mode
leaves out. Gutteridge (2021), §5.4 and §6 ask the question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import ndtri

from latlin.densities.density import Mixture, PointMass
from latlin.densities.gaussian import Gaussian
from latlin.densities.precision import PrecisionCovariance, SubspaceCovariance
from latlin.densities.sparse_precision import SparsePrecisionCovariance
from latlin.diagnostics.weights import (
    LARGEST_K,
    CorrectedMoments,
    DefendedEvidence,
    LargestMoves,
    WeightSummary,
    corrected_moments,
    defended_evidence,
    largest_moves,
    summarise_weights,
)
from latlin.inference.diagnosis.log_joint import (
    AveragedModel,
    DiagnosedPosterior,
    ProposalDraws,
    log_joint,
    plan_draws,
)
from latlin.inference.model import require_in_memory
from latlin.numerics.arrays import Array
from latlin.numerics.rng import RandomState, generator
from latlin.potentials.student_t import Cauchy, StudentT

# --- A verdict in words: accurate, rough or wrong, and why.


Word = Literal["accurate", "rough", "wrong"]

#: from good to bad
WORDS: tuple[Word, ...] = ("accurate", "rough", "wrong")
#: word of a caution of a posterior that is a part of a whole, of which its own model says nothing
UNKNOWN = "unknown"
#: a mean off by more sd, or a ratio of sd outside, is not accurate; and by how much it is wrong
MEAN_OFF, MEAN_FAR = 0.3, 1.0
RATIO_OFF, RATIO_FAR = 1.4, 2.0
#: standard errors by which a corrected moment may be wrong
MARGIN = 2.5
#: effective draws below which the corrections themselves say little
FEWEST_EFFECTIVE = 100.0
#: effective share of draws above which weights hardly vary
EVEN = 0.8
#: first-order movement of the log of a variance that is too much
LEAN = 0.7


class Verdict(NamedTuple):
    """The word, and the reason in a sentence."""

    word: Word
    reason: str


def certainty(dim: int) -> float:
    """Standard errors that the noisiest of `dim` coordinates exceeds in one case of two hundred."""
    return float(ndtri(1.0 - 0.0025 / dim))


class Gap(NamedTuple):
    """How far an approximation is from the corrected moments, coordinate by coordinate.

    Differences of means in corrected sd, logs of the ratios sd of q / corrected sd, and what each may be wrong by.
    """

    mean: Array
    mean_margin: Array
    log_ratio: Array
    ratio_margin: Array
    names: Sequence[str] | None = None

    @property
    def largest(self) -> tuple[float, float]:
        """Mean and |log ratio| as large as the errors allow."""
        return float(np.max(self.mean + self.mean_margin)), float(np.max(np.abs(self.log_ratio) + self.ratio_margin))

    @property
    def certain(self) -> tuple[float, float]:
        """Mean and |log ratio| that are certain, although the worst of many coordinates was picked."""
        more = certainty(len(self.mean)) / MARGIN
        ratio = np.abs(self.log_ratio) - more * self.ratio_margin
        return float(np.max(self.mean - more * self.mean_margin)), float(np.max(ratio))

    def sentence(self) -> str:
        """The worst coordinates."""
        i, j = int(np.argmax(self.mean + self.mean_margin)), int(np.argmax(np.abs(self.log_ratio) + self.ratio_margin))
        low, high = np.exp(self.log_ratio[j] + self.ratio_margin[j] * np.array([-1.0, 1.0]))
        off = self.mean[i] > MEAN_OFF or abs(self.log_ratio[j]) > np.log(RATIO_OFF)
        return ("" if off else "too few draws to be sure (take more, by diagnose(n) or --draws): ") + (
            f"against the corrected moments the mean of {self._name(i)} is off by {self.mean[i]:.2g} ± "
            f"{self.mean_margin[i]:.1g} sd, and the sd of {self._name(j)} by a factor {np.exp(self.log_ratio[j]):.2g} "
            f"({low:.2g} to {high:.2g})"
        )

    def _name(self, place: int) -> str:
        return f"coordinate {place}" if self.names is None else repr(str(self.names[place]))


def moment_gap(mean: Array, variance: Array, corrected: CorrectedMoments, names: Sequence[str] | None = None) -> Gap:
    """Compare means and standard deviations of q with the corrected ones; `names` are those of the coordinates."""
    sd = np.sqrt(corrected.variance)
    return Gap(
        np.abs(mean - corrected.mean) / sd,
        MARGIN * corrected.mean_error / sd,
        0.5 * np.log(variance / corrected.variance),
        MARGIN * 0.5 * corrected.variance_error / corrected.variance,
        names,
    )


class Findings(NamedTuple):
    """What the verdict is made of.

    `even` is the effective share of the posterior's own draws; `divergence` what KL(q‖p) is at least, in nat per
    coordinate.
    """

    k_hat: float
    even: float
    corrected_k_hat: float
    corrected_ess: float
    gap: Gap
    converged: bool
    below_own_bound: bool
    response: LargestMoves
    divergence: float = 0.0


def judge(found: Findings) -> Verdict:
    """The first rule that applies decides."""
    sure = found.corrected_k_hat <= LARGEST_K and found.corrected_ess >= FEWEST_EFFECTIVE
    mean, ratio = found.gap.largest
    mean_certain, ratio_certain = found.gap.certain
    if sure and (mean_certain > MEAN_FAR or ratio_certain > np.log(RATIO_FAR)):
        return Verdict("wrong", found.gap.sentence())
    if found.below_own_bound:
        return Verdict("wrong", "the draws miss mass that the engine's own lower bound proves to be there")
    lean = found.response
    if not sure and (lean.mean > MEAN_FAR or lean.log_variance > LEAN):
        why = "weights rise or fall steadily in some direction: the posterior is misplaced, too wide or too narrow"
        return Verdict("wrong", f"{_weights(found)}; {why}")
    # means that are all off by MEAN_FAR sd have a divergence of ½ MEAN_FAR² each
    if not sure and found.divergence > 0.5 * MEAN_FAR**2:
        return Verdict("wrong", f"{_weights(found)}; KL(q‖p) is above {found.divergence:.2g} nat per coordinate")
    if sure and (mean > MEAN_OFF or ratio > np.log(RATIO_OFF)):
        return Verdict("rough", found.gap.sentence())
    if not sure:
        return Verdict("rough", f"{_weights(found)}, so that its moments cannot be checked")
    # the tail of weights that hardly vary has a shape, but no consequence
    if found.k_hat > LARGEST_K and found.even < EVEN:
        return Verdict("rough", f"{_weights(found)}, although means and standard deviations agree")
    if not found.converged:
        return Verdict("rough", "the fit did not converge, although its moments agree with the corrected ones")
    weights = f"k̂ = {found.k_hat:.2f}" if found.k_hat <= LARGEST_K else f"{100.0 * found.even:.0f} % of the draws count"
    return Verdict("accurate", f"{weights}, and means and standard deviations agree with the corrected ones")


def worse_verdict(verdict: Verdict, caution: tuple[str, str] | None) -> Verdict:
    """The worse of a verdict and of what was known before any draw, such as an optimum at an end of its search."""
    if caution is None or WORDS.index(verdict.word) >= WORDS.index(caution[0]):
        return verdict
    return Verdict(WORDS[WORDS.index(caution[0])], caution[1])


def _weights(found: Findings) -> str:
    if found.k_hat > LARGEST_K:
        return f"k̂ = {found.k_hat:.2f} is above {LARGEST_K}: the weights of draws are too uneven"
    if found.corrected_k_hat > LARGEST_K:
        return f"wider draws find weights with k̂ = {found.corrected_k_hat:.2f}: there is mass that draws hardly cover"
    return f"only {found.corrected_ess:.0f} effective draws (take more, by diagnose(n) or --draws)"


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
    integration_error : float
        Of an average over hyperparameters, what their integral may be wrong by, in nat: the interval includes it, and
        the standard error, which is that of draws, does not.
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
    integration_error: float = field(default=0.0, repr=False)

    def __str__(self) -> str:
        low, high = self.evidence_interval
        lines = [
            f"{self.verdict}: {self.reason}",
            f"k̂ {self.k_hat:.2f}, {self.ess:.0f} effective draws of {self.n // 2}",
            f"log Z {self.log_evidence:.4f} ± {self.log_evidence_se:.2g}{self._integrated}, in [{low:.4f}, {high:.4f}]",
        ]
        return "\n".join([*lines, f"next: {self.next_engine}"] if self.next_engine else lines)

    @property
    def _integrated(self) -> str:
        error = self.integration_error
        return f" by draws and ± {error:.2g} by the integral over hyperparameters" if error else ""


def diagnose(posterior: DiagnosedPosterior, n: int | None = None, random_state: RandomState = None) -> Diagnosis:
    """Check a posterior against its model with n draws; see `Posterior.diagnose`."""
    if n is not None and (not isinstance(n, Integral) or n < 200):
        raise ValueError(f"n must be an integer of at least 200, or None, got {n!r}")
    if isinstance(posterior.density, PointMass):
        why = "a point estimate says nothing about uncertainty, so there is nothing to check"
        return _without_draws(posterior, Verdict("wrong", why))
    if posterior.caution is not None and posterior.caution[0] == UNKNOWN:
        return _without_draws(posterior, Verdict("rough", posterior.caution[1]))
    model = require_in_memory(posterior.model)
    n = _enough(sum(model.site_count(factor) for factor in model.sites)) if n is None else n
    block = max(8, min(int(n), NUMBERS // model.dim))
    draws = plan_draws(posterior, int(n), generator(random_state), block=block)
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
        largest_moves(draws.own_blocks(), log_weights, posterior.mean, posterior.variance, certainty(model.dim)),
        _divergence(low, log_weights) / model.dim,
    )
    verdict = worse_verdict(judge(findings), posterior.caution)
    error = posterior.bound_error if isinstance(posterior.model, AveragedModel) else 0.0
    found = _assembled(posterior, own, defended, moments, (low, high), verdict, int(n))
    return replace(found, evidence_interval=(low - error, high + error), integration_error=error)


def _enough(sites: int) -> int:
    """Draws that a verdict needs; fewer for many sites, whose posterior is nearer to a Gaussian."""
    return int(np.clip(DENSITIES // max(sites, 1), FEWEST, DRAWS))


def _divergence(low: float, log_weights: Array) -> float:
    """What KL(q‖p) = log Z − ⟨log p/q⟩ is at least, with log Z at the low end of its interval."""
    error = float(log_weights.std()) / np.sqrt(len(log_weights))
    found = low - float(log_weights.mean()) - REACH * error
    return found if np.isfinite(found) else 0.0


def _evaluated(posterior: DiagnosedPosterior, draws: ProposalDraws) -> tuple[Array, Array]:
    joint = log_joint(require_in_memory(posterior.model))
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


def _without_draws(posterior: DiagnosedPosterior, verdict: Verdict) -> Diagnosis:
    nan, mean = float("nan"), posterior.mean
    return Diagnosis(
        verdict=verdict.word,
        reason=verdict.reason,
        next_engine=next_engine(posterior) if verdict.word == "wrong" else "",
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
    if isinstance(posterior.density, PointMass) or getattr(term, "improved_by_gaussian_kl", False):
        return "gkl" if dim <= FULL else "gkl with covariance='chevron'"
    if not isinstance(posterior.density, Gaussian | Mixture):
        return "ai-kl with another base, or more draws"
    if not _is_full(posterior):
        return "gkl with covariance='full'" if dim <= FULL else "gkl with a richer covariance, such as 'chevron'"
    if dim <= AFFINE:
        return "ai-kl"
    return "ep" if getattr(term, "is_gaussian_kl", False) else "gkl, whose bound is proven"


def _is_full(posterior: DiagnosedPosterior) -> bool:
    density = posterior.density
    # an average over hyperparameters is as full as its parts
    density = density.components[0] if isinstance(density, Mixture) else density
    structure = getattr(density, "structure", None)
    return isinstance(structure, PrecisionCovariance | SubspaceCovariance | SparsePrecisionCovariance)

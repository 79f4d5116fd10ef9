"""Which approximation serves a Gaussian process: by name, or "auto" by rows, columns, kernel and likelihood."""

from __future__ import annotations

from typing import Any, NamedTuple

from latlin.gp.approximation import Approximation
from latlin.gp.dense import Dense
from latlin.gp.grid import Grid
from latlin.gp.inducing import Inducing
from latlin.gp.joint import Joint, JointInducing, why_not_held
from latlin.gp.setting import Setting
from latlin.gp.state_space import StateSpace
from latlin.gp.vecchia import Vecchia
from latlin.inference.engine import Engine
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.potentials.base import Potential
from latlin.potentials.class_links import CLASS_LINKS

#: short name → approximation with its default options
APPROXIMATIONS: dict[str, type[Any]] = {kind.name: kind for kind in (Dense, Grid, Inducing, StateSpace, Vecchia)}
#: rows up to which "auto" is exact: kernel matrices of 32 MB
EXACT_ROWS = 2000


class Choice(NamedTuple):
    """An approximation, and why "auto" took it; empty where the user named it."""

    approximation: Approximation
    reason: str = ""


def choose(
    wanted: str | Approximation, setting: Setting, n_rows: int, n_columns: int, in_blocks: bool = False
) -> Choice:
    """The approximation that was asked for, or the one that suits the data, with the reason."""
    if isinstance(wanted, str) and wanted == "auto":
        if in_blocks:
            return Choice(Inducing(), "approximation 'inducing', as the rows are in blocks")
        return _suited(setting, n_rows, n_columns)
    approximation = _resolve(wanted)
    refusal = approximation.refusal(setting, n_rows, n_columns)
    if refusal:
        raise ValueError(f"approximation {approximation.name!r} cannot serve here: {refusal}")
    return Choice(approximation)


def _suited(setting: Setting, n_rows: int, n_columns: int) -> Choice:
    """Exact while kernel matrices are small; then what is exact for the kernel, and what has a bound."""
    if n_rows <= EXACT_ROWS:
        return Choice(Dense())
    many = f"{n_rows} rows are more than {EXACT_ROWS}"
    for name, why in (
        ("state-space", "and this kernel on a line has an exact state space"),
        ("inducing", "and the evidence of inducing points is a lower bound of the exact one"),
    ):
        kind = APPROXIMATIONS.get(name)
        if kind is not None and not kind().refusal(setting, n_rows, n_columns):
            return Choice(kind(), f"approximation {name!r}, as {many} {why}")
    return Choice(Dense())


def _resolve(wanted: Any) -> Approximation:
    if isinstance(wanted, str):
        if wanted not in APPROXIMATIONS:
            known = ", ".join(map(repr, ["auto", *APPROXIMATIONS]))
            raise ValueError(f"approximation must be one of {known} or an object of latlin.gp, got {wanted!r}")
        approximation: Approximation = APPROXIMATIONS[wanted]()
        return approximation
    if isinstance(wanted, type) or not callable(getattr(wanted, "prepare", None)):
        raise ValueError(f"approximation must be a name or an object of latlin.gp, got {wanted!r:.80}")
    found: Approximation = wanted
    return found


def joint_choice(choice: Choice, link: str, n_rows: int, in_blocks: bool) -> tuple[Choice, str]:
    """All classes in one model by an exact process or by inducing points; or why not, in one sentence."""
    if not isinstance(choice.approximation, Inducing):
        return choice._replace(approximation=Joint(link)), ""
    return choice._replace(approximation=JointInducing(choice.approximation, link)), why_not_held(
        choice.approximation, n_rows, in_blocks
    )


def why_not_joint(link: str | Potential, engine: Engine, approximation: Any) -> str:
    """Why classes cannot be fitted together, in one sentence; empty where they can."""
    if link not in CLASS_LINKS:
        return f"several classes have link 'logit' (softmax) or 'probit' (multinomial probit), got link={link!r:.40}"
    if not isinstance(engine, GaussianKL) or engine.covariance != "full" or engine.components > 1:
        return f"several classes are fitted together by Gaussian KL with a full covariance, got engine {engine!r:.60}"
    if not isinstance(approximation, Dense | Inducing):
        return f"classes are fitted together by exact processes or inducing points, got {approximation.name!r}"
    return ""

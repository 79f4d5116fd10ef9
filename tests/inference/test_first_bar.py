"""A bar is there before the first evaluation, and the bar of the loop takes its place."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.factor import MatrixFactorization, TrilinearFactorization
from latlin.linear import BayesianLogisticRegression
from latlin.numerics.progress import progress, show_beginning

pytest.importorskip("tqdm")
ROWS, LABELS = np.arange(10.0).reshape(5, 2) - 4.0, np.array([0, 1, 0, 1, 1])
SHOWN: list[str] = []


@dataclass(frozen=True)
class Noting:
    """Notes what is on the screen when it begins."""

    name: ClassVar[str] = "noting"

    def run(self, model, *, start=None, verbose=False, checkpoint=None):
        SHOWN.append(self.screen().err)
        return infer(model, "laplace")


@pytest.mark.parametrize("verbose", [True, False])
@pytest.mark.parametrize("surface", ["infer", "estimator"])
def test_it_is_there_when_the_engine_begins(surface, verbose, capsys, monkeypatch):
    monkeypatch.setattr(Noting, "screen", lambda self: capsys.readouterr(), raising=False)
    SHOWN.clear()
    if surface == "infer":
        sites = SiteFactor(ROWS, potentials.Logit(LABELS))
        infer(LatentLinearModel([GaussianFactor(dim=2), sites]), Noting(), verbose=verbose)
    else:
        BayesianLogisticRegression(prior_scale=1.0, engine=Noting(), verbose=verbose).fit(ROWS, LABELS)
    assert ["noting" in text for text in SHOWN] == [verbose]


def test_the_bar_of_the_loop_takes_its_place(capsys):
    with show_beginning("the start", True):
        assert "the start" in capsys.readouterr().err
        with progress("the loop", 2, True) as bar:
            bar.advance("1.0")
    last = capsys.readouterr().err.rstrip("\n").split("\r")[-1]
    assert "the loop" in last


def test_without_a_word_nothing_is_shown(capsys):
    with show_beginning("the start", False), progress("the loop", 2, False):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("room", "cls"), [("estimator", MatrixFactorization), ("trilinear", TrilinearFactorization)])
def test_it_is_there_when_a_factorisation_looks_for_its_start(room, cls, capsys, monkeypatch):
    def begin(*_):
        raise InterruptedError(capsys.readouterr().err)

    monkeypatch.setattr(f"latlin.factor.matrix.{room}.begin", begin)
    shape = (5, 4) if cls is MatrixFactorization else (5, 4, 3)
    with pytest.raises(InterruptedError, match="factorisation"):
        cls(1, verbose=True).fit(np.random.default_rng(0).standard_normal(shape))

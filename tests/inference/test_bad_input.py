"""Bad input gets a ValueError that names the argument, what came and what was expected."""

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, compare, infer
from latlin.engines import GaussianKL
from latlin.potentials import Custom, Laplace, Logit, StudentT

X = np.array([[1.0, 0.5], [0.2, -1.0], [-0.7, 0.1]])
Y = [1, 0, 0]
NAN, INF = float("nan"), float("inf")


def model(*factors):
    return LatentLinearModel(factors or [GaussianFactor(dim=2), SiteFactor(X, Logit(Y))])


CASES = {
    "NaN in H": (lambda: SiteFactor([[1.0, NAN]], Logit([1])), r"SiteFactor H must be finite, got 1 NaN"),
    "inf in H": (lambda: SiteFactor([[1.0, INF]], Logit([1])), r"SiteFactor H must be finite"),
    "NaN in sparse H": (lambda: SiteFactor(sparse.csr_array([[1.0, NAN]]), Logit([1])), r"SiteFactor H data must be"),
    "three-dimensional H": (lambda: SiteFactor(np.ones((1, 2, 3)), Logit([1])), r"at most 2 dimensions"),
    "vector H": (lambda: SiteFactor([1.0, 2.0], Logit([1, 0])), r"SiteFactor H must be a non-empty matrix"),
    "empty H": (lambda: SiteFactor(np.ones((0, 2)), Logit(Y)), r"SiteFactor H is empty"),
    "text H": (lambda: SiteFactor([["a", "b"]], Logit([1])), r"SiteFactor H must hold real numbers"),
    "rows and labels": (lambda: SiteFactor(X, Logit([1, 0])), r"number of sites: .*'H': 3, 'potential': 2"),
    "rows and weights": (lambda: SiteFactor(X, Logit(Y), weight=[1.0, 2.0]), r"'weight': 2"),
    "rows and offsets": (lambda: SiteFactor(X, Logit(Y), offset=np.ones(4)), r"'offset': 4"),
    "negative weight": (lambda: SiteFactor(X, Logit(Y), weight=[1, -1, 1]), r"weight must not be negative, got -1"),
    "labels, not a potential": (lambda: SiteFactor(X, Y), r"potential must be a latlin potential, got list"),
    "three labels": (lambda: Logit([0, 1, 2]), r"y must"),
    "scale": (lambda: Laplace(0.0, -1.0), r"scale must hold positive numbers, got -1"),
    "df": (lambda: StudentT(0.0), r"df must hold positive numbers, got 0"),
    "variance": (lambda: GaussianFactor(cov=-1.0, dim=2), r"GaussianFactor cov must be positive, got -1"),
    "indefinite": (lambda: GaussianFactor(cov=[[1.0, 2.0], [2.0, 1.0]]), r"GaussianFactor cov is not positive def"),
    "asymmetric": (lambda: GaussianFactor(cov=[[1.0, 0.5], [0.0, 1.0]]), r"must be symmetric, .* differ by 0.5"),
    "oblong": (lambda: GaussianFactor(cov=np.ones((2, 3))), r"must be square, got shape \(2, 3\)"),
    "NaN mean": (lambda: GaussianFactor([0.0, NAN]), r"GaussianFactor mean must be finite"),
    "mean and cov": (lambda: GaussianFactor([0.0] * 3, [1.0, 2.0]), r"differ in length: .*'mean': 3, 'cov': 2"),
    "dim and cov": (lambda: GaussianFactor(cov=[1.0, 2.0], dim=3), r"differ in length: .*'dim': 3"),
    "dim": (lambda: GaussianFactor(dim=0), r"dim must be a positive integer, got 0"),
    "no factors": (lambda: LatentLinearModel([]), r"at least one factor"),
    "not a factor": (lambda: LatentLinearModel([X]), r"must be GaussianFactor or SiteFactor, got ndarray"),
    "no dimension": (lambda: model(GaussianFactor()), r"length of w is not known"),
    "D differs": (lambda: model(GaussianFactor(dim=3), SiteFactor(X, Logit(Y))), r"differ in the dimension of w"),
    "unknown engine": (lambda: infer(model(), "mcmc"), r"engine must be one of 'auto', 'map', 'laplace', .*got 'mcmc'"),
    "engine object": (lambda: infer(model(), 3), r"or an object of latlin.engines, got 3"),
    "covariance": (lambda: GaussianKL(covariance="round"), r"covariance must be .*got 'round'"),
    "engine class": (lambda: infer(model(), GaussianKL), r"or an object of latlin.engines, got <class"),
    "D differs alike": (
        lambda: model(SiteFactor(X, Logit(Y)), SiteFactor(np.ones((3, 4)), Logit(Y))),
        r"differ in the dimension of w: .* has 2, .* has 4",
    ),
    "complex H": (lambda: SiteFactor([[1j, 1.0]], Logit([1])), r"SiteFactor H must hold real numbers.* got complex"),
    "operator with NaN": (
        lambda: infer(model(GaussianFactor(dim=2), SiteFactor(aslinearoperator(X * NAN), Logit(Y))), "gkl"),
        r"operator whose products are not",
    ),
    "project": (lambda: infer(model(), "gkl").project([1.0, 2.0]), r"H must be a non-empty matrix"),
    "project D": (lambda: infer(model(), "gkl").project(np.ones((2, 3))), r"H must have 2 columns"),
    "logpdf": (lambda: infer(model(), "gkl").logpdf(0.0), r"rows of length 2, got shape \(\)"),
    "flat curvature": (lambda: infer(model(SiteFactor(X, Logit(X[:, 0] > 0))), "laplace"), r"posterior is improper"),
    "tolerance": (lambda: infer(model(), GaussianKL(tol=-1.0)), r"tol must be a number of at least 0, got -1"),
    "model": (lambda: infer(X), r"model must be a LatentLinearModel, got ndarray"),
    "start": (lambda: infer(model(), "gkl", start=X), r"start must be a Posterior, got ndarray"),
    "improper": (lambda: infer(model(SiteFactor(X[:1], Laplace(0.0, 1.0))), "gkl"), r"posterior is improper"),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_named(name):
    action, message = CASES[name]
    with pytest.raises(ValueError, match=message):
        action()


def test_factors_are_immutable():
    factor = SiteFactor(X, Logit(Y))
    with pytest.raises(AttributeError, match="immutable"):
        factor.weight = 2.0


def test_a_site_of_weight_zero_is_absent_even_where_it_is_minus_infinity():
    wall = Custom(lambda x: np.where(x > 1.0, 0.0, -np.inf))
    with_wall = model(GaussianFactor(dim=2), SiteFactor(X, Logit(Y)), SiteFactor(X, wall, weight=0.0))
    assert infer(with_wall, "map").mean == pytest.approx(infer(model(), "map").mean)


def test_laplace_at_a_kink_names_the_engines_that_apply():
    kinked = model(GaussianFactor(dim=2), SiteFactor(X, Laplace(0.0, 1.0)))
    with pytest.raises(ValueError, match=r"Laplace sites have a kink; use engine 'gkl', 'ep' or 'lvb'"):
        infer(kinked, "laplace")


def test_compare_says_why_an_engine_does_not_apply():
    kinked = model(GaussianFactor(dim=2), SiteFactor(X, Laplace([0.3, 1.0, 2.0], 1.0)))
    table = compare(kinked, ["map", "laplace", "gkl"])
    assert list(table.posteriors) == ["map", "gkl"]
    assert "kink" in repr(table)
    assert "lower bound" in repr(table)
    assert "<table>" in table._repr_html_()
    frame = table.to_pandas()
    assert frame.loc["gkl", "log evidence"] == table["gkl"].log_evidence

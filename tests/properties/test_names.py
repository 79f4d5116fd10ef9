"""Names decide nothing: a user's engine or family gets what it declares, whatever it is called."""

import dataclasses
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, engines, infer, potentials
from latlin.additive import AdditiveModel
from latlin.gp import GaussianProcessRegressor
from latlin.inference.diagnosis.diagnose import next_engine
from latlin.inference.engine import fingerprint
from latlin.linear import BayesianCountRegression, BayesianPoissonRegression
from latlin.linear._regression import Exposed
from latlin.mixture import BayesianGaussianMixture
from latlin.potentials.families import Family
from latlin.report import write_report
from latlin.report.baselines import FittedBaseline, NormalBaseline, RateBaseline, baseline_of
from latlin.report.effect_curves import effect_curves

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 2))
COUNTS = RNG.poisson(np.exp(1.0 + 0.5 * X[:, 0]) * RNG.gamma(0.5, 2.0, 60)).astype(float)


@dataclasses.dataclass(frozen=True)
class Renamed:
    """An engine of the library under another name."""

    engine: Any
    name: Any = "mine"

    def run(self, model, **options):
        return dataclasses.replace(self.engine.run(model, **options), engine=self.name)


def logistic(dim=2):
    rows = X[:, :2] @ RNG.standard_normal((2, dim)) if dim > 2 else X
    return LatentLinearModel([GaussianFactor(dim=rows.shape[1]), SiteFactor(rows, potentials.Logit(COUNTS > 2))])


def walk(n=40):
    precision = sparse.diags_array([2.1, -1.0, -1.0], offsets=[0, 1, -1], shape=(n, n))
    sites = SiteFactor(sparse.eye_array(n, format="csr"), potentials.Logit(COUNTS[:n] > 2))
    return LatentLinearModel([GaussianFactor(precision=sparse.csr_array(precision)), sites])


# --- engines -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.MisfitWarning")
@pytest.mark.parametrize(("engine", "name"), [("ep", "mine"), ("laplace", "ep"), ("gkl", "laplace")])
def test_groups_are_left_out_by_the_engine_of_the_fit(engine, name):
    frame = {"y": COUNTS, "x": X[:, 0], "g": np.arange(60) % 5}
    options = {"family": "poisson", "hyperparameters": "fixed"}
    renamed = Renamed(
        {"ep": engines.ExpectationPropagation(), "gkl": engines.GaussianKL()}.get(engine, engines.Laplace()), name
    )
    found = [AdditiveModel("y ~ x + (1 | g)", engine=e, **options).fit(frame).loo("g") for e in (engine, renamed)]
    np.testing.assert_allclose(found[1].pointwise, found[0].pointwise, atol=1e-7)


@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.MisfitWarning")
def test_rows_in_blocks_are_left_out_where_stand_ins_follow_from_marginals():
    pandas = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(pandas.DataFrame({"y": COUNTS, "x": X[:, 0], "g": np.arange(60) % 5}), npartitions=2)
    options = {"family": "poisson", "hyperparameters": "fixed"}
    own, mine, other = (
        AdditiveModel("y ~ x + (1 | g)", engine=e, **options).fit(frame)
        for e in ("gkl", Renamed(engines.GaussianKL()), Renamed(engines.Laplace(), "gkl"))
    )
    np.testing.assert_array_equal(mine.loo().pointwise, own.loo().pointwise)
    with pytest.raises(ValueError, match=r"loo\(\) of rows in blocks needs"):
        other.loo()


def test_marginals_of_gaussian_kl_are_corrected_and_no_others():
    own, mine = (infer(logistic(), e).corrected_marginals() for e in ("gkl", Renamed(engines.GaussianKL())))
    np.testing.assert_array_equal(mine.skewness, own.skewness)
    with pytest.raises(ValueError, match="corrected_marginals"):
        infer(logistic(), Renamed(engines.Laplace(), "gkl")).corrected_marginals()


@pytest.mark.parametrize(("base", "other"), [(engines.Laplace, "gkl"), (engines.GaussianKL, "laplace")])
def test_an_estimated_covariance_is_that_of_the_engine_and_not_of_its_name(base, other):
    named = type("Mine", (base,), {"name": other})
    own, mine = (infer(walk(), kind(covariance="estimated")) for kind in (base, named))
    assert (mine.log_evidence, mine.evidence_term) == (own.log_evidence, own.evidence_term)
    np.testing.assert_array_equal(mine.mean, own.mean)


def test_a_fit_goes_on_from_a_mode_by_its_curvature_and_not_by_its_name():
    mode, mean = infer(walk(), "laplace"), infer(walk(), "ep")
    again = [
        infer(walk(), "laplace", start=start)
        for start in (mode, dataclasses.replace(mode, engine="mine"), mean, dataclasses.replace(mean, engine="laplace"))
    ]
    assert again[1].trace[0] == again[0].trace[0]
    assert again[3].trace[0] == again[2].trace[0] != again[0].trace[0]


@pytest.mark.parametrize(
    ("engine", "name"), [(engines.Laplace(), "ep"), (engines.GaussianKL(covariance="diagonal"), "x")]
)
def test_advice_is_for_the_posterior(engine, name):
    own, mine = (next_engine(infer(logistic(), e)) for e in (engine, Renamed(engine, name)))
    assert mine == own
    assert own.startswith("gkl")


def test_engines_of_one_name_in_two_modules_have_their_own_checkpoints():
    one, other = (type("Mine", (engines.Laplace,), {"__module__": module}) for module in ("a", "b"))
    assert fingerprint(logistic(), one()) != fingerprint(logistic(), other())


# --- families ------------------------------------------------------------------------------------


class Renewed(potentials.Poisson):
    """Poisson counts under another name."""


def test_cutting_a_count_keeps_what_its_family_declares():
    named = type("Poisson", (potentials.NegativeBinomial,), {})
    assert potentials.Hurdle(Renewed([0.0, 3.0]), 0.3).log_concave
    assert not potentials.Hurdle(named([0.0, 3.0], 0.5), 0.3).log_concave


class Scattered(Exposed):
    """Counts that vary more than Poisson's, under its name."""

    _name = "poisson"

    def __init__(self, *, prior_scale=1.0, dispersion=2.0, engine="gkl", hyperparameters="fixed", priors=None):
        super().__init__(prior_scale=prior_scale, engine=engine, hyperparameters=hyperparameters, priors=priors)
        self.dispersion = dispersion

    def _family(self):
        return Family(potentials.NegativeBinomial(0.0, 1.0), link="log")

    def _given(self):
        return {"prior_scale": self.prior_scale, "dispersion": self.dispersion}


def built_in():
    options = {"dispersion": 2.0, "prior_scale": 1.0, "engine": "gkl", "hyperparameters": "fixed"}
    return BayesianCountRegression("negative-binomial", **options).fit(X, COUNTS)


def test_a_users_regression_has_the_baseline_draws_and_curves_of_its_family():
    mine, own = Scattered().fit(X, COUNTS), built_in()
    assert baseline_of(BayesianPoissonRegression()) == RateBaseline.of
    found = baseline_of(mine)(COUNTS)
    assert isinstance(found, FittedBaseline)
    np.testing.assert_allclose(
        found.log_density(COUNTS[:5]), baseline_of(own)(COUNTS).log_density(COUNTS[:5]), atol=1e-8
    )
    draws = [fitted.sample_y(X, 50, random_state=0) for fitted in (mine, own)]
    np.testing.assert_allclose(draws[0], draws[1])
    assert draws[0].var() > 2.0 * draws[0].mean()
    curves = [effect_curves(fitted, X) for fitted in (mine, own)]
    assert curves[0] == curves[1]
    assert curves[0]


class Stretched(potentials.StudentT):
    """A Student t whose draws are from its own family, under another name."""

    free = MappingProxyType({})


def test_a_users_noise_has_a_normal_baseline():
    class Heavy(Scattered):
        def _family(self):
            return Family(Stretched(4.0))

        def _given(self):
            return {"prior_scale": self.prior_scale}

    assert baseline_of(Heavy()) == NormalBaseline.of


# the kernel is not learnt, and the counts vary more than it lets them
@pytest.mark.filterwarnings("ignore::latlin.numerics.alerts.MisfitWarning")
def test_a_process_with_a_renamed_family_is_that_process():
    options = {"optimizer": None, "engine": "gkl"}
    own, mine = (
        GaussianProcessRegressor(likelihood=likelihood, **options).fit(X, COUNTS)
        for likelihood in ("poisson", Renewed(0.0))
    )
    assert mine.log_evidence_ == own.log_evidence_
    np.testing.assert_array_equal(mine.predict(X), own.predict(X))
    np.testing.assert_array_equal(*(fitted.sample_y(X[:3], 20, random_state=0) for fitted in (mine, own)))


def test_a_subclass_has_the_page_of_its_class(tmp_path):
    class Clusters(BayesianGaussianMixture):
        """A mixture of the user's own."""

    rows = np.concatenate([X, X + 9.0])
    write_report(tmp_path / "page.html", Clusters(3, random_state=0).fit(rows), rows)
    assert "The rows fall into 2 clusters" in (tmp_path / "page.html").read_text(encoding="utf8")

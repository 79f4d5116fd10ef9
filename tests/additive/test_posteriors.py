"""Posteriors whose answers others computed: means within 3 Monte Carlo errors + 0.02 sd, sds within 3 per cent.

Data and moments are those of posteriordb (Magnusson and others 2024), or of long NUTS runs of its models where it ships
no draws: name → (mean, sd, Monte Carlo error of the mean).
"""

import numpy as np
import pytest

from latlin.additive import AdditiveModel, Fixed, Group
from latlin.datasets import load_dataset
from latlin.priors import Flat, HalfCauchy, HalfNormal, Uniform


def assert_close(found, reference):
    for name, (mean, sd, error) in reference.items():
        assert abs(found[name][0] - mean) <= 3 * error + 0.02 * sd, name
        assert found[name][1] == pytest.approx(sd, rel=0.03), name


def moments(rows, names):
    return {theirs: (rows[ours]["mean"], rows[ours]["sd"]) for ours, theirs in names.items()}


def test_eight_schools():
    frame = {
        "y": np.array([28.0, 8, -3, 7, -1, 1, 18, 12]),
        "sigma": np.array([15.0, 10, 16, 11, 9, 11, 10, 18]),
        "school": np.arange(8),
    }
    priors = {"Intercept": 5.0, "sd(school)": HalfCauchy(5.0)}
    model = AdditiveModel("y | se(sigma) ~ 1 + (1 | school)", priors=priors).fit(frame)
    theta = np.transpose(model.predict_latent(frame, return_std=True))
    found = {
        "theta[1]": theta[0],
        "theta[7]": theta[6],
        **moments(model.effects(), {"Intercept": "mu"}),
        **moments(model.hyperparameters_, {"sd(school)": "tau"}),
    }
    reference = {
        "theta[1]": (6.1505, 5.6159, 0.05616),
        "theta[7]": (6.3172, 5.0029, 0.05003),
        "mu": (4.4105, 3.3093, 0.03309),
        "tau": (3.6021, 3.1985, 0.03198),
    }
    assert_close(found, reference)


@pytest.mark.parametrize("engine", ["auto", "gkl"])
def test_seeds(engine):
    frame = {
        "n": np.array([10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3]),
        "N": np.array([39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7]),
        "x1": np.repeat([0.0, 1.0], [11, 10]),
        "x2": np.repeat([0.0, 1.0, 0.0, 1.0], [5, 6, 5, 5]),
        "plate": np.arange(21),
    }
    frame["x12"] = frame["x1"] * frame["x2"]
    model = AdditiveModel(
        response="n | trials(N)",
        terms=[Fixed("x1", "x2", "x12"), Group("plate", centred=True)],
        family="binomial",
        engine=engine,
        priors={"Intercept": 1.0, "x1": 1.0, "x2": 1.0, "x12": 1.0, "sd(plate)": HalfCauchy(1.0)},
    ).fit(frame)
    found = {
        **moments(model.effects(), {"Intercept": "alpha0", "x1": "alpha1", "x12": "alpha12", "x2": "alpha2"}),
        **moments(model.effects("plate"), {"plate[3]": "b[4]", "plate[9]": "b[10]"}),
        **moments(model.hyperparameters_, {"sd(plate)": "sigma"}),
    }
    reference = {
        "alpha0": (-0.4655, 0.1785, 0.00194),
        "alpha1": (-0.0514, 0.3018, 0.00317),
        "alpha12": (-0.6079, 0.3988, 0.00398),
        "alpha2": (1.2004, 0.2661, 0.00284),
        "b[4]": (0.2686, 0.2446, 0.00202),
        "b[10]": (-0.2457, 0.2306, 0.0019),
        "sigma": (0.3328, 0.1419, 0.00188),
    }
    assert_close(found, reference)


def test_counts_with_an_effect_per_row():
    counts = "26 33 32 34 22 30 24 24 28 28 36 43 36 36 44 57 56 49 63 84 59 87 91 100 121 132 151 149 145 221 209 198 "
    counts += "251 258 262 265 259 261 263 244"
    year = np.arange(40) - 19.5
    year /= year[-1] / 1.66802789939819
    frame = {"C": np.array(counts.split(), float), "row": np.arange(40)}
    frame |= {"year": year, "year2": year**2, "year3": year**3}
    priors = {**{name: Flat() for name in ("Intercept", "year", "year2", "year3")}, "sd(row)": Uniform(0.0, 5.0)}
    model = AdditiveModel("C ~ year + year2 + year3 + (1 | row)", family="poisson", priors=priors).fit(frame)
    names = {"Intercept": "alpha", "year": "beta1", "year2": "beta2", "year3": "beta3"}
    found = {
        **moments(model.effects(), names),
        **moments(model.effects("row"), {"row[17]": "eps[18]"}),
        **moments(model.hyperparameters_, {"sd(row)": "sigma"}),
    }
    reference = {
        "alpha": (4.3021, 0.0309, 0.00024),
        "beta1": (1.2482, 0.0486, 0.0004),
        "beta2": (0.075, 0.0248, 0.00018),
        "beta3": (-0.2269, 0.0254, 0.00022),
        "eps[18]": (-0.0129, 0.0421, 0.00028),
        "sigma": (0.0365, 0.0234, 0.00029),
    }
    assert_close(found, reference)


def test_radon_in_counties():
    data = load_dataset("radon")
    frame = {"y": data.y, "county": data.X[:, data.feature_names.index("county")]}
    priors = {"Intercept": 10.0, "sd(county)": HalfNormal(1.0), "sigma": HalfNormal(1.0)}
    model = AdditiveModel("y ~ (1 | county)", priors=priors).fit(frame)
    alpha = np.transpose(model.predict_latent({"county": np.array([1.0, 63.0])}, return_std=True))
    found = {
        "alpha[1]": alpha[0],
        "alpha[63]": alpha[1],
        **moments(model.effects(), {"Intercept": "mu"}),
        **moments(model.hyperparameters_, {"sd(county)": "sigma_alpha", "sigma": "sigma_y"}),
    }
    reference = {
        "alpha[1]": (1.1077, 0.2445, 0.00152),
        "alpha[63]": (1.382, 0.246, 0.0015),
        "mu": (1.35, 0.0482, 0.00043),
        "sigma_alpha": (0.3028, 0.0469, 0.00068),
        "sigma_y": (0.7671, 0.0186, 0.00012),
    }
    assert_close(found, reference)

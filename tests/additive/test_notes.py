"""Groups that rows cannot tell from noise, groups of few levels, labels that begin anew, labels that are numbers."""

import numpy as np
import pytest

from latlin.additive import AdditiveModel
from latlin.numerics.alerts import MisfitWarning
from latlin.report.additive import describe_additive

rng = np.random.default_rng(0)
N = 120
X = rng.standard_normal(N)


def sentences(formula, family="gaussian", hyperparameters="fixed", **columns):
    """What cautions say."""
    frame = {"y": columns.pop("y", X + rng.standard_normal(len(X))), "x": X, **columns}
    frame["x"] = np.resize(X, len(frame["y"]))
    return [
        str(check)
        for check in AdditiveModel(formula, family, hyperparameters=hyperparameters).fit(frame).checks_.cautions
    ]


def test_one_row_per_level_cannot_be_told_from_the_noise():
    frame = {"y": X + rng.standard_normal(N), "x": X, "id": np.arange(N)}
    said = "'id' has one row per level: its standard deviation cannot be told from the noise \\(sigma\\): leave it out"
    with pytest.warns(MisfitWarning, match=said):
        model = AdditiveModel("y ~ x + (1 | id)").fit(frame)
    conclusion = " ".join(describe_additive(model, frame, draws=200).conclusion())
    assert "'id' has one row per level: its standard deviation cannot be told from the noise (sigma)." in conclusion
    assert "levels of id differ" not in conclusion
    assert "Approximation: rough" in conclusion
    assert "Approximation: accurate" not in conclusion


def test_one_row_per_level_is_overdispersion_of_counts_and_heterogeneity_of_studies(recwarn):
    ids = np.arange(N)
    assert not sentences(
        "y ~ x + (1 | id)", "poisson", "auto", y=rng.poisson(np.exp(0.5 + rng.standard_normal(N))), id=ids
    )
    assert not sentences(
        "y | se(s) ~ x + (1 | id)", "gaussian", "auto", y=rng.standard_normal(N), s=np.full(N, 0.3), id=ids
    )
    assert not [one for one in recwarn if "cannot be told" in str(one.message)]


def test_a_group_of_few_levels_is_set_by_its_prior():
    (said,) = sentences("y ~ x + (1 | g)", hyperparameters="auto", g=rng.integers(0, 2, N))
    assert said.startswith("With 2 levels the standard deviation of g is set mostly by its prior. Write g as a coeff")
    assert not sentences("y ~ x + (1 | g)", hyperparameters="auto", g=np.arange(N) % 5)
    assert not sentences("y ~ x + (1 | g)", g=rng.integers(0, 2, N))


def clinics(sizes, visits):
    """Patients numbered anew in each clinic."""
    clinic = np.repeat(np.arange(len(sizes)), np.multiply(sizes, visits))
    patient = np.concatenate([np.repeat(np.arange(1, size + 1), visits) for size in sizes])
    return {"clinic": clinic, "patient": patient, "y": rng.standard_normal(len(clinic))}


BOTH = "y ~ x + (1 | clinic) + (1 | patient)"


def test_labels_that_begin_anew_are_asked_about():
    (said,) = sentences(BOTH, **clinics([5, 8, 6, 9, 12, 7, 10], 3))
    assert said.startswith("The labels of 'patient' begin anew in each level of 'clinic'. Are these the same in each")
    assert "If not, write (1 | clinic/patient)" in said


@pytest.mark.parametrize(
    ("formula", "table"),
    [
        # complete by design
        (BOTH, clinics([8] * 7, 3)),
        # the last year is not over
        (BOTH, clinics([12, 12, 12, 12, 12, 12, 4], 3)),
        # one row per pair
        (BOTH, clinics([5, 8, 6, 9, 12, 7, 10], 1)),
        # what the note would say
        ("y ~ x + (1 | clinic/patient)", clinics([5, 8, 6, 9, 12, 7, 10], 3)),
    ],
)
def test_crossed_groups_are_not_asked_about(formula, table):
    assert not [said for said in sentences(formula, **table) if "anew" in said]


def test_items_that_are_met_at_random_are_crossed():
    rows = 600
    table = {"clinic": rng.integers(0, 12, rows), "patient": rng.integers(1, 13, rows), "y": rng.standard_normal(rows)}
    assert not sentences(BOTH, **table)


@pytest.mark.parametrize("name", ["clinic_id", "id", "plot_no", "code", "zip", "ClinicID"])
def test_labels_that_enter_as_numbers_are_asked_about(name):
    (said,) = sentences(f"y ~ x + {name}", **{name: 1000 + np.arange(N) % 18})
    assert said == (
        f"'{name}' holds 18 whole numbers and has one slope. If they are labels, write (1 | {name}) or C({name})."
    )


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("age", np.arange(N) % 18),
        ("id", np.arange(N)),
        ("code", np.arange(N) % 2),
        ("zip", 0.5 + np.arange(N) % 18),
        ("volcano", np.arange(N) % 18),
    ],
)
def test_numbers_are_not_asked_about(name, values):
    assert not sentences(f"y ~ x + {name}", **{name: values})

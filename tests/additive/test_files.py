"""Models on disk: what is read back answers as what was saved, and nothing in a file is run."""

import numpy as np
import pytest

import latlin
from latlin.additive import AdditiveModel, Besag, Fixed, Group
from latlin.additive.coding import _keep, _made_again, learn_wilkinson
from latlin.additive.frame import column
from latlin.additive.predict import components_of
from latlin.gp.setting import Setting
from latlin.priors import HalfNormal

RING = {k: [(k - 1) % 6, (k + 1) % 6] for k in range(6)}


def table(n=48, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "y": rng.normal(size=n),
        "count": rng.poisson(2.0, n),
        "x": rng.uniform(1.0, 4.0, n),
        "t": np.resize(np.arange(8), n),
        "g": np.resize(list("abcd"), n),
        "area": np.resize(np.arange(6), n),
    }


def same(model, path, frame):
    model.save(path)
    back = latlin.load(path)
    np.testing.assert_allclose(back.predict(frame), model.predict(frame), rtol=1e-10)
    np.testing.assert_allclose(
        back.predict_interval(frame, random_state=0), model.predict_interval(frame, random_state=0)
    )
    assert repr(back.summary()) == repr(model.summary())
    assert repr(back.variance_components()) == repr(model.variance_components())
    return back


@pytest.mark.parametrize(
    "right",
    [
        "x + (1 + x | g)",
        "rw2(t) + ar1(t)",
        "s(x, k=6) + gp(t)",
        "bym2(area) + seasonal(t, 3)",
        "rw1(t, by=g) + lattice(t, area)",
    ],
)
def test_every_kind_of_term_is_read_back(right, tmp_path):
    model = AdditiveModel(f"y ~ {right}", hyperparameters="fixed").fit(table(), graph=RING)
    same(model, tmp_path / "model.npz", table(seed=1))


def test_an_integrated_model_is_read_back_with_its_mixture(tmp_path):
    model = AdditiveModel("count ~ x + (1 | g)", "poisson", priors={"sd(g)": HalfNormal(1.0)}).fit(table())
    back = same(model, tmp_path / "model.npz", {**table(seed=1), "g": np.resize(["a", "new"], 48)})
    assert back.hyperparameters_.marginals["sd(g)"].mean == model.hyperparameters_.marginals["sd(g)"].mean
    assert back.priors == {"sd(g)": HalfNormal(1.0)}
    with pytest.raises(ValueError, match="training rows"):
        back.loo()
    assert back.effects("x", frame=table()).names == model.effects("x").names
    with pytest.raises(ValueError, match="give frame="):
        back.effects("x")


def test_terms_are_stored_without_their_graphs(tmp_path):
    terms = [Fixed("x"), Group("g"), Besag("area", graph=RING)]
    model = AdditiveModel(response="y", terms=terms, hyperparameters="fixed").fit(table())
    back = same(model, tmp_path / "model.npz", table(seed=1))
    assert back.terms[:2] == terms[:2]


def test_what_formulaic_learnt_is_kept(tmp_path):
    pytest.importorskip("formulaic")
    model = AdditiveModel("y ~ center(x) * C(t) + scale(x) + g", hyperparameters="fixed").fit(table())
    same(model, tmp_path / "model.npz", table(seed=2))


def test_names_of_a_forged_file_are_texts_and_those_of_its_formula():
    frame = table()
    with pytest.raises(ValueError, match="a column is named by a text, got nan"):
        column(frame, float("nan"))
    coding = learn_wilkinson("1 + C(g):x", frame)
    keep, make = _keep(coding), _made_again
    assert make(**keep).names == coding.names
    with pytest.raises(ValueError, match=r"'1 \+ C\(g\):x' does not read the columns \['x'\]"):
        make(**{**keep, "sources": ("x",)})
    with pytest.raises(ValueError, match=r"the formula part '1 \+ C\(g\):x' cannot be evaluated: the table has no"):
        coding.columns({"x": frame["x"]})


@pytest.mark.parametrize("values", [[{7: 1.0}], [{"sd(g)": "wide"}], [3.0]])
def test_hyperparameters_of_a_file_are_numbers_by_their_names(values):
    with pytest.raises(ValueError, match="values of hyperparameters must be numbers by their names"):
        components_of(None, values)


def test_the_formula_and_the_kernel_of_a_file_are_of_their_kinds():
    model = AdditiveModel("y ~ x", hyperparameters="fixed").fit(table())
    model._read_ = 3.0
    with pytest.raises(ValueError, match="its formula one that was read"):
        model._after_loading()
    with pytest.raises(ValueError, match="kernel must be a kernel of scikit-learn, got True"):
        Setting(True, None).check_stored()

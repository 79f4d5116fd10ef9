"""Plots of additive models draw what the model says."""

import numpy as np
import pytest

from latlin import plot
from latlin.additive import AdditiveModel

pytest.importorskip("matplotlib").use("Agg")


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    n = 240
    g, t, i, j = (rng.permutation(np.resize(np.arange(size), n)) for size in (4, 12, 3, 4))
    y = rng.normal(0, 1, 4)[g] + np.sin(t / 2) + np.cumsum(rng.normal(0, 1, 12)).reshape(3, 4)[i, j]
    frame = {"y": y + 0.3 * rng.normal(size=n), "t": t, "g": np.array(list("abcd"))[g], "i": i, "j": j}
    formula = "y ~ (1 | g) + rw1(t) + lattice(i, j)"
    return AdditiveModel(formula, hyperparameters="maximise").fit(frame)


def test_a_curve_has_its_mean_and_band(model):
    ax = plot.curve(model, "rw1(t)")
    x, table = model.curve("rw1(t)")
    np.testing.assert_allclose(ax.lines[0].get_xdata(), x)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), table.column("mean"))
    assert ax.get_xlabel() == "t"
    with pytest.raises(ValueError, match="must be one of the terms"):
        plot.curve(model, "s(x)")
    with pytest.raises(ValueError, match="no curve"):
        plot.curve(model, "g")


def test_shrinkage_sets_groups_beside_what_they_say_alone(model):
    ax = plot.shrinkage(model, "g", [0.1, 0.2, 0.3, 0.4])
    drawn = ax.collections[1].get_offsets()[:, 0]
    np.testing.assert_allclose(drawn, np.sort(model.effects("g").column("mean")))
    with pytest.raises(ValueError, match="one number for each of the 4"):
        plot.shrinkage(model, "g", [0.1])


def test_densities_of_hyperparameters_have_a_panel_each(model):
    names = ["sigma"]
    (ax,) = plot.densities(model, names)
    assert ax.get_xlabel() == "sigma"
    np.testing.assert_allclose(ax.lines[0].get_ydata(), model.hyperparameters_.marginals["sigma"].density)
    with pytest.raises(ValueError, match="with a density"):
        plot.densities(model, ["unknown"])


def test_a_field_is_drawn_on_its_grid(model):
    ax = plot.field(model, "lattice(i, j)")
    values = model.effects("lattice(i, j)").column("mean")
    np.testing.assert_allclose(ax.images[0].get_array(), values.reshape(3, 4))
    with pytest.raises(ValueError, match="not a lattice"):
        plot.field(model, "g")


def test_areas_are_drawn_at_their_places(model):
    ax = plot.field(model, "g", {"a": (0, 0), "b": (1, 0), "c": (0, 1), "d": (1, 1)}, column="sd")
    np.testing.assert_allclose(ax.collections[0].get_array(), model.effects("g").column("sd"))


def test_pit_is_a_histogram_of_rows(model):
    ax = plot.pit(model.loo(), bins=10)
    assert sum(patch.get_height() for patch in ax.patches[:10]) == len(model.loo().pit)
    with pytest.raises(ValueError, match="groups"):
        plot.pit(model.loo("g"))

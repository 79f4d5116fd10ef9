"""Plots: what is drawn is what was given; axes in, axes out."""

import sys

import numpy as np
import pytest

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, compare, infer, plot, potentials
from latlin.diagnostics.calibration import reliability_curve

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture
def ax():
    from matplotlib.figure import Figure

    return Figure().subplots()


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((40, 3))
    y = rng.random(40) < 1 / (1 + np.exp(-rows @ [2.0, -1.0, 0.0]))
    return LatentLinearModel([GaussianFactor(cov=4.0, dim=3), SiteFactor(rows, potentials.Logit(y))])


ROWS = [
    {"name": "small", "mean": 0.1, "low": -0.2, "high": 0.4},
    {"name": "large", "mean": -2.0, "low": -3.0, "high": -1.0},
    {"name": "intercept", "mean": 9.0, "low": 8.0, "high": 10.0},
]


def segments(ax, which=0):
    return np.array(ax.collections[which].get_segments())


def test_forest(ax):
    assert plot.forest(ROWS, ax) is ax
    assert [text.get_text() for text in ax.get_yticklabels()] == ["large", "small"]
    np.testing.assert_allclose(segments(ax)[:, :, 0], [[-3.0, -1.0], [-0.2, 0.4]])
    marks = ax.collections[1]
    np.testing.assert_allclose(marks.get_offsets()[:, 0], [-2.0, 0.1])
    # the one whose interval holds zero is hollow
    assert marks.get_facecolors()[1].tolist() == [1.0, 1.0, 1.0, 1.0]
    assert marks.get_facecolors()[0].tolist() != [1.0, 1.0, 1.0, 1.0]


def test_forest_keeps_the_order_and_the_intercept_when_asked(ax):
    plot.forest(ROWS, ax, sort=False, intercept=True, most=2)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["large", "intercept"]
    with pytest.raises(ValueError, match="at least one row"):
        plot.forest([])


def test_forest_takes_an_estimator(ax):
    class Fitted:
        def summary(self, coverage):
            assert coverage == 0.5
            return type("Table", (), {"rows": ROWS})

    plot.forest(Fitted(), ax, coverage=0.5)
    assert len(segments(ax)) == 2


def test_marginals_are_densities(ax, model):
    post = infer(model, "gkl")
    plot.marginals(post, [2, 0], ax, names=["a", "b", "c"])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["c", "a"]
    for line, index in zip(ax.lines, [2, 0], strict=True):
        x, height = line.get_data()
        assert np.trapezoid(height, x) == pytest.approx(1.0, abs=1e-4)
        assert np.trapezoid(height * x, x) == pytest.approx(post.mean[index], abs=1e-4)
    with pytest.raises(ValueError, match="is a point"):
        plot.marginals(infer(model, "map"))
    with pytest.raises(ValueError, match="coordinates must be below 3, the length of w, got 5"):
        plot.marginals(post, [0, 5])


def test_trace(ax, model):
    post = infer(model, "gkl")
    plot.trace(post, ax)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), post.trace)
    assert ax.lines[0].get_xdata()[0] == 1
    plot.trace([1.0, 2.0], ax)
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), [1.0, 2.0])
    with pytest.raises(ValueError, match="at least one number"):
        plot.trace([])


def test_reliability(ax):
    rng = np.random.default_rng(0)
    p = rng.random(200)
    y = rng.random(200) < p
    plot.reliability(y, p, ax, bins=5)
    curve = reliability_curve(y, p, bins=5)
    np.testing.assert_allclose(ax.lines[1].get_xydata(), np.column_stack([curve.predicted, curve.observed]))
    np.testing.assert_allclose(segments(ax)[:, :, 1], np.column_stack([curve.low, curve.high]))


def test_intervals(ax):
    y = np.array([0.0, 5.0, 2.0, 9.0])
    ends = np.array([[-1.0, 1.0], [4.0, 6.0], [1.0, 3.0], [6.0, 8.0]])
    plot.intervals(y, ends, ax, coverage=0.9)
    np.testing.assert_allclose(segments(ax)[:, :, 1], ends[[0, 2, 1, 3]])
    inside, outside = ax.collections[1:]
    assert inside.get_offsets()[:, 1].tolist() == [0.0, 2.0, 5.0]
    assert outside.get_offsets().tolist() == [[3.0, 9.0]]
    assert ax.get_title() == "75 % of 4 rows inside (promised 90 %)"
    with pytest.raises(ValueError, match="shape"):
        plot.intervals(y, ends.T)


def test_many_rows_are_thinned_but_all_counted(ax):
    ends = np.tile([0.0, 1.0], (1000, 1))
    plot.intervals(np.r_[np.full(990, 0.5), np.full(10, 2.0)], ends, ax, most=50)
    assert len(segments(ax)) == 50
    assert ax.get_title() == "99 % of 1000 rows inside"


def test_evidence(ax):
    plot.evidence([10.0, 0.1, 1.0], [-3.0, -5.0, -2.0], ax, kind="lower bound", chosen=1.2)
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[0.1, -5.0], [1.0, -2.0], [10.0, -3.0]])
    assert ax.lines[1].get_xdata()[0] == 1.2
    assert ax.texts[0].get_text() == "1"
    assert ax.get_xscale() == "log"
    assert "lower bound" in ax.get_ylabel()
    with pytest.raises(ValueError, match="one length"):
        plot.evidence([1.0], [1.0, 2.0])


def test_ladder(ax, model):
    table = compare(model, ["map", "laplace", "lvb", "gkl"])
    plot.ladder(table, ax)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["lvb", "gkl", "laplace"]
    bounds, approximations = ax.collections
    assert bounds.get_offsets()[:, 0].tolist() == [table[name].log_evidence for name in ("lvb", "gkl")]
    assert approximations.get_offsets()[0, 0] == table["laplace"].log_evidence
    assert ax.lines[0].get_xdata()[0] == table["gkl"].log_evidence
    with pytest.raises(ValueError, match="comparison must hold at least one row"):
        plot.ladder([])


def test_axes_are_made_when_none_are_given():
    new = plot.trace([1.0, 2.0])
    assert new.figure is not None
    matplotlib.pyplot.close("all")


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"latlin\[plot\]"):
        plot.trace([1.0])


def test_probability_integral_transforms_are_counted(ax):
    from scipy.special import ndtri

    drawn = plot.pit(ndtri([0.05, 0.15, 0.15, 0.95]), ax, bins=10)
    assert [bar.get_height() for bar in drawn.patches[:10]] == [1.0, 2.0, *[0.0] * 7, 1.0]

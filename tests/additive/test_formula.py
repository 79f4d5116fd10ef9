"""Formulas: what they mean, and what they refuse."""

import numpy as np
import pytest

from latlin.additive import AR1, BYM2, AdditiveModel, Besag, Fixed, Group, RandomWalk, Seasonal, Smooth, Spline
from latlin.additive.coding import coding_of, learn_wilkinson
from latlin.additive.expression import evaluate
from latlin.additive.formula import collect_terms, read_formula, read_response
from latlin.additive.term import Surroundings


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("y ~ 1", [Fixed()]),
        ("y ~ x + z", [Fixed("x", "z")]),
        ("y ~ 0 + x", [Fixed("x", intercept=False)]),
        ("y ~ x - 1", [Fixed("x", intercept=False)]),
        ("y ~ x*z + log(t)", [Fixed("x*z", "log(t)")]),
        ("y ~ (1 | g)", [Fixed(), Group("g")]),
        ("y ~ (x | g)", [Fixed(), Group("g", "x")]),
        ("y ~ (1 + x || g)", [Fixed(), Group("g", "x", correlated=False)]),
        ("y ~ (0 + x | g)", [Fixed(), Group("g", "x", intercept=False)]),
        ("y ~ (1 | a/b)", [Fixed(), Group("a"), Group(("a", "b"))]),
        ("y ~ (1 | a:b)", [Fixed(), Group(("a", "b"))]),
        ("y ~ s(t)", [Fixed(), Spline("t")]),
        ("y ~ s(log(t), k=12, by=g)", [Fixed(), Spline("log(t)", 12, by="g")]),
        ("y ~ s(x, z)", [Fixed(), Spline(("x", "z"))]),
        ("y ~ rw1(t) + rw2(u)", [Fixed(), RandomWalk("t"), RandomWalk("u", 2)]),
        ("y ~ ar1(t, by=g)", [Fixed(), AR1("t", by="g")]),
        ("y ~ seasonal(t, 12)", [Fixed(), Seasonal("t", 12)]),
        ("y ~ gp(t, smoothness=2.5)", [Fixed(), Smooth("t", 2.5)]),
    ],
)
def test_formulas_mean_terms(text, terms):
    assert list(read_formula(text).terms) == terms


@pytest.mark.parametrize(
    ("listed", "terms"),
    [
        ([Group("g")], [Fixed(), Group("g")]),
        ([Group("g"), Fixed("x")], [Fixed("x"), Group("g")]),
        ([Fixed("x"), Fixed("z")], [Fixed("x", "z")]),
        ([Fixed(intercept=False), Group("g")], [Group("g")]),
        ([Fixed(intercept=False), Group("g"), Fixed("x")], [Fixed("x", intercept=False), Group("g")]),
    ],
)
def test_listed_terms_have_the_intercept_of_a_formula(listed, terms):
    assert list(collect_terms(listed, "y", None).terms) == terms


def test_a_list_without_terms_is_refused():
    with pytest.raises(ValueError, match=r"terms=\[Fixed\(intercept=False\)\] has no terms"):
        collect_terms([Fixed(intercept=False)], "y", None)


def test_maps_and_offsets():
    read = read_formula("cases ~ x + besag(region) + bym2(area) + offset(log(expected))")
    assert [type(term) for term in read.terms] == [Fixed, Besag, BYM2]
    assert read.offsets == ("log(expected)",)


def test_responses():
    assert read_response("cbind(s, f)").failures == "f"
    both = read_response(" y | trials(n) + weights(w) ")
    assert (both.y, both.trials, both.weights) == ("y", "n", "w")
    assert read_response("y | se(sigma)").se == "sigma"
    assert read_response("log(y)").y == "log(y)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("y x", "one ~"),
        ("y ~ x - z", "only the intercept"),
        ("y ~ (1 | g", "parentheses"),
        ("y ~ ( | g)", "a group is"),
        ("y ~ (1 | f(g))", "a group is"),
        ("y ~ + + x", "missing before"),
        ("y ~ s(t, wrong=3)", "is not a term"),
        ("y ~ 0", "no terms"),
        ("y ~ .", "name the columns"),
        ("y ~ (1 + x | g) + (1 | g)", "the group g is there twice"),
        ("y ~ (1 + x | g) + (0 + z | g)", "the group g is there twice"),
        ("y | se(s) | se(t) ~ x", "the response must be"),
        ("y | other(s) ~ x", "after 'y"),
        ("cbind(a) ~ x", "two columns"),
        ("y ~ s(t, k=4)", r"'s\(t, k=4\)' is not a term: k must be an integer of at least 5, got 4"),
        ("y ~ s(t, count=4)", "is not a term: count must be an integer of at least 5"),
        ("y ~ s(t, k=5, count=6)", "k and count are one option"),
        ("y ~ s(t, k=1000000)", "k must be at most"),
        ("y ~ gp(t, k=5)", r"'gp\(t, k=5\)' is not a term: got an unexpected keyword argument 'k'"),
        ("y ~ s(t, bs='cc')", "options of s are k, cyclic, period, by"),
        ("y ~ rw1(t, order=2)", "options of rw1 are cyclic, by"),
        ("y ~ f(t, model='rw2')", r"write \(1 \| g\), rw1"),
        ("y ~ x + t2(x, z)", r"write te\(x, z\)"),
        ("Surv(t, seen) ~ x", r"write time \| event\(seen\)"),
        ("t | cens(seen) ~ x", r"write time \| event\(seen\)"),
        ("y ~ mm(g)", r"neither a term \(\(1 \| g\), offset, s, te"),
        ("y ~ x + 1 | g", "a group stands in parentheses"),
        ("y ~ (1 | g) * x", "a group stands in parentheses"),
        ("y ~ s(t) * g", r"s\(…, by=g\) has one per label"),
        ("y ~ (s(t) | g)", r"s\(…, by=g\) has one per label"),
        ("y ~ x**2", r"write I\(x\*\*2\)"),
        ("y ~ gp(x, z)", r"a process is of one column: write te\(x, z\)"),
        ("y ~ s(t, by=3)", "by must be the name of a column or an expression of columns, got 3"),
        ("y ~ s(t, period=3)", "period must be a pair of increasing numbers, got 3"),
        ("y ~ rw1(t, cyclic='no')", "cyclic must be True or False, got 'no'"),
        ("y ~ ar1(t, 4)", "by must be the name of a column or an expression of columns, got 4"),
        ("y ~ besag(3)", "column must be the name of a column or an expression of columns, got 3"),
        ("y ~ seasonal(t, 1)", "period must be an integer of at least 2, got 1"),
        ("y ~ lattice(i, j, shape=3)", "shape must be a pair of integers, got 3"),
    ],
)
def test_bad_formulas_are_named(text, words):
    with pytest.raises(ValueError, match=words):
        read_formula(text)


def test_a_lattice_too_large_for_any_memory_is_refused():
    frame = {"y": np.zeros(3), "i": np.array([0, 1, 10**9]), "j": np.arange(3)}
    with pytest.raises(ValueError, match="number the places from 0"):
        AdditiveModel("y ~ lattice(i, j)").fit(frame)


def test_colours_of_formulaic_are_no_part_of_a_message():
    pytest.importorskip("formulaic")
    with pytest.raises(ValueError, match="cannot be evaluated") as caught:
        AdditiveModel("y ~ x/0").fit({"y": np.arange(4.0), "x": np.arange(4.0)})
    assert caught.value.args[0].isprintable()
    assert "⧛" not in caught.value.args[0]


def test_expressions_are_arithmetic():
    frame = {"x": np.array([1.0, 4.0]), "z": np.array([2.0, 3.0])}
    np.testing.assert_allclose(evaluate("log(x) + 2*z**2 - -z", frame), [10.0, 21.0 + np.log(4)])
    for bad in ("__import__('os')", "x.mean()", "x[0]", "open('f')", "(lambda: 1)()"):
        with pytest.raises(ValueError):
            evaluate(bad, frame)
    with pytest.raises(ValueError, match="missing or infinite"):
        evaluate("log(x - 1)", frame)


@pytest.mark.parametrize(
    "piece",
    [
        "{x}",
        "__import__('os').system('true')",
        "x.mean()",
        "np.load(x)",
        "C(x)(y)",
        "open('f') + x",
        "eval('x')",
        "x[0]",
    ],
)
def test_nothing_in_a_formula_is_run(piece):
    pytest.importorskip("formulaic")
    with pytest.raises(ValueError, match=r"not a function|arithmetic"):
        coding_of((piece,), {"x": [1.0, 2.0]}, True)


def test_names_are_coded_without_formulaic_as_with_it():
    pytest.importorskip("formulaic")
    frame = {"x": np.array([1.0, 2.0, 5.0, 3.0]), "g": np.array(["b", "a", "c", "a"])}
    ours, theirs = coding_of(("x", "g"), frame, True), coding_of(("x", "C(g)"), frame, True)
    np.testing.assert_allclose(ours.columns(frame).toarray(), theirs.columns(frame).toarray())
    assert [name.replace("C(g)", "g") for name in theirs.names] == list(ours.names)
    bare = coding_of(("x", "g"), frame, False)
    assert bare.names == ("x", "g[a]", "g[b]", "g[c]")


def test_formulaic_codes_interactions_and_keeps_what_it_learnt():
    pytest.importorskip("formulaic")
    frame = {"x": np.array([1.0, 2.0, 5.0, 3.0]), "g": np.array(["b", "a", "b", "a"])}
    part = Fixed("center(x) * g").prepare(frame, Surroundings())
    assert part.names == ("Intercept", "center(x)", "g[T.b]", "center(x):g[T.b]")
    new = part.coding.columns({"x": [10.0], "g": ["b"]}).toarray()
    np.testing.assert_allclose(new, [[1.0, 7.25, 1.0, 7.25]])


def test_the_report_of_fixed_effects_undoes_the_standardisation():
    rng = np.random.default_rng(0)
    frame = {"x": rng.normal(1990, 3, 30), "g": np.resize(["a", "b"], 30)}
    part = Fixed("x", "g").prepare(frame, Surroundings())
    w = rng.normal(size=3)
    b = part.report() @ w
    np.testing.assert_allclose(part.rows(frame, {}).design @ w, part.coding.columns(frame) @ b)


def test_categories_keep_their_order():
    pandas = pytest.importorskip("pandas")
    dose = pandas.Categorical(["low", "high", "none", "low"], categories=["none", "low", "high", "huge"])
    frame = pandas.DataFrame({"dose": dose, "x": [1.0, 2.0, 3.0, 4.0]})
    assert coding_of(("dose",), frame, True).names == ("Intercept", "dose[T.low]", "dose[T.high]")
    with pytest.raises(ValueError, match="the label 'wrong'"):
        coding_of(("dose",), frame, True).columns({"dose": ["wrong"]})
    pytest.importorskip("formulaic")
    crossed = coding_of(("x * dose",), frame, True)
    assert crossed.names[:4] == ("Intercept", "x", "dose[T.low]", "dose[T.high]")
    np.testing.assert_allclose(crossed.columns({"x": [2.0], "dose": ["high"]}).toarray()[0, :4], [1.0, 2.0, 0.0, 1.0])


@pytest.mark.parametrize("piece", ["x * g", "g * x", "g * h", "x:g"])
def test_interactions_of_two_columns_are_coded_without_formulaic_as_with_it(piece, monkeypatch):
    pytest.importorskip("formulaic")
    frame = {
        "x": np.array([1.0, 2.0, 5.0, 3.0, 4.0]),
        "g": np.array(["b", "a", "c", "a", "b"]),
        "h": np.array(["v", "u", "u", "v", "u"]),
    }
    pieces = ("x", "g", piece) if ":" in piece else (piece,)
    theirs = learn_wilkinson("1 + " + " + ".join(pieces), frame)
    monkeypatch.setattr("latlin.additive.coding.learn_wilkinson", None)
    ours = coding_of(pieces, frame, True)
    place = [ours.names.index(name) for name in theirs.names]
    np.testing.assert_allclose(ours.columns(frame).toarray()[:, place], theirs.columns(frame).toarray())


def test_one_message_names_all_missing_and_odd_cells():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"y": np.arange(40.0), "x": [str(k) for k in range(40)], "g": ["a", "b"] * 20, "s": np.nan}
    )
    frame.loc[3, "x"], frame.loc[5, "g"] = "?", None
    with pytest.raises(ValueError, match=r"(?s)'\?' in row 4.*C\(x\) in the formula.*missing cells: 1 in 'g'"):
        AdditiveModel("y ~ x + (1 | g)").fit(frame)
    # a column whose name is that of a function is not named by it
    AdditiveModel("y ~ s(t)", hyperparameters="fixed").fit(frame.assign(t=np.arange(40.0)))


def test_labels_that_no_row_has_get_no_coefficient_and_unknown_ones_are_refused():
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("formulaic")
    column = pandas.Categorical(list("abcbca"), ["unused", "a", "b", "c"])
    coding = coding_of(("C(f)",), pandas.DataFrame({"f": column}), True)
    assert coding.names == ("Intercept", "C(f)[T.b]", "C(f)[T.c]")
    with pytest.raises(ValueError, match=r"labels that have no coefficient: 'new'"):
        coding.columns(pandas.DataFrame({"f": ["a", "new"]}))
    np.testing.assert_array_equal(coding.columns(pandas.DataFrame({"f": column[:2]})).toarray(), [[1, 0, 0], [1, 1, 0]])


def test_functions_may_have_numpys_name_before_them():
    read = read_formula("np.log(y) ~ np.log(x + 1) + numpy.sqrt(z) + (1 | g) + offset(np.log(days))")
    assert read == read_formula("log(y) ~ log(x + 1) + sqrt(z) + (1 | g) + offset(log(days))")
    with pytest.raises(ValueError, match="'load' in"):
        AdditiveModel("y ~ np.load(x)").fit({"y": [1.0, 2.0], "x": [1.0, 2.0]})


def test_effects_of_groups_that_are_written_one_by_one_are_not_correlated():
    assert read_formula("y ~ (1 | g) + x + (0 + x | g) + (0 + z | g)") == read_formula("y ~ x + (1 + x + z || g)")
    assert read_formula("y ~ (0 + x | g) + (1 | h)").terms[1:] == (Group("g", "x", intercept=False), Group("h"))


@pytest.mark.parametrize("make", ["pandas", "dict"])
def test_backquotes_hold_names_that_are_none_of_python(make):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    columns = {"y": rng.normal(size=30), "rain (mm)": rng.normal(size=30), "home town": np.resize(list("abc"), 30)}
    plain = {"y": columns["y"], "rain": columns["rain (mm)"], "town": columns["home town"]}
    frame = pandas.DataFrame(columns) if make == "pandas" else columns
    options = {"hyperparameters": "fixed"}
    for written, simple in (
        ("`rain (mm)` + (1 | `home town`)", "rain + (1 | town)"),
        ("`home town` * `rain (mm)` + s(`rain (mm)`, k=6)", "town * rain + s(rain, k=6)"),
        ("C(`home town`):I(`rain (mm)`**2)", "C(town):I(rain**2)"),
    ):
        quoted = AdditiveModel(f"`y` ~ {written}", **options).fit(frame)
        expected = AdditiveModel(f"y ~ {simple}", **options).fit(plain)
        assert quoted.log_evidence_ == pytest.approx(expected.log_evidence_, abs=1e-9)
        np.testing.assert_allclose(quoted.predict(frame), expected.predict(plain), atol=1e-9)
    with pytest.raises(
        ValueError, match=r"no column 'rain \(cm\)' \(did you mean 'rain \(mm\)'\?\); it has 'y', 'rain"
    ):
        AdditiveModel("y ~ `rain (cm)`").fit(frame)


def test_columns_may_be_named_like_codings(tmp_path):
    """Products of three are coded by formulaic, which knows `treatment`, `scale` and `center` too."""
    pytest.importorskip("formulaic")
    rng = np.random.default_rng(0)
    frame = {"y": rng.normal(size=40), "treatment": np.resize(["a", "b"], 40), "scale": rng.normal(size=40)}
    frame["center"] = np.resize(["n", "s", "w"], 40)
    formula = "y ~ treatment * scale * center + C(center, contr.sum)"
    model = AdditiveModel(formula, hyperparameters="fixed").fit(frame)
    assert "treatment[T.b]:scale:center[T.w]" in model.effects().names
    model.save(tmp_path / "model")
    np.testing.assert_allclose(AdditiveModel.load(tmp_path / "model").predict(frame), model.predict(frame))

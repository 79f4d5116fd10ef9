"""The report: one file that says what the fit says, in which nothing from the data becomes markup."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from latlin.gp import GaussianProcessRegressor
from latlin.linear import BayesianLinearRegression, BayesianLogisticRegression
from latlin.report import Facts, assess, gather, render, write_report
from latlin.report.charts import ticks
from latlin.report.markup import number

EVIL = "<script>alert('x')</script>"
VOID = {"meta", "link", "line", "rect", "circle", "polyline"}


class Reader(HTMLParser):
    """Tags, texts and attributes of a page; fails on a tag that is never closed."""

    def __init__(self):
        super().__init__()
        self.stack, self.tags, self.texts, self.attributes = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(page):
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.stack
    return reader


@pytest.fixture(scope="module")
def numeric():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = X @ [1.0, -2.0, 0.0] + 0.5 * rng.standard_normal(60)
    return BayesianLinearRegression(hyperparameters="maximise").fit(X, y), X, y


@pytest.fixture(scope="module")
def evil():
    """Hostile names everywhere a user can put one."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.standard_normal((40, 2)), columns=[EVIL, '" onmouseover="alert(1)'])
    y = np.where(X.iloc[:, 0] + 0.5 * rng.standard_normal(40) > 0, EVIL, "<img src=x onerror=alert(1)>")
    fitted = BayesianLogisticRegression(prior_scale=1.0, engine="laplace").fit(X, y)
    column = {"name": EVIL, "kind": EVIL, "missing": EVIL, "distinct": EVIL, "summary": EVIL}
    return gather(
        fitted,
        40,
        target=EVIL,
        title=EVIL,
        columns=[column],
        notes=[EVIL],
        diagnosis=[(EVIL, EVIL)],
        engines=[{EVIL: EVIL}],
        assessment=assess(fitted, X, y, folds=2),
    )


def test_nothing_from_the_data_becomes_markup(evil):
    page = read(render(evil))
    assert not {"script", "img", "iframe", "object"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert sum(EVIL in text for text in page.texts) >= 8
    again = Facts.from_json(json.loads(json.dumps(evil.to_json())))
    assert render(again) == render(evil)


def test_the_page_needs_nothing_from_outside(evil, numeric, tmp_path):
    write_report(tmp_path / "r.html", *numeric)
    for text in (render(evil), (tmp_path / "r.html").read_text("utf8")):
        page = read(text)
        links = [value for name, value in page.attributes if name in {"src", "href", "action", "data", "poster"}]
        assert links == ["data:,"]
        assert "url(" not in text
        assert "@import" not in text


def test_the_page_says_what_the_fit_says(numeric, tmp_path):
    fitted, X, y = numeric
    facts = write_report(tmp_path / "r.html", fitted, X, y, folds=3, target="price", spread={"x0": 2.0})
    words = " ".join(read((tmp_path / "r.html").read_text("utf8")).texts)
    assert "price" in words
    assert "The log evidence is exact" in words
    assert number(fitted.log_evidence_, 6) in words
    for row in fitted.summary(0.9).rows:
        assert number(row["mean"]) in words
    assert number(facts.assessment.log_density) in words
    assert "split into 3 folds" in words
    assert "@software{latlin" in words
    assert facts.coefficients[0]["effect"] == 2.0
    assert "one standard deviation" in words


def test_every_drawing_has_words(numeric, tmp_path):
    write_report(tmp_path / "r.html", *numeric)
    page = read((tmp_path / "r.html").read_text("utf8"))
    labels = [value for name, value in page.attributes if name == "aria-label"]
    assert page.tags.count("svg") == len(labels) > 4
    assert all(labels)


def test_without_held_out_rows_the_page_says_so(numeric, tmp_path):
    facts = write_report(tmp_path / "r.html", *numeric, folds=0)
    assert facts.assessment is None
    assert "No rows were held out" in (tmp_path / "r.html").read_text("utf8")


def test_many_coefficients_are_cut_and_the_largest_shown(numeric):
    rows = [
        {
            "name": f"x{i}",
            "mean": float(i),
            "sd": 1.0,
            "low": i - 1.0,
            "high": i + 1.0,
            "p_positive": 0.9,
            "effect": 1.0,
        }
        for i in range(100)
    ]
    page = render(gather(numeric[0], 60).with_(coefficients=rows))
    assert "The 60 largest of 100 are shown" in page
    assert ">x99<" in page
    assert ">x39<" not in page


def test_facts_that_are_none_are_refused():
    with pytest.raises(ValueError, match="cannot be read"):
        Facts.from_json({"title": "x"})
    with pytest.raises(ValueError, match="cannot be read"):
        Facts.from_json([])


def test_a_point_estimate_has_no_evidence_and_the_page_is_honest(numeric):
    _, X, y = numeric
    facts = gather(BayesianLogisticRegression(engine="map", prior_scale=1.0).fit(X, y > 0), 60)
    page = render(Facts.from_json(json.loads(json.dumps(facts.to_json()))))
    assert "it has no evidence and no intervals" in page
    assert not re.search(r"\bnan\b", page)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0"), (1.0, "1.000"), (-0.00260, "−0.002600"), (123456.0, "123456"), (1e9, "1.000e9")]
)
def test_numbers_for_people(value, shown):
    assert number(value) == shown


def test_ticks_are_round_and_inside():
    for low, high in [(0.0, 1.0), (-3.2, 7.9), (1e-5, 3e-5), (-2411.5, -2411.4)]:
        values = ticks(low, high)
        assert 2 <= len(values) <= 8
        assert min(values) >= low - 1e-9 * abs(low)
        assert max(values) <= high + 1e-9 * abs(high)


def test_a_model_without_a_fit_says_so(tmp_path):
    rng = np.random.default_rng(0)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        write_report(
            tmp_path / "r.html",
            BayesianLinearRegression(hyperparameters="maximise"),
            rng.standard_normal((9, 2)),
            np.arange(9.0),
            target="y",
        )
    assert not list(tmp_path.iterdir())


def test_the_report_of_a_process_of_a_data_frame_is_quiet(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"hour": np.linspace(0.0, 6.0, 25)})
    model = GaussianProcessRegressor(optimizer=None).fit(frame, np.sin(frame["hour"]))
    write_report(tmp_path / "curve.html", model, frame, np.sin(frame["hour"]), target="height")
    page = (tmp_path / "curve.html").read_text(encoding="utf8")
    assert "Between hour 0 and 6.00, height goes from" in page.partition("Technical part")[0]

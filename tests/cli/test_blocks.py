"""`latlin fit` of many Parquet files: the model of the same rows in one table, on threads and on processes."""

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("typer")
pytest.importorskip("pyarrow")
pytest.importorskip("dask.dataframe", reason="Dask is not installed")
from typer.testing import CliRunner  # noqa: E402

from latlin.cli.app import app  # noqa: E402
from latlin.cli.model_file import load_model  # noqa: E402


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    n = 140
    age, city = rng.normal(50, 10, n), rng.choice(["Oslo", "Rome", "Bonn"], n)
    latent = 0.1 * (age - 50) + 1.5 * (city == "Rome")
    well = latent + rng.logistic(size=n) > 0
    made = pandas.DataFrame({"age": age, "city": city, "same": 1.0, "outcome": np.where(well, "well", "ill")})
    made.loc[[5, 100], "age"] = np.nan
    return made


@pytest.fixture(scope="module")
def folder(frame, tmp_path_factory):
    made = tmp_path_factory.mktemp("parts")
    for place, rows in enumerate(np.split(np.arange(len(frame)), [80])):
        frame.iloc[rows].to_parquet(made / f"part-{place}.parquet")
    frame.to_csv(made / "whole.csv", index=False)
    return made


@pytest.fixture(scope="module")
def whole(folder):
    out = folder / "whole.latlin"
    words = ("--target", "outcome", "--missing", "drop", "--folds", 0, "--prior-scale", 2, "--out", out)
    result = run("fit", folder / "whole.csv", *words)
    assert result.exit_code == 0, result.output
    return load_model(out)


def fitted(folder, out, *words):
    result = run(
        "fit",
        folder / "part-*.parquet",
        "--target",
        "outcome",
        "--missing",
        "drop",
        "--prior-scale",
        2,
        "--out",
        out,
        *words,
    )
    assert result.exit_code == 0, result.output
    return load_model(out), result.stdout


def assert_same(first, second):
    assert first.encoding.names == second.encoding.names
    assert first.target == second.target
    np.testing.assert_allclose(first.estimator.coef_, second.estimator.coef_, atol=1e-5)
    assert first.facts.log_evidence[0][1] == pytest.approx(second.facts.log_evidence[0][1], abs=1e-6)
    assert first.facts.rows == second.facts.rows
    for a, b in zip(first.facts.coefficients, second.facts.coefficients, strict=True):
        assert a["name"] == b["name"]
        assert a["effect"] == pytest.approx(b["effect"], rel=1e-9)


def test_parts_give_the_model_of_the_whole_table(folder, whole, tmp_path):
    model, output = fitted(folder, tmp_path / "m.latlin", "--scheduler", "threads")
    assert_same(model, whole)
    for words in ("Family logistic", "2 rows with missing values were left out ('age' 2)", "'same'", "Log evidence -"):
        assert words in output
    assert "no rows were held out" in output
    predicted = run("predict", tmp_path / "m.latlin", folder / "part-1.parquet", "--missing", "drop")
    assert predicted.exit_code == 0, predicted.output
    page = run("report", tmp_path / "m.latlin", "--out", tmp_path / "page.html")
    assert page.exit_code == 0, page.output


def test_a_pattern_needs_no_scheduler(folder, whole, tmp_path):
    assert_same(fitted(folder, tmp_path / "m.latlin")[0], whole)


@pytest.mark.filterwarnings("default")
def test_processes_of_this_machine(folder, whole, tmp_path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert_same(fitted(folder, tmp_path / "m.latlin", "--scheduler", "local")[0], whole)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--scheduler", "everywhere"], "'everywhere'"),
        (["--missing", "error"], "'age' 2 of 140 rows"),
        (["--drop", "price"], "'price'"),
        (["--family", "cubic"], "'cubic'"),
    ],
)
def test_mistakes_are_one_sentence(folder, words, told):
    result = run("fit", folder / "part-*.parquet", "--target", "outcome", "--missing", "drop", *words)
    assert result.exit_code == 1
    assert told in result.stderr
    assert "unexpected" not in result.stderr


def test_no_such_files(folder):
    assert "there is no file" in run("fit", folder / "nothing-*.parquet", "--target", "outcome").stderr

"""Many Parquet files: the model, the predictions and the comparison of the same rows in one table."""

import io

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("typer")
pytest.importorskip("pyarrow")
pytest.importorskip("dask.dataframe", reason="Dask is not installed")
from typer.testing import CliRunner  # noqa: E402

from latlin.cli.app import app  # noqa: E402
from latlin.cli.models import load_model  # noqa: E402


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
    assert "No rows were held out" in output
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


def test_files_are_predicted_part_by_part(folder, frame, whole, tmp_path):
    model = folder / "whole.latlin"
    frame.to_parquet(folder / "all.parquet")
    once = run("predict", model, folder / "all.parquet", "--missing", "drop", "--keep")
    expected = pandas.read_csv(io.StringIO(once.stdout))
    for out in (tmp_path / "out.csv", tmp_path / "out.parquet"):
        result = run("predict", model, folder / "part-*.parquet", "--missing", "drop", "--keep", "--out", out)
        assert result.exit_code == 0, result.output
        assert "Saved 140 predictions" in result.stdout
        found = pandas.read_csv(out) if out.suffix == ".csv" else pandas.read_parquet(out)
        found = found.where(found.notna(), np.nan)  # Parquet has None where CSV has NaN
        pandas.testing.assert_frame_equal(found, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(expected["age"], frame["age"], rtol=1e-15)
    assert expected["predicted_P(well)"].isna().sum() == 2
    printed = run("predict", model, folder / "part-*.parquet", "--missing", "drop", "--keep")
    pandas.testing.assert_frame_equal(pandas.read_csv(io.StringIO(printed.stdout)), expected, rtol=1e-12, atol=1e-14)


def test_small_parts_of_a_file(folder, frame, whole, tmp_path, monkeypatch):
    """Labels that are whole numbers, and parts in which no row is complete."""
    monkeypatch.setattr("latlin.datasets.table.PART_BYTES", 8 * 4 * 3)  # three rows of four columns
    numbered = frame.assign(outcome=(frame["outcome"] == "well").astype(int)).head(9)
    numbered.loc[:2, "age"] = np.nan
    numbered.to_parquet(tmp_path / "t.parquet")
    model = tmp_path / "m.latlin"
    fit = ("--target", "outcome", "--missing", "drop", "--folds", 0, "--prior-scale", 1, "--engine", "laplace")
    assert run("fit", tmp_path / "t.parquet", *fit, "--out", model).exit_code == 0
    for out in (tmp_path / "p.parquet", tmp_path / "p.csv"):
        result = run("predict", model, tmp_path / "t.parquet", "--out", out)
        assert result.exit_code == 0, result.output
    found = pandas.read_parquet(tmp_path / "p.parquet")
    pandas.testing.assert_frame_equal(found, pandas.read_csv(tmp_path / "p.csv"), rtol=1e-12)
    assert found.isna().all(axis=1).tolist() == numbered["age"].isna().tolist()
    assert set(found["outcome"].dropna()) <= {0, 1}
    assert ",0," not in (tmp_path / "p.csv").read_text().splitlines()[0]
    assert "1.0," not in (tmp_path / "p.csv").read_text()


def test_wrong_rows_are_told_with_their_file(folder, frame, whole, tmp_path, monkeypatch):
    monkeypatch.setattr("latlin.datasets.table.PART_BYTES", 8 * 4 * 3)
    good = frame.dropna().head(6).reset_index(drop=True)
    good.to_parquet(tmp_path / "a.parquet")
    wrong = good.assign(city=["Rome"] * 4 + ["Paris"] * 2)
    wrong.to_parquet(tmp_path / "b.parquet")
    result = run("predict", folder / "whole.latlin", tmp_path / "*.parquet", "--out", tmp_path / "p.csv")
    assert result.exit_code == 1
    assert f"the part of {tmp_path / 'b.parquet'} that begins with row 4" in result.stderr
    assert "'Paris' in row 2" in result.stderr
    assert not (tmp_path / "p.csv").exists()
    assert "no file" in run("predict", folder / "whole.latlin", tmp_path / "c*.parquet").stderr


def test_rows_are_held_out_of_files(folder, frame, tmp_path):
    model, output = fitted(folder, tmp_path / "m.latlin", "--folds", 2, "--engine", "laplace")
    seen = model.facts.assessment
    assert (seen.folds, seen.rows) == (2, 138)
    assert "Held out, 2 folds" in output
    assert "No rows were held out" not in output
    # rows in memory, in other folds: the same to a few standard errors
    out = tmp_path / "whole.latlin"
    words = ("--target", "outcome", "--missing", "drop", "--prior-scale", 2, "--engine", "laplace", "--out", out)
    assert run("fit", folder / "whole.csv", *words, "--folds", 2).exit_code == 0
    other = load_model(out).facts.assessment
    assert abs(seen.log_density - other.log_density) < 2 * other.log_density_error
    page = run("report", tmp_path / "m.latlin", "--out", tmp_path / "page.html")
    assert page.exit_code == 0
    assert "2 folds" in (tmp_path / "page.html").read_text()


def test_compare_on_files(folder, tmp_path):
    common = ("--target", "outcome", "--missing", "drop", "--prior-scale", 2, "--engine", "laplace,ep,map")
    more = ("--family", "logistic", "--folds", 2, "--out")
    blocks = run("compare", folder / "part-*.parquet", *common, *more, tmp_path / "b.csv")
    assert blocks.exit_code == 0, blocks.output
    assert "138 rows" in blocks.stdout
    assert "2 rows with missing values were left out" in blocks.stdout
    table = run("compare", folder / "whole.csv", *common, *more, tmp_path / "t.csv")
    assert table.exit_code == 0, table.output
    b, t = (pandas.read_csv(tmp_path / name).set_index("engine") for name in ("b.csv", "t.csv"))
    assert b.loc["laplace", "log evidence"] == pytest.approx(t.loc["laplace", "log evidence"], abs=1e-6)
    assert b.loc["laplace", "kind"] == "approximation"
    assert b.loc[["laplace", "map"], "held out"].notna().all()
    assert "ep" in b.loc["ep", "note"] or "blocks" in b.loc["ep", "note"]
    assert np.isnan(b.loc["ep", "log evidence"])


def test_compare_by_evidence_alone(folder):
    words = ("--target", "outcome", "--missing", "drop", "--prior-scale", 2, "--family", "logistic,probit")
    result = run("compare", folder / "part-*.parquet", *words, "--engine", "laplace", "--folds", 0)
    assert result.exit_code == 0, result.output
    assert "no rows held out; best evidence first" in result.stdout
    wrong = run("compare", folder / "part-*.parquet", *words, "--folds", 1)
    assert wrong.exit_code == 1
    assert "folds must be 0" in wrong.stderr

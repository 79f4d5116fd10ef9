"""Clusters, factors and curves from a table to a page, a table and a model file."""

import numpy as np
import pytest

import latlin

pandas = pytest.importorskip("pandas")
pytest.importorskip("typer")
from typer.testing import CliRunner  # noqa: E402

from latlin.cli import explore  # noqa: E402
from latlin.cli.app import app  # noqa: E402


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_clusters_are_named_by_what_sets_them_apart(tmp_path):
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 1], 60)
    frame = pandas.DataFrame(
        {
            "length": np.where(truth, 100.0, 300.0) + rng.normal(0, 10, 180),
            "age": rng.normal(50, 5, 180),
            "<b>": rng.normal(0, 1, 180),
            "name": [f"n{k}" for k in range(180)],
        }
    )
    frame.loc[::20, "age"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = ["--out", tmp_path / "c.html", "--table", tmp_path / "c.csv", "--model", tmp_path / "c.latlin"]
    made = run("cluster", tmp_path / "t.csv", *words)
    assert made.exit_code == 0, made.output
    assert "The rows fall into 2 clusters. Cluster 1 has 67 % of the rows: low length." in made.stdout
    assert "Left out, because they are no numbers: 'name'" in made.stdout
    found = pandas.read_csv(tmp_path / "c.csv")
    np.testing.assert_array_equal(found["cluster"], 2 - truth)
    page = (tmp_path / "c.html").read_text(encoding="utf8")
    assert page.count("<svg") == 2
    assert "<b>" not in page
    assert latlin.load(tmp_path / "c.latlin").n_active_ == 2


def test_factors_of_numbers_and_of_mixed_tables(tmp_path):
    rng = np.random.default_rng(1)
    skill, mood = rng.standard_normal((2, 300))
    frame = pandas.DataFrame({f"skill{j}": skill + 0.5 * rng.standard_normal(300) for j in range(4)})
    for j in range(4):
        frame[f"mood{j}"] = -mood + 0.5 * rng.standard_normal(300)
    frame.to_csv(tmp_path / "t.csv", index=False)
    made = run("factors", tmp_path / "t.csv", "--out", tmp_path / "f.html", "--table", tmp_path / "f.csv")
    assert made.exit_code == 0, made.output
    assert made.stdout.count("of the variance of the columns") == 2  # chosen by BIC
    scores = pandas.read_csv(tmp_path / "f.csv")[["factor 1", "factor 2"]].to_numpy()
    strength = np.abs(np.corrcoef(np.column_stack([scores, skill, mood]).T))[:2, 2:]
    assert np.sort(strength.max(axis=0))[0] > 0.9
    assert "2 factors, chosen by BIC; more were not tried" in made.stdout  # one per three columns
    frame["mood4"], frame["skill4"] = mood + rng.standard_normal(300), skill + rng.standard_normal(300)
    frame.iloc[::9, 0] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    holes = run("factors", tmp_path / "t.csv", "--out", tmp_path / "f.html")
    assert "2 factors, chosen by BIC of the 266 rows without missing cells." in holes.stdout
    frame["late"] = np.where(skill + 0.3 * rng.standard_normal(300) > 0, "no", "yes")
    frame.to_csv(tmp_path / "t.csv", index=False)
    mixed = run("factors", tmp_path / "t.csv", "--factors", 2, "--out", tmp_path / "f.html")
    assert mixed.exit_code == 0, mixed.output
    assert "late" in mixed.stdout
    assert "2 factors, as asked." in mixed.stdout
    assert "late" in (tmp_path / "f.html").read_text(encoding="utf8")
    refused = run("factors", tmp_path / "t.csv", "--drop", ",".join(c for c in frame.columns if c != "late"))
    assert refused.exit_code == 1
    assert "at least three columns" in refused.stderr


@pytest.mark.parametrize("rows", [60, 900])
def test_a_curve_follows_its_rows_along_dates(tmp_path, rows):
    rng = np.random.default_rng(2)
    when = pandas.date_range("2020-01-01", "2021-12-31", periods=rows)
    wave = np.sin(2 * np.pi * np.linspace(0, 2, rows))
    frame = pandas.DataFrame({"when": when.strftime("%Y-%m-%d"), "level": wave + 0.1 * rng.standard_normal(rows)})
    frame.loc[3, "level"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = ["--out", tmp_path / "s.html", "--table", tmp_path / "s.csv", "--model", tmp_path / "s.latlin"]
    made = run("smooth", tmp_path / "t.csv", "--target", "level", "--along", "when", *words)
    assert made.exit_code == 0, made.output
    assert "1 rows with missing values were left out" in made.stdout
    found = pandas.read_csv(tmp_path / "s.csv")
    truth = np.delete(wave, 3)
    assert np.abs(found["smooth"] - truth).mean() < 0.05
    inside = ((found["low"] < truth) & (truth < found["high"])).mean()
    assert inside > 0.75
    assert latlin.load(tmp_path / "s.latlin").log_evidence_ < 1e9
    page = (tmp_path / "s.html").read_text(encoding="utf8")
    assert "Technical part" in page
    assert not any(word in page.lower() for word in ("pgtol", "factr", "norm of projected", "epsmch"))
    if rows == 60:  # a process, whose evidence is maximised
        assert "the evidence rises no further" in page
    refused = run("smooth", tmp_path / "t.csv", "--target", "level", "--along", "level2")
    assert "no column 'level2'" in refused.stderr
    refused = run("smooth", tmp_path / "t.csv", "--target", "level", "--along", "level")
    assert "target and along must be two columns, got 'level' for both" in refused.stderr


def test_prices_are_numbers_where_that_is_asked():
    frame = pandas.DataFrame({"day": np.arange(6), "cost": [f"${1000 + k:,}" for k in range(6)]})
    with pytest.raises(ValueError, match="column 'cost' must hold numbers: read them with --numbers cost"):
        explore._pairs(frame, "cost", "day")
    read = explore._with_numbers(frame, ("cost",), ".")
    np.testing.assert_array_equal(explore._pairs(read, "cost", "day")[1], 1000 + np.arange(6))
    notes = explore.number_columns(frame, ())[2]
    assert "Prices and the like are read with --numbers cost." in notes
    assert "Only one column is left, 'day': clusters are ranges of its values." in notes

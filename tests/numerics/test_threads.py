"""Threads: what they share out, when they pay, how many they are, and what a fork or eight callers do to them."""

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from scipy import sparse
from sklearn.gaussian_process.kernels import Matern
from threadpoolctl import threadpool_info, threadpool_limits

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials
from latlin.densities.structured.rows import SparseRows, use_one_pool
from latlin.engines import GaussianKL
from latlin.factor import GroupFactorAnalysis
from latlin.factor.group import fit as group_fit
from latlin.gp import GaussianProcessRegressor, Inducing, StateSpace, Vecchia
from latlin.gp import learning as gp_learning
from latlin.hyper import rules
from latlin.hyper.space import Space
from latlin.linear import BayesianLinearRegression, BayesianLogisticRegression
from latlin.linear._fitting import Spectrum
from latlin.numerics import threads
from latlin.numerics.threads import one_blas_thread, one_thread, run_together, share_out, thread_count, threads_for


@numba.njit(nogil=True)
def _square(first, last, x, out):
    for i in range(first, last):
        out[i] = x[i] * x[i]


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_every_item_is_treated_once(count, size, monkeypatch):
    monkeypatch.setattr(threads, "thread_count", lambda: count)
    monkeypatch.setattr(threads, "WORTH", 1.0)
    x, out = np.arange(float(size)), np.zeros(size)
    share_out(_square, size, 1.0, x, out)
    np.testing.assert_array_equal(out, x * x)


def test_nothing_to_do():
    out = np.zeros(0)
    share_out(_square, 0, 1.0, out, out)
    run_together(_square, [])
    assert out.size == 0


def test_threads_are_taken_only_where_they_pay(monkeypatch):
    monkeypatch.setattr(threads, "thread_count", lambda: 4)
    assert [threads_for(work * threads.WORTH) for work in (0.0, 1.9, 2.0, 3.5, 100.0)] == [1, 1, 2, 3, 4]


def test_an_error_on_a_thread_is_raised_here(monkeypatch):
    def fail(part):
        if part == 2:
            raise KeyError(part)

    with pytest.raises(KeyError):
        run_together(fail, [(0,), (1,), (2,)])


def test_one_thread_is_given_back():
    before = thread_count()
    with one_thread():
        assert thread_count() == 1
    with pytest.raises(KeyError), one_thread():
        raise KeyError
    assert thread_count() == before


def test_other_threads_keep_theirs():
    with one_thread(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(thread_count).result() == threads._allowed()


@pytest.mark.parametrize(
    ("variable", "value", "expected"), [("OMP_NUM_THREADS", "1", 1), ("NUMBA_NUM_THREADS", "1", 1)]
)
def test_environment_variables_limit_them(variable, value, expected):
    code = "from latlin.numerics.threads import thread_count; print(thread_count())"
    other = {name: text for name, text in os.environ.items() if name not in threads.VARIABLES}
    run = subprocess.run([sys.executable, "-c", code], env=other | {variable: value}, capture_output=True, text=True)
    assert run.stdout.strip() == str(expected), run.stderr


# --- BLAS ------------------------------------------------------------------------------------------------------------


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        yield blas_threads()


def test_blas_has_one_thread_for_a_while(two_threads):
    with one_blas_thread():
        assert blas_threads() == {1}
    assert blas_threads() == two_threads


def test_compiled_products_keep_blas_to_one_thread(two_threads):
    with use_one_pool(SparseRows(sparse.csr_array(np.eye(3)))):
        assert blas_threads() == {1}
    with use_one_pool(np.eye(3)):
        assert blas_threads() == two_threads


def test_blas_gets_its_threads_back_after_an_error(two_threads):
    with pytest.raises(KeyError), one_blas_thread():
        raise KeyError
    assert blas_threads() == two_threads


@pytest.mark.parametrize(("rows", "columns", "limited"), [(50, 20, True), (60_000, 20, True), (500, 300, False)])
def test_fits_with_short_products_keep_blas_to_one_thread(rows, columns, limited, two_threads):
    seen = []

    class Watching(GaussianKL):
        def run(self, model, **options):
            seen.append(blas_threads())
            return super().run(model, **options)

    h = np.random.default_rng(0).standard_normal((rows, columns))
    infer(LatentLinearModel([GaussianFactor(dim=columns), SiteFactor(h, potentials.Gaussian(h[:, 0]))]), Watching())
    assert seen == [{1} if limited else two_threads]


def test_group_factors_keep_blas_to_one_thread(two_threads, monkeypatch):
    seen, before = set(), group_fit.bound

    def watched(*arguments):
        seen.update(blas_threads())
        return before(*arguments)

    monkeypatch.setattr(group_fit, "bound", watched)
    X = np.random.default_rng(0).standard_normal((40, 3))
    GroupFactorAnalysis(2, noise="view", max_iter=3, tol=1.0).fit({"a": X[:, :2], "b": X[:, 2:]})
    assert seen == {1}
    assert blas_threads() == two_threads


@pytest.mark.parametrize("estimator", [BayesianLogisticRegression(), BayesianLogisticRegression(multi_class="softmax")])
def test_regressions_with_short_products_keep_blas_to_one_thread(estimator, two_threads, monkeypatch):
    seen = set()
    before = Space.values

    def watched(self, u):
        seen.update(blas_threads())
        return before(self, u)

    monkeypatch.setattr(Space, "values", watched)
    X = np.random.default_rng(1).standard_normal((60, 3))
    estimator.fit(X, np.digitize(X[:, 0], [0.0]))
    assert seen == {1}
    assert blas_threads() == two_threads


def test_an_integral_over_closed_forms_keeps_blas_to_one_thread(two_threads, monkeypatch):
    seen = set()
    before, summary = Spectrum.log_evidence, rules._interpolated

    def watched(self, *scales):
        seen.update({("evidence", count) for count in blas_threads()})
        return before(self, *scales)

    def watched_summary(*known):
        seen.update({("interpolation", count) for count in blas_threads()})
        return summary(*known)

    monkeypatch.setattr(Spectrum, "log_evidence", watched)
    monkeypatch.setattr(rules, "_interpolated", watched_summary)
    X, noise = np.random.default_rng(1).standard_normal((2, 60, 3))
    BayesianLinearRegression().fit(X, X[:, 0] + noise[:, 1])
    assert seen == {("evidence", 1), ("interpolation", 1)}
    assert blas_threads() == two_threads


@pytest.mark.parametrize("approximation", [Inducing(400), Vecchia(5), StateSpace()])
def test_processes_of_many_rows_keep_blas_to_one_thread(approximation, two_threads, monkeypatch):
    seen = set()

    def learn(*args, **options):
        seen.update(blas_threads())
        return learnt(*args, **options)

    learnt = gp_learning._learnt_process
    monkeypatch.setattr(gp_learning, "_learnt_process", learn)
    x = np.linspace(0.0, 1.0, 60)[:, None]
    GaussianProcessRegressor(Matern(nu=1.5), approximation=approximation).fit(x, np.sin(5.0 * x[:, 0]))
    assert seen == {1}
    assert blas_threads() == two_threads


def test_limits_that_overlap_end_with_the_last(two_threads):
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert blas_threads() == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == two_threads


def test_limits_of_two_threads_end_with_the_last(two_threads):
    with ThreadPoolExecutor(1) as pool:
        here, there = one_blas_thread(), one_blas_thread()
        here.__enter__()
        pool.submit(there.__enter__).result()
        here.__exit__(None, None, None)
        assert blas_threads() == {1}
        pool.submit(there.__exit__, None, None, None).result()
    assert blas_threads() == two_threads


def test_a_thread_that_is_not_the_first_limits_too(two_threads):
    def limited():
        with one_blas_thread():
            return blas_threads()

    with one_blas_thread():
        pass
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(limited).result() == {1}
    assert blas_threads() == two_threads


# --- processes and callers -------------------------------------------------------------------------------------------


def evidence(seed=0, engine="gkl"):
    rng = np.random.default_rng(seed)
    h, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    model = LatentLinearModel([GaussianFactor(dim=3), SiteFactor(sparse.csr_array(h), potentials.StudentT(4.0, y))])
    return infer(model, engine).log_evidence


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process_fits_after_its_parent(method, monkeypatch):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    monkeypatch.setattr(threads, "WORTH", 1.0)
    engine = GaussianKL(covariance="diagonal")
    here = [evidence(seed, engine) for seed in range(2)]
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.starmap(evidence, [(seed, engine) for seed in range(2)]) == pytest.approx(here, rel=1e-10)


def test_eight_threads_fit_at_once(monkeypatch):
    monkeypatch.setattr(threads, "thread_count", lambda: 3)
    monkeypatch.setattr(threads, "WORTH", 1.0)
    engine = GaussianKL(covariance="diagonal")
    alone = [evidence(seed, engine) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(evidence, range(8), [engine] * 8)) == pytest.approx(alone, rel=1e-12)

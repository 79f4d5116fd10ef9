"""Weight posteriors: moments, densities, baselines, networks of every kind, states that go on."""

import io

import numpy as np
import pytest
from scipy.stats import multivariate_normal

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from latlin.swag import FactorPosterior, MultiFactorPosterior  # noqa: E402
from latlin.swag.multi import mixture_weights  # noqa: E402

METHODS = ["online-em", "gradient", "swag-diag", "swag"]


def wandering(module, posterior, steps, seed=0):
    """Random weights around a fixed point, as if SGD hovered there; returns the vectors."""
    rng = np.random.default_rng(seed)
    dim = posterior.layout.dim
    F = rng.standard_normal((2, dim))
    seen = []
    for _ in range(steps):
        vector = 1.0 + rng.standard_normal(2) @ F + 0.3 * rng.standard_normal(dim)
        posterior.layout.write(module, vector.astype(np.float32))
        posterior.collect(module)
        seen.append(posterior.vector(module))
    return np.array(seen, dtype=np.float64)


def dense(density):
    return density.loadings.T.astype(np.float64) @ density.loadings + np.diag(density.noise)


@pytest.mark.parametrize("method", METHODS)
def test_mean_density_and_draws(method):
    net = nn.Linear(3, 2)
    posterior = FactorPosterior(net, rank=2, method=method)
    seen = wandering(net, posterior, 40)
    q = posterior.density
    np.testing.assert_allclose(q.mean, seen.mean(axis=0), rtol=1e-4, atol=1e-5)
    exact = multivariate_normal(q.mean, dense(q))
    assert posterior.log_density(seen[0]) == pytest.approx(exact.logpdf(seen[0]), rel=1e-4)
    rng = np.random.default_rng(1)
    draws = np.array([posterior.draw(random_state=rng) for _ in range(20_000)])
    np.testing.assert_allclose(np.cov(draws.T), exact.cov, atol=0.08 * np.abs(exact.cov).max())


def test_factor_analysis_finds_the_covariance_of_the_iterates():
    net = nn.Linear(9, 4)
    for method in ("online-em", "gradient"):
        posterior = FactorPosterior(net, rank=2, method=method)
        seen = wandering(net, posterior, 3000)
        target = np.cov(seen.T)
        assert np.linalg.norm(dense(posterior.density) - target) < 0.1 * np.linalg.norm(target)


def test_the_baselines_are_the_published_formulas():
    net = nn.Linear(3, 2)
    diagonal, swag = FactorPosterior(net, 3, method="swag-diag"), FactorPosterior(net, 3, method="swag")
    seen = wandering(net, diagonal, 7)
    wandering(net, swag, 7)
    np.testing.assert_allclose(np.diag(dense(diagonal.density)), seen.var(axis=0), rtol=1e-4)
    means = np.cumsum(seen, axis=0) / np.arange(1, 8)[:, None]
    deviations = (seen - means)[-3:]
    expected = 0.5 * (np.diag(seen.var(axis=0)) + deviations.T @ deviations / 2.0)
    np.testing.assert_allclose(dense(swag.density), expected, rtol=1e-4, atol=1e-5)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.norm, self.decoder = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)
        self.decoder.weight = self.encoder.weight

    def forward(self, x):
        return self.decoder(self.norm(self.encoder(x)))


def test_batch_norm_needs_training_inputs():
    torch.manual_seed(0)
    net = Tied()
    posterior = FactorPosterior(net, 2)
    wandering(net, posterior, 12)
    x = torch.randn(20, 4)
    for one in (posterior, MultiFactorPosterior([posterior, posterior])):
        with pytest.raises(ValueError, match=r"1 batch-norm layer.*give bn_loader"):
            one.predict(net, [x], 2)
        assert one.predict(net, [x], 2, bn_loader=[x], random_state=0).shape == (20, 4)


def test_tied_weights_subsets_and_batch_norm():
    torch.manual_seed(0)
    net = Tied()
    assert FactorPosterior(net, 2).layout.dim == 16 + 4 + 4 + 4 + 4
    posterior = FactorPosterior(net, 2, parameters=["encoder", "decoder.bias"])
    assert posterior.layout.dim == 16 + 4 + 4
    norm = net.norm.weight.detach().clone()
    wandering(net, posterior, 12)
    posterior.sample(net, random_state=0)
    assert torch.equal(net.decoder.weight, net.encoder.weight)
    assert torch.equal(net.norm.weight, norm)
    data = torch.randn(64, 4)
    posterior.update_bn([data[:32], data[32:]], net)
    with torch.no_grad():
        hidden = net.encoder(data)
    torch.testing.assert_close(net.norm.running_mean, hidden.mean(dim=0), rtol=1e-4, atol=1e-4)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = posterior.predict(net, [(data[:5], 0)], 3, bn_loader=[data], random_state=0)
    assert found.shape == (5, 4)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(5))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert net.training


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cut", [2, 12])
def test_a_saved_state_goes_on_bit_for_bit(method, cut):
    net = nn.Linear(5, 2)
    whole, part = (FactorPosterior(net, 2, method=method) for _ in range(2))
    wandering(net, whole, cut)
    wandering(net, part, cut)
    file = io.BytesIO()
    torch.save(part.state_dict(), file)
    file.seek(0)
    again = FactorPosterior(net, 2, method=method)
    again.load_state_dict(torch.load(file, weights_only=True))
    wandering(net, whole, 10, seed=5)
    wandering(net, again, 10, seed=5)
    for one, other in zip(whole.density, again.density, strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.count == cut + 10


def test_prediction_averages_the_draws():
    net = nn.Linear(3, 2, bias=False)
    posterior = FactorPosterior(net, 2)
    wandering(net, posterior, 30)
    x = torch.randn(4, 3)
    found = posterior.predict(net, [x], 4000, activation="identity", random_state=0)
    expected = x @ torch.from_numpy(np.array(posterior.density.mean)).reshape(2, 3).T
    torch.testing.assert_close(found, expected, atol=0.25, rtol=0.0)
    posterior.write_mean(net)
    torch.testing.assert_close(net(x), expected)


def test_a_mixture_of_runs():
    net = nn.Linear(3, 2)
    runs = [FactorPosterior(net, 2, method=m) for m in ("online-em", "swag")]
    for seed, run in enumerate(runs):
        wandering(net, run, 20, seed=seed)
    both = MultiFactorPosterior(runs, weights=[1.0, 3.0])
    vector = runs[0].draw(random_state=0)
    logs = [run.log_density(vector) for run in runs]
    assert both.log_density(vector) == pytest.approx(np.logaddexp(logs[0] + np.log(0.25), logs[1] + np.log(0.75)))
    x = torch.randn(50, 3)
    assert both.predict(net, [x], 2, random_state=0).shape == (50, 2)
    labels = runs[1].predict(net, [x], 20, random_state=0).argmax(dim=1)
    weights = both.fit_weights(net, [x], labels, 20, random_state=1)
    assert weights.sum() == pytest.approx(1.0)
    again = MultiFactorPosterior([FactorPosterior(net, 2, method=m) for m in ("online-em", "swag")])
    again.load_state_dict(both.state_dict())
    assert again.log_density(vector) == pytest.approx(both.log_density(vector), rel=1e-14)
    both.sample(net, random_state=0)
    first = net.weight.detach().clone()
    again.sample(net, random_state=0)
    assert torch.equal(first, net.weight)


def test_learnt_weights_maximise_the_validation_likelihood():
    p = np.random.default_rng(0).uniform(0.05, 1.0, (200, 2))
    w = mixture_weights(p, np.full(2, 0.5), 5000)
    grid = np.linspace(0.001, 0.999, 999)
    best = grid[np.argmax([np.log(p @ [g, 1 - g]).sum() for g in grid])]
    assert w[0] == pytest.approx(best, abs=2e-3)


def test_weights_that_never_move_are_no_trouble():
    net = nn.Linear(3, 2)
    for method in METHODS:
        posterior = FactorPosterior(net, 2, method=method)
        for i in range(12):
            with torch.no_grad():
                net.weight[0, 0] = float(np.sin(i))
            posterior.collect(net)
        assert np.isfinite(posterior.log_density(posterior.vector(net)))


def test_bad_input_is_named():
    net = nn.Linear(3, 2)
    posterior = FactorPosterior(net, 2)
    with pytest.raises(ValueError, match="'weight' of the module has shape"):
        posterior.collect(nn.Linear(4, 2))
    with pytest.raises(ValueError, match="no parameter 'weight'"):
        posterior.collect(nn.Sequential(nn.Linear(3, 2)))
    with pytest.raises(ValueError, match="method must be one of"):
        FactorPosterior(net, 2, method="vi")
    with pytest.raises(ValueError, match="parameters must name"):
        FactorPosterior(net, 2, parameters=["head"])
    with pytest.raises(ValueError, match="number of factors"):
        FactorPosterior(net, 8)
    with pytest.raises(ValueError, match="at least 2"):
        posterior.log_density(np.zeros(8))
    with pytest.raises(ValueError, match="the state belongs to"):
        posterior.load_state_dict(FactorPosterior(net, 3).state_dict())
    with torch.no_grad():
        net.weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match="diverged"):
        posterior.collect(net)
    with pytest.raises(ValueError, match="at least one"):
        MultiFactorPosterior([])
    with pytest.raises(ValueError, match="weights must be"):
        MultiFactorPosterior([posterior], weights=[-1.0])

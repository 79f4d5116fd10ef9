"""Finite differences and wavelets: orthonormal, blind to constants and lines, in agreement with PyWavelets."""

import numpy as np
import pytest

from latlin.design import finite_differences, wavelet_transform


def test_differences_of_an_image():
    image = np.random.default_rng(0).standard_normal((3, 5))
    found = finite_differences(image.shape) @ image.ravel()
    wanted = np.concatenate([np.diff(image, axis=0).ravel(), np.diff(image, axis=1).ravel()])
    np.testing.assert_allclose(found, wanted, atol=1e-15)


@pytest.mark.parametrize("shape", [4, 32, (8, 8), (16, 32), (64, 64), 12])
def test_wavelets_are_orthonormal(shape):
    W = wavelet_transform(shape)
    size = int(np.prod(shape))
    assert W.shape == (size, size)
    assert abs((W @ W.T).toarray() - np.eye(size)).max() < 1e-13


def test_details_ignore_constants_and_lines():
    W = wavelet_transform(64, levels=2)
    assert abs(W[16:] @ np.ones(64)).max() < 1e-14
    # two vanishing moments: only rows that wrap around see a line
    fine = W[32:] @ np.arange(64.0)
    assert abs(fine[:-1]).max() < 1e-12
    assert abs(fine[-1]) > 1.0


def test_energy_of_smooth_images_gathers_in_few_responses():
    x = np.linspace(0.0, 1.0, 32)
    image = np.sin(2.0 * np.pi * x)[:, None] * np.cos(2.0 * np.pi * x)
    responses = np.sort(np.abs(wavelet_transform((32, 32)) @ image.ravel()))[::-1]
    assert np.sum(responses[:100] ** 2) > 0.99 * np.sum(image**2)


def test_agrees_with_pywavelets():
    pywt = pytest.importorskip("pywt")
    signal = np.random.default_rng(0).standard_normal(64)
    ours = wavelet_transform(64, levels=1) @ signal
    # PyWavelets begins one sample earlier
    coarse, detail = pywt.dwt(np.roll(signal, -1), "db2", mode="periodization")
    np.testing.assert_allclose(ours[:32], coarse, atol=1e-14)
    np.testing.assert_allclose(ours[32:], detail, atol=1e-14)


@pytest.mark.parametrize("call", [lambda: finite_differences(1), lambda: finite_differences(0)])
def test_bad_shapes_are_refused(call):
    with pytest.raises(ValueError, match="shape"):
        call()


def test_too_many_levels_are_refused():
    with pytest.raises(ValueError, match="levels"):
        wavelet_transform(12, levels=3)

"""Cut Gaussians against 40-digit arithmetic."""

from __future__ import annotations

import mpmath as mp
import numpy as np

from latlin.potentials.kernels.truncated import half_normal, join_halves

A = np.array([-1e8, -1e4, -50.0, -4.001, -3.999, -1.0, 0.0, 2.0, 9.0, 60.0])


def test_moments_keep_their_relative_accuracy_in_the_tail():
    mean, variance = half_normal(A)
    for i, a in enumerate(A.tolist()):
        with mp.workdps(80):
            u = mp.mpf(a)
            # N(a)/Φ(a); beyond the reach of mpmath's ncdf the asymptotic series of the Mills ratio
            ratio = mp.npdf(u) / mp.ncdf(u) if u > -1e3 else -u / mp.hyp2f0(1, 0.5, -2 / u**2)
            want = u + ratio, 1 - ratio * (u + ratio)
        np.testing.assert_allclose([mean[i], variance[i]], [float(part) for part in want], rtol=1e-12)


def test_two_equal_halves_make_the_gaussian_again():
    log_mass = np.log(0.5) * np.ones(1)
    log_z, mean, variance = join_halves(log_mass, np.zeros(1), log_mass, np.zeros(1))
    np.testing.assert_allclose([log_z[0], mean[0], variance[0]], [0.0, 0.0, 1.0], atol=1e-15)

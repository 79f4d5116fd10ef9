"""Simulation-based calibration of the default in short; `benchmarks/calibration_additive.py` has 400 runs."""

import numpy as np
import pytest
from scipy.stats import kstest

from calibration_additive import CASES, levels_of


@pytest.mark.parametrize("name", CASES)
def test_levels_of_the_truth_are_uniform(name):
    found = list(levels_of(name, 30, "auto"))
    for quantity in found[0]:
        levels = np.array([one[quantity] for one in found])
        # right ones fail once in two hundred seeds; these are fixed
        assert kstest(levels, "uniform").pvalue > 0.005, quantity
        # intervals of half the width would leave a third of the truths beyond 5 % and 95 %
        assert np.mean(np.abs(levels - 0.5) > 0.45) < 0.3

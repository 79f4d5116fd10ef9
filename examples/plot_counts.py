"""
Counts that vary more than Poisson allows
=========================================

Visits to a doctor: the intervals of a Poisson regression are too narrow, and its checks show it; those of the negative
binomial family are not. If the family is right, the residuals in the figure are spread evenly over (0, 1). More in
:doc:`/guide/families`.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from latlin import MisfitWarning, plot
from latlin.datasets import load_dataset
from latlin.linear import BayesianCountRegression

visits = load_dataset("doctor-visits")
rows = np.random.default_rng(0).permutation(len(visits.y))
learnt, held = rows[:800], rows[800:2000]

fig, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True, layout="constrained")
for axis, family in zip(axes, ["poisson", "negative-binomial"], strict=True):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MisfitWarning)
        model = BayesianCountRegression(family).fit(visits.X[learnt], visits.y[learnt])
    density = model.log_predictive_density(visits.X[held], visits.y[held]).mean()
    print(family, model.checks_.verdict, round(float(density), 3))
    plot.pit(model.quantile_residuals(visits.X[held], visits.y[held], random_state=0), axis)
    axis.set_title(f"{family}: held-out log p {density:.2f}")
plt.show()

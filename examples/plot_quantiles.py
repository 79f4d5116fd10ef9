"""
Quantiles that spread
=====================

The spread grows with x, so that one line is not enough. Quantile regression draws a line below which a given share of
the rows lies, with an interval for the line. More in :doc:`/guide/families`.
"""

import matplotlib.pyplot as plt
import numpy as np

from latlin.linear import BayesianQuantileRegression

rng = np.random.default_rng(0)
x = rng.uniform(0, 10, 250)
y = 2.0 + 0.5 * x + (0.3 + 0.25 * x) * rng.standard_normal(250)

fig, axis = plt.subplots(figsize=(7, 4), layout="constrained")
axis.plot(x, y, "k.", ms=3)
grid = np.linspace(0, 10, 30)[:, None]
for quantile in (0.1, 0.5, 0.9):
    model = BayesianQuantileRegression(quantile).fit(x[:, None], y)
    mean, std = model.predict_latent(grid, return_std=True)
    (line,) = axis.plot(grid[:, 0], mean, label=f"{100 * quantile:.0f} % of the rows below")
    axis.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, color=line.get_color(), alpha=0.25, lw=0)
axis.set(xlabel="x", ylabel="y")
axis.legend(frameon=False)
plt.show()

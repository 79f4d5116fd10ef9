"""Robust regression with a Gaussian process
=========================================

Five of forty targets are far off. With Gaussian noise the function follows them, or the noise becomes very wide; with
Student t noise neither happens. The numbers are log evidences: the higher one explains the data better. More in
:doc:`/guide/gaussian_processes`.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from latlin.gp import GaussianProcessRegressor

rng = np.random.default_rng(3)
x = np.sort(rng.uniform(0.0, 10.0, 40))
y = np.sin(x) + 0.3 * x + 0.1 * rng.standard_normal(40)
y[rng.choice(40, 5, replace=False)] += rng.uniform(2.0, 4.0, 5)
grid = np.linspace(0.0, 10.0, 300)

fig, panels = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True, layout="constrained")
for axes, likelihood in zip(panels, ("gaussian", "student-t"), strict=True):
    gp = GaussianProcessRegressor(ConstantKernel(1.0) * RBF(1.0), likelihood=likelihood).fit(x[:, None], y)
    low, middle, high = gp.predict_quantiles(grid[:, None], (0.05, 0.5, 0.95)).T
    axes.fill_between(grid, low, high, color="0.85", label="90 % of new targets")
    axes.plot(grid, middle, "C0", label="median")
    axes.plot(grid, np.sin(grid) + 0.3 * grid, "k--", lw=1, label="truth")
    axes.plot(x, y, "k.", ms=4)
    axes.set(title=f"{likelihood}: {gp.log_evidence_:.1f} ({gp.evidence_kind_})", xlabel="x")
panels[0].legend()
plt.show()

"""
Regression when some readings are wrong
=======================================

A line with Gaussian noise follows outliers, one with Student-t noise leaves them out. The higher log evidence shows
which noise describes the data better. More in :doc:`/guide/linear`.
"""

import matplotlib.pyplot as plt
import numpy as np

from latlin.linear import BayesianLinearRegression, RobustRegression

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0.0, 10.0, 50))[:, None]
y = 1.0 + 0.8 * x[:, 0] + 0.4 * rng.standard_normal(50)
y[42:] -= rng.uniform(4.0, 8.0, 8)

models = {"Gaussian": BayesianLinearRegression(), "Student t": RobustRegression("student-t", df="auto", engine="gkl")}
grid = np.linspace(0.0, 10.0, 60)[:, None]
fig, axes = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True, layout="constrained")
for axis, (name, model) in zip(axes, models.items(), strict=True):
    model.fit(x, y)
    low, high = model.predict_interval(grid, coverage=0.9).T
    axis.fill_between(grid[:, 0], low, high, alpha=0.25, label="90 % of new observations")
    axis.plot(grid[:, 0], model.predict(grid), label=f"slope {model.coef_[0]:.2f} ± {model.coef_std_[0]:.2f}")
    axis.plot(x[:, 0], y, "k.", markersize=4)
    axis.set_title(f"{name}: log evidence {model.log_evidence_:.1f} ({model.evidence_kind_})")
    axis.legend(loc="upper left")
plt.show()

"""
Missing cells
=============

A fifth of the cells of a table are missing. Dropping rows with a missing cell throws half of the rows away; filling in
the mean of the column makes effects look weaker; a model of the cells predicts them from the other columns of the row.
More in :doc:`/guide/command_line`.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas

from latlin import plot
from latlin.linear import BayesianLinearRegression

rng = np.random.default_rng(2)
size = rng.standard_normal(300)
table = pandas.DataFrame({name: size + 0.4 * rng.standard_normal(300) for name in ["length", "width", "height"]})
y = table @ [1.0, -1.0, 2.0] + 0.5 * rng.standard_normal(300)
gappy = table.mask(rng.random(table.shape) < 0.2)

fig, axis = plt.subplots(figsize=(7, 3.5), layout="constrained")
for k, missing in enumerate(["drop", "mean", "indicator", "model"]):
    model = BayesianLinearRegression().fit(gappy, y, missing=missing)
    rows = [row for row in model.summary().rows if row["name"] in table.columns]
    plot.forest(rows, axis, sort=False, color=f"C{k}", label=missing, shift=0.15 * (k - 1.5))
axis.scatter([1.0, -1.0, 2.0], [0, 1, 2], marker="|", s=600, color="black", label="truth")
axis.legend(frameon=False)
plt.show()

"""
The figures, on one data set
============================

Every function of `latlin.plot` takes axes and returns them. The data are how far diabetes progressed in a year. The
figures show which coefficients matter, whether intervals hold as many new patients as they promise, which prior scale
has the highest evidence, and how far engines differ if only "worse than the median" is known. More in
:doc:`/guide/command_line`.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, compare, plot, potentials
from latlin.datasets import load_dataset
from latlin.linear import BayesianLinearRegression, BayesianLogisticRegression

data = load_dataset("diabetes")
scaled = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
X, new_X, y, new_y = train_test_split(scaled, data.y, random_state=0)

# %%
# A regression: coefficients of standardised features, and intervals for rows it has not seen.

names = {f"x{j}": name for j, name in enumerate(data.feature_names)}
regression = BayesianLinearRegression().fit(X, y)
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
rows = [{**row, "name": names.get(row["name"], row["name"])} for row in regression.summary().rows]
plot.forest(rows, left)
plot.intervals(new_y, regression.predict_interval(new_X), right, coverage=0.9)

# %%
# The evidence as a function of the prior scale; `prior_scale="auto"` has found its top.

scales = np.geomspace(2.0, 100.0, 13)
values = [BayesianLinearRegression(prior_scale=scale).fit(X, y).log_evidence_ for scale in scales]
plot.evidence(scales, values, kind=regression.evidence_kind_, chosen=regression.prior_scale_).legend(frameon=False)

# %%
# A classification: held-out reliability, and the posterior of three coefficients.

worse, new_worse = y > np.median(y), new_y > np.median(y)
classifier = BayesianLogisticRegression().fit(X, worse)
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
plot.reliability(new_worse, classifier.predict_proba(new_X)[:, 1], left, bins=6)
plot.marginals(classifier.posterior_, [2, 3, 8], right, names=[*data.feature_names, "intercept"])

# %%
# The same model by several engines: the ladder of bounds, and how Gaussian KL climbed.

few = X[:60]
model = LatentLinearModel([GaussianFactor(cov=4.0, dim=10), SiteFactor(few, potentials.Logit(worse[:60]))])
table = compare(model, ["laplace", "mean-field", "lvb", "ep", "gkl"])
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
plot.ladder(table, left)
plot.trace(table["gkl"], right)
plt.show()

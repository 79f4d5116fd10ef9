"""
Times that are not over
=======================

Machines that still run stay in the table: their time is censored, which means that they break later. (Simulated; the
true survival curves are dashed.) More in :doc:`/guide/families`.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas

from latlin.linear import BayesianSurvivalRegression

rng = np.random.default_rng(0)
load = rng.uniform(0, 2, 200)
life = 10.0 * np.exp(-0.8 * load) * rng.weibull(1.5, 200)
watched = rng.uniform(2, 12, 200)
machines = pandas.DataFrame({"load": load, "hours": np.minimum(life, watched), "broke": life <= watched})

model = BayesianSurvivalRegression("weibull").fit(machines, "hours", event="broke")
print(model.summary())

hours = np.linspace(0, 20, 80)
fig, axis = plt.subplots(figsize=(7, 4), layout="constrained")
for k, at in enumerate([0.0, 1.0, 2.0]):
    alive = model.predict_survival(pandas.DataFrame({"load": [at]}), hours)[0]
    axis.plot(hours, alive, color=f"C{k}", label=f"load {at:g}")
    axis.plot(hours, np.exp(-((hours / (10.0 * np.exp(-0.8 * at))) ** 1.5)), "--", color=f"C{k}", lw=1)
axis.set(xlabel="hours", ylabel="share that still runs")
axis.legend(frameon=False)
plt.show()

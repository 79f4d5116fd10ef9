"""
A slope for every subject
=========================

Reaction times of 18 subjects over ten days without much sleep: everybody slows down, some more than others. Intercepts
and slopes vary between subjects and may be correlated. (The numbers are drawn in the likeness of Belenky and others
2003.)
"""

import matplotlib.pyplot as plt
import numpy as np

from latlin.additive import AdditiveModel

rng = np.random.default_rng(1)
days, subject = np.tile(np.arange(10.0), 18), np.repeat(np.arange(18), 10)
level, slope = 251.0 + 25.0 * rng.standard_normal(18), 10.5 + 6.0 * rng.standard_normal(18)
frame = {"days": days, "subject": subject}
frame["reaction"] = level[subject] + slope[subject] * days + 25.0 * rng.standard_normal(180)

model = AdditiveModel("reaction ~ days + (1 + days | subject)").fit(frame)
print(model.summary())

fig, axes = plt.subplots(3, 6, figsize=(11, 5.5), sharex=True, sharey=True, layout="constrained")
grid = np.linspace(0.0, 9.0, 30)
for k, axis in enumerate(axes.flat):
    new = {"days": grid, "subject": np.full(30, k)}
    low, high = model.predict_interval(new, 0.9).T
    axis.fill_between(grid, low, high, alpha=0.25, lw=0)
    axis.plot(grid, model.predict(new))
    axis.plot(days[subject == k], frame["reaction"][subject == k], "k.", markersize=4)
fig.supxlabel("days")
fig.supylabel("reaction time, ms")
plt.show()

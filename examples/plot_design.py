"""Measuring where the posterior is uncertain
==========================================

A sparse signal of 128 values is measured by eight linear combinations at a time: either those of which the posterior is
least certain, or random ones. Each dot is the distance of the posterior mean from the signal, averaged over five
signals. More in :doc:`/guide/design`.
"""

import matplotlib.pyplot as plt
import numpy as np

from latlin import potentials
from latlin.design import SequentialDesign

NOISE, DIM, FIRST, STEP, LAST = 0.005, 128, 24, 8, 72


def unit_rows(rng, count):
    rows = rng.standard_normal((count, DIM))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def errors(seed, designed):
    rng = np.random.default_rng(seed)
    signal = np.sqrt(0.0267) * rng.standard_t(3, size=DIM)
    prior = potentials.StudentT(3.0, scale=np.sqrt(0.0267))
    design = SequentialDesign(None, prior, NOISE, engine="lvb", dim=DIM)
    rows, found = unit_rows(rng, FIRST), []
    for _ in range(FIRST, LAST + 1, STEP):
        design.observe(rows, rows @ signal + np.sqrt(NOISE) * rng.standard_normal(len(rows)))
        found.append(np.linalg.norm(design.reconstruction - signal))
        rows = design.suggest(STEP) if designed else unit_rows(rng, STEP)
    return found


counts = np.arange(FIRST, LAST + 1, STEP)
fig, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for designed, label in ((True, "designed rows"), (False, "random rows")):
    table = np.array([errors(seed, designed) for seed in range(5)])
    axes.errorbar(counts, table.mean(axis=0), table.std(axis=0) / np.sqrt(len(table)), fmt="o-", capsize=3, label=label)
axes.set(xlabel="measurements", ylabel="distance from the signal", title="Sparse signal, Student t prior")
axes.legend()
plt.show()

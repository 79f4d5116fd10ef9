"""One model, several engines
==========================

Six observations of a logistic regression with one weight: the posterior is skewed, and each engine approximates it by a
different Gaussian. The grey area is the exact posterior, by integration on a grid; the numbers in the legend are log
evidences. More in :doc:`/guide/engines`.
"""

import matplotlib.pyplot as plt
import numpy as np

from latlin import GaussianFactor, LatentLinearModel, SiteFactor, infer, potentials

x = np.array([[1.0], [2.0], [0.5], [1.5], [3.0], [0.2]])
y = np.array([1, 1, 1, 1, 1, 0])
model = LatentLinearModel([GaussianFactor(cov=25.0, dim=1), SiteFactor(x, potentials.Logit(y))])

w = np.linspace(-3.0, 14.0, 2001)
log_joint = -0.5 * w**2 / 25.0 - 0.5 * np.log(2 * np.pi * 25.0)
log_joint = log_joint + potentials.Logit(y).log_density(w[:, None] * x[:, 0]).sum(axis=1)
mass = np.exp(log_joint).sum() * (w[1] - w[0])

fig, axes = plt.subplots(figsize=(7, 4))
axes.fill_between(w, np.exp(log_joint) / mass, color="0.85", label=f"truth: {np.log(mass):.3f}")
for engine in ("laplace", "gkl"):
    post = infer(model, engine)
    label = f"{engine}: {post.log_evidence:.3f} ({post.evidence_kind})"
    axes.plot(w, np.exp(post.logpdf(w[:, None])), label=label)
axes.set(xlabel="weight", ylabel="posterior density", title="Skew is where engines differ")
axes.legend()
plt.show()

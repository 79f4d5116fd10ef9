"""Second-order steps on a full covariance, in (m, C): for the fits where accelerated natural gradients crawl.

Wide priors on separable data, and some posteriors of sites that are not log-concave, bend the bound so much that site
parameters are poor coordinates. In (m, C) it is concave for concave sites (Challis (2013), §4.2.2), and Newton's
method with conjugate gradients needs few steps, each some tens of times dearer.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from latlin.densities.gaussian import Gaussian
from latlin.densities.structured.covariance import StructuredCovariance
from latlin.densities.structured.triangular import banded_triangle
from latlin.inference.forms.structured import structured_form
from latlin.inference.gaussian_kl.structured import Objective, climb
from latlin.inference.model import LatentLinearModel
from latlin.numerics.ascent import Rules
from latlin.numerics.linalg import cholesky


def second_order(model: LatentLinearModel, start: Gaussian, rules: Rules) -> Gaussian:
    """The Gaussian that Newton's method (L-BFGS where sites are not concave) reaches from `start`."""
    form = structured_form(model)
    structure = banded_triangle(form.dim, form.dim - 1)
    scale = form.whitening.scale
    # S̃ = L⁻¹SL⁻ᵀ = CᵀC
    factor = cholesky(start.covariance() / np.outer(scale, scale), name="the covariance", max_jitter=1e-8).factor
    point = np.concatenate([form.coordinates(start.mean), structure.flat(sparse.csc_array(factor))])
    reached = climb(Objective(form, structure), point, rules, "Gaussian KL", warn=False).state.point
    theta = reached[form.dim :]
    return Gaussian(form.weights(reached[: form.dim]), StructuredCovariance(form.whitening, structure, theta))

"""Site parameters to start from, taken over from another posterior."""

from __future__ import annotations

import numpy as np

from latlin.inference.approximation import Density
from latlin.inference.forms.site_form import SiteForm
from latlin.inference.forms.sites import SiteParameters
from latlin.inference.forms.sparse import reference_point
from latlin.inference.model import LatentLinearModel
from latlin.inference.posterior import Posterior


def matched_parameters(form: SiteForm, model: LatentLinearModel, start: Density) -> SiteParameters:
    """The site parameters that match the sites' expected slopes and curvatures under another density."""
    if len(start.mean) != model.dim:
        raise ValueError(f"start has dimension {len(start.mean)}, but the model has {model.dim}")
    x, variance = form.marginals(start)
    expected = form.sites.expected_log(x, variance)
    # γ = −2 ∂⟨ψ⟩/∂s², ν = ∂⟨ψ⟩/∂m + γx
    gamma = -2.0 * expected.d_var
    return SiteParameters(gamma, expected.d_mean + gamma * np.asarray(x))


def inherited_parameters(form: SiteForm, model: LatentLinearModel, start: Posterior) -> SiteParameters:
    """Another posterior's own site parameters where it has one for each site, else those that match it."""
    if start.sites is None or len(start.sites.gamma) != len(form.sites) or len(start.mean) != model.dim:
        return matched_parameters(form, model, start)
    gamma, nu = start.sites
    # they are functions of hᵀ(w − prior mean), and the prior may have moved
    shift = form.rows @ (form.mean - reference_point(start.model))
    return SiteParameters(gamma, nu - gamma * shift)

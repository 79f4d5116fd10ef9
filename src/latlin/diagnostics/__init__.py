"""What draws, log p and log q say about an approximation: weights, evidence, verdicts, calibration, scores.

`Posterior.diagnose` is the usual way in; here are the parts that serve any draws and any forecasts.
"""

from latlin.diagnostics.calibration import (
    Calibration,
    ReliabilityCurve,
    brier_score,
    calibrate,
    crps_draws,
    crps_normal,
    interval_score,
    log_score,
    reliability_curve,
)
from latlin.diagnostics.weights import smooth_log_weights, summarise_weights

__all__ = [
    "Calibration",
    "ReliabilityCurve",
    "brier_score",
    "calibrate",
    "crps_draws",
    "crps_normal",
    "interval_score",
    "log_score",
    "reliability_curve",
    "smooth_log_weights",
    "summarise_weights",
]

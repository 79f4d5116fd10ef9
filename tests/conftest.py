"""One profile for hypothesis: the same examples every time, no deadline on a busy machine."""

from hypothesis import HealthCheck, settings

settings.register_profile("latlin", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("latlin")

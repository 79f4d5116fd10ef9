"""Profiles for hypothesis: the same examples every time, no deadline on a busy machine; and one with many more."""

from hypothesis import HealthCheck, settings

settings.register_profile("latlin", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("latlin"), max_examples=2400)
settings.load_profile("latlin")

"""Profiles for hypothesis: the same examples every time, no deadline on a busy machine; and one with many more.

A failure is told as it was found; only the thorough profile spends minutes on a smaller example.
"""

from hypothesis import HealthCheck, Phase, settings

FOUND = [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)]
settings.register_profile(
    "latlin",
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=FOUND,
)
settings.register_profile("thorough", settings.get_profile("latlin"), max_examples=2400, phases=list(Phase))
settings.load_profile("latlin")

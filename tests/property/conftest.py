"""The profiles: a few dozen examples that are always the same, or many that never are."""

import os

from hypothesis import HealthCheck, settings

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("ci", max_examples=80, derandomize=True, database=None, **_COMMON)
settings.register_profile("fuzz", max_examples=2400, **_COMMON)
settings.load_profile(os.environ.get("GRAPHRELU_HYPOTHESIS", "ci"))

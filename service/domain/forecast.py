"""How many launches a bisect still needs: a rough count, told with its spread.

A launch that splits two levels d noises apart tells as many bits as a Gaussian channel with two inputs carries
(capacity by numerical integration: 0.16 bits at d = 1, 0.76 at 3, 0.98 at 5). A search needs about 1.5 times the
launches that the bits left would take at that rate. The spread, 0.6 to 1.7 times, and that
factor come from simulations of this engine (tests/service/domain/test_bisect_simulations.py checks them).
"""

import math

import numpy as np

from service.domain.evidence import Forecast

_DISTANCES = (0.0, 1.0, 1.5, 2.0, 3.0, 5.0)
_BITS = (0.02, 0.161, 0.319, 0.486, 0.760, 0.975)
_USUAL_DISTANCE = 5.0
_OVERHEAD = 1.5


def search(bits_left: float, distance: float | None) -> float:
    """Return how many launches a search needs for ``bits_left``; ``distance`` is the change in noises, if known."""
    rate = float(np.interp(distance or _USUAL_DISTANCE, _DISTANCES, _BITS))
    return _OVERHEAD * bits_left / rate


def forecast(certain: float, search: float, proof: float) -> Forecast:
    """Return the launches still to come: ``certain`` ones, a search, and a proof."""
    low = certain + math.floor(0.6 * search) + proof
    return Forecast(float(low), float(certain + search + proof), float(certain + math.ceil(1.7 * search) + proof))


def while_ends(coming: float, real: float, search: float, proof: float) -> Forecast:
    """Return the launches still to come while the ends are measured; ``real`` is the chance that there is a search.

    The low count is that of nothing to find, the high one that of a search; the mean weighs the two.
    """
    found = forecast(coming, search, proof)
    mean = coming + real * (found.launches - coming)
    return Forecast(float(coming), mean, found.launches_high)

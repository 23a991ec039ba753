"""How long one engine step takes: a model derived from the figures published in vllm-project/vllm issue 45943.

  step_ms = (base_ms + layers · t_A(T) · r(kernel, T) / 1000 + prefill term) · step_factor
  t_A(T)  = T · bytes_per_token / bandwidth   (microseconds a layer: reading the KV cache of T tokens)
  prefill term = prefill tokens of the step / prefill_tokens_per_s

T is the context of the decoding requests, in tokens. r is 1 for the non-persistent MLA decode kernel. For the
persistent one it is 0.92 up to 150 000 tokens, rises linearly to 1.00 at 200 000, stays there to 400 000, rises
linearly to 1.48 at 800 000 and stays there: faster at little context, slower from a crossover on, as measured upstream.
"""

import math
from bisect import bisect_right

import numpy as np

from images.simulated.profile import Profile

PERSISTENT_FACTOR = ((150_000.0, 0.92), (200_000.0, 1.0), (400_000.0, 1.0), (800_000.0, 1.48))
_NOISE_BLOCK = 1024


def attention_factor(kernel: str, context_tokens: int) -> float:
    """r(kernel, T): attention time of the kernel over that of the non-persistent one at T context tokens."""
    if kernel == "non_persistent":
        return 1.0
    points = PERSISTENT_FACTOR
    index = bisect_right(points, (context_tokens, math.inf))
    if index == 0:
        return points[0][1]
    if index == len(points):
        return points[-1][1]
    (left, low), (right, high) = points[index - 1], points[index]
    return low + (high - low) * (context_tokens - left) / (right - left)


def step_ms(profile: Profile, context_tokens: int, prefill_tokens: int) -> float:
    """The profile's duration of one step in ms, without launch effect, noise or time compression."""
    layer_us = context_tokens * profile.bytes_per_token / (profile.bandwidth_tb_s * 1e6)
    attention_ms = profile.layers * layer_us * attention_factor(profile.kernel, context_tokens) / 1000
    prefill_ms = 1000 * prefill_tokens / profile.prefill_tokens_per_s
    return (profile.base_ms + attention_ms + prefill_ms) * profile.step_factor


class Noise:
    """The launch effect exp(N(0, launch_sd)), drawn once, and a factor exp(N(0, step_sd)) for every step.

    The same seed gives the same effect and the same sequence of factors; two generators, so that the one does not
    depend on how often the other was asked.
    """

    def __init__(self, launch_sd: float, step_sd: float, seed: int) -> None:
        self.launch_effect = math.exp(launch_sd * float(np.random.default_rng([seed, 0]).standard_normal()))
        self._step_sd = step_sd
        self._generator = np.random.default_rng([seed, 1])
        self._factors: list[float] = []

    def next_factor(self) -> float:
        """The factor of the next step."""
        if not self._factors:
            draws = self._generator.standard_normal(_NOISE_BLOCK)
            # Reversed, since pop() takes from the end and the order of the draws is the promise.
            self._factors = np.exp(self._step_sd * draws)[::-1].tolist()
        return self._factors.pop()

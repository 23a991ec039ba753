"""A server that a client can't tell from vLLM on what is measured here, and whose true speed is known.

`python -m images.simulated serve` runs it; `python -m images.simulated truth` computes the true ratio of two builds
from the step logs it wrote. Rooms: profile (what a build is) · steptime (how long a step takes) · prefix_cache and
scheduler (what a step carries) · engine (when it happens) · worker, requests, answers and tokens (prompts, in a
process of their own) · connection, api and completion (what goes over the wire) · metrics · steplog and truth.
"""

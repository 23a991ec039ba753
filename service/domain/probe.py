"""Which launch tells most about the primary step, for its cost.

**Expected information** of a launch at a node is H(place) - E[H(place | its value)] in bits, place being the primary
step or none (Lindley, Annals of Mathematical Statistics 27, 1956). The expectation runs over the predictive mixture:
each class of hypotheses that predicts one t distribution is represented by nine equally likely quantiles of it. Under a
hypothesis of two changes, which of them is the primary one is taken to be known as well as it is now.

**Score** = (1 - p_fail) * bits, every launch costing the same. Broken builds come in runs, so p_fail of a node falls
with its distance to broken ones: (0.5 + sum over broken f of 0.6^|v - f|) / (1 + sum over tried t, broken ones too, of
0.6^|v - t|), and 0 while nothing is broken.

**Pending launches** and those of the same batch enter as fantasies (Ginsbourger, Le Riche and Carraro, 2010): each is
given the few values that are likely, and a probe's score is its expectation over them. A batch is greedy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from service.domain.posterior import Floats, Launch, Posterior, fit

_QUANTILES = (np.arange(9) + 0.5) / 9
_NEGLIGIBLE = 1e-3
"""Classes of hypotheses below this probability are left out of expectations."""

_CLASSES = 24
"""At most so many classes, the likeliest, take part in an expectation."""

_CANDIDATES = 16
_BRANCHES = 4
"""At most so many likely outcomes of all pending launches together are followed up."""

_KERNEL = 0.6


@dataclass(frozen=True)
class Probe:
    """A node to launch next and the bits expected from it (after what is pending), failure not counted in."""

    node: int
    bits: float


@dataclass(frozen=True)
class Search:
    """What a choice needs: the launches so far, the steps' prior weights, and where things stand.

    ``positions`` are the nodes' places in the whole lineup, ``broken`` the places of what could not be launched.
    """

    launches: tuple[Launch, ...]
    weights: tuple[float, ...]
    positions: tuple[int, ...]
    broken: frozenset[int]


def choose(search: Search, pending: Sequence[int], most: int, least_bits: float) -> list[Probe]:
    """Return at most ``most`` probes, the best first; each is worth ``least_bits`` after all that goes before it.

    ``pending`` are nodes whose launches have not ended. A batch also ends before a probe that tells less than half of
    what the first one tells.
    """
    branches = [(1.0, search.launches)]
    for node in pending:
        branches = _imagine(branches, search.weights, node)
    found: list[Probe] = []
    while len(found) < most:
        best = _best(search, branches)
        if best.bits < least_bits or (found and best.bits < found[0].bits / 2):
            break
        found.append(best)
        if len(found) < most:
            branches = _imagine(branches, search.weights, best.node)
    return found


def failure(position: int, broken: frozenset[int], tried: frozenset[int]) -> float:
    """Return the chance that the build at ``position`` of the lineup can't be launched; 0 for one that was."""
    if position in tried:
        return 0.0
    near = sum(_KERNEL ** abs(position - other) for other in broken)
    return (0.5 * bool(broken) + near) / (1 + near + sum(_KERNEL ** abs(position - other) for other in tried))


def bits(posterior: Posterior, node: int) -> float:
    """Return the information about the primary step that one more launch at ``node`` is expected to give."""
    labels, mass, mean, scale = posterior.classes(node)
    likeliest = np.sort(np.argsort(-mass, kind="stable")[:_CLASSES])
    kept = likeliest[mass[likeliest] > _NEGLIGIBLE]
    places = _places(posterior, labels, kept, len(mass))
    chance = mass[kept] / mass[kept].sum()
    within = places / places.sum(axis=1, keepdims=True)
    nodes = mean[kept, None] + scale[kept, None] * np.asarray(stdtrit(posterior.degrees, _QUANTILES))
    values = nodes.ravel()
    likelihood = _densities(values[:, None], mean[kept], scale[kept], posterior.degrees)
    joint = likelihood * chance
    after = joint / joint.sum(axis=1, keepdims=True) @ within
    expected = np.repeat(chance, len(_QUANTILES)) / len(_QUANTILES) @ _entropy(after)
    return max(0.0, float(_entropy(chance @ within)) - float(expected))


def uncertainty(posterior: Posterior) -> float:
    """Return the entropy of the primary step's place, in bits."""
    return float(_entropy(np.append(posterior.steps, posterior.none)))


def _best(search: Search, branches: Sequence[tuple[float, tuple[Launch, ...]]]) -> Probe:
    posteriors = [(chance, fit(launches, search.weights)) for chance, launches in branches]
    steps = np.zeros(len(search.weights))
    for chance, posterior in posteriors:
        steps += chance * posterior.steps
    tried = frozenset(search.positions[launch.node] for launch in search.launches)
    best, best_score = Probe(0, 0.0), -1.0
    for node in _candidates(steps):
        told = math.fsum(chance * bits(posterior, node) for chance, posterior in posteriors)
        score = round((1 - failure(search.positions[node], search.broken, tried)) * told, 9)
        if score > best_score:
            best, best_score = Probe(node, told), score
    return best


def _candidates(steps: Floats) -> list[int]:
    """Return nodes worth looking at, in the order in which a draw between them is decided.

    In a short lineup all of them. In a long one those at the quantiles of the step's place, the likeliest step's two
    neighbours, and the ends. The middle of the probable comes first.
    """
    nodes = len(steps) + 1
    below = np.cumsum(steps)
    total = below[-1] if below[-1] > 0 else 1.0
    if nodes <= _CANDIDATES:
        found = set(range(nodes))
    else:
        peak = int(np.argmax(steps))
        inner = np.searchsorted(below, total * (np.arange(_CANDIDATES - 4) + 0.5) / (_CANDIDATES - 4))
        found = {0, nodes - 1, peak, peak + 1, *(min(int(node) + 1, nodes - 1) for node in inner)}
    before = np.concatenate([[0.0], below]) / total
    return sorted(found, key=lambda node: (round(abs(float(before[node]) - 0.5), 9), node))


def _imagine(
    branches: Sequence[tuple[float, tuple[Launch, ...]]], weights: tuple[float, ...], node: int
) -> list[tuple[float, tuple[Launch, ...]]]:
    """Split each branch by the likely values of a launch at ``node``; the least likely branches are dropped."""
    grown = []
    for chance, launches in branches:
        for share, value in _levels(fit(launches, weights), launches, node):
            grown.append((chance * share, (*launches, Launch(node, value, launches[0].slot if launches else 0))))
    kept = sorted(grown, key=lambda branch: -round(branch[0], 12))[:_BRANCHES]
    total = sum(chance for chance, _ in kept)
    return [(chance / total, launches) for chance, launches in kept]


def _levels(posterior: Posterior, launches: Sequence[Launch], node: int) -> list[tuple[float, float]]:
    """Return the distinct values that a launch may have, with their probabilities: predictions 3 scales apart."""
    _, mass, mean, scale = posterior.classes(node)
    centre = sum(launch.value for launch in launches) / len(launches) if launches else 0.0
    kept = np.flatnonzero(mass > 0.02)
    found: list[tuple[float, float]] = []
    width = 3 * float(scale[np.argmax(mass)])
    for index in kept[np.argsort(mean[kept], kind="stable")]:
        chance, value = float(mass[index]), float(mean[index]) + centre
        if found and value - found[-1][1] < width:
            together = found[-1][0] + chance
            found[-1] = (together, (found[-1][0] * found[-1][1] + chance * value) / together)
        else:
            found.append((chance, value))
    return found or [(1.0, centre)]


def _places(posterior: Posterior, labels: NDArray[np.int64], kept: NDArray[np.int64], classes: int) -> Floats:
    """P(class and place), shape (kept, nodes): places are the steps, then none."""
    nodes, shares = posterior.nodes, posterior.shares[posterior.row]
    rank = np.full(classes, -1, dtype=np.int64)
    rank[kept] = np.arange(len(kept))
    of = rank[labels]
    found = np.zeros(len(kept) * nodes)
    hypotheses = posterior.hypotheses
    for column, steps in enumerate((hypotheses.first, hypotheses.second, np.full_like(labels, nodes - 1))):
        there = (of >= 0) & (steps >= 0)
        weights = (posterior.weight * shares[:, column])[there]
        found += np.bincount(of[there] * nodes + steps[there], weights=weights, minlength=len(found))
    return found.reshape(len(kept), nodes)


def _densities(values: Floats, mean: Floats, scale: Floats, degrees: float) -> Floats:
    """Student's t without its normalising constant, which cancels."""
    squared = ((values - mean) / scale) ** 2
    return np.exp(-np.log(scale) - (degrees + 1) / 2 * np.log1p(squared / degrees))


def _entropy(probabilities: Floats) -> Floats:
    """In bits, along the last axis."""
    safe = np.where(probabilities > 1e-300, probabilities, 1.0)
    return np.asarray(-(probabilities * np.log2(safe)).sum(axis=-1))

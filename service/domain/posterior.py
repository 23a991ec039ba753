"""Where did it change? The posterior over no, one and two changes along a lineup, from launches.

The unit is the launch, its value a logarithm with **worse pointing up** (the caller turns the sign), so that a change
is a difference of logs. With nodes 0 .. m-1 and step i between nodes i and i + 1, a hypothesis is a set of at most two
steps c1 < c2, and under it

    value = level + offset of the slot + delta_1 [node > c1] + delta_2 [node > c2] + noise,  noise ~ N(0, s^2)
    level: flat;  delta_k | s^2 ~ N(0, s^2 w^2);  offset | s^2 ~ N(0, s^2 o^2);  s^2 ~ InverseGamma(a0, b0)

This is the normal-inverse-gamma model of Bayesian linear regression (Raiffa and Schlaifer, Applied Statistical
Decision Theory, 1961; Gelman et al., Bayesian Data Analysis, 3rd ed. 2013, chapter 14), with change points for
regressors (Smith, Biometrika 62, 1975; Barry and Hartigan, JASA 88, 1993). With X the regressors, D the prior
precisions, L = X'X + D, mu = L^-1 X'y, the marginal likelihood is, up to a constant,

    log p(y | hypothesis) = (log|D| - log|L|) / 2 - a log b,   a = a0 + (n - 1) / 2,   b = b0 + (y'y - mu'L mu) / 2,

the parameters are multivariate t around mu with scale (b / a) L^-1 and 2 a degrees of freedom, and so is a prediction,
with one more unit for its own noise. The level's flat prior costs one degree (n - 1) and drops out of |D|.

Two widths w are mixed: changes are mostly small, but one of 50 % must not be taken for noise. The second change is
enumerated exactly; without it a second true change would inflate the noise with which the first is searched.

**The primary step.** A bisect asks which step brought the regression, the largest one where there are several. Under
one hypothesis the share of a step is 1 or 0 where the posterior of its deltas leaves no doubt; in doubt the shares are
proportional to P(delta_k > 0) P(delta_k is the larger), each from its own t marginal, and what is left for "none
for the worse" is the product of P(delta_k <= 0), or P(sum <= 0) if that is smaller. With one change: P(delta > 0),
and the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Prior:
    """Chances of 0, 1 and 2 changes; the noise's guess and its shape; sds of a change and of a slot's offset.

    All sds are in logs at the guessed noise; they scale with the noise that is found. Nightly series of vLLM on one
    machine vary by about 1 % from launch to launch; the shape of 2 makes that guess weak.
    """

    changes: tuple[float, float, float] = (0.25, 0.63, 0.12)
    noise_sd: float = 0.01
    shape: float = 2.0
    change_sds: tuple[float, ...] = (0.05, 0.4)
    slot_sd: float = 0.007

    @property
    def rate(self) -> float:
        return self.shape * self.noise_sd**2


@dataclass(frozen=True)
class Launch:
    """One usable launch: its node, its log value with worse pointing up, and the number of its slot."""

    node: int
    value: float
    slot: int = 0


@dataclass(frozen=True)
class _Hypotheses:
    """Columns over all hypotheses: their steps (-1: none), the index of the change's width, and the prior's log."""

    first: Ints
    second: Ints
    width: Ints
    log_prior: Floats


@dataclass(frozen=True)
class Posterior:
    """What the launches say, for each hypothesis.

    Hypotheses that the launches can't tell apart (their steps lie in the same gaps between measured nodes) share one
    row of parameters: ``row`` maps a hypothesis to it. Parameters are level, offset of each slot, delta_1, delta_2; an
    absent delta is 0. ``covariance`` is L^-1: multiply by ``scale2`` for the t distribution's own scale.
    """

    nodes: int
    slots: int
    hypotheses: _Hypotheses
    row: Ints
    weight: Floats
    mean: Floats
    covariance: Floats
    scale2: Floats
    degrees: float

    @cached_property
    def shares(self) -> Floats:
        """By row: the shares of the first step, the second and none; they sum to 1."""
        d1, d2 = self.mean[:, -2], self.mean[:, -1]
        v11, v22, v12 = self.covariance[:, -2, -2], self.covariance[:, -1, -1], self.covariance[:, -2, -1]
        up1, up2 = self._above(d1, v11), self._above(d2, v22)
        larger = self._above(d1 - d2, v11 + v22 - 2 * v12)
        neither = np.minimum((1 - up1) * (1 - up2), 1 - self._above(d1 + d2, v11 + v22 + 2 * v12))
        first, second = up1 * larger, up2 * (1 - larger)
        one, two = v11 > 0, v22 > 0
        both = np.where(first + second > 0, first + second, 1.0)
        neither = np.where(two, np.where(first + second > 0, neither, 1.0), np.where(one, 1 - up1, 1.0))
        first = np.where(two, (1 - neither) * first / both, np.where(one, up1, 0.0))
        return np.stack([first, np.where(two, 1 - neither - first, 0.0), neither], axis=1)

    @cached_property
    def steps(self) -> Floats:
        """P(step i is the primary one), shape (nodes - 1,); sums to 1 with ``none``."""
        return self._over_steps(self.shares[:, 0], self.shares[:, 1])

    @cached_property
    def none(self) -> float:
        """P(no change for the worse)."""
        return float(max(0.0, 1.0 - self.steps.sum()))

    @cached_property
    def changed(self) -> Floats:
        """P(step i brought a change for the worse, the largest or not), shape (nodes - 1,)."""
        up1 = np.where(self.covariance[:, -2, -2] > 0, self._above(self.mean[:, -2], self.covariance[:, -2, -2]), 0.0)
        up2 = np.where(self.covariance[:, -1, -1] > 0, self._above(self.mean[:, -1], self.covariance[:, -1, -1]), 0.0)
        return self._over_steps(up1, up2)

    def size(self, step: int) -> float | None:
        """Return the expected change in logs, given that ``step`` is the primary one; None where it can't be."""
        hypotheses, shares = self.hypotheses, self.shares[self.row]
        first = np.where(hypotheses.first == step, self.weight * shares[:, 0], 0.0)
        second = np.where(hypotheses.second == step, self.weight * shares[:, 1], 0.0)
        mass = float(first.sum() + second.sum())
        if mass <= 0:
            return None
        return float((first @ self.mean[self.row, -2] + second @ self.mean[self.row, -1]) / mass)

    def total_above(self, limit: float) -> float:
        """Return P(last node - first node > limit), in logs."""
        total = self.mean[:, -2] + self.mean[:, -1]
        variance = self.covariance[:, -2:, -2:].sum(axis=(1, 2))
        above = np.where(variance > 0, self._above(total - limit, variance), float(limit < 0))
        return float(self.weight @ above[self.row])

    def classes(self, node: int) -> tuple[Ints, Floats, Floats, Floats]:
        """Return how a launch at ``node`` tells hypotheses apart: class of each, and the classes' mass, mean and scale.

        A class predicts the launch's value as t with ``degrees``; the slot is taken to be an average one.
        """
        above1 = (self.hypotheses.first >= 0) & (node > self.hypotheses.first)
        above2 = (self.hypotheses.second >= 0) & (node > self.hypotheses.second)
        labels = (self.row * 4 + above1 * 2 + above2).astype(np.int64)
        mass = np.bincount(labels, weights=self.weight, minlength=4 * len(self.mean)).astype(np.float64)
        design = np.zeros((4, self.mean.shape[1]))
        design[:, 0] = 1.0
        design[:, 1 : 1 + self.slots] = 1.0 / max(self.slots, 1)
        design[2:, -2] = design[1::2, -1] = 1.0
        mean = self.mean @ design.T
        spread = 1 + np.einsum("kp,rpq,kq->rk", design, self.covariance, design)
        scale = np.asarray(np.sqrt(self.scale2[:, None] * spread), dtype=np.float64)
        return labels, mass, np.asarray(mean, dtype=np.float64).ravel(), scale.ravel()

    def _above(self, mean: Floats, variance: Floats) -> Floats:
        """P(> 0) of t variables by row; a variable without a variance is not above."""
        scale = np.sqrt(np.maximum(self.scale2 * variance, 1e-300))
        return np.asarray(stdtr(self.degrees, mean / scale), dtype=np.float64)

    def _over_steps(self, first: Floats, second: Floats) -> Floats:
        found = np.zeros(self.nodes)
        for steps, share in ((self.hypotheses.first, first), (self.hypotheses.second, second)):
            there = steps >= 0
            weights = (self.weight * share[self.row])[there]
            found += np.bincount(steps[there], weights=weights, minlength=self.nodes)
        return found[: self.nodes - 1]


def fit(launches: Sequence[Launch], weights: Sequence[float], prior: Prior | None = None) -> Posterior:
    """Return the posterior over a lineup of ``len(weights) + 1`` nodes.

    ``weights`` are the steps' prior weights, positive. The order of the launches changes nothing.
    """
    prior = prior or Prior()
    nodes = len(weights) + 1
    ordered = sorted(launches, key=lambda launch: (launch.slot, launch.node, launch.value))
    slot_numbers = sorted({launch.slot for launch in ordered})
    slots = len(slot_numbers) if len(slot_numbers) > 1 else 0
    node = np.array([launch.node for launch in ordered], dtype=np.int64)
    place = np.array([slot_numbers.index(launch.slot) for launch in ordered], dtype=np.int64)
    values = np.array([launch.value for launch in ordered])
    values = values - (values.mean() if len(values) else 0.0)
    hypotheses = _enumerate(tuple(weights), prior)
    gap = _gaps(node, nodes)
    first, second = _gap_of(gap, hypotheses.first), _gap_of(gap, hypotheses.second)
    base = nodes + 1
    key = ((first + 1) * base + second + 1) * len(prior.change_sds) + hypotheses.width
    _, index, row = np.unique(key, return_index=True, return_inverse=True)
    columns = (hypotheses.first[index], hypotheses.second[index], hypotheses.width[index])
    log_likelihood, mean, covariance, rate = _regress(node, place, slots, values, columns, prior)
    shape = prior.shape + max(len(values) - 1, 0) / 2
    log_weight = hypotheses.log_prior + log_likelihood[row]
    weight = np.exp(log_weight - log_weight.max())
    return Posterior(
        nodes=nodes,
        slots=slots,
        hypotheses=hypotheses,
        row=row.astype(np.int64),
        weight=weight / weight.sum(),
        mean=mean,
        covariance=covariance,
        scale2=rate / shape,
        degrees=2 * shape,
    )


def _enumerate(weights: tuple[float, ...], prior: Prior) -> _Hypotheses:
    steps, widths = len(weights), len(prior.change_sds)
    share = np.asarray(weights, dtype=np.float64) / sum(weights)
    i, j = np.triu_indices(steps, 1)
    pairs = share[i] * share[j]
    chances = np.array(prior.changes) * np.array([1.0, 1.0, float(len(pairs) > 0)])
    chances /= chances.sum()
    one, two = np.arange(steps), np.arange(len(pairs))
    first = np.concatenate([[-1], *[one] * widths, *[i[two]] * widths]).astype(np.int64)
    second = np.concatenate([[-1], *[np.full(steps, -1)] * widths, *[j[two]] * widths]).astype(np.int64)
    width = np.concatenate([[0], np.repeat(range(widths), steps), np.repeat(range(widths), len(pairs))]).astype(
        np.int64
    )
    mass = [np.array([chances[0]]), *[chances[1] * share / widths] * widths]
    if len(pairs):
        mass += [chances[2] * pairs / pairs.sum() / widths] * widths
    return _Hypotheses(first, second, width, np.log(np.concatenate(mass)))


def _gaps(node: Ints, nodes: int) -> Ints:
    """For each step the number of measured nodes at or below it: steps with one number can't be told apart yet."""
    measured = np.zeros(nodes, dtype=np.int64)
    measured[node] = 1
    return np.cumsum(measured)


def _gap_of(gap: Ints, steps: Ints) -> Ints:
    return np.where(steps >= 0, gap[np.maximum(steps, 0)], -1)


def _regress(
    node: Ints, place: Ints, slots: int, values: Floats, columns: tuple[Ints, Ints, Ints], prior: Prior
) -> tuple[Floats, ...]:
    """By row: log marginal likelihood (up to a constant), posterior mean, L^-1, and the noise's rate b."""
    first, second, width = columns
    rows, size = len(first), 3 + slots
    design = np.zeros((rows, len(node), size))
    design[:, :, 0] = 1.0
    if slots:
        design[:, np.arange(len(node)), 1 + place] = 1.0
    design[:, :, -2] = (first[:, None] >= 0) & (node > first[:, None])
    design[:, :, -1] = (second[:, None] >= 0) & (node > second[:, None])
    widths = (prior.noise_sd / np.array(prior.change_sds)) ** 2
    precision = np.zeros((rows, size))
    precision[:, 0] = 0.0 if len(node) else 1.0
    precision[:, 1 : 1 + slots] = (prior.noise_sd / prior.slot_sd) ** 2
    precision[:, -2] = np.where(first >= 0, widths[width], 1.0)
    precision[:, -1] = np.where(second >= 0, widths[width], 1.0)
    crossed = design.transpose(0, 2, 1)
    combined = crossed @ design
    combined[:, np.arange(size), np.arange(size)] += precision
    covariance = np.linalg.inv(combined)
    projected = crossed @ values
    mean = np.einsum("rpq,rq->rp", covariance, projected)
    residual = np.maximum(values @ values - np.einsum("rp,rp->r", mean, projected), 0.0)
    rate = prior.rate + residual / 2
    shape = prior.shape + max(len(node) - 1, 0) / 2
    log_prior = np.log(precision[:, 1:]).sum(axis=1)
    log_likelihood = (log_prior - np.linalg.slogdet(combined)[1]) / 2 - shape * np.log(rate)
    for position, steps in ((-2, first), (-1, second)):
        absent = steps < 0
        covariance[absent, position, :] = covariance[absent, :, position] = mean[absent, position] = 0.0
    return tuple(np.asarray(each, dtype=np.float64) for each in (log_likelihood, mean, covariance, rate))

"""Every probability of a small machine by brute force over (v, h, z, y). Shares no code with the library.

The infinite tail is summed term by term, far enough for the rest to vanish.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np


@dataclass
class Small:
    """A machine written down as plain arrays. ``order[k]`` is the row at position k."""

    W: np.ndarray
    c: np.ndarray
    b: np.ndarray
    order: list[int]
    depth: str  # "fixed", "ordered", "infinite"
    beta: float
    penalty: str
    U: np.ndarray | None = None
    d: np.ndarray | None = None

    def beta_of(self, unit: int) -> float:
        if self.depth == "fixed":
            return 0.0
        if self.penalty == "constant":
            return self.beta * math.log(2.0)
        return self.beta * math.log1p(math.exp(self.c[unit]))


def energy(m: Small, v, h, y, z) -> float:
    """E(v, h, y, z); h is a tuple over positions and z counts them."""
    e = -float(np.dot(m.b, v))
    if m.U is not None:
        e -= m.d[y]
    for position in range(z):
        unit = m.order[position]
        a = float(np.dot(m.W[unit], v)) + m.c[unit]
        if m.U is not None:
            a += m.U[unit, y]
        e -= h[position] * a - m.beta_of(unit)
    return e


def tail_sum(m: Small) -> float:
    """sum over z = l + 1, l + 2, ... of what the extra units contribute: each is on or off, and pays beta ln 2."""
    total, term = 0.0, 1.0
    for _ in range(2_000_000):
        term *= (math.exp(0.0) + math.exp(0.0)) * math.exp(-m.beta * math.log(2.0))
        total += term
        if term < 1e-18 * total:
            return total
    raise AssertionError("the tail does not vanish: choose a larger beta")


def visible_states(D: int) -> np.ndarray:
    return np.array(list(itertools.product([0.0, 1.0], repeat=D)))


@dataclass
class Truth:
    """Unnormalised sums: ``w[n, y, z]`` for z = 1..l and then the tail; ``on[n, y, position]`` with h = 1."""

    w: np.ndarray
    on: np.ndarray

    @property
    def log_z(self) -> float:
        return math.log(self.w.sum())

    def free_energy(self) -> np.ndarray:
        return -np.log(self.w.sum((1, 2)))

    def joint_free_energy(self) -> np.ndarray:
        return -np.log(self.w.sum(2))

    def p_z(self) -> np.ndarray:
        w = self.w.sum(1)
        return w / w.sum(1, keepdims=True)

    def p_h(self) -> np.ndarray:
        return self.on.sum(1) / self.w.sum((1, 2))[:, None]

    def p_y(self) -> np.ndarray:
        w = self.w.sum(2)
        return w / w.sum(1, keepdims=True)


def enumerate_all(m: Small) -> Truth:
    l, D = m.W.shape
    states = visible_states(D)
    C = 1 if m.U is None else m.U.shape[1]
    w = np.zeros((len(states), C, l + 1))
    on = np.zeros((len(states), C, l))
    depths = [l] if m.depth == "fixed" else range(1, l + 1)
    tail = tail_sum(m) if m.depth == "infinite" else 0.0
    for n, v in enumerate(states):
        for y in range(C):
            for z in depths:
                for h in itertools.product([0, 1], repeat=z):
                    weight = math.exp(-energy(m, v, h, y, z))
                    padded = np.array(h + (0,) * (l - z))
                    w[n, y, z - 1] += weight
                    on[n, y] += weight * padded
                    if z == l:
                        w[n, y, l] += weight * tail
                        on[n, y] += weight * tail * padded
    return Truth(w, on)


def transition(m: Small, v, y) -> np.ndarray:
    """p(v', y' | v, y) of one sweep z -> h -> (v', y'): (states, classes)."""
    l, D = m.W.shape
    states = visible_states(D)
    C = 1 if m.U is None else m.U.shape[1]
    total = np.zeros((len(states), C))
    tail = tail_sum(m) if m.depth == "infinite" else 0.0
    for z in [l] if m.depth == "fixed" else range(1, l + 1):
        for h in itertools.product([0, 1], repeat=z):
            weight = math.exp(-energy(m, v, h, y, z)) * (1.0 + (tail if z == l else 0.0))
            joint = np.array([[math.exp(-energy(m, s, h, k, z)) for k in range(C)] for s in states])
            total += weight * joint / joint.sum()
    return total / total.sum()

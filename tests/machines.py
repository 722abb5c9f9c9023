"""Random small machines, as plain arrays and as the library's."""

import itertools

import numpy as np
import torch
from hypothesis import strategies as st

from brute import Small
from irbm.models import Fixed, Infinite, Machine, Ordered

DEPTHS = ("fixed", "ordered", "infinite")


def random_small(
    rng, *, depth, penalty="constant", labels=0, n_visible=4, n_hidden=4, beta=1.3, scale=1.0, permuted=True
):
    def draw(*shape):
        return rng.normal(0.0, scale, shape)

    order = rng.permutation(n_hidden) if permuted else np.arange(n_hidden)
    small = Small(
        draw(n_hidden, n_visible),
        draw(n_hidden),
        draw(n_visible),
        [int(i) for i in order],
        depth,
        beta,
        penalty,
    )
    if labels:
        small.U, small.d = draw(n_hidden, labels), draw(labels)
    return small


def as_machine(m: Small, dtype=torch.float64) -> Machine:
    depth = {
        "fixed": Fixed(),
        "ordered": Ordered(m.beta, m.penalty),
        "infinite": Infinite(m.beta, m.penalty) if m.depth == "infinite" else None,
    }[m.depth]
    tensor = lambda x: None if x is None else torch.tensor(x, dtype=dtype)  # noqa: E731
    return Machine(
        weights=tensor(m.W),
        hidden_bias=tensor(m.c),
        visible_bias=tensor(m.b),
        order=torch.tensor(m.order),
        size=torch.tensor(len(m.c)),
        depth=depth,
        label_weights=tensor(m.U),
        label_bias=tensor(m.d),
    )


KINDS = list(itertools.product(DEPTHS, ["constant", "softplus"], [0, 1, 2, 3], [False, True]))

ANY_KIND = st.sampled_from(KINDS)


@st.composite
def smalls(draw, kinds=ANY_KIND):
    """Every depth x penalty x labels x order, with small and with sharp weights."""
    depth, penalty, labels, permuted = draw(kinds)
    return random_small(
        np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
        depth=depth,
        penalty=penalty,
        labels=labels,
        n_visible=draw(st.integers(1, 4)),
        n_hidden=draw(st.integers(2 if permuted else 1, 4)),
        beta=draw(st.sampled_from([1.01, 1.1, 1.5, 3.0] + ([0.5] if depth == "ordered" else []))),
        scale=draw(st.sampled_from([0.1, 1.0, 3.0])),
        permuted=permuted,
    )

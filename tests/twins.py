"""Two ways to one step from the same uniforms, where rounding decides nothing."""

import torch

# By how much a uniform, of z and labels (one a row) or of units, is moved to see whether it is near its threshold: more
# than two bfloat16 parts of the weights can move that, by some 1e-5 for a unit and its sum over units for z.
EDGES = {1: 3e-4, 2: 1e-4}
TRIES = 40  # of which about a half have a uniform near its threshold


def undisputed(step, noise_of, visible_bias):
    """The first n of which the uniforms of ``noise_of(n)`` decide the same when moved up or down a little.

    ``step(noise)`` is a pair: decisions, and what comes of them. Both are returned with n. Samples of the visibles that
    are not among the decisions show in ``visible_bias`` of what comes of them.
    """
    for n in range(TRIES):
        real, drawn = noise_of(n), []

        def keeps(*shape, real=real, drawn=drawn):
            drawn.append(real(*shape))
            return drawn[-1]

        decided, found = step(keeps)
        moved = (step(_moved(drawn, sign)) for sign in (1, -1))
        if all(
            all(map(torch.equal, [*decided, visible_bias(found)], [*others, visible_bias(other)]))
            for others, other in moved
        ):
            return n, decided, found
    raise AssertionError("uniforms are near their thresholds again and again")


def _moved(drawn, sign):
    left = list(drawn)

    def moved(*shape):
        u = left.pop(0)
        assert u.shape == shape
        return (u * (1 + sign * EDGES[len(shape)])).clamp_(max=1 - 2.0**-24)

    return moved

"""exp and log1p as polynomials, good to 2e-7, which the compiler can turn into vector instructions; and constants."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"

import numpy as np

from irbm.ops.compiled.loops import inlined
from irbm.ops.reference import Kind

KINDS: dict[Kind, int] = {"fixed": 0, "ordered": 1, "infinite": 2}
FIXED, INFINITE = KINDS["fixed"], KINDS["infinite"]
NEGLIGIBLE = 2.0**-50
"""Probabilities below it are written as 0: products of them leave float32's normal range, where the processor is so
slow that the gradient's matrix product took fifteen times as long."""

F32 = np.float32
LOG2_E = F32(1.4426950408889634)
LN2_HIGH, LN2_LOW = F32(0.693359375), F32(-2.12194440e-4)  # the first has few bits: n times it is exact
LARGEST = float(np.finfo(np.float32).max)
LOWEST = F32(-87.0)  # below it exp leaves the normal range
ONE, ZERO, NEGLIGIBLE32 = F32(1.0), F32(0.0), F32(NEGLIGIBLE)


@inlined
def exp(x):
    """e^x in float32 for x <= 0, and 0 below -87. NaN stays."""
    x_in = LOWEST if x < LOWEST else x
    n = np.floor(x_in * LOG2_E + F32(0.5))
    r = (x_in - n * LN2_HIGH) - n * LN2_LOW
    p = F32(0.0013941108434) * r + F32(0.00837512639815)
    p = p * r + F32(0.0416663528968)
    p = p * r + F32(0.166664155147)
    p = p * r + F32(0.500000004712)
    p = p * r + ONE
    p = p * r + ONE
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return ZERO if x < LOWEST else p * power


@inlined
def log1p(x):
    """ln(1 + x) in float32 for x in 0..1, to a relative error. NaN stays."""
    p = F32(-0.00317605701843) * x + F32(0.019542527261)
    p = p * x + F32(-0.0563736128301)
    p = p * x + F32(0.105436237954)
    p = p * x + F32(-0.152696670744)
    p = p * x + F32(0.196632742572)
    p = p * x + F32(-0.249516162629)
    p = p * x + F32(0.333297104989)
    p = p * x + F32(-0.499998926481)
    p = p * x + ONE
    return p * x

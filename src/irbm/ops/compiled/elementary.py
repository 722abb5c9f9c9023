"""exp and log1p as polynomials, which the compiler can turn into vector instructions; and constants.

Those in float32 are good to 2e-7, those in float64 to 5e-16.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, disable-error-code="no-any-return"

import math

import numpy as np

from irbm.ops.compiled.loops import inlined
from irbm.ops.reference import Kind

KINDS: dict[Kind, int] = {"fixed": 0, "ordered": 1, "infinite": 2}
FIXED, INFINITE = KINDS["fixed"], KINDS["infinite"]
NEGLIGIBLE = 2.0**-50
"""Probabilities below it are written as 0: products of them leave float32's normal range, where the processor is so
slow that the gradient's matrix product took many times as long."""

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


# -- in float64 -------------------------------------------------------------------------------------------------

LN2, LN2_HIGH_64, LN2_LOW_64 = math.log(2.0), 0.6931471803691238, 1.9082149292705877e-10  # split as above
LOWEST_64 = -708.0
SHIFT = 1.5 * 2.0**52  # a number added to it is rounded to an integer, which its last bits are
BIAS_64, MANTISSA_64 = np.int64(1023), np.int64(52)
HALF_ROOT = math.sqrt(2.0) - 1.0


@inlined
def exp64(x):
    """e^x for x <= 0, and below -708 nearly 0: by Taylor's series of the rest of a power of 2. NaN stays."""
    x_in = LOWEST_64 if x < LOWEST_64 else x
    shifted = x_in * (1.0 / LN2) + SHIFT
    n = shifted - SHIFT
    r = (x_in - n * LN2_HIGH_64) - n * LN2_LOW_64
    p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    power = np.int64((np.float64(shifted).view(np.int64) + BIAS_64) << MANTISSA_64).view(np.float64)
    return p * power


@inlined
def log1p64(x):
    """ln(1 + x) for x in 0..1, to a relative error: 2 artanh of f/(2 + f), of half of 1 + x where it is large."""
    large = x > HALF_ROOT
    f = (x - 1.0) * 0.5 if large else x
    s = f / (2.0 + f)
    q = s * s
    p = q * (1.0 / 21.0) + 1.0 / 19.0
    p = p * q + 1.0 / 17.0
    p = p * q + 1.0 / 15.0
    p = p * q + 1.0 / 13.0
    p = p * q + 1.0 / 11.0
    p = p * q + 1.0 / 9.0
    p = p * q + 1.0 / 7.0
    p = p * q + 0.2
    p = p * q + 1.0 / 3.0
    return 2.0 * (s + s * (q * p)) + (LN2 if large else 0.0)

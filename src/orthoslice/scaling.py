"""Scaling by powers of two that are worked out where the clouds are: in a compiled program of JAX.

:func:`orthoslice.conditioning.unit_scale` looks at the clouds and scales them on the host. Where that would
mean to wait, or is impossible, the device finds the exponent of the largest coordinate and looks up what to
do about it in a table that was made on the host. Powers of two change no digit.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from orthoslice.arrays import Array, constant, detach, is_readable, library, namespace
from orthoslice.cloud import Cloud
from orthoslice.conditioning import exponents_at_hand

# Room at both ends of the range, so that a gradient divided by the scale does not underflow either.
_ROOM = 9

# Factors 2**exponent that a number is multiplied by in turn: together they reach from one end of the range
# to the other, and none of them leaves it.
_STEPS = 3


def is_scaled_on_device(x: Cloud, y: Cloud) -> bool:
    """Whether these clouds are scaled where they are: those of JAX that cannot be looked at.

    A compiled program does it along with what it does anyway. Step by step, as torch works on a GPU, it would
    take longer than the rest of a small problem.
    """
    return library(x.points) == "jax" and not (is_readable(x.points) and is_readable(y.points))


def scale_on_device(x: Cloud, y: Cloud, p: float) -> tuple[Cloud, Cloud, Array, Array]:
    """Clouds divided by 2**exponent where p-th powers might leave the range; 2**-exponent, and the exponent.

    The exponent is 0 wherever the clouds are fit as they are. It has no gradient.
    """
    xp = namespace(x.points)
    info = np.finfo(_numpy_float(x.dtype))
    largest = xp.maximum(*(xp.max(xp.abs(detach(c.points))) for c in (x, y)))
    # Magnitudes have no sign, so what is left of their bits above the digits is the exponent.
    field = largest.view(xp.int32 if info.bits == 32 else xp.int64) >> info.nmant
    table = constant(_by_field, (info.bits, x.dim, p), largest)
    row = xp.take(table, xp.reshape(field, (1,)), axis=0)
    down, exponent = row[0, 0], row[0, 1]
    return replace(x, points=x.points * down), replace(y, points=y.points * down), down, exponent


def times_two_to(quantity: Array, exponent: Array, p: float) -> Array:
    """`quantity * 2**(p * exponent)`, for whole exponents of :func:`scale_on_device`; shapes broadcast."""
    xp = namespace(quantity)
    info = np.finfo(_numpy_float(quantity.dtype))
    table = constant(_by_exponent, (info.bits, p), quantity)
    middle = table.shape[0] // 2
    place = xp.astype(xp.clip(exponent, -middle, middle), xp.int32) + middle
    factors = xp.take(table, xp.reshape(place, (-1,)), axis=0)
    for step in range(_STEPS):
        quantity = quantity * xp.reshape(factors[:, step], exponent.shape)
    return quantity


def _numpy_float(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _by_field(bits: int, dim: int, p: float) -> np.ndarray[Any, Any]:
    """For every exponent field of a magnitude: 2**-exponent and exponent, `(fields, 2)`."""
    info = np.finfo(f"float{bits}")
    most = info.maxexp - _ROOM
    # A number with this field is below 2**(field - bias + 1). The last field is NaN and infinity.
    exponents = [0.0] * (1 << info.nexp)
    for field in range(len(exponents) - 1):
        reach = field - (info.maxexp - 1) + 1 + math.log2(dim) / 2 + 1
        if abs(reach) >= exponents_at_hand(p, info.maxexp):
            exponents[field] = float(np.clip(math.ceil(reach), -most, most))
    return np.stack([np.exp2(-np.asarray(exponents)), exponents], axis=1)


def _by_exponent(bits: int, p: float) -> np.ndarray[Any, Any]:
    """For every exponent from -most to most: factors that make 2**(p * exponent), `(exponents, steps)`."""
    info = np.finfo(f"float{bits}")
    most = info.maxexp - _ROOM
    # What is further away than all steps can reach is 0 or infinite anyway.
    total = np.clip(p * np.arange(-most, most + 1), -_STEPS * most, _STEPS * most)
    whole = np.floor(total)
    factors = np.exp2([(whole + k) // _STEPS for k in range(_STEPS)])
    factors[0] *= np.exp2(total - whole)
    return factors.T

"""Scales that only the device knows: looked up there, exact, and of no consequence for what fits anyway."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.conditioning import scale_on_device, times_two_to

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scales_are_powers_of_two(dtype: Any) -> None:
    """Every magnitude of the type, from the smallest normal number to the largest."""
    info = torch.finfo(dtype)
    for magnitude in (info.tiny, 1e-25, 1e-3, 1.0, 1e20, info.max):
        x = torch.tensor([[0.75, -1.0], [0.1, 0.3]], dtype=dtype) * magnitude
        scaled, _, down, exponent = scale_on_device(Cloud(x), Cloud(x / 2), 2)
        assert float(down) == 2.0 ** -float(exponent)
        assert torch.equal(scaled.points / down, x)
        # Squares of squares fit: they are what an error bar needs.
        assert torch.isfinite(scaled.points**4).all()
        # Four times the exponent, with a few bits to spare, against three quarters of the range.
        needs = 4 * abs(np.log2(magnitude) + 2) > 0.75 * np.log2(info.max)
        assert bool(exponent != 0) == needs
        back = times_two_to(scaled.points.abs().max(), exponent, 1)
        assert float(back) == pytest.approx(magnitude, rel=1e-6)


@pytest.mark.parametrize("p", [1, 1.5, 2, 7, 1e6])
def test_powers_of_scales(p: float) -> None:
    """2^(p e) in steps: to rounding, and 0 or infinite where it must be."""
    for exponent in (-119, -30, -1, 0, 2, 40, 119):
        found = times_two_to(torch.tensor([1.5], dtype=torch.float32), torch.tensor(float(exponent)), p)
        exact = 1.5 * 2.0 ** float(np.clip(p * exponent, -1000, 1000))
        expected = torch.tensor(exact, dtype=torch.float64).to(torch.float32)
        assert float(found) == pytest.approx(float(expected), rel=2e-7)

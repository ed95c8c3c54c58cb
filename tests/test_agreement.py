"""Agreement with libraries that the test extras do not bring; docs/agreement.md has the others."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import unit_rows

import orthoslice as osl


@pytest.fixture
def clouds() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 3)), rng.normal(size=(60, 3)) + 0.5


@pytest.mark.parametrize("m", [60, 45])
def test_ott_agrees_in_value(rng: np.random.Generator, clouds: tuple[np.ndarray, np.ndarray], m: int) -> None:
    """Its distance is SW_2^2."""
    sliced = pytest.importorskip("ott.tools.sliced")
    import jax
    import jax.numpy as jnp

    x, y, theta = clouds[0], clouds[1][:m], unit_rows(rng, 40, 3)
    with jax.enable_x64(True):
        theirs = sliced.sliced_wasserstein(jnp.asarray(x), jnp.asarray(y), proj_fn=lambda z, **_: z @ theta.T)[
            0
        ]
    ours = osl.sliced_wasserstein(x, y, directions=theta)
    assert float(ours.value) == pytest.approx(float(theirs), rel=1e-12)


def test_ott_repeats_its_directions(clouds: tuple[np.ndarray, np.ndarray]) -> None:
    """Without a key: two estimates are one. Ours differ."""
    sliced = pytest.importorskip("ott.tools.sliced")
    import jax.numpy as jnp

    x, y = (jnp.asarray(cloud, jnp.float32) for cloud in clouds)
    first, second = (float(sliced.sliced_wasserstein(x, y, n_proj=20)[0]) for _ in range(2))
    assert first == second
    first, second = (float(osl.sliced_wasserstein(x, y, n_directions=20).value) for _ in range(2))
    assert first != second


def test_geomloss_without_debiasing_is_half_of_w(clouds: tuple[np.ndarray, np.ndarray]) -> None:
    geomloss = pytest.importorskip("geomloss")
    import torch

    points = [torch.tensor(cloud) for cloud in clouds]
    options = {"p": 2, "blur": 1e-3, "backend": "tensorized"}
    plain = geomloss.SamplesLoss("sinkhorn", scaling=0.99, debias=False, **options)(*points)
    half = osl.wasserstein(*clouds).value / 2
    assert float(plain) == pytest.approx(half, rel=1e-4)
    debiased = geomloss.SamplesLoss("sinkhorn", scaling=0.9, **options)(*points)
    assert float(debiased) < 0.995 * half

"""Clouds against known laws: exact on every line, whatever the law, the power, the weights and the library."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import pickle

import numpy as np
import pytest
from helpers import FULL, Backend, unit_rows, weights
from scipy import integrate, special, stats

import orthoslice as osl
from orthoslice.clouds.laws import profile
from orthoslice.clouds.quantiles import cube_table, mean_excess, partial_moment, quantile
from orthoslice.clouds.ready import ReadyCloud, with_masses
from orthoslice.costs.laws import Line, equal_shares, law_slopes
from orthoslice.estimates.result import UntrustedWarning

laws = osl.laws


def student(u: np.ndarray) -> np.ndarray:
    return special.stdtrit(5, u)


def coordinate(dim: int) -> stats.rv_continuous:
    """A coordinate of a uniform unit vector."""
    return stats.beta((dim - 1) / 2, (dim - 1) / 2, loc=-1, scale=2)


# Each law with what it is on a line by SciPy.
LAWS = {
    "normal": (laws.Normal(3), stats.norm()),
    "circle": (laws.Sphere(2), coordinate(2)),
    "sphere": (laws.Sphere(3), coordinate(3)),
    "high sphere": (laws.Sphere(40), coordinate(40)),
    "segment": (laws.Ball(1), stats.uniform(-1, 2)),
    "ball": (laws.Ball(4), coordinate(6)),
    "student": (laws.from_quantiles(student, 3), stats.t(5)),
}
POWERS = (1.0, 1.5, 2.0, 3.0)


def cost_by_quadrature(t: np.ndarray, w: np.ndarray, line: stats.rv_continuous, p: float) -> float:
    """W_p^p of points on a line and a law there, by adaptive quadrature over every share, split at its kink."""
    order = np.argsort(t)
    ends = np.concatenate([[0.0], np.cumsum(w[order])])
    ends[-1], total = 1.0, 0.0
    for at, low, high in zip(t[order], ends[:-1], ends[1:], strict=True):
        cut = min(max(float(line.cdf(at)), low), high)
        for a, b in ((low, cut), (cut, high)):
            if b > a:
                total += integrate.quad(lambda u, at=at: abs(at - line.ppf(u)) ** p, a, b, epsabs=1e-12)[0]
    return total


@pytest.mark.parametrize("name", LAWS)
def test_tables_are_those_of_the_law(name: str) -> None:
    """Quantiles, their integral, the distribution function and its integral, against SciPy."""
    law, line = LAWS[name]
    table, rng = profile(law).table, np.random.default_rng(0)
    u = np.concatenate([rng.random(300), 10.0 ** -np.arange(1, 9), 1 - 10.0 ** -np.arange(1, 9)])
    spread = float(line.var())
    assert profile(law).spread == pytest.approx(spread, rel=1e-9)
    z = line.ppf(u)
    scale = spread**0.5
    np.testing.assert_allclose(quantile(table, u), z, rtol=2e-5, atol=1e-8 * scale)
    excess, reached = mean_excess(table, z)
    np.testing.assert_allclose(reached, u, rtol=0, atol=1e-6)
    exact = [integrate.quad(line.ppf, 0, min(v, 1 - v), epsabs=1e-13)[0] for v in u[:40]]
    np.testing.assert_allclose(partial_moment(table, u[:40]), exact, rtol=0, atol=1e-10 * scale)
    # The two are conjugate: u z = G(u) + E max(z - T, 0).
    np.testing.assert_allclose(excess, u * z - partial_moment(table, u), rtol=0, atol=1e-10 * scale)


@pytest.mark.thin
@pytest.mark.parametrize("has_weights", [False, True])
@pytest.mark.parametrize("n", [1, 2, 7, 30])
@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("name", LAWS)
def test_costs_against_quadrature(
    rng: np.random.Generator, name: str, p: float, n: int, has_weights: bool
) -> None:
    law, line = LAWS[name]
    theta = unit_rows(rng, 1, law.dim)
    x = 0.8 * line.std() * law.dim**0.5 * unit_rows(rng, n, law.dim) + 0.05
    w = weights(rng, n) if has_weights else np.full(n, 1 / n)
    est = osl.sliced_wasserstein(x, law, p, x_weights=w, directions=theta)
    exact = cost_by_quadrature(x @ theta[0], w, line, p)
    # Powers with a kink of their own are met by nodes on both sides of it.
    assert float(est.value) == pytest.approx(exact, rel=1e-7 if p in (1, 2) else 1e-4)


def line_of(law: laws.Law, stretch: np.ndarray) -> Line:
    return Line(law, stretch, lambda: stretch)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernel_and_reference_agree(rng: np.random.Generator, dtype: type, p: float) -> None:
    tolerance = 2e-5 if dtype is np.float32 else 1e-9
    for name, n in (("normal", 1), ("circle", 40), ("ball", 3), ("normal", 700), ("circle", 2200)):
        law = LAWS[name][0]
        px, scale = rng.normal(size=(5, n)).astype(dtype), rng.random((5, 1)).astype(dtype)
        scale[0] = 0
        cloud, found = ReadyCloud(px[0][:, None]), {}
        for way in ("numba", "reference"):
            with law_slopes.using(way):
                taken = [
                    law_slopes(px.copy(), line_of(law, scale), cloud, p, 1.3, (k, *(False,) * 3))
                    for k in (0, 1)
                ]
            np.testing.assert_allclose(taken[0][0], taken[1][0], rtol=tolerance)
            found[way] = taken[1]
        np.testing.assert_allclose(found["numba"][0], found["reference"][0], rtol=tolerance)
        np.testing.assert_allclose(n * found["numba"][1], n * found["reference"][1], atol=tolerance)


@pytest.mark.parametrize("p", POWERS)
def test_equal_weights_are_no_weights(rng: np.random.Generator, p: float) -> None:
    law, px, scale = laws.Normal(3), rng.normal(size=(4, 30)), 0.2 + rng.random((4, 1))
    cloud = ReadyCloud(px[0][:, None])
    weighted, _ = with_masses(ReadyCloud(cloud.points, np.full(30, 1 / 30)), cloud)
    wanted = True, False, False, False
    for plain, other in zip(
        law_slopes(px.copy(), line_of(law, scale), cloud, p, 1.0, wanted)[:2],
        law_slopes(px.copy(), line_of(law, scale), weighted, p, 1.0, wanted)[:2],
        strict=True,
    ):
        np.testing.assert_allclose(other, plain, atol=1e-7 if p not in (1, 2) else 1e-12)


@pytest.mark.parametrize("p", POWERS)
def test_gradients_against_differences(rng: np.random.Generator, p: float) -> None:
    import torch

    law = laws.Normal(3).affine(np.array([[1.0, 0.2, 0], [0, 0.7, 0], [0.1, 0, 1.5]]), [0.1, 0.2, -0.1])
    theta, x, w, step = unit_rows(rng, 8, 3), rng.normal(size=(9, 3)), weights(rng, 9), 1e-6
    options = {"directions": torch.as_tensor(theta)}

    def value(points: np.ndarray, masses: np.ndarray) -> float:
        return float(osl.sliced_wasserstein(points, law, p, x_weights=masses, directions=theta).value)

    points, masses = torch.tensor(x, requires_grad=True), torch.tensor(w, requires_grad=True)
    osl.sliced_wasserstein(points, law, p, x_weights=masses, **options).value.backward()
    # Weights sum to 1, so one is exchanged for another.
    for k in range(8):
        move = np.zeros(9)
        move[k], move[k + 1] = step, -step
        by_difference = (value(x, w + move) - value(x, w - move)) / (2 * step)
        assert float(masses.grad[k] - masses.grad[k + 1]) == pytest.approx(by_difference, rel=2e-4, abs=2e-5)
    for k in range(9):
        move = np.zeros((9, 3))
        move[k, k % 3] = step
        by_difference = (value(x + move, w) - value(x - move, w)) / (2 * step)
        assert float(points.grad[k, k % 3]) == pytest.approx(by_difference, rel=2e-4, abs=1e-6)
    _, plain = osl.value_and_grad(x, law, p, x_weights=w, directions=theta)
    np.testing.assert_allclose(plain, points.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_every_library_and_batches(rng: np.random.Generator, backend: Backend, p: float) -> None:
    law = laws.Ball(3).affine([[2.0, 0, 0.5], [0, 1, 0]], [0.5, -1])
    x, theta = rng.normal(size=(2, 25, 2)), unit_rows(rng, 6, 2)
    w = np.stack([weights(rng, 25), weights(rng, 25)])
    for masses in (None, w):
        alone = [
            osl.sliced_wasserstein(
                cloud, law, p, x_weights=None if masses is None else masses[k], directions=theta
            ).value
            for k, cloud in enumerate(x)
        ]
        given = None if masses is None else backend.asarray(masses)
        est = osl.sliced_wasserstein(
            backend.asarray(x), law, p, x_weights=given, directions=backend.asarray(theta)
        )
        tolerance = {"rtol": 1e-10} if backend.wide else {"rtol": 2e-5}
        np.testing.assert_allclose(backend.numpy(est.value), alone, **tolerance)


def cube_mass(unit: np.ndarray, z: np.ndarray, power: int) -> np.ndarray:
    """The exact spline of a sum of uniforms, in few dimensions: F for power 0, its integral for 1."""
    total, dim = np.zeros_like(z), len(unit)
    for signs in itertools.product((1, -1), repeat=dim):
        total += np.prod(signs) * np.maximum(z + np.dot(signs, unit), 0) ** (dim + power)
    return total / (math.factorial(dim + power) * np.prod(2 * unit))


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_tables_of_a_cube(rng: np.random.Generator, dim: int) -> None:
    units = np.abs(unit_rows(rng, 40, dim))
    units = units[units.min(axis=1) > 0.03]
    z = np.linspace(-1.9, 1.9, 200)
    excess, reached = mean_excess(cube_table(units), np.broadcast_to(z, (len(units), 200)))
    for unit, own, mass in zip(units, excess, reached, strict=True):
        np.testing.assert_allclose(mass, cube_mass(unit, z, 0), rtol=0, atol=5e-5)
        np.testing.assert_allclose(own, cube_mass(unit, z, 1), rtol=0, atol=2e-7)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("dim", [1, 2, 3, 30])
def test_cubes_against_samples(rng: np.random.Generator, dim: int, p: float) -> None:
    """Against a sample so large that its own error is below a fifth of the bound; and along an axis."""
    law, x = laws.Cube(dim), 0.7 * rng.normal(size=(50, dim))
    theta = np.concatenate([unit_rows(rng, 6, dim), np.eye(1, dim)])
    many = law.sample(100_000, rng=1)
    for y, sampled in ((law, many), (law.affine(0.5, 0.5), 0.5 * many + 0.5)):
        exact = osl.sliced_wasserstein(x, y, p, directions=theta).scores
        np.testing.assert_allclose(
            exact, osl.sliced_wasserstein(x, sampled, p, directions=theta).scores, rtol=0.03, atol=1e-3
        )
    # On an axis a cube is a segment.
    axis = osl.sliced_wasserstein(x, law, p, directions=np.eye(1, dim)).value
    segment = osl.sliced_wasserstein(x[:, :1], laws.Ball(1), p, directions=np.eye(1)).value
    assert float(axis) == pytest.approx(float(segment), rel=1e-3)


@pytest.mark.parametrize("p", POWERS)
def test_cubes_of_kernel_and_reference(rng: np.random.Generator, p: float) -> None:
    matrix = rng.normal(size=(3, 4))
    law, x, theta = laws.Cube(4).affine(matrix, 0.3), rng.normal(size=(30, 3)), unit_rows(rng, 5, 3)
    found = []
    for way in ("numba", "reference"):
        with law_slopes.using(way):
            found.append(osl.value_and_grad(x, law, p, directions=theta))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5, atol=1e-7)
    batch = osl.sliced_wasserstein(np.stack([x, x + 1]), law, p, directions=theta)
    assert float(batch.value[0]) == pytest.approx(float(found[0][0]), rel=1e-6)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize(("dim", "n"), [(1, 1), (2, 30), (4, 30), (4, 2200)])
def test_cubes_priced_line_by_line(rng: np.random.Generator, dim: int, n: int, p: float) -> None:
    """Without stored tables the answers are those with them; on one line the image of the cube is a point."""
    matrix = rng.normal(size=(3, dim))
    matrix[0] = 0
    law, x = laws.Cube(dim).affine(matrix, 0.3), rng.normal(size=(n, 3))
    theta, found = np.concatenate([np.eye(3)[:1], unit_rows(rng, 5, 3)]), []
    with cube_table.using("numba"), equal_shares.using("numba"):
        for way in ("numba cubes", "numba"):
            with law_slopes.using(way):
                est = osl.sliced_wasserstein(x, law, p, directions=theta)
                found.append((est.scores, osl.value_and_grad(x, law, p, directions=theta)[1]))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-10)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-9, atol=1e-12 / n)
    with law_slopes.using("numba cubes"), pytest.raises(TypeError, match="p = 1 and 2"):
        osl.sliced_wasserstein(x, law, 3, directions=theta)


def test_jax_compiles_and_differentiates(rng: np.random.Generator) -> None:
    import jax
    import jax.numpy as jnp

    law, x = laws.Sphere(3), jnp.asarray(rng.normal(size=(20, 3)))
    value = jax.jit(lambda x, key: osl.sliced_wasserstein(x, law, rng=key).value)
    key = jax.random.key(0)
    assert float(value(x, key)) == pytest.approx(float(osl.sliced_wasserstein(x, law, rng=key).value), rel=1e-5)
    gradient = jax.grad(value)(x, key)
    move = 1e-2 * gradient
    change = (value(x + move, key) - value(x - move, key)) / 2
    assert float(change) == pytest.approx(float(jnp.sum(gradient * move)), rel=1e-2)


def test_closed_forms() -> None:
    """Whole orthonormal blocks give quadratic functions of the direction without error."""
    matrix, shift = np.array([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]]), np.array([0.5, 0.0, -1.0])
    for law, variance in ((laws.Normal(2), 1.0), (laws.Sphere(2), 0.5), (laws.Ball(2), 0.25)):
        est = osl.sliced_wasserstein(
            np.zeros((4, 3)), law.affine(matrix, shift), directions="orthogonal", rng=0
        )
        exact = (variance * (matrix**2).sum() + shift @ shift) / 3
        assert float(est.value) == pytest.approx(exact, rel=1e-10)
    one = osl.sliced_wasserstein(np.zeros((1, 5)), laws.Normal(5), 1, rng=0)
    assert float(one.value) == pytest.approx((2 / np.pi) ** 0.5, rel=1e-9)


@pytest.mark.parametrize("p", [1, 2])
def test_invariances(rng: np.random.Generator, p: float) -> None:
    law, x, theta = laws.Normal(3), rng.normal(size=(40, 3)), unit_rows(rng, 5, 3)
    matrix, shift = rng.normal(size=(3, 3)), rng.normal(size=3)

    def value(points: np.ndarray, of: laws.Law, rows: np.ndarray = theta) -> float:
        return float(osl.sliced_wasserstein(points, of, p, directions=rows).value)

    plain = value(x, law)
    assert value(rng.permutation(x), law) == pytest.approx(plain, rel=1e-12)
    assert value(x + shift, law.affine(1.0, shift)) == pytest.approx(plain, rel=1e-11)
    assert value(3 * x, law.affine(3.0)) == pytest.approx(3**p * plain, rel=1e-11)
    rotation = np.linalg.qr(matrix)[0]
    assert value(x @ rotation, law, theta @ rotation) == pytest.approx(plain, rel=1e-11)
    assert value(x, law.affine(rotation)) == pytest.approx(plain, rel=1e-11)
    # An image of an image is the image under the product.
    twice = law.affine(matrix, shift).affine(rotation, 1.0)
    assert value(x, twice) == pytest.approx(
        value(x, law.affine(rotation @ matrix, rotation @ shift + 1)), rel=1e-11
    )
    assert law.affine(2.0).affine(np.eye(3)) == law.affine(2.0 * np.eye(3))
    assert value(x, law) != pytest.approx(value(x, law.affine(1.1)), rel=1e-3)


@pytest.mark.parametrize("power", [-150, -8, 8, 150])
def test_units_and_far_origins(rng: np.random.Generator, power: int) -> None:
    """Clouds are scaled and moved inside, and the law with them."""
    law, x, unit = laws.Ball(3), rng.normal(size=(50, 3)), 10.0**power
    plain = osl.sliced_wasserstein(x, law, rng=0)
    scaled = osl.sliced_wasserstein(x * unit, law.affine(unit), rng=0)
    assert float(scaled.distance / unit) == pytest.approx(float(plain.distance), rel=1e-9)
    far = osl.sliced_wasserstein(x + 1e7, law.affine(1.0, 1e7), rng=0)
    assert float(far.value) == pytest.approx(float(plain.value), rel=1e-6)


def test_float32_and_files(rng: np.random.Generator, tmp_path: object) -> None:
    law, x = laws.Normal(4).affine(2.0, 1.0), rng.normal(size=(300, 4)).astype(np.float32)
    plain = float(osl.sliced_wasserstein(x.astype(np.float64), law, rng=0).value)
    narrow = osl.sliced_wasserstein(x, law, rng=0)
    assert narrow.value.dtype == np.float32
    assert float(narrow.value) == pytest.approx(plain, rel=1e-5)
    np.save(f"{tmp_path}/x.npy", x + np.float32(100))
    mapped = np.load(f"{tmp_path}/x.npy", mmap_mode="r")
    assert float(osl.sliced_wasserstein(mapped, law.affine(1.0, 100), rng=0).value) == pytest.approx(
        plain, rel=1e-4
    )


@pytest.mark.parametrize("directions", ["hadamard", "orthogonal", "sobol", "iid"])
def test_every_kind_of_directions(rng: np.random.Generator, directions: str) -> None:
    """Against a sample so large that its own error is below a fifth of the bound; padded rows among them."""
    law, x = laws.Normal(5), 1.5 * rng.normal(size=(60, 5))
    many = law.sample(200_000, rng=1)
    options = {"directions": directions, "n_directions": 64, "rng": 0}
    for p in (1, 2):
        exact, sampled = (float(osl.sliced_wasserstein(x, y, p, **options).value) for y in (law, many))
        assert exact == pytest.approx(sampled, rel=0.01)
        assert exact != pytest.approx(
            float(osl.sliced_wasserstein(x, law.affine(1.1), p, **options).value), rel=0.01
        )


@functools.cache
def truth(dim: int, p: float) -> float:
    """From 40,000 directions: its own error is less than a tenth of those that are tested."""
    x = np.random.default_rng(dim).normal(size=(24, dim)) * np.linspace(0.5, 1.5, dim)
    return float(
        osl.sliced_wasserstein(x, laws.Normal(dim), p, n_directions=40_000, rng=10**9, workers=1).value
    )


@pytest.mark.parametrize(("dim", "p"), [(3, 2), (16, 1), (16, 2)])
def test_unbiased_and_covered(dim: int, p: float) -> None:
    """Intervals cover 93.5 to 97% of 2,000 repetitions; with 300 the same rate is known to 1.3% only.

    The mean of all values lies within 4 standard errors of the truth. False alarms: below 0.2% a case.
    """
    repetitions, least, most = (2000, 0.935, 0.97) if FULL else (300, 0.9, 0.99)
    x = np.random.default_rng(dim).normal(size=(24, dim)) * np.linspace(0.5, 1.5, dim)
    values, held, held_short = [], 0, 0
    for seed in range(repetitions):
        est = osl.sliced_wasserstein(
            x, laws.Normal(dim), p, directions="orthogonal", n_directions=8 * dim, rng=seed, workers=1
        )
        low, high = est.interval(0.95)
        values.append(float(est.value))
        held += bool(low <= truth(dim, p) <= high)
        # Negative control: intervals of three fifths of the length.
        held_short += bool(abs(truth(dim, p) - est.value) <= 0.3 * (high - low))
    assert least <= held / repetitions <= most
    assert held_short / repetitions < least
    error = np.std(values) / repetitions**0.5
    assert abs(np.mean(values) - truth(dim, p)) < 4 * error + 1e-9


def test_tolerances_and_trust(rng: np.random.Generator) -> None:
    x = rng.normal(size=(200, 6))
    est = osl.sliced_wasserstein(x, laws.Normal(6).affine(2.0), rtol=0.02, rng=0)
    assert est.converged
    assert est.trusted
    assert est.control is None
    with pytest.warns(UntrustedWarning, match="two samples"):
        assert np.isnan(est.data_stderr)


@pytest.mark.parametrize("law", [laws.Normal(3), laws.Ball(3), laws.Cube(3), laws.Sphere(3).affine(2.0, 5.0)])
def test_samples_of_a_law_are_trusted_against_it(law: laws.Law) -> None:
    """Intervals of 1,000 points against their law, with default directions: all of 20 samples are trusted.

    Fixed seeds, so no false alarms. Negative controls: three directions are doubted for some of the samples,
    and a point far away is doubted at a power that few directions carry.
    """
    rng, few = np.random.default_rng(11), []
    for seed in range(20):
        x = law.sample(1000, rng)
        est = osl.sliced_wasserstein(x, law, rng=seed)
        assert est.trusted, est
        few.append(osl.sliced_wasserstein(x, law, n_directions=3, rng=seed).trusted)
    assert not all(few)
    far = osl.sliced_wasserstein(100 * np.eye(50)[:1], laws.Normal(50), 5, n_directions=50, rng=0)
    assert not far.trusted


def test_a_tolerance_takes_no_more_directions_than_against_a_sample() -> None:
    x, y = (np.random.default_rng(seed).normal(size=(1000, 3)) for seed in (5, 6))
    law, sample = (osl.sliced_wasserstein(x, other, rng=0, rtol=0.01) for other in (laws.Normal(3), y))
    assert law.converged
    assert law.n_directions <= sample.n_directions


def test_samples_have_the_law() -> None:
    """Kolmogorov's test of a coordinate; false alarms: 0.1% a law."""
    for law, line in LAWS.values():
        if not isinstance(law, laws.Radial):
            points = law.sample(4000, rng=0)
            assert points.shape == (4000, law.dim)
            assert stats.kstest(points[:, -1], line.cdf).pvalue > 1e-3
    moved = laws.Normal(2).affine([[2.0, 0], [1, 1], [0, 1]], [1, 2, 3]).sample(20_000, rng=0)
    np.testing.assert_allclose(moved.mean(axis=0), [1, 2, 3], atol=0.08)
    assert (laws.Normal(2).sample(5, rng=3) == laws.Normal(2).sample(5, rng=3)).all()


def test_laws_are_values() -> None:
    assert laws.Normal(3) == laws.Normal(3) != laws.Normal(4)
    assert hash(laws.Ball(3).affine(2.0)) == hash(laws.Ball(3).affine(2))
    assert pickle.loads(pickle.dumps(laws.Ball(3).affine([[1.0, 0, 0]]))).dim == 1
    assert "Normal(dim=3)" in repr(laws.Normal(3).affine(2.0))


REFUSALS = {
    "dim": (lambda x, law: osl.sliced_wasserstein(x, laws.Normal(4)), "`x` and `y` must share `dim`; got 3"),
    "weights": (lambda x, law: osl.sliced_wasserstein(x, law, y_weights=[1.0]), "`y_weights` must be None"),
    "control": (
        lambda x, law: osl.sliced_wasserstein(x, law, control="gaussian"),
        "`control` must be left out",
    ),
    "projected": (lambda x, law: osl.projected_wasserstein(x, law), "`y` must be a cloud"),
    "first": (lambda x, law: osl.sliced_wasserstein(law, x), "`x` must be a NumPy.*law can be the `y`"),
    "pairwise": (lambda x, law: osl.pairwise([x, law]), "A law can be the `y`"),
    "match": (lambda x, law: osl.match(x, law), "A law can be the `y`"),
    "bounds": (lambda x, law: osl.wasserstein_bounds(x, law), "A law can be the `y`"),
    "exact": (lambda x, law: osl.wasserstein(x, law), "A law can be the `y`"),
    "explain": (lambda x, law: osl.explain(x, law), "A law can be the `y`"),
    "count": (lambda x, law: laws.Normal(0), "`dim` must be at least 1"),
    "sphere": (lambda x, law: laws.Sphere(1), "`dim` must be at least 2"),
    "matrix": (lambda x, law: law.affine(np.ones((3, 2))), "`matrix` must be a number or have shape"),
    "shift": (lambda x, law: law.affine(1.0, [1.0]), "`shift` must be a number or have shape"),
    "infinite": (lambda x, law: law.affine(np.inf), "must be finite"),
    "function": (lambda x, law: laws.from_quantiles(3, 2), "`function` must be a quantile function"),
    "skew": (lambda x, law: laws.from_quantiles(lambda u: -np.log1p(-u), 2), "must be symmetric"),
    "falling": (lambda x, law: laws.from_quantiles(lambda u: 0.5 - u, 2), "must be increasing"),
    "scalar": (lambda x, law: laws.from_quantiles(lambda u: float(u), 2), "`function` must take a NumPy array"),
    "sampled": (lambda x, law: laws.from_quantiles(student, 2).sample(3), "on lines only"),
    "fewer than none": (lambda x, law: law.sample(-1), "`n` must be at least 0; got -1"),
    "half a point": (lambda x, law: law.affine(2.0).sample(2.5), "`n` must be an integer; got 2.5"),
    "no randomness": (lambda x, law: law.sample(2, rng="x"), "`rng` must be None, an integer"),
    "mean and covariance": (lambda x, law: laws.Normal(np.zeros(3), np.eye(3)), r"dim\)\.affine\("),
    "radius": (lambda x, law: laws.Ball(3, radius=2), r"`Ball\(dim\)\.affine\(radius, centre\)`"),
    "class": (lambda x, law: osl.sliced_wasserstein(x, laws.Normal), r"such as `osl.laws.Normal\(3\)`"),
    "class of a target": (
        lambda x, law: osl.nn.SlicedWassersteinLoss(target=laws.Ball),
        r"`target` is a class: pass a law of it, such as `osl.laws.Ball\(3\)`",
    ),
    "circle": (
        lambda x, law: osl.circular_wasserstein([1.0], laws.Sphere(2), period=1),
        '`y` cannot be a law .*"uniform"',
    ),
    "great circles": (lambda x, law: osl.spherical_sliced_wasserstein(x, laws.Sphere(3)), '`y` .*"uniform"'),
    "spherical loss": (
        lambda x, law: osl.nn.SphericalSlicedWassersteinLoss(target=laws.Sphere(3)),
        '`target` cannot be a law .*"uniform"',
    ),
    "beyond the type": (
        lambda x, law: osl.sliced_wasserstein(np.float32(x), law.affine(1e39)),
        "up to 3.4e[+]38; got a law with 1e[+]39. Pass float64",
    ),
    "tails": (lambda x, law: osl.sliced_wasserstein(x, law, 50), "at most 37.8 .*infinite, or mostly in tails"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_say_what_to_pass(rng: np.random.Generator, name: str) -> None:
    call, message = REFUSALS[name]
    with pytest.raises((TypeError, ValueError, NotImplementedError), match=message):
        call(rng.normal(size=(10, 3)), laws.Normal(3))


def test_deep_copies_share_tables() -> None:
    law = laws.Normal(3)
    assert profile(copy.deepcopy(law)) is profile(law)


@pytest.mark.parametrize("freedom", [1.1, 2.1, 3.0])
def test_heavy_tails_of_which_the_moment_exists(freedom: float) -> None:
    """A tenth of the second moment of Student's law with 2.1 degrees of freedom is beyond level 1e-20."""
    law = laws.from_quantiles(lambda u: special.stdtrit(freedom, u), 1)
    absolute = 2 * freedom**0.5 / (freedom - 1) / special.beta(freedom / 2, 0.5)
    for n in (1, 30):
        at_zero = osl.sliced_wasserstein(np.zeros((n, 1)), law, 1, rng=0)
        assert float(at_zero.value) == pytest.approx(absolute, rel=1e-9)
    if freedom > 2:
        at_zero = osl.sliced_wasserstein(np.zeros((30, 1)), law, 2, rng=0)
        assert float(at_zero.value) == pytest.approx(freedom / (freedom - 2), rel=1e-9)


@pytest.mark.parametrize(("freedom", "p"), [(1, 1), (2, 2), (3, 3), (1.5, 2), (3, 2.9)])
def test_moments_that_are_infinite_or_cannot_be_worked_out(freedom: float, p: float) -> None:
    law, x = laws.from_quantiles(lambda u: special.stdtrit(freedom, u), 2), np.zeros((5, 2))
    with pytest.raises(ValueError, match="moments"):
        osl.sliced_wasserstein(x, law, p)
    with pytest.raises(ValueError, match="moments"):
        osl.value_and_grad(x, law.affine(2.0), p)
    # Those of bounded laws are finite.
    assert np.isfinite(osl.sliced_wasserstein(x, laws.Ball(2), 30, rng=0).value)


def test_error_bars_where_there_is_no_variance(rng: np.random.Generator) -> None:
    law = laws.from_quantiles(lambda u: special.stdtrit(1.5, u), 3)
    est = osl.sliced_wasserstein(rng.normal(size=(50, 3)), law, 1, rng=0)
    low, high = est.distance_interval(0.95)
    assert low < est.distance < high < 2


def test_quantile_functions_are_not_asked_for_what_rounds_to_the_end() -> None:
    """``2 u - 1`` is -1 below 1e-16."""
    law = laws.from_quantiles(lambda u: np.arctanh(2 * u - 1), 1)
    for p in (1, 2, 3):
        moment = integrate.quad(lambda t, p=p: 2 * abs(t) ** p / np.cosh(t) ** 2, 0, 30)[0] / 2
        found = osl.sliced_wasserstein(np.zeros((4, 1)), law, p, rng=0).value
        assert float(found) == pytest.approx(moment, rel=1e-6)
    for unit in (1e160, 1e-170):
        with pytest.raises(ValueError, match="in other units"):
            laws.from_quantiles(lambda u, unit=unit: unit * (2 * u - 1), 1)


def test_matrices_of_any_kind_and_none_that_overflow() -> None:
    import torch

    law, matrix = laws.Normal(2), np.array([[1.0, 2.0], [0.0, 1.0]])
    assert law.affine(torch.tensor(matrix, requires_grad=True), [1, 2]) == law.affine(matrix, [1.0, 2.0])
    with pytest.raises(TypeError, match="`matrix` must hold real numbers"):
        law.affine(1j)
    with pytest.raises(ValueError, match="`matrix` must be rectangular"):
        law.affine([[1, 2], [3]])
    with pytest.raises(OverflowError, match="exceed the range"):
        law.affine(1e200).affine(1e200)


def test_cubes_compiled_by_jax(rng: np.random.Generator) -> None:
    import jax
    import jax.numpy as jnp

    x = jnp.asarray(rng.normal(size=(20, 3)))
    for law in (laws.Cube(3), laws.Cube(2).affine(rng.normal(size=(3, 2)))):
        found = jax.jit(lambda x, law=law: osl.sliced_wasserstein(x, law, rng=0).value)(x)
        assert float(found) == pytest.approx(float(osl.sliced_wasserstein(x, law, rng=0).value), rel=1e-5)


@pytest.mark.parametrize("dim", [1, 2, 3, 8, 32])
def test_kernels_of_cubes_and_shares(rng: np.random.Generator, dim: int) -> None:
    """Lines along axes and nearly so, and lines that the law shrinks to a point on, are among them."""
    units = np.concatenate([unit_rows(rng, 20, dim), np.eye(dim)[:2], np.zeros((1, dim))])
    units[15:20, 1:] *= 1e-4
    units[:20] /= np.linalg.norm(units[:20], axis=1, keepdims=True)
    tables = []
    for way in ("numba", "reference"):
        with cube_table.using(way):
            tables.append(cube_table(units))
    # In the plane the kernel has no series, whose error is largest along an axis.
    np.testing.assert_allclose(
        tables[0].mass[:-1], tables[1].mass[:-1], rtol=0, atol=5e-5 if dim == 2 else 1e-8
    )
    levels = np.broadcast_to(np.linspace(0, 1, 300), (len(units) - 1, 300))
    moments = [partial_moment(type(t)(*(np.asarray(a)[:-1] for a in t)), levels) for t in tables]
    np.testing.assert_allclose(*moments, rtol=0, atol=2e-7 if dim == 2 else 1e-9)
    for n, with_ends in ((1, True), (2, False), (37, True), (1000, True)):
        found = []
        for way in ("numba", "reference"):
            with equal_shares.using(way):
                found.append(equal_shares(tables[0], 1 / 3, n, with_ends))
        for k, (own, plain) in enumerate(zip(*found, strict=True)):
            np.testing.assert_allclose(own, plain, rtol=0, atol=1e-12 * n if k < 4 else 0)
    # In one and two coordinates there is an exact answer on every line.
    if dim <= 2:
        z = np.linspace(-1.4, 0, 50)
        own = units[:15] if dim == 1 else units[:15][np.abs(units[:15]).min(axis=1) > 0.03]
        excess = mean_excess(cube_table(own), np.broadcast_to(z, (len(own), 50)))[0]
        for unit, values in zip(np.abs(own), excess, strict=True):
            np.testing.assert_allclose(values, cube_mass(unit, z, 1), rtol=0, atol=1e-7)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_small_clouds_are_taken_as_planned(rng: np.random.Generator, p: float) -> None:
    """By whole steps, where small clouds are repeated; what a step does not take goes the driver's way."""
    for law in (laws.Normal(3), laws.Cube(3).affine(0.5, 1.0), laws.Ball(2).affine(rng.normal(size=(3, 2)))):
        x, theta = rng.normal(size=(40, 3)), unit_rows(rng, 24, 3)
        with law_slopes.using("numba"):  # no plan is made where an operation is forced
            expected = osl.sliced_wasserstein(x, law, p, directions=theta)
        for _ in range(3):
            found = osl.sliced_wasserstein(x, law, p, directions=theta)
            np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-9)
        assert found.control is None
        equal = np.full(40, 1 / 40)
        for other, own in ((x.tolist(), None), (x, equal), (np.asfortranarray(x), None)):
            again = osl.sliced_wasserstein(other, law, p, x_weights=own, directions=theta)
            np.testing.assert_allclose(again.scores, expected.scores, rtol=1e-9)
        est = osl.sliced_wasserstein(x.astype(np.float32), law, p, rng=0)
        low, high = est.distance_interval(0.95)
        assert low < est.distance < high
        assert est.value.dtype == np.float32

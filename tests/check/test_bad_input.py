"""Every row of the design's table "What input gets"."""

from __future__ import annotations

import functools
import traceback
from fractions import Fraction
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import orthoslice as osl
from orthoslice.backend.arrays import to_numpy
from orthoslice.directions import IID, Given, HadamardRademacher, Orthogonal

PACKAGE = Path(osl.__file__).parent
E = np.eye(3)
X = np.random.default_rng(1).normal(size=(4, 3))
Y = np.random.default_rng(2).normal(size=(5, 3)) + 1
W = np.array([0.1, 0.2, 0.3, 0.4])


def sliced(x=X, y=Y, p=2, **options):
    return osl.sliced_wasserstein(x, y, p, **{"rng": 0, **options})


def projected(x=X, y=Y, p=2, **options):
    return osl.projected_wasserstein(x, y, p, **{"rng": 0, **options})


def bounds(x=X, y=Y, p=2, **options):
    return osl.wasserstein_bounds(x, y, p, **{"rng": 0, **options})


def match(x=X, y=Y, p=2, **options):
    return osl.match(x, y, p, **{"rng": 0, **options})


def coupling(x=X, y=Y, direction=(1, 0, 0), **options):
    return osl.induced_coupling(x, y, direction, **options)


def read(answer):
    """The number that an answer is about."""
    if isinstance(answer, osl.Coupling):
        return answer.cost(2)
    return answer.upper if isinstance(answer, osl.Bounds) else answer.value


ESTIMATES = [sliced, projected]
DRAWN = [*ESTIMATES, bounds, match]
EVERY = [*DRAWN, coupling]
either = (ValueError, TypeError)


def refuse(call, error, *words):
    """The call must end in our own code, with this kind of error, saying these words."""
    with pytest.raises(error) as caught:
        call()
    last = traceback.extract_tb(caught.tb)[-1]
    assert caught.type in either
    assert PACKAGE in Path(last.filename).parents, f"ends in {last.filename}"
    said = str(caught.value)
    for word in words:
        assert word in said
    return said


def changed(array, index, value):
    """A copy with one entry changed."""
    array = np.array(array)
    array[index] = value
    return array


POINTS = {
    "0-d": (np.array(1.0), ValueError, "got ()"),
    "number": (1.0, ValueError, "got ()"),
    "1-d": (np.ones(3), ValueError, "got (3,)"),
    "no points": (np.ones((0, 3)), ValueError, "got shape (0, 3)"),
    "no coordinates": (np.ones((4, 0)), ValueError, "got shape (4, 0)"),
    "empty list": ([], ValueError, "got (0,)"),
    "complex": (X + 0j, TypeError, "complex128"),
    "text": (np.full((2, 3), "a"), TypeError, "real numbers"),
    "list of text": ([["a", "b", "c"]], TypeError, "got text, type <U1"),
    "list with a gap": ([[1.0, None, 3.0]], TypeError, "such as None at index (0, 1)"),
    "objects": (np.full((2, 3), Fraction(1, 2)), TypeError, "object. Pass `"),
    "dates": (np.zeros((2, 3), "M8[s]"), TypeError, "datetime64"),
    "ragged": ([[1.0, 2.0, 3.0], [1.0, 2.0]], ValueError, "rectangular"),
    "masked": (np.ma.masked_array(X, X > 1), TypeError, "masked"),
    "frame of text": (pd.DataFrame({"a": ["u"], "b": [1], "c": [2]}), TypeError, "real numbers"),
    "frame with a gap": (pl.DataFrame({"a": [None, 1], "b": [1, 2], "c": [3, 4]}), ValueError, "row 0"),
    "None": (None, TypeError, "got None"),
    "path": ("cloud.npy", TypeError, "str"),
    "mapping": ({"x": X}, TypeError, "dict"),
}


@pytest.mark.parametrize("call", EVERY)
@pytest.mark.parametrize("argument", ["x", "y"])
@pytest.mark.parametrize("case", POINTS)
def test_points(call, argument, case):
    bad, error, rule = POINTS[case]
    refuse(lambda: call(**{argument: bad}), error, f"`{argument}`", rule)


@pytest.mark.parametrize("call", EVERY)
def test_shapes_together(call):
    refuse(lambda: call(X, Y[:, :2]), ValueError, "`x` and `y` must share `dim`", "(4, 3) and (5, 2)")
    stacked = np.stack([X, X])
    if call in ESTIMATES:
        refuse(lambda: call(stacked, np.stack([Y] * 3)), ValueError, "`x` and `y`", "(2, 4, 3) and (3, 5, 3)")
        refuse(lambda: call(stacked, Y, x_weights=np.stack([W] * 3)), ValueError, "`x_weights`", "(3, 4)")
    else:
        refuse(lambda: call(stacked, Y), ValueError, "`x` and `y`", "single", "(2, 4, 3)")
        refuse(lambda: call(X, Y[None]), ValueError, "`x` and `y`", "single", "(1, 5, 3)")
        refuse(lambda: call(X, Y, x_weights=np.stack([W, W])), ValueError, "single")


@pytest.mark.parametrize("call", EVERY)
@pytest.mark.parametrize("argument", ["x", "y"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_points_must_be_finite(backend, call, argument, bad):
    clouds = {"x": X, "y": Y}
    clouds[argument] = changed(clouds[argument], (2, 1), bad)
    clouds = {name: backend.asarray(c) for name, c in clouds.items()}
    refuse(lambda: call(**clouds), ValueError, f"`{argument}`", f"{bad} at index (2, 1)")


WEIGHTS = {
    "negative": (np.array([0.5, 0.5, 0.5, -0.5]), "negative or NaN; got -0.5 at index (3,)"),
    "NaN": (np.array([0.5, 0.5, np.nan, 0.0]), "nan at index (2,)"),
    "infinite": (np.array([np.inf, 0.0, 0.0, 0.0]), "inf"),
    "sum of 4": (np.ones(4), "sum of 4"),
    "sum of 0": (np.zeros(4), "sum of 0"),
    "slightly off": (np.full(4, 0.2501), "sum of 1.000"),
    "too few": (np.full(3, 1 / 3), "(3,)"),
    "a number": (np.array(1.0), "()"),
}


@pytest.mark.parametrize("call", EVERY)
@pytest.mark.parametrize("argument", ["x_weights", "y_weights"])
@pytest.mark.parametrize("case", WEIGHTS)
def test_weights(backend, call, argument, case):
    bad, rule = WEIGHTS[case]
    clouds = {"x": backend.asarray(X), "y": backend.asarray(X + 1), argument: backend.asarray(bad)}
    refuse(lambda: call(**clouds), ValueError, f"`{argument}`", rule)


@pytest.mark.parametrize("call", EVERY)
@pytest.mark.parametrize("bad", [W + 0j, np.full(4, "a"), list("abcd"), "abcd", np.ma.masked_array(W)])
def test_weights_of_a_wrong_type(call, bad):
    refuse(lambda: call(x_weights=bad), TypeError, "`x_weights`")
    refuse(lambda: call(x_weights=[[0.5], [0.5, 0.0]]), ValueError, "`x_weights`", "rectangular")


@pytest.mark.parametrize("call", DRAWN)
@pytest.mark.parametrize("p", [0.5, 0, -1, np.inf, np.nan, True, "2", None, 2j, W, torch.ones(4), [0.5, 0.5]])
def test_p(call, p):
    is_number = isinstance(p, (int, float)) and p is not True
    hint = ["POT", "x_weights"] if isinstance(p, (list, np.ndarray, torch.Tensor)) else []
    refuse(lambda: call(p=p), ValueError if is_number else TypeError, "`p`", "at least 1", *hint)


def test_p_beyond_floating_point_and_in_the_cost_of_a_coupling():
    refuse(lambda: sliced(p=10**400), either, "`p`")
    refuse(lambda: coupling().cost(0.5), ValueError, "`p`")


DIRECTIONS = {
    "unknown name": ("nonesuch", ValueError, "['auto', "),
    "None": (None, TypeError, "got None"),
    "a class": (IID, TypeError, "such as `osl.directions.Orthogonal()`"),
    "a function": (lambda rows, dim, rng: E, TypeError, "of a function by `osl.directions.from_function`"),
    "mapping": ({}, TypeError, "dict"),
    "number": (3, either, ""),
    "masked": (np.ma.masked_array(E, E > 2), TypeError, "masked"),
    "complex": (E + 0j, TypeError, "complex128"),
    "text": (np.full((1, 3), "a"), TypeError, "real numbers"),
    "ragged": ([[1.0, 0.0, 0.0], [1.0]], ValueError, "rectangular"),
    "1-d": (E[0], ValueError, "got shape (3,)"),
    "3-d": (E[None], ValueError, "got shape (1, 3, 3)"),
    "no rows": (E[:0], ValueError, "got shape (0, 3)"),
    "other dim": (np.eye(2), ValueError, "got shape (2, 2)"),
    "other library": (torch.eye(3), TypeError, "numpy"),
}


@pytest.mark.parametrize("call", DRAWN)
@pytest.mark.parametrize("case", DIRECTIONS)
def test_directions(call, case):
    bad, error, rule = DIRECTIONS[case]
    refuse(lambda: call(directions=bad), error, "`directions`", rule)


@pytest.mark.parametrize("theta", [2 * E, np.eye(2), E[0], torch.eye(3), 3], ids=lambda t: str(np.shape(t)))
def test_given_sampler_is_checked_too(theta):
    said = refuse(lambda: sliced(directions=Given(theta=theta)), either)
    assert "`theta`" in said or "`directions`" in said


@pytest.mark.parametrize("call", EVERY)
@pytest.mark.parametrize(("entry", "norm"), [(2.0, "2"), (np.nan, "nan"), (0.0, "0"), (1.001, "1.001")])
def test_directions_must_have_unit_length(backend, call, entry, norm):
    rows = changed(E, (1, 1), entry)
    name, bad = ("direction", rows[1]) if call is coupling else ("directions", rows)
    arrays = {"x": backend.asarray(X), "y": backend.asarray(Y), name: backend.asarray(bad)}
    refuse(lambda: call(**arrays), ValueError, f"`{name}`", "unit length", f" {norm}. Divide")


ROUGH = {
    "NumPy": (np.asarray, (np.float16, np.float32)),
    "torch": (torch.asarray, (torch.float16, torch.bfloat16, torch.float32)),
    "JAX": (jnp.asarray, (jnp.float16, jnp.bfloat16)),
}


def rough_types():
    return [
        pytest.param(asarray, dtype, id=f"{name}-{getattr(dtype, '__name__', dtype)}")
        for name, (asarray, dtypes) in ROUGH.items()
        for dtype in dtypes
    ]


@pytest.mark.thin
@pytest.mark.parametrize("call", EVERY)
@pytest.mark.parametrize(("asarray", "dtype"), rough_types())
def test_rows_of_unit_length_in_a_narrower_type(call, asarray, dtype):
    """They are made of unit length in the type of the clouds, not only taken; rows that are not are refused."""
    rows = np.array([[0.6, 0.8, 0.0], [0.3, 0.3, 0.82**0.5]])
    x, y, rough = asarray(X), asarray(Y), asarray(asarray(rows), dtype=dtype)
    same = to_numpy(asarray(rough, dtype=x.dtype)).astype(np.float64)
    same /= np.linalg.norm(same, axis=1, keepdims=True)
    name = "direction" if call is coupling else "directions"
    rough, same, off = (a[1] if call is coupling else a for a in (rough, same, 1.2 * rough))
    tolerance = 1e-5 if asarray is jnp.asarray else 1e-12
    np.testing.assert_allclose(read(call(x, y, **{name: rough})), read(call(X, Y, **{name: same})), tolerance)
    refuse(lambda: call(x, y, **{name: off}), ValueError, f"`{name}`", "unit length")


def test_a_norm_is_said_with_enough_digits():
    refuse(lambda: sliced(directions=E * (1 + 3e-6)), ValueError, "row 0 has norm 1.000003. Divide")


@pytest.mark.parametrize("call", EVERY)
def test_rows_that_were_normalised_in_float32_and_widened(call):
    """Off by 4e-8 or so, they are made of unit length; rows of unit length stay as they are, bit by bit."""
    rows = np.array([[0.6, 0.8, 0.0], [0.3, 0.3, 0.82**0.5]])
    rough = rows.astype(np.float32).astype(np.float64)
    assert np.abs(np.linalg.norm(rough, axis=1) - 1).max() > 1e-8
    same = rough / np.linalg.norm(rough, axis=1, keepdims=True)
    name = "direction" if call is coupling else "directions"
    rough, same, off = (a[1] if call is coupling else a for a in (rough * (1 + 5e-8), same, rough * (1 + 3e-6)))
    np.testing.assert_allclose(read(call(X, Y, **{name: rough})), read(call(X, Y, **{name: same})), 1e-13)
    refuse(lambda: call(X, Y, **{name: off}), ValueError, f"`{name}`", "unit length")


def test_rows_of_unit_length_are_taken_as_they_are():
    rows = np.random.default_rng(0).normal(size=(50, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.array_equal(sliced(directions=rows).directions.theta, rows)


@pytest.mark.thin
@pytest.mark.parametrize("call", EVERY)
@pytest.mark.parametrize(("asarray", "dtype"), rough_types())
def test_weights_that_sum_to_1_in_a_narrower_type(call, asarray, dtype):
    """Of 300 random ones the sum is off by more than float32 would be; a sum that is wrong is refused."""
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=(300, 3)), asarray(Y), rng.random(300)
    weights = asarray(asarray(w / w.sum()), dtype=dtype)
    answer = call(asarray(x), y, x_weights=weights)
    plain = to_numpy(asarray(weights, dtype=y.dtype)).astype(np.float64)
    tolerance = 1e-4 if asarray is jnp.asarray else 1e-6
    np.testing.assert_allclose(read(answer), read(call(x, Y, x_weights=plain / plain.sum())), rtol=tolerance)
    refuse(lambda: call(asarray(x), y, x_weights=weights * 1.25), ValueError, "`x_weights`", "sum to 1")


@pytest.mark.parametrize("bad", ["a", None, E, E[0, :2], E[0] + 0j, torch.eye(3)[0], np.ma.masked_array(E[0])])
def test_direction_of_a_coupling(bad):
    refuse(lambda: coupling(direction=bad), either, "`direction`")


@pytest.mark.parametrize("call", EVERY)
@pytest.mark.parametrize("makers", [(np.asarray, torch.asarray), (torch.asarray, jnp.asarray)])
def test_one_library_for_all(call, makers):
    a, b = makers
    refuse(lambda: call(a(X), b(Y)), TypeError, "`x` of", "`y` of", "one library")
    refuse(lambda: call(a(X), a(Y), x_weights=b(W)), TypeError, "`x_weights` of", "one library")
    name, rows = ("direction", E[0]) if call is coupling else ("directions", E)
    refuse(lambda: call(a(X), a(Y), **{name: b(rows)}), TypeError, f"`{name}` of", "one library")


def test_one_device_for_all():
    refuse(lambda: sliced(torch.eye(3), torch.eye(3, device="meta")), ValueError, "`x` on cpu", "`y` on meta")


OPTIONS = {
    "n_directions": [(0, ValueError), (-1, ValueError), (2.5, TypeError), (True, TypeError), ("3", TypeError)],
    "memory": [
        (m, either) for m in ("much", "MB", "-1MB", "nanMB", "inf GB", 0, -5, np.nan, None, True, b"1MB")
    ],
    "workers": [(0, ValueError), (-1, ValueError), (2.5, TypeError), (True, TypeError), ("two", TypeError)],
    "rng": [(1.5, TypeError), (-1, ValueError), ("a", TypeError), (True, TypeError), ([1], TypeError)],
    "rtol": [(0, ValueError), (-1, ValueError), (np.nan, ValueError), ("a", TypeError), (True, TypeError)],
    "atol": [(0, ValueError), (-0.1, ValueError), (np.inf, ValueError), ("a", TypeError), (W, TypeError)],
    "control": [("gaussian?", ValueError), (3, either), (W, either)],
    "cost": [("nonesuch", ValueError), (3, either), (None, either), (W, either)],
}
OPTIONS["n_directions"] += [(np.array([3, 4]), TypeError), (np.nan, TypeError)]
OPTIONS["rng"] += [(np.ones(2), TypeError), (torch.ones(2), TypeError), (jnp.ones(2), TypeError)]
OPTIONS["rng"] += [(np.random.RandomState(0), TypeError), (jax.random.split(jax.random.key(0), 3), TypeError)]


@pytest.mark.parametrize(
    ("name", "bad", "error"),
    [(name, bad, error) for name, cases in OPTIONS.items() for bad, error in cases],
    ids=lambda v: str(v)[:20].replace("\n", " "),
)
def test_options(name, bad, error):
    only_some = {"rtol": ESTIMATES, "atol": ESTIMATES, "control": ESTIMATES, "cost": [projected]}
    # Where points are held, no limit means as much as that takes.
    others = ESTIMATES if (name, bad) == ("memory", None) else DRAWN
    for call in only_some.get(name, others):
        refuse(lambda call=call: call(**{name: bad}), error, f"`{name}`")


SAMPLERS = [
    (lambda: Orthogonal(block_size=0), ValueError, "block_size"),
    (lambda: Orthogonal(block_size=2.5), TypeError, "block_size"),
    (lambda: HadamardRademacher(block_size=True), TypeError, "block_size"),
    *((lambda r=r: HadamardRademacher(rounds=r), either, "rounds") for r in (0, 4, 2.0, True, "2", W)),
    *((lambda f=f: HadamardRademacher(factors=f), ValueError, "factors") for f in ("sign", None, 1)),
    (lambda: IID().sample(-1, 3), ValueError, "n_directions"),
    (lambda: IID().sample(2.5, 3), TypeError, "n_directions"),
    (lambda: IID().sample(2, 0), ValueError, "dim"),
    (lambda: IID().sample(2, True), TypeError, "dim"),
    (lambda: Orthogonal().sample(2, 3, rng=1.5), TypeError, "rng"),
    (lambda: sliced(directions=E, n_directions=2), ValueError, "n_directions"),
    (lambda: projected(cost="pooled", n_directions=1, p=1), ValueError, "cost"),
    (lambda: sliced().interval(1.5), ValueError, "level"),
    (lambda: sliced().distance_interval("wide"), either, "level"),
]


@pytest.mark.parametrize(("call", "error", "name"), SAMPLERS)
def test_other_options(call, error, name):
    refuse(call, error, f"`{name}" if name == "cost" else f"`{name}`")


@functools.cache
def jitted(call, p):
    """A compiled function of all arrays that returns the answer."""
    if call is coupling:
        return jax.jit(lambda x, y, w, theta: coupling(x, y, theta[0], x_weights=w).cost(p))
    return jax.jit(lambda x, y, w, theta: call(x, y, p, x_weights=w, directions=theta).value)


TRACED = {
    "NaN in x": (0, (1, 2), np.nan),
    "NaN in y": (1, (1, 2), np.nan),
    "infinity in y": (1, (1, 2), np.inf),
    "sum of weights": (2, 0, 0.9),
    "negative weight": (2, slice(2), jnp.asarray([-0.1, 0.4])),
    "NaN in weights": (2, 0, np.nan),
    "long direction": (3, (0, 0), 2.0),
    "NaN in directions": (3, (0, 1), np.nan),
}


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("call", [*ESTIMATES, coupling])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("case", TRACED)
def test_bad_values_propagate_under_jit(call, p, case):
    arrays = [jnp.asarray(a, jnp.float32) for a in (X, Y, W, E)]
    which, index, value = TRACED[case]
    assert np.isfinite(jitted(call, p)(*arrays))
    arrays[which] = arrays[which].at[index].set(value)
    answer = jitted(call, p)(*arrays)
    assert np.isnan(answer) or ("infinity" in case and np.isinf(answer))


@pytest.mark.parametrize("call", ESTIMATES)
def test_always_checked_under_jit(call):
    x, y = jnp.asarray(X), jnp.asarray(Y)
    for name in ("rtol", "atol"):
        refuse(
            lambda n=name: jax.jit(lambda a: call(a, a, **{n: 0.1}).value)(x), TypeError, f"`{name}`", "traced"
        )
    refuse(lambda: jax.jit(lambda a, b: call(a, b, rng=None).value)(x, y), ValueError, "`rng`", "tracing")
    refuse(lambda: jax.jit(lambda a, b: call(a, b).value)(x, y[:, :2]), ValueError, "`x` and `y`")
    with pytest.raises(TypeError, match="traced"):
        jax.jit(lambda a, b: bounds(a, b).lower)(x, y)


@pytest.mark.parametrize("call", ESTIMATES)
@pytest.mark.parametrize("constant", ["y", "x_weights", "directions"])
def test_constants_may_be_closed_over_under_jit(call, constant):
    """Arrays with values known at once are welcome inside a traced function."""
    options = {"y": jnp.asarray(Y), "x_weights": jnp.asarray(W), "directions": jnp.asarray(E)}
    fixed = {constant: options.pop(constant)}
    answer = jax.jit(lambda x, options: call(x, **options, **fixed).value)(jnp.asarray(X), options)
    np.testing.assert_allclose(answer, call(X, x_weights=W, directions=E).value, rtol=1e-5)


def exact_conversions():
    whole = np.random.default_rng(3).integers(0, 5, size=(9, 3))
    yield "int64", whole, whole
    yield "uint8", whole.astype(np.uint8), whole
    yield "bool", whole > 2, whole > 2
    yield "lists", whole.tolist(), whole
    yield "tuples", tuple(map(tuple, whole.tolist())), whole
    yield "pandas", pd.DataFrame(whole), whole
    yield "pandas mixed", pd.DataFrame(whole).astype({0: "float32", 1: "int8"}), whole
    yield "pandas nullable", pd.DataFrame(whole).astype("Int64"), whole
    yield "polars", pl.DataFrame(whole), whole
    yield "long double", whole.astype(np.longdouble), whole


@pytest.mark.parametrize("call", EVERY)
@pytest.mark.parametrize(("given", "same"), [pytest.param(*c[1:], id=c[0]) for c in exact_conversions()])
def test_real_numbers_of_any_kind_are_converted(call, given, same):
    same = same.astype(np.float64)
    answers = [call(x, y) for x, y in ((given[:4], given[4:]), (same[:4], Y), (same[:4], same[4:]))]
    got, other, expected = (read(a) for a in answers)
    assert got == expected != other
    assert np.asarray(got).dtype == np.float64

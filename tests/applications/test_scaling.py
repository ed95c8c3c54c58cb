"""Common units for features: what is pooled, what becomes of constant ones, and what keeps its kind."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import orthoslice as osl
from orthoslice.applications import scaling

NAMES = list("abcd")


def clouds(rng, sizes=(60, 40)):
    """Two clouds with features in different units, some of them correlated."""
    mix = np.array([[1, 0.5, 0, 0], [0, 1, 0, 0], [0, 0, 30, 0], [0, 0, 9, 1e-3]])
    return [rng.normal(size=(n, 4)) @ mix + shift for n, shift in zip(sizes, (0, [1, 0, 5, 7]), strict=True)]


def test_standard_is_pooled(backend, rng):
    x, y = osl.scaled([backend.asarray(c) for c in clouds(rng)])
    pool = np.concatenate([backend.numpy(x), backend.numpy(y)])
    tolerance = backend.tolerance(100)
    np.testing.assert_allclose(pool.mean(axis=0), 0, atol=100 * tolerance["atol"])
    np.testing.assert_allclose(pool.std(axis=0), 1, rtol=100 * tolerance["rtol"])
    # Negative control: neither cloud alone is standardised.
    assert abs(backend.numpy(x).mean(axis=0)).max() > 0.1


def test_whitened_features_are_uncorrelated_and_keep_their_names(backend, rng):
    given = clouds(rng)
    x, y = osl.scaled([backend.asarray(c) for c in given], "whiten")
    pool = np.concatenate([backend.numpy(x), backend.numpy(y)])
    np.testing.assert_allclose(np.cov(pool.T, bias=True), np.eye(4), atol=1e4 * backend.tolerance(100)["atol"])
    # Every new feature resembles its own old one most.
    alike = np.corrcoef(pool.T, np.concatenate(given).T)[:4, 4:]
    assert (np.argmax(np.abs(alike), axis=1) == np.arange(4)).all()
    assert (np.diag(alike) > 0.5).all()


@pytest.mark.parametrize("method", scaling.METHODS)
def test_units_and_offsets_do_not_matter(method, rng):
    given = clouds(rng)
    units, offsets = np.array([1e-150, 1e3, 1e150, 0.25]), np.array([0, 1e4, 0, -3])
    for a, b in zip(
        osl.scaled(given, method), osl.scaled([c * units + offsets for c in given], method), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("method", scaling.METHODS)
def test_constant_features_become_zero(backend, method, rng):
    """0.1 has no exact mean, so that a spread of rounding would be blown up to 1."""
    given = clouds(rng)
    for c in given:
        c[:, 1] = 0.1
        c[:, 3] = 1e6 * (1 + 1e-16 * rng.normal(size=len(c)))
    for c in osl.scaled([backend.asarray(c) for c in given], method):
        assert (backend.numpy(c)[:, [1, 3]] == 0).all()
        assert (backend.numpy(c)[:, [0, 2]] != 0).any()


def test_features_that_depend_on_others(backend, rng):
    """Whitening leaves a projection as covariance: 1 where there is variance, 0 where there is none."""
    given = clouds(rng)
    for c in given:
        c[:, 3] = 2 * c[:, 0] - c[:, 1]
    scaled = [backend.numpy(c) for c in osl.scaled([backend.asarray(c) for c in given], "whiten")]
    values = np.linalg.eigvalsh(np.cov(np.concatenate(scaled).T, bias=True))
    np.testing.assert_allclose(values, [0, 1, 1, 1], atol=1e-3)
    assert max(np.abs(c).max() for c in scaled) < 10


def test_whitening_takes_more_points_than_features():
    x = np.random.default_rng(0).normal(size=(3, 4))
    with pytest.raises(
        ValueError, match=r"more points than features; got 5 points with 4 features.*'standard'"
    ):
        osl.scaled([x, x[:2]], "whiten")
    assert np.isfinite(osl.scaled([x, x[:2]])[0]).all()


def test_kinds_and_names_are_kept(rng):
    x, y = clouds(rng)
    plain = osl.scaled([x, y])
    frames = {
        "p": pd.DataFrame(x, columns=NAMES, index=[f"r{k}" for k in range(len(x))]),
        "q": pl.DataFrame(dict(zip(NAMES[::-1], y.T[::-1], strict=True))),
    }
    found = osl.scaled(frames)
    assert list(found) == ["p", "q"]
    assert isinstance(found["p"], pd.DataFrame)
    assert isinstance(found["q"], pl.DataFrame)
    assert list(found["p"].columns) == list(found["q"].columns) == NAMES
    assert found["p"].index[-1] == "r59"
    np.testing.assert_allclose(found["p"].to_numpy(), plain[0], rtol=1e-12)
    np.testing.assert_allclose(found["q"].to_numpy(), plain[1], rtol=1e-12)
    pairs = osl.scaled([("p", x), ("q", y)])
    np.testing.assert_array_equal(pairs["q"], plain[1])


def test_arrow_tables(rng):
    pa = pytest.importorskip("pyarrow")
    x, y = clouds(rng)
    tables = [pa.table(dict(zip(NAMES, c.T, strict=True))) for c in (x, y)]
    found = osl.scaled(tables)
    assert found[1].column_names == NAMES
    np.testing.assert_array_equal(
        np.column_stack([c.to_numpy() for c in found[1].columns]), osl.scaled([x, y])[1]
    )


@pytest.mark.parametrize("method", scaling.METHODS)
def test_units_are_constants_of_gradients(method, rng):
    torch = pytest.importorskip("torch")
    x, y = clouds(rng)
    tensor = torch.tensor(x, requires_grad=True)
    scaled, _ = osl.scaled([tensor, torch.tensor(y)], method)
    scaled[3, 0].backward()
    fitted = scaling.fit_scaling([x, y], method)
    expected = np.zeros_like(x)
    expected[3] = fitted.factors * (np.eye(4) if fitted.mixing is None else fitted.mixing)[:, 0]
    np.testing.assert_allclose(tensor.grad.numpy(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", scaling.METHODS)
def test_labels_are_ignored(method, rng):
    """The level of a two-sample test stays exact: exchanging x and y does not change the pooled points."""
    pool = np.concatenate(clouds(rng))
    deal = rng.permutation(len(pool))
    one = np.concatenate(osl.scaled([pool[:60], pool[60:]], method))
    other = np.concatenate(osl.scaled([pool[deal[:30]], pool[deal[30:]]], method))
    np.testing.assert_allclose(one[deal], other, rtol=1e-9, atol=1e-9)


def test_level_of_the_test_on_scaled_samples():
    """200 tests at 5% on samples of one law: more than 24 rejections once in ten thousand seeds."""
    hits = found = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_t(3, size=(20, 3)) * [1, 10, 100], rng.standard_t(3, size=(15, 3)) * [1, 10, 100]
        options = {"n_permutations": 39, "n_directions": 9, "rng": seed, "workers": 1}
        hits += osl.two_sample_test(*osl.scaled([x, y], "whiten"), **options).pvalue <= 0.05
        if seed < 20:
            # Negative control: a shift of the smallest feature, which only common units let it see.
            moved = osl.scaled([x, y + np.array([4, 0, 0])], "whiten")
            found += osl.two_sample_test(*moved, **options).pvalue <= 0.05
    assert hits <= 24
    assert found >= 15


def test_many_pieces_are_one(rng, monkeypatch):
    x, y = clouds(rng)
    whole = osl.scaled([x, y], "whiten")
    monkeypatch.setattr(scaling, "_PIECE_ITEMS", 4 * 7)
    for a, b in zip(whole, osl.scaled([x, y], "whiten"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_bad_input(rng):
    x, y = clouds(rng)
    with pytest.raises(ValueError, match="`method` must be 'standard' or 'whiten'; got 'robust'"):
        osl.scaled([x, y], "robust")
    with pytest.raises(ValueError, match="`method` must be"):
        osl.scaled(x, y)  # a cloud where the method goes
    with pytest.raises(ValueError, match="one or more clouds; got none"):
        osl.scaled([])
    with pytest.raises(ValueError, match="only `x` has 'd' and only `y` has 'e'"):
        osl.scaled([pd.DataFrame(x, columns=NAMES), pd.DataFrame(y, columns=list("abce"))])
    with pytest.raises(ValueError, match="must agree with each other"):
        osl.scaled([x, y[:, :2]])
    with pytest.raises(TypeError, match=r"`frame\.groupby"):
        osl.scaled(pd.DataFrame(x))

"""The transformer of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

import orthoslice as osl

base = pytest.importorskip("sklearn.base", reason="pip install scikit-learn")
from sklearn.decomposition import PCA  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.neighbors import KNeighborsClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402


def kinds(rng, each=12):
    kind = np.repeat([1, 2, 3], each)
    return [k * rng.normal(size=(rng.integers(30, 60), 3)) for k in kind], kind


def test_vectors_are_those_of_embed(rng):
    clouds, _ = kinds(rng)
    found = osl.adapters.CloudVectors(16, n_directions=20, rng=7).fit_transform(clouds)
    np.testing.assert_array_equal(found, osl.embed(clouds, n=16, n_directions=20, rng=7).vectors)


def test_pipelines(rng):
    clouds, kind = kinds(rng)
    model = make_pipeline(osl.adapters.CloudVectors(), PCA(2), KNeighborsClassifier(3))
    assert base.clone(model).fit(clouds, kind).score(*kinds(rng)) > 0.9
    # Negative control: labels that have nothing to do with the clouds are not learned.
    assert base.clone(model).fit(clouds, rng.permutation(kind)).score(*kinds(rng)) < 0.9
    search = GridSearchCV(model, {"cloudvectors__n": [4, 16]}, cv=2).fit(np.array(clouds, dtype=object), kind)
    assert search.best_score_ > 0.8


def test_refusals(rng):
    clouds, _ = kinds(rng)
    with pytest.raises(NotFittedError):
        osl.adapters.CloudVectors().transform(clouds)
    with pytest.raises(TypeError, match="`rng` must be an integer"):
        osl.adapters.CloudVectors(rng=None).fit(clouds)
    with pytest.raises(ValueError, match="dim = 3, as those of `fit`; got 2"):
        osl.adapters.CloudVectors().fit(clouds).transform([c[:, :2] for c in clouds])


def test_columns_are_matched_by_name_with_those_of_fit(rng):
    pd = pytest.importorskip("pandas")
    clouds, _ = kinds(rng)
    frames = [pd.DataFrame(c, columns=list("abc")) for c in clouds]
    model = osl.adapters.CloudVectors(8, n_directions=16).fit(frames)
    expected = model.transform(frames)
    np.testing.assert_array_equal(model.transform([f[["c", "a", "b"]] for f in frames]), expected)
    np.testing.assert_array_equal(model.transform(clouds), expected)
    with pytest.raises(ValueError, match="column"):
        model.transform([f.rename(columns={"a": "z"}) for f in frames])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_vectors_as_frames(rng, library):
    pytest.importorskip(library)
    clouds, _ = kinds(rng, 3)
    model = osl.adapters.CloudVectors(8, n_directions=16)
    with pytest.raises(NotFittedError):
        model.get_feature_names_out()
    plain = model.fit_transform(clouds)
    names = model.get_feature_names_out().tolist()
    assert names == [f"cloudvectors{k}" for k in range(plain.shape[1])]
    frame = model.set_output(transform=library).transform(clouds)
    assert type(frame).__module__.split(".")[0] == library
    assert list(frame.columns) == names
    np.testing.assert_array_equal(frame.to_numpy(), plain)
    # As a step of a pipeline, by all counts of directions: those of a line are one.
    lines = [c[:, :1] for c in clouds]
    steps = make_pipeline(osl.adapters.CloudVectors(8), PCA(2)).set_output(transform=library)
    assert list(steps.fit_transform(lines).columns) == ["pca0", "pca1"]
    assert steps[:1].get_feature_names_out().shape == (8,)


def test_any_sequence_and_integer(rng):
    pd = pytest.importorskip("pandas")
    clouds, _ = kinds(rng, 2)
    model = osl.adapters.CloudVectors(8, n_directions=16, rng=np.int64(3))
    expected = model.fit_transform(clouds)
    for given in (
        (c for c in clouds),
        dict(zip("abcdef", clouds, strict=True)),
        pd.Series(clouds, range(2, 8)),
    ):
        np.testing.assert_array_equal(model.transform(given), expected)
    assert osl.adapters.CloudVectors().fit(pd.Series(clouds, range(2, 8))).n_features_in_ == 3
    with pytest.raises(ValueError, match="at least one cloud"):
        model.fit([])
    with pytest.raises(ValueError, match="must have shape"):
        osl.adapters.CloudVectors().fit(clouds[0])
    with pytest.raises(TypeError, match="`rng` must be an integer"):
        osl.adapters.CloudVectors(rng=True).fit(clouds)

"""Groups of an AnnData object: as clouds with names, and all of them against a control."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import orthoslice as osl
from orthoslice.adapters import compare_with_control, group_clouds
from orthoslice.adapters.single_cell import false_discovery_rates

anndata = pytest.importorskip("anndata", reason="pip install 'orthoslice[cells]'")

# Views set an option that pandas 3 no longer has a use for.
pytestmark = pytest.mark.filterwarnings("ignore:.*mode.chained_assignment")


@pytest.fixture
def adata(rng):
    """40 cells of three types from two donors; T cells express the second gene more."""
    kind = np.array(["T", "B", "NK", "T"] * 10)
    counts = rng.poisson(2.0, size=(40, 3)).astype(np.float32)
    counts[kind == "T", 1] += 6
    obs = pd.DataFrame(
        {
            "type": pd.Categorical(kind, categories=["T", "NK", "B", "unseen"]),
            "donor": np.repeat(["d2", "d1"], 20),
            "batch": [1, 2] * 20,
        },
        index=[f"cell{k}" for k in range(40)],
    )
    found = anndata.AnnData(sp.csr_matrix(counts), obs=obs, var=pd.DataFrame(index=["CD4", "CD8", "MS4A1"]))
    found.obsm["X_pca"] = counts.astype(np.float64) @ rng.normal(size=(3, 2))
    found.obsm["named"] = pd.DataFrame(counts[:, :2], index=obs.index, columns=["u", "v"])
    found.layers["log"] = np.log1p(counts)
    return found


def test_groups_and_names(adata):
    clouds = group_clouds(adata, "type")
    assert list(clouds) == ["T", "NK", "B"]
    assert [len(c) for c in clouds.values()] == [20, 10, 10]
    assert list(clouds["B"].columns) == ["CD4", "CD8", "MS4A1"]
    dense = adata.X.toarray()
    np.testing.assert_array_equal(clouds["B"].to_numpy(), dense[1::4])
    assert list(clouds["B"].index) == [f"cell{k}" for k in range(1, 40, 4)]
    assert list(group_clouds(adata, "donor")) == ["d1", "d2"]
    assert list(group_clouds(adata, "batch")) == [1, 2]
    assert list(group_clouds(adata, "type", groups=["B", "T"])) == ["B", "T"]


def test_embeddings_and_layers(adata):
    pca = group_clouds(adata, "type", obsm="X_pca")["T"]
    np.testing.assert_array_equal(pca.to_numpy(), adata.obsm["X_pca"][adata.obs["type"] == "T"])
    assert list(pca.columns) == ["X_pca-0", "X_pca-1"]
    assert list(group_clouds(adata, "type", obsm="named")["T"].columns) == ["u", "v"]
    log = group_clouds(adata, "type", layer="log")["NK"]
    np.testing.assert_array_equal(log.to_numpy(), adata.layers["log"][2::4])


def test_a_view_of_some_cells(adata):
    part = adata[adata.obs["donor"] == "d1"]
    assert sum(len(c) for c in group_clouds(part, "type").values()) == 20


def test_all_functions_take_them(adata):
    clouds = group_clouds(adata, "type", obsm="X_pca")
    frame = osl.pairwise(clouds, rng=0).to_frame()
    assert list(frame.index) == list(frame.columns) == ["T", "NK", "B"]
    assert frame.loc["NK", "B"] < frame.loc["T", "B"]
    x, y = group_clouds(adata, "type", groups=["B", "T"]).values()
    assert osl.two_sample_test(x, y, rng=0).pvalue == 0.001
    found = osl.explain(x, y, rng=0)
    assert found.features[0].name == "CD8"
    assert found.features[0].change.startswith("higher in y")
    assert all(q.row in x.index for q in found.points)
    donor = adata.obs["donor"]
    # Both donors have cells of both types, so labels change places within donors.
    assert osl.two_sample_test(x, y, groups=(donor[x.index], donor[y.index]), rng=0).pvalue < 0.01


def test_refusals(adata):
    with pytest.raises(ValueError, match="`groupby` must be one of 'type', 'donor', 'batch'; got 'cluster'"):
        group_clouds(adata, "cluster")
    with pytest.raises(ValueError, match="`obsm` must be one of 'X_pca', 'named'; got 'X_umap'"):
        group_clouds(adata, "type", obsm="X_umap")
    with pytest.raises(ValueError, match="`layer` must be one of 'log'; got 'raw'"):
        group_clouds(adata, "type", layer="raw")
    with pytest.raises(ValueError, match="among those of 'type', 'T', 'NK', 'B'; got 'unseen'"):
        group_clouds(adata, "type", groups=["T", "unseen"])
    with pytest.raises(ValueError, match="`obsm` or `layer`, not both"):
        group_clouds(adata, "type", obsm="X_pca", layer="log")
    with pytest.raises(TypeError, match="must be an AnnData object; got DataFrame"):
        group_clouds(adata.obs, "type")
    adata.obs["type"] = adata.obs["type"].cat.remove_categories("NK")
    with pytest.raises(
        ValueError, match=r"has none for 'cell2'\. Pass `adata\[adata\.obs\['type'\]\.notna\(\)\]`"
    ):
        group_clouds(adata, "type")


def test_the_object_itself_gets_a_word(adata):
    with pytest.raises(TypeError, match=r"got AnnData\. .*`x\.obsm\['X_pca'\]`.*`osl\.adapters\.group_clouds`"):
        osl.sliced_wasserstein(adata, adata)
    with pytest.raises(TypeError, match=r"got AnnData\. .*`osl\.adapters\.group_clouds\(adata, groupby\)`"):
        osl.pairwise(adata)
    with pytest.raises(TypeError, match=r"`x\.toarray\(\)`"):
        osl.sliced_wasserstein(adata.X, adata.X)


def screen(rng, sizes, shifts, dim=3):
    """Cells of a control and of groups that are shifted from it, in an embedding."""
    label = np.repeat(list(sizes), list(sizes.values()))
    points = rng.normal(size=(len(label), dim))
    for name, shift in shifts.items():
        points[label == name] += shift
    obs = pd.DataFrame({"guide": label}, index=[f"cell{k}" for k in range(len(label))])
    return anndata.AnnData(obs=obs, obsm={"X_pca": points})


SIZES = {"control": 60, "near": 40, "same": 40, "far": 40, "one": 1}


def test_every_group_against_the_control(rng):
    adata = screen(rng, SIZES, {"near": 0.7, "far": 2.0, "one": 5.0})
    found = compare_with_control(adata, "guide", "control", obsm="X_pca", rng=1, workers=1)
    columns = ["n_cells", "distance", "chance", "pvalue", "adjusted_pvalue", "least_pvalue"]
    assert found.columns.tolist() == columns
    assert found.index.tolist() == ["far", "near", "one", "same"]
    assert found.index.name == "guide"
    assert found["n_cells"].tolist() == [40, 40, 1, 40]
    clouds = group_clouds(adata, "guide", obsm="X_pca")
    for name in found.index:
        options = {"stop_early": True, "columns": False, "rng": 1, "workers": 1}
        alone = osl.two_sample_test(clouds["control"], clouds[name], **options)
        assert found.loc[name, "distance"] == alone.statistic
        assert found.loc[name, "pvalue"] == alone.pvalue
        assert found.loc[name, "chance"] == alone.null_distribution.mean()
    assert found.index[found["adjusted_pvalue"] <= 0.05].tolist() == ["far", "near", "one"]
    assert found.loc["far", "distance"] > found.loc["near", "distance"] > found.loc["same", "distance"]
    # A single cell is one of 61 labellings, and this one is the most extreme of them.
    assert found.loc["one", "least_pvalue"] == pytest.approx(1 / 61)
    assert found.loc["one", "pvalue"] == pytest.approx(1 / 61, abs=5 * (1 / 61 / 999) ** 0.5)
    assert found.loc["far", "least_pvalue"] == 0.001
    again = compare_with_control(adata, "guide", "control", obsm="X_pca", rng=found.attrs["seed"], workers=2)
    pd.testing.assert_frame_equal(found, again)


def e_distance(x, y):
    """Twice the mean distance between two groups, less the mean distances within them: pertpy's E-distance."""
    from scipy.spatial.distance import cdist

    return 2 * cdist(x, y).mean() - cdist(x, x).mean() - cdist(y, y).mean()


def test_groups_rank_as_by_the_e_distance(rng):
    """Ten groups at growing distances, as measured by both; `chance` takes away what size adds."""
    from scipy.stats import spearmanr

    sizes = {"control": 100} | {f"g{k}": 30 + 20 * (k % 3) for k in range(10)} | {"few": 4}
    adata = screen(rng, sizes, {f"g{k}": 0.3 * k for k in range(10)})
    found = compare_with_control(adata, "guide", "control", obsm="X_pca", rng=1, n_permutations=99)
    clouds = group_clouds(adata, "guide", obsm="X_pca")
    theirs = [e_distance(clouds["control"], clouds[name]) for name in found.index]
    own = found["distance"] - found["chance"]
    assert spearmanr(own, theirs)[0] > 0.9
    # Negative control: four cells are further away than the cells of five groups, but not by more than chance.
    assert (found["distance"] < found.loc["few", "distance"]).sum() > (own < own["few"]).sum()


def test_some_groups_of_a_screen(rng):
    adata = screen(rng, SIZES, {"far": 2.0})
    options = {"obsm": "X_pca", "rng": 1, "n_permutations": 99}
    found = compare_with_control(adata, "guide", "same", groups=["far", "control", "same"], **options)
    assert found.index.tolist() == ["far", "control"]
    assert found.attrs == {"control": "same", "seed": 1}
    assert found["pvalue"].min() == found.loc["far", "least_pvalue"] == 0.01


def test_many_groups_get_more_permutations(rng):
    """One group that differs is found among 59 that do not, which 999 permutations could not tell."""
    sizes = {"control": 20} | {f"g{k:02}": 5 for k in range(60)}
    adata = screen(rng, sizes, {"g07": 4.0}, dim=2)
    options = {"obsm": "X_pca", "rng": 1, "n_directions": 8}
    found = compare_with_control(adata, "guide", "control", **options)
    assert found.loc["g07", "adjusted_pvalue"] <= 0.05
    fewer = compare_with_control(adata, "guide", "control", n_permutations=999, **options)
    assert fewer.loc["g07", "pvalue"] == 0.001
    assert fewer["adjusted_pvalue"].min() > 0.05


def test_donors_change_places_as_a_whole(rng):
    """Cells of a donor resemble each other: three donors against three can hardly tell anything."""
    adata = screen(rng, {"control": 60, "treated": 60}, {})
    adata.obs["donor"] = np.repeat(list("abcdef"), 20)
    adata.obsm["X_pca"] += np.repeat(rng.normal(size=(6, 3)), 20, axis=0)
    options = {"obsm": "X_pca", "rng": 1}
    # Negative control: taken for independent, cells show what donors are.
    assert compare_with_control(adata, "guide", "control", **options).loc["treated", "pvalue"] < 0.01
    found = compare_with_control(adata, "guide", "control", donor="donor", **options)
    assert found.loc["treated", "least_pvalue"] >= 1 / 20
    assert found.loc["treated", "pvalue"] > 0.05


def test_false_discoveries_of_screens_without_a_difference():
    """60 screens of 6 null groups: any discovery at 20% has a probability of 20% at most, if the rule holds.

    More than the bound of the binomial law come once in ten thousand seeds.
    """
    from scipy.stats import binom

    adjusted = plain = 0
    for seed in range(60):
        sizes = {"control": 12} | {f"g{k}": 8 for k in range(6)}
        adata = screen(np.random.default_rng(seed), sizes, {}, dim=2)
        options = {"obsm": "X_pca", "n_permutations": 99, "n_directions": 4, "rng": seed, "workers": 1}
        found = compare_with_control(adata, "guide", "control", **options)
        adjusted += (found["adjusted_pvalue"] <= 0.2).any()
        plain += (found["pvalue"] <= 0.2).any()
    assert adjusted <= binom.isf(1e-4, 60, 0.2)
    # Negative control: without an adjustment there would be too many.
    assert plain > binom.isf(1e-4, 60, 0.2)


def test_adjusted_as_scipy_does(rng):
    from scipy.stats import false_discovery_control

    for pvalues in (rng.uniform(size=30) ** 2, np.array([0.02]), np.repeat([0.5, 0.01], 4)):
        np.testing.assert_allclose(false_discovery_rates(pvalues), false_discovery_control(pvalues))


def test_refusals_of_comparisons(rng):
    adata = screen(rng, SIZES, {})
    with pytest.raises(ValueError, match=r"`control` must be one of 'control', 'far', .*; got 'NT'"):
        compare_with_control(adata, "guide", "NT", obsm="X_pca")
    with pytest.raises(ValueError, match="`groups` must name others than the control; got 'far' only"):
        compare_with_control(adata, "guide", "far", obsm="X_pca", groups=["far"])
    with pytest.raises(ValueError, match="`donor` must be one of 'guide'; got 'plate'"):
        compare_with_control(adata, "guide", "control", obsm="X_pca", donor="plate")
    adata.obs["plate"] = ["shared"] * 60 + ["shared", "own"] * 60 + ["own"]
    with pytest.raises(ValueError, match=r"'control' \(x\) and 'far' \(y\) of 'guide': `groups` must all"):
        compare_with_control(adata, "guide", "control", obsm="X_pca", donor="plate")


def test_one_name_is_no_list_of_groups(rng):
    """The letters of "AB" would be two groups."""
    cells = anndata.AnnData(rng.normal(size=(6, 2)), obs={"g": list("ABABCC")})
    with pytest.raises(TypeError, match=r"`groups` must be a list of groups; got 'AB'\. Pass `\['AB'\]`"):
        osl.adapters.compare_with_control(cells, "g", "C", groups="AB", rng=0)

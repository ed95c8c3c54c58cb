"""Groups of an AnnData object as clouds with names."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import orthoslice as osl
from orthoslice.adapters import group_clouds

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

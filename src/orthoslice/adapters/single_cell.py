"""Groups of an AnnData object, as single-cell analysis keeps its data, as clouds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from orthoslice.check.frames import listed


def group_clouds(
    adata: Any,
    groupby: str,
    *,
    obsm: str | None = None,
    layer: str | None = None,
    groups: Sequence[Hashable] | None = None,
) -> dict[Hashable, Any]:
    """The cells of each group of an AnnData object as a cloud, in a dict by group.

    Clouds are pandas frames: rows are named as cells are, columns as genes, or as components of an embedding,
    so that what is made of them has names. All functions take them:

    - ``osl.pairwise(group_clouds(adata, "donor", obsm="X_pca")).to_frame()``: distances of all groups.
    - ``x, y = group_clouds(adata, "condition", obsm="X_pca", groups=["control", "treated"]).values()``, then
      ``osl.two_sample_test(x, y)``, ``osl.explain(x, y)``. Cells of one donor are not independent: with
      ``donor = adata.obs["donor"]``, pass ``groups=(donor[x.index], donor[y.index])`` to the test.

    Parameters
    ----------
    adata
        An :class:`anndata.AnnData`.
    groupby
        A column of ``adata.obs``.
    obsm
        An embedding in ``adata.obsm``, such as ``"X_pca"``. None takes the genes, ``adata.X``.
    layer
        A layer to take instead of ``adata.X``.
    groups
        Which groups, in which order. All of them by default: in the order of their categories, or sorted.

    Returns
    -------
    dict
        Frames `(cells, dim)` by group. Sparse matrices are made dense, group by group.

    Examples
    --------
    >>> import anndata, numpy as np, pandas as pd, orthoslice as osl
    >>> cells = pd.DataFrame({"type": ["B", "T", "B", "T"]}, index=["c1", "c2", "c3", "c4"])
    >>> adata = anndata.AnnData(np.eye(4, 2), obs=cells, var=pd.DataFrame(index=["CD4", "CD8"]))
    >>> clouds = osl.adapters.group_clouds(adata, "type")
    >>> clouds["T"]
        CD4  CD8
    c2  0.0  1.0
    c4  0.0  0.0
    >>> osl.pairwise(clouds, rng=0).labels
    ['B', 'T']
    """
    import pandas as pd

    if not all(hasattr(adata, part) for part in ("obs", "obsm", "X", "layers")):
        raise TypeError(f"`adata` must be an AnnData object; got {type(adata).__name__}.")
    matrix, columns = _matrix(adata, obsm, layer)
    positions = _positions(adata, groupby, groups)
    clouds: dict[Hashable, Any] = {}
    for label, rows in positions.items():
        part = matrix.iloc[rows] if isinstance(matrix, pd.DataFrame) else matrix[rows]
        dense = part.toarray() if hasattr(part, "toarray") else np.asarray(part)
        clouds[label] = pd.DataFrame(dense, index=adata.obs_names[rows], columns=columns)
    return clouds


def _matrix(adata: Any, obsm: str | None, layer: str | None) -> tuple[Any, list[Hashable]]:
    """What stands for the cells, and the names of its columns."""
    if obsm is not None and layer is not None:
        raise ValueError(f"Pass `obsm` or `layer`, not both; got {obsm!r} and {layer!r}.")
    if obsm is not None:
        _check_key("obsm", obsm, adata.obsm)
        matrix = adata.obsm[obsm]
        # As scanpy names them.
        default = [f"{obsm}-{k}" for k in range(matrix.shape[1])]
        return matrix, list(getattr(matrix, "columns", default))
    if layer is not None:
        _check_key("layer", layer, adata.layers)
    matrix = adata.X if layer is None else adata.layers[layer]
    if matrix is None:
        raise ValueError("`adata.X` is None; pass `obsm` or `layer`.")
    return matrix, list(adata.var_names)


def _positions(adata: Any, groupby: str, groups: Sequence[Hashable] | None) -> dict[Hashable, Any]:
    """Which rows each group has."""
    _check_key("groupby", groupby, adata.obs.columns)
    column = adata.obs[groupby]
    if column.isna().any():
        cell = adata.obs_names[int(np.argmax(column.isna().to_numpy()))]
        raise ValueError(
            f"`groupby` must name a group for every cell; {groupby!r} has none for {cell!r}. Pass "
            f"`adata[adata.obs[{groupby!r}].notna()]`."
        )
    found = column.astype("category").cat
    codes, names = found.codes.to_numpy(), list(found.categories)
    there = [name for k, name in enumerate(names) if (codes == k).any()]
    wanted = there if groups is None else list(groups)
    missing = [name for name in wanted if name not in there]
    if missing:
        raise ValueError(
            f"`groups` must be among those of {groupby!r}, {listed(there)}; got {listed(missing)}."
        )
    return {name: np.flatnonzero(codes == names.index(name)) for name in wanted}


def _check_key(name: str, key: Any, among: Any) -> None:
    if key not in among:
        raise ValueError(f"`{name}` must be one of {listed(list(among)) or 'none'}; got {key!r}.")

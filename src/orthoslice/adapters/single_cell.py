"""Groups of an AnnData object, as single-cell analysis keeps its data: as clouds, and against a control."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from orthoslice.applications.two_sample.testing import TwoSampleResult, two_sample_test
from orthoslice.backend.arrays import RNG, HostArray, resolve_rng
from orthoslice.backend.progress import progress_bar
from orthoslice.check.frames import listed

# With `_PER_GROUP` permutations a group, one group alone can reach an adjusted p-value of 1 / _PER_GROUP.
_PER_GROUP, _FEWEST_PERMUTATIONS = 20, 999


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
    frame_of = _frames(adata, obsm, layer)
    return {label: frame_of(rows) for label, rows in _positions(adata, groupby, groups).items()}


def compare_with_control(
    adata: Any,
    groupby: str,
    control: Hashable,
    *,
    obsm: str | None = None,
    layer: str | None = None,
    groups: Sequence[Hashable] | None = None,
    donor: str | None = None,
    p: float = 1,
    n_permutations: int | None = None,
    directions: Any = "auto",
    n_directions: int | None = None,
    rng: RNG = None,
    memory: int | str | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Any:
    """How far every group of cells is from a control, and whether further than chance puts it.

    A :func:`orthoslice.two_sample_test` of each group against the control, with the same directions for all of
    them, so that distances of groups compare. Only the cells of two groups are in dense memory at a time.

    Parameters
    ----------
    adata, groupby, obsm, layer
        As in :func:`group_clouds`. Distances are in the units of what is passed; components of an embedding
        are in comparable units, genes as a rule are not.
    control
        The group that all others are compared with.
    groups
        Which others, in which order. All of them by default.
    donor
        A column of ``adata.obs`` that tells which cells are not independent: their donor, animal, plate or
        well. Labels then change places within donors that have cells of both groups, or whole donors do: see
        `groups` of :func:`orthoslice.two_sample_test`. None takes cells for independent, which makes p-values
        too small where cells of one donor resemble each other.
    p
        The power of SW_p, at least 1.
    n_permutations
        How many for a group, at most; tests of groups whose p-value is above 10% end early. None: 20 for every
        group that is compared, and 999 at least, so that one group that differs can have an adjusted p-value of
        5% among all others that do not.
    directions, n_directions, rng, memory, workers
        As in :func:`orthoslice.two_sample_test`.
    progress
        Show a progress bar of groups on stderr.

    Returns
    -------
    pandas.DataFrame
        A row a group, in the order of `groups`:

        - ``n_cells``: how many cells it has.
        - ``distance``: SW_p from the control.
        - ``chance``: the mean distance under permuted labels. Small groups are far from everything by chance,
          so that groups of unlike sizes are to be ranked by what `distance` exceeds it by.
        - ``pvalue``: of the permutation test, exact for a group of any size.
        - ``adjusted_pvalue``: adjusted for the number of groups by Benjamini and Hochberg. Call all groups with
          5% or less different, and at most 5% of those called so are expected not to be.
        - ``least_pvalue``: the smallest p-value that the group could have. Of a few cells, or of a few donors
          that change places as a whole, there are few labellings: where this is above 5%, the data cannot tell,
          however far the group is.

        ``frame.attrs`` has the control and the seed.

    Notes
    -----
    The rule of Benjamini and Hochberg keeps its promise for p-values that are independent, or depend on each
    other in a positive way. That groups which share a control do the latter is plausible, and not proven for
    this statistic. Each `pvalue` by itself needs no such assumption.

    References
    ----------
    Benjamini and Hochberg, Controlling the false discovery rate, JRSS B 57 (1995).

    Examples
    --------
    >>> import anndata, numpy as np, pandas as pd, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> guide = np.repeat(["control", "KLF1", "GATA1", "rare"], [60, 40, 40, 1])
    >>> cells = rng.normal(size=(141, 5)) + (guide == "KLF1")[:, None]
    >>> adata = anndata.AnnData(cells, obs=pd.DataFrame({"guide": guide}, index=[f"c{k}" for k in range(141)]))
    >>> found = osl.adapters.compare_with_control(adata, "guide", "control", rng=0)
    >>> found.index[found["adjusted_pvalue"] <= 0.05].tolist()
    ['KLF1']
    >>> float(found.loc["rare", "least_pvalue"].round(3))
    0.016
    """
    import pandas as pd

    frame_of = _frames(adata, obsm, layer)
    own_rows, others = _control_and_others(adata, groupby, control, groups)
    if donor is not None:
        _check_key("donor", donor, adata.obs.columns)
    donors = None if donor is None else adata.obs[donor].to_numpy()
    if n_permutations is None:
        n_permutations = max(_FEWEST_PERMUTATIONS, _PER_GROUP * len(others) - 1)
    _, seed = resolve_rng(rng, np.zeros(1))
    cells, told = frame_of(own_rows), []
    with progress_bar("groups", len(others), progress) as advance:
        for label, rows in others.items():
            try:
                found = two_sample_test(
                    cells,
                    frame_of(rows),
                    p,
                    columns=False,
                    n_permutations=n_permutations,
                    stop_early=True,
                    directions=directions,
                    n_directions=n_directions,
                    groups=None if donors is None else (donors[own_rows], donors[rows]),
                    rng=seed,
                    memory=memory,
                    workers=workers,
                )
            except ValueError as error:
                raise ValueError(f"{control!r} (x) and {label!r} (y) of {groupby!r}: {error}") from error
            told.append({"n_cells": len(rows)} | _told(found, n_permutations))
            advance(1)
    frame = pd.DataFrame(told, index=pd.Index(list(others), name=groupby, tupleize_cols=False))
    frame.insert(4, "adjusted_pvalue", false_discovery_rates(frame["pvalue"].to_numpy()))
    frame.attrs = {"control": control, "seed": seed}
    return frame


def _told(found: TwoSampleResult, n_permutations: int) -> dict[str, float]:
    return {
        "distance": found.statistic,
        "chance": float(found.null_distribution.mean()),
        "pvalue": found.pvalue,
        "least_pvalue": max(1 / (n_permutations + 1), 1 / found.n_labellings),
    }


def false_discovery_rates(pvalues: HostArray) -> HostArray:
    """P-values adjusted by Benjamini and Hochberg: the least rate at which each would be called a discovery.

    Examples
    --------
    >>> false_discovery_rates(np.array([0.01, 0.5, 0.02])).tolist()
    [0.03, 0.5, 0.03]
    """
    order = np.argsort(pvalues)[::-1]
    rates = np.empty(len(pvalues))
    rates[order] = np.minimum.accumulate(pvalues[order] * len(pvalues) / np.arange(len(pvalues), 0, -1))
    return rates


def _frames(adata: Any, obsm: str | None, layer: str | None) -> Callable[[HostArray], Any]:
    """A function that makes a pandas frame of some rows."""
    import pandas as pd

    if not all(hasattr(adata, part) for part in ("obs", "obsm", "X", "layers")):
        raise TypeError(f"`adata` must be an AnnData object; got {type(adata).__name__}.")
    matrix, columns = _matrix(adata, obsm, layer)

    def frame_of(rows: HostArray) -> Any:
        part = matrix.iloc[rows] if isinstance(matrix, pd.DataFrame) else matrix[rows]
        dense = part.toarray() if hasattr(part, "toarray") else np.asarray(part)
        return pd.DataFrame(dense, index=adata.obs_names[rows], columns=columns)

    return frame_of


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


def _positions(adata: Any, groupby: str, groups: Sequence[Hashable] | None) -> dict[Hashable, HostArray]:
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
    if isinstance(groups, str):
        raise TypeError(f"`groups` must be a list of groups; got {groups!r}. Pass `[{groups!r}]`.")
    wanted = there if groups is None else list(groups)
    missing = [name for name in wanted if name not in there]
    if missing:
        raise ValueError(
            f"`groups` must be among those of {groupby!r}, {listed(there)}; got {listed(missing)}."
        )
    return {name: np.flatnonzero(codes == names.index(name)) for name in wanted}


def _control_and_others(
    adata: Any, groupby: str, control: Hashable, groups: Sequence[Hashable] | None
) -> tuple[HostArray, dict[Hashable, HostArray]]:
    """Which rows the control has, and which each group has that is compared with it."""
    positions = _positions(adata, groupby, None)
    if control not in positions:
        raise ValueError(f"`control` must be one of {listed(list(positions))}; got {control!r}.")
    wanted = positions if groups is None else _positions(adata, groupby, groups)
    others = {label: rows for label, rows in wanted.items() if label != control}
    if not others:
        raise ValueError(f"`groups` must name others than the control; got {control!r} only.")
    return positions[control], others


def _check_key(name: str, key: Any, among: Any) -> None:
    if key not in among:
        raise ValueError(f"`{name}` must be one of {listed(list(among)) or 'none'}; got {key!r}.")

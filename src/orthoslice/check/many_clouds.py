"""Step 1, check: many clouds at once, as users pass them: with names, in pairs or one after the other."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from orthoslice.clouds.cloud import Cloud, make_clouds


def named_clouds(clouds: object) -> tuple[dict[Hashable, Any], bool]:
    """Clouds by name, and whether the user named them; if not, the names are 0, 1, ..."""
    if isinstance(clouds, Mapping):
        return dict(clouds.items()), True
    if not isinstance(clouds, Iterable) or isinstance(clouds, str) or hasattr(clouds, "columns"):
        raise TypeError(
            "`clouds` must be a mapping from names to clouds, pairs (name, cloud), or a sequence of clouds; "
            f"got {type(clouds).__name__}. Of one data frame, pass `frame.groupby(...)[columns]`; of AnnData, "
            "`osl.adapters.group_clouds(adata, groupby)`."
        )
    named: dict[Hashable, Any] = {}
    has_names = False
    for index, entry in enumerate(clouds):
        pair = isinstance(entry, tuple) and len(entry) == 2 and _rank(entry[1]) >= 2
        name, cloud = entry if pair else (index, entry)
        if name in named:
            raise ValueError(f"`clouds` must have a name each; got {name!r} twice.")
        named[name] = cloud
        has_names |= pair
    return named, has_names


def _rank(value: object) -> int:
    """The number of axes of an array or of nested lists."""
    if hasattr(value, "shape"):
        return len(value.shape)
    return 1 + _rank(value[0]) if isinstance(value, (list, tuple)) and len(value) else 0


def in_order(what: str, values: object, names: list[Hashable]) -> Any:
    """Values in the order of the clouds; a mapping is read by the names of the clouds."""
    if not isinstance(values, Mapping):
        return values
    if set(values) != set(names):
        raise ValueError(f"`{what}` must have the names of the clouds, {names}; got {list(values)}.")
    return [values[name] for name in names]


def weights_of_points(point_weights: object, names: list[Hashable]) -> list[Any]:
    """For each cloud, the weights of its points or None."""
    if point_weights is None:
        return [None] * len(names)
    by_point = list(in_order("point_weights", point_weights, names))
    if len(by_point) != len(names):
        raise ValueError(
            f"`point_weights` must have an entry a cloud, weights (n,) or None; got {len(by_point)} for "
            f"{len(names)} clouds."
        )
    return by_point


def agreeing_clouds(named: Mapping[Hashable, Any], point_weights: object = None) -> Iterator[Cloud]:
    """Single clouds `(n, dim)` of one library and dimension; columns of frames in the order of the first."""
    first_name, first = next(iter(named.items()))
    by_point = weights_of_points(point_weights, list(named))
    for (name, given), weights in zip(named.items(), by_point, strict=True):
        try:
            _, cloud = make_clouds(first, given, None, weights)
        except (ValueError, TypeError) as error:
            raise type(error)(
                f"`clouds` must agree with each other. Cloud {name!r}, called `y` here, beside the first one, "
                f"{first_name!r}, called `x`: {error}"
            ) from None
        if cloud.batch:
            raise ValueError(f"Each of `clouds` must have shape (n, dim); {name!r} has {cloud.points.shape}.")
        yield cloud

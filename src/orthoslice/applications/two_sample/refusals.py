"""What a test refuses: options that do not go together, and rows without which its level would not hold."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from orthoslice.applications.two_sample.verdict import Features
from orthoslice.check.options import check_host_directions
from orthoslice.clouds.cloud import Cloud
from orthoslice.directions import Sampler
from orthoslice.directions.stratified import Stratified


def check_method(method: object, p: float) -> None:
    if not isinstance(method, str) or method not in ("sliced", "projected", "auto"):
        raise ValueError(f"`method` must be 'sliced', 'projected' or 'auto'; got {method!r}.")
    if method == "auto" and p != 1:
        raise ValueError(
            "`p` must be left out with method='auto', which tests by SW_1, SW_2, PW_2, columns and pairs; "
            f"got p={p:g}."
        )


def check_flags(**named: Any) -> None:
    for name, value in named.items():
        if not (value is None or isinstance(value, bool)):
            raise TypeError(f"`{name}` must be True, False or None; got {value!r}.")


def check_columns(columns: object, dim: int) -> tuple[bool | None, Features | None]:
    """Whether columns are tested, if that was said, and the features of each, if one has several."""
    if columns is None or isinstance(columns, bool):
        return columns, None
    rule = "`columns` must be True, False, None or a list with the features of every column, each of them once"
    try:
        features = tuple(tuple(operator.index(k) for k in own) for own in cast("Iterable[Any]", columns))
    except TypeError:
        raise TypeError(f"{rule}; got {columns!r}.") from None
    if sorted(itertools.chain.from_iterable(features)) != list(range(dim)) or not all(features):
        raise ValueError(f"{rule}, as 0 to {dim - 1}; got {columns!r}.")
    return True, None if features == tuple((k,) for k in range(dim)) else features


def check_sampler(directions: object, dim: int) -> Sampler:
    sampler = check_host_directions(directions, Cloud(np.zeros((1, dim))))
    if isinstance(sampler, Stratified):
        raise ValueError(
            "`directions` must not depend on who is x and who is y; got Stratified, which is made for the two "
            "clouds. Pass 'orthogonal' or another sampler."
        )
    return sampler


def refuse_for_laws(**named: Any) -> None:
    for name, value in named.items():
        if not (value is None or value is False):
            raise ValueError(
                f"`{name}` must be left out where `y` is a law: samples of it are simulated. "
                "For the other tests pass a sample, `y.sample(n)`."
            )


def refuse_weights(**named: Any) -> None:
    for name, weights in named.items():
        if weights is not None:
            raise ValueError(
                f"`{name}` must be None: points of different weight cannot change places, so their labels "
                "cannot be permuted. Draw points in proportion to their weights, or compare weighted clouds "
                "with `osl.sliced_wasserstein`."
            )

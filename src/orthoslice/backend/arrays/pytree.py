"""Letting JAX and torch look inside a record."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeAlias

Flatten: TypeAlias = Callable[[Any], tuple[tuple[Any, ...], Any]]
Unflatten: TypeAlias = Callable[[Any, Any], Any]

_registered: set[tuple[str, type]] = set()


def register_pytree(kind: str | None, record: type, flatten: Flatten, unflatten: Unflatten) -> None:
    """Register `record` with the library `kind`, once, if it is JAX or torch.

    `flatten(record)` gives leaves and a static part, `unflatten(static, leaves)` puts them together again.
    """
    if kind not in ("jax", "torch") or (kind, record) in _registered:
        return
    _registered.add((kind, record))
    if kind == "jax":
        sys.modules["jax"].tree_util.register_pytree_node(record, flatten, unflatten)
        return
    from torch.utils import _pytree  # torch has no public name for it yet

    def flatten_to_list(value: object) -> tuple[list[Any], Any]:
        leaves, static = flatten(value)
        return list(leaves), static

    _pytree.register_pytree_node(record, flatten_to_list, lambda leaves, static: unflatten(static, leaves))

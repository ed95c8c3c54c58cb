"""How each library is called: one module a library, each the way its users would.

A module has `describe()`, its versions and threads, and `prepare(job, data)`, which makes a `Solver`. What
`prepare` does (converting arrays, compiling for given shapes) is not timed; what `call` does is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

MODULES = {
    "orthoslice": "ours",
    "pot": "pot",
    "ott": "ott_jax",
    "numpy": "plain_numpy",
    "torch": "plain_torch",
    "control": "control",
    "reference": "reference",
}
LABELS = {
    "orthoslice": "orthoslice",
    "pot": "POT",
    "ott": "OTT-JAX",
    "numpy": "plain NumPy",
    "torch": "plain torch",
    "control": "negative control",
}
PACKAGES = {"pot": "ot", "ott": "ott", "torch": "torch", "numpy": "numpy", "orthoslice": "orthoslice"}
"""What must be importable for a library to take part."""

Answer: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one process is asked to solve, but for the data."""

    library: str
    arrays: str
    task: str
    p: float
    dtype: str
    directions: str
    n_directions: int
    threads: int | None


class Solver(NamedTuple):
    """A call to be timed, and how to read what it returned."""

    call: Callable[[int], Any]
    """Takes a number that differs from call to call: the seed where a library draws its own directions."""
    read: Callable[[Any], Answer]
    """`value`, the power SW_p^p or PW_p^p, and a `vector` where the answer has one."""


class NotOffered(Exception):
    """The library has no such function."""


def load(library: str) -> ModuleType:
    """The module that calls a library; imports the library."""
    return importlib.import_module(f"benchmarks.libraries.{MODULES[library]}")


def read_value(result: Any) -> Answer:
    """Read a number."""
    return {"value": float(result)}


def read_projections(result: Any) -> Answer:
    """Squared lengths `(n,)` of points projected on a basis, `result (slices, n)`: the basis keeps them."""
    lengths = (result.astype("float64") ** 2).sum(axis=0)
    return {"value": float(lengths.sum()), "vector": lengths}

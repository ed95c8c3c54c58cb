"""How each library is called: one module a library, each the way its users would.

A module has `describe()`, its versions and threads, and `prepare(job, data)`, which makes a `Solver`. What
`prepare` does (converting arrays, compiling for given shapes) is not timed; what `call` does is.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

MODULES = {
    "orthoslice": "ours",
    "pot": "pot",
    "ott": "ott_jax",
    "numpy": "plain_numpy",
    "torch": "plain_torch",
    "jnp": "plain_jax",
    "control": "control",
    "reference": "reference",
}
LABELS = {
    "orthoslice": "orthoslice",
    "pot": "POT",
    "ott": "OTT-JAX",
    "numpy": "plain NumPy",
    "torch": "plain torch",
    "jnp": "plain jnp",
    "control": "negative control",
}
PACKAGES = {
    "pot": "ot",
    "ott": "ott",
    "torch": "torch",
    "jnp": "jax",
    "numpy": "numpy",
    "orthoslice": "orthoslice",
}
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
    form: str = ""


def _nothing(result: Any) -> None:
    """Wait for a library that returns when it is done."""


class Solver(NamedTuple):
    """A call to be timed, and how to read what it returned."""

    call: Callable[[int], Any]
    """Takes a number that differs from call to call: the seed where a library draws its own directions."""
    read: Callable[[Any], Answer]
    """`value`, the power SW_p^p or PW_p^p, and a `vector` where the answer has one."""
    wait: Callable[[Any], Any] = _nothing
    """Returns when a result has been computed, where `call` may return before that."""

    def seconds(self, seeds: Sequence[int]) -> tuple[float, Any]:
        """Seconds a call of calls made one after the other and waited for once, and the last result."""
        self.wait(None)
        start = time.perf_counter()
        for seed in seeds:
            result = self.call(seed)
        self.wait(result)
        return (time.perf_counter() - start) / len(seeds), result


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

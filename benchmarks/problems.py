"""What is measured: problems, who takes part in each, and the data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from benchmarks.data import KINDS, base_kind, make_clouds, make_weights

Library: TypeAlias = Literal["orthoslice", "pot", "ott", "numpy", "torch", "jnp", "control", "reference"]
Arrays: TypeAlias = Literal["numpy", "torch", "jax"]
Path: TypeAlias = Literal["default", "other", "best"]
SlicedTask: TypeAlias = Literal["sliced", "gradient", "gradients"]
"""`gradient` is that of one cloud, `gradients` those of both."""
Task: TypeAlias = SlicedTask | Literal["projected", "projected_gradients", "project", "matmul", "sort", "copy"]
Data: TypeAlias = dict[str, Any]
"""Arrays `x (n, dim)`, `y (m, dim)` and `theta (slices, dim)`; weights of a kind with weights."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A library, what it is given, and the NumPy sort path of its process.

    `path` is "default", "other" (without AVX-512, where NumPy would use it), or "best": whichever of the two
    sorts faster on this machine.
    """

    library: Library
    arrays: Arrays = "numpy"
    path: Path = "default"
    dtype: str = "float32"
    directions: Literal["given", "iid", "orthogonal", "hadamard"] = "given"
    form: Literal["", "function", "loss", "eager", "compiled", "graph", "jit"] = ""
    """Which way of using the library, where a benchmark shows several."""
    data: str = ""
    """A kind of clouds that it is given in place of the problem's, to compare its times with each other."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One set of clouds and directions, and the contenders that take turns on it."""

    group: str
    n: int
    dim: int
    n_directions: int
    contenders: tuple[Contender, ...]
    m: int | None = None
    """Points of the second cloud where it has another size."""
    data: str = "Gaussian"
    """A kind of clouds, by its name in `benchmarks.data`."""
    task: Task = "sliced"
    p: float = 2
    threads: int | None = None
    """Cores that the processes may use; None means all."""
    memory: bool = False
    """Measure the memory of one call rather than its time."""
    seed: int = 0

    @property
    def m_points(self) -> int:
        return self.n if self.m is None else self.m

    @property
    def name(self) -> str:
        """The same in every run, so that targets can refer to it."""
        size = f"n={self.n}" if self.m is None else f"n={self.n}, m={self.m}"
        extra = "" if self.data == "Gaussian" else f", {self.data}"
        extra += "" if self.p == 2 else f", p={self.p:g}"
        extra += "" if self.threads is None else f", threads={self.threads}"
        return f"{size}, d={self.dim}, N={self.n_directions}{extra}"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How often calls are repeated, and how long a slow peer may take."""

    rounds: int = 4
    """Turns that each contender gets."""
    turn_s: float = 0.12
    """A turn ends after the call that passes this."""
    turn_calls: int = 15
    batched: bool = False
    """Whether the calls of a turn are waited for once, at its end, rather than one by one."""
    budget_s: float = 3.0
    """No further turn is given to a contender where it would pass this, for one problem."""
    least_calls: int = 2
    """Unless there are fewer calls than this."""
    once_over_s: float = 5.0
    """A first call that takes longer is the only one: the call that was checked is the one reported."""
    cold_starts: int = 5
    fill_caches: bool = True
    """Whether our compiled code is put on disk before memory is measured."""


SMOKE_SCHEDULE = Schedule(rounds=1, turn_s=0.01, turn_calls=2, cold_starts=1, fill_caches=False)

OURS = Contender(library="orthoslice")
POT = Contender(library="pot")
OTT = Contender(library="ott", arrays="jax")
NUMPY = Contender(library="numpy")
TORCH = Contender(library="torch", arrays="torch")

COPIES = 4
"""How often the task `copy` repeats the clouds, so that no cache holds them."""

BOTH_PATHS: tuple[Path, ...] = ("default", "other")


def _both(*contenders: Contender) -> list[Contender]:
    return [replace(c, path=path) for c in contenders for path in BOTH_PATHS]


def _best(contender: Contender) -> Contender:
    return replace(contender, path="best")


FORWARD = (*_both(OURS, POT, NUMPY), TORCH, OTT)
ONE_PATH = (OURS, _best(POT), OTT, _best(NUMPY), TORCH)
BACKWARD = (
    *_both(replace(OURS, arrays="torch")),
    TORCH,
    replace(POT, arrays="torch"),
    OTT,
)
PROJECTED = tuple(_both(OURS, POT, NUMPY))
UNEQUAL = (
    *_both(OURS, POT, replace(POT, dtype="float64")),
    replace(POT, arrays="torch"),
    _best(NUMPY),
    TORCH,
    OTT,
)
HADAMARD = (
    *(replace(OURS, directions=name) for name in ("hadamard", "orthogonal")),
    replace(NUMPY, directions="orthogonal"),
)
DRAWING = (
    *(replace(OURS, directions=name) for name in ("iid", "orthogonal")),
    *(replace(c, directions="iid") for c in ONE_PATH if c.library != "orthoslice"),
)
CONTROL = (Contender(library="control"), NUMPY)
KIND_AND_GAUSSIAN = (OURS, replace(OURS, data="Gaussian"))

DATA = ((256, 16, 128), (1500, 16, 64), (10**4, 16, 64), (10**5, 3, 32), (10**6, 3, 8))
"""Points, dimension and directions of every kind of data; each size is sorted in another way."""
DATA_PROJECTED = ((256, 16, 128), (10**4, 16, 32), (10**5, 3, 8))


def full_problems(n_cores: int) -> list[Problem]:
    """The problems of the targets, and how time grows around them."""
    rows = [(256, 128, 128), (1000, 50, 500), (10**4, 64, 500), (10**5, 16, 100), (10**6, 3, 50)]
    pw = Problem(group="projected", n=2000, dim=64, n_directions=200, task="projected", contenders=PROJECTED)
    threads = Problem(group="threads", n=10**4, dim=32, n_directions=128, contenders=ONE_PATH)
    return [
        *_common(),
        *_sliced("forward", FORWARD, rows),
        *_sliced("forward", FORWARD, [(10**4, 64, 100)], p=1),
        *_floor(rows),
        *_sliced("backward", BACKWARD, [(1000, 50, 500), (10**4, 64, 500), (10**5, 16, 100)], task="gradient"),
        pw,
        Problem(group="unequal", n=10**5, m=7 * 10**4, dim=16, n_directions=50, contenders=UNEQUAL),
        Problem(group="hadamard", n=2000, dim=1024, n_directions=1024, task="project", contenders=HADAMARD),
        *_sliced("drawing", DRAWING, rows[:3]),
        *_of_kinds("data", KINDS, DATA),
        *_of_kinds("data_projected", KINDS, DATA_PROJECTED, "projected"),
        *_sliced("growth_n", ONE_PATH, [(10**k, 16, 32) for k in (2, 3, 4, 5)]),
        *_sliced("growth_dim", ONE_PATH, [(2000, dim, 128) for dim in (4, 32, 256, 1024)]),
        *_sliced("growth_directions", ONE_PATH, [(2000, 32, count) for count in (16, 64, 256, 1024)]),
        *(replace(threads, threads=k) for k in thread_counts(n_cores)),
        Problem(group="memory", n=10**4, dim=64, n_directions=500, contenders=ONE_PATH, memory=True),
        *_pw_memory(pw, (200, 800)),
    ]


def smoke_problems(n_cores: int) -> list[Problem]:
    """The same groups in sizes that take no time; fewer processes are started."""
    pw = Problem(group="projected", n=40, dim=5, n_directions=12, task="projected", contenders=PROJECTED)
    return [
        *_common(),
        *_sliced("forward", FORWARD, [(64, 8, 16), (300, 3, 8)]),
        *_floor([(64, 8, 16)]),
        *_sliced("backward", tuple(c for c in BACKWARD if c.path != "other"), [(64, 8, 16)], task="gradient"),
        pw,
        Problem(group="unequal", n=200, m=140, dim=4, n_directions=8, contenders=UNEQUAL),
        Problem(group="hadamard", n=20, dim=32, n_directions=32, task="project", contenders=HADAMARD),
        *_sliced("drawing", DRAWING, [(64, 8, 64)]),
        *_of_kinds("data", ("integers", "offset"), [(60, 3, 8)]),
        *_of_kinds("data_projected", ("one-hot", "outlier"), [(60, 3, 8)], "projected"),
        *_sliced("growth_n", ONE_PATH, [(n, 4, 8) for n in (20, 40)]),
        *_sliced("growth_dim", ONE_PATH, [(20, dim, 8) for dim in (2, 4)]),
        *_sliced("growth_directions", ONE_PATH, [(20, 4, count) for count in (4, 8)]),
        *_sliced("threads", (OURS, _best(NUMPY)), [(40, 4, 8)], threads=1),
        Problem(group="memory", n=400, dim=8, n_directions=16, contenders=(OURS,), memory=True),
        *_pw_memory(replace(pw, contenders=(OURS,)), (12,)),
    ]


def thread_counts(n_cores: int) -> list[int]:
    """1, 2, 4 and so on, and all cores."""
    return sorted({2**k for k in range(n_cores.bit_length()) if 2**k <= n_cores} | {n_cores})


def _common() -> list[Problem]:
    return [Problem(group="control", n=50, dim=4, n_directions=10, contenders=CONTROL)]


def _sliced(
    group: str,
    contenders: tuple[Contender, ...],
    sizes: Iterable[tuple[int, int, int]],
    task: Task = "sliced",
    p: float = 2,
    threads: int | None = None,
) -> list[Problem]:
    return [
        Problem(
            group=group, n=n, dim=d, n_directions=count, contenders=contenders, task=task, p=p, threads=threads
        )
        for n, d, count in sizes
    ]


def _of_kinds(
    group: str, kinds: Iterable[str], sizes: Iterable[tuple[int, int, int]], task: Task = "sliced"
) -> list[Problem]:
    others = [kind for kind in kinds if kind != "Gaussian"]
    problems = _sliced(group, KIND_AND_GAUSSIAN, sizes, task)
    return [replace(problem, data=kind) for problem in problems for kind in others]


def _floor(sizes: Iterable[tuple[int, int, int]]) -> list[Problem]:
    tasks: tuple[Task, ...] = ("matmul", "sort")
    return [p for size in sizes for task in tasks for p in _sliced("floor", (_best(NUMPY),), [size], task)]


def _pw_memory(pw: Problem, counts: Iterable[int]) -> list[Problem]:
    alone = tuple(c for c in pw.contenders if c.path == "default")
    return [replace(pw, group="memory", n_directions=count, contenders=alone, memory=True) for count in counts]


def make_data(problem: Problem) -> Data:
    """Two clouds of a kind, and unit rows; float32, the same for everyone."""
    rng = np.random.default_rng(problem.seed)
    kind = base_kind(problem.data)
    x, y = make_clouds(kind, rng, problem.n, problem.m_points, problem.dim)
    theta = rng.standard_normal((problem.n_directions, problem.dim))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    arrays = {"x": x, "y": y, "theta": theta}
    if kind != problem.data:
        arrays |= {f"{name}_weights": make_weights(rng, len(arrays[name])) for name in ("x", "y")}
    return {name: array.astype(np.float32) for name, array in arrays.items()}

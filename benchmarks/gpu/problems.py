"""What is measured on the GPU, and who takes part."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from benchmarks.data import KINDS, WITH_WEIGHTS
from benchmarks.problems import CONTROL, OTT, POT, TORCH, Contender, Problem, Schedule, Task

SCHEDULE = Schedule(
    rounds=5,
    turn_s=0.03,
    turn_calls=400,
    batched=True,
    budget_s=1.0,
    least_calls=1,
    once_over_s=math.inf,
    fill_caches=False,
)
"""Short turns keep the run to a few minutes. The first call compiles, so it is never the one timed."""
SMOKE_SCHEDULE = replace(SCHEDULE, rounds=1, turn_s=0.002, turn_calls=2)

LOSS = Contender(library="orthoslice", arrays="torch", form="loss")
FUNCTION = replace(LOSS, form="function")
EAGER = replace(TORCH, form="eager")
COMPILED = replace(TORCH, form="compiled")
GRAPHS = tuple(replace(c, form="graph") for c in (LOSS, EAGER))
# Ours as a training loop uses it comes first: ratios are against that.
EVERYONE = (LOSS, FUNCTION, EAGER, COMPILED, replace(POT, arrays="torch"), OTT)
# Without what takes longest to compile, and without the function, whose backward pass is the loss's.
BACKWARD = (LOSS, EAGER, replace(POT, arrays="torch"), OTT)
DRAWING = (
    replace(LOSS, directions="iid"),
    replace(LOSS, directions="orthogonal"),
    replace(EAGER, directions="iid"),
)
PAIR = (LOSS, EAGER)
# Ours with weights, without them, and plain torch's with them.
WEIGHTED = (LOSS, replace(LOSS, data="Gaussian"), EAGER)
DRAWN = (
    replace(LOSS, directions="hadamard"),
    replace(LOSS, directions="orthogonal"),
    replace(LOSS, directions="iid"),
)
JAX = tuple(Contender(library=name, arrays="jax", form="jit") for name in ("orthoslice", "jnp"))

SIZES = (
    *((256, 128, 128), (1024, 128, 1024), (4096, 128, 1024)),
    *((16384, 128, 512), (100_000, 64, 256), (1_000_000, 3, 128)),
)
"""Points, dimension, directions."""
SMALL = SIZES[:2]
DATA = ((256, 16, 128), (4096, 16, 64), (20_011, 3, 64), (300_007, 3, 64), (1_000_000, 3, 64))
"""Of every kind of data."""
PROJECTED = ((1024, 64, 256), (4096, 64, 256), (16384, 128, 512))
BAND = tuple((n, 16, 64) for n in (16_385, 20_011, 30_000, 40_000, 60_000))
HADAMARD = ((256, 128, 128), (4096, 128, 128), (1024, 2048, 2048), (1024, 4096, 4096))
FORWARD_DATA, BACKWARD_DATA = ((4096, 16, 64),), ((100_003, 3, 64),)
"""Of every kind of data, with weights and in JAX."""
_SIZES_DIM = 16


def sizes(powers: Iterable[int], others: Iterable[int] = ()) -> list[tuple[int, int, int]]:
    """Powers of two, their neighbours, and others; many directions where there are few points."""
    counts = sorted({2**k + near for k in powers for near in (-1, 0, 1)} | set(others))
    return [(n, _SIZES_DIM, max(16, min(1024, 2**24 // n))) for n in counts]


def full_problems() -> list[Problem]:
    """The problems that targets are stated for, and those around them."""
    return _later_problems(
        SIZES, kinds=(FORWARD_DATA, BACKWARD_DATA), band=BAND, hadamard=HADAMARD
    ) + _problems(
        SIZES,
        small=SMALL,
        projected=PROJECTED,
        kinds=DATA,
        all_sizes=sizes(range(4, 20), (10**6,)),
        copied=(2**20, 16),
        multiplied=4096,
    )


def smoke_problems() -> list[Problem]:
    """The same groups in sizes that take no time."""
    tiny = [(64, 8, 64), (300, 3, 64)]
    return _later_problems(
        tiny, kinds=([(60, 3, 8)], [(60, 3, 8)]), band=[(70, 3, 8)], hadamard=[(64, 8, 64)]
    ) + _problems(
        tiny,
        small=tiny[:1],
        projected=[(40, 5, 12)],
        kinds=[(60, 3, 8)],
        all_sizes=sizes([4]),
        copied=(64, 4),
        multiplied=32,
    )


def _problems(
    given: Iterable[tuple[int, int, int]],
    *,
    small: Iterable[tuple[int, int, int]],
    projected: Iterable[tuple[int, int, int]],
    kinds: Iterable[tuple[int, int, int]],
    all_sizes: Iterable[tuple[int, int, int]],
    copied: tuple[int, int],
    multiplied: int,
) -> list[Problem]:
    given, small, projected, kinds = map(list, (given, small, projected, kinds))
    square = (multiplied, multiplied, multiplied)
    return [
        Problem(group="control", n=50, dim=4, n_directions=10, contenders=(*CONTROL[:1], EAGER)),
        *_group("floors", [EAGER], [(*copied, 1)], "copy"),
        *_group("floors", [EAGER], [square], "matmul"),
        *_group("forward", EVERYONE, given),
        *_group("backward", BACKWARD, given, "gradient"),
        *_group("backward_both", PAIR, given, "gradients"),
        *_group("drawing", DRAWING, given),
        *(replace(problem, memory=True) for problem in _group("memory", PAIR, given, "gradients")),
        *_of_all_kinds(_group("data", PAIR, kinds)),
        *_of_all_kinds(_group("data_backward", PAIR, kinds, "gradients")),
        *_group("sizes", PAIR, all_sizes),
        *_group("graphs", GRAPHS, small),
        *_group("graphs_backward", GRAPHS, small, "gradients"),
        *_group("projected", PAIR, projected, "projected"),
        *_group("projected_backward", PAIR, projected, "projected_gradients"),
    ]


def _later_problems(
    given: Iterable[tuple[int, int, int]],
    *,
    kinds: tuple[Iterable[tuple[int, int, int]], Iterable[tuple[int, int, int]]],
    band: Iterable[tuple[int, int, int]],
    hadamard: Iterable[tuple[int, int, int]],
) -> list[Problem]:
    """Weights, clouds between short and long, Hadamard blocks, and JAX; forward and with gradients.

    `kinds` are the sizes of every kind of data forward, and with gradients.
    """
    given, band, hadamard = map(list, (given, band, hadamard))
    found: list[Problem] = []
    ways: tuple[tuple[str, Task, Task], ...] = (
        ("", "sliced", "sliced"),
        ("_backward", "gradient", "gradients"),
    )
    for (ending, task, of_data), sizes_of_data in zip(ways, kinds, strict=True):
        found += _with_weights(_group(f"weighted{ending}", WEIGHTED, given, task))
        found += _with_weights(_of_all_kinds(_group(f"weighted_data{ending}", PAIR, sizes_of_data, of_data)))
        found += _group(f"band{ending}", PAIR, band, task)
        found += _group(f"hadamard{ending}", DRAWN, hadamard, task)
        found += _group(f"jax{ending}", JAX, given, task)
        found += _of_all_kinds(_group(f"jax_data{ending}", JAX, sizes_of_data, of_data))
    return found


def _group(
    group: str, contenders: Iterable[Contender], sizes: Iterable[tuple[int, int, int]], task: Task = "sliced"
) -> list[Problem]:
    return [
        Problem(group=group, n=n, dim=dim, n_directions=count, contenders=tuple(contenders), task=task)
        for n, dim, count in sizes
    ]


def _with_weights(problems: Iterable[Problem]) -> list[Problem]:
    return [replace(problem, data=problem.data + WITH_WEIGHTS) for problem in problems]


def _of_all_kinds(problems: Iterable[Problem]) -> list[Problem]:
    return [replace(problem, data=kind) for problem in problems for kind in KINDS]

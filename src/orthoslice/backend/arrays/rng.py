"""From whatever a user calls a source of randomness to a key of the generator."""

from __future__ import annotations

import contextlib
import operator
import secrets
import sys
from typing import Any, TypeAlias

import numpy as np

from orthoslice.backend.array_types import Array, HostArray, JaxArray
from orthoslice.backend.arrays.key import Key, threefry
from orthoslice.backend.arrays.namespace import device, is_captured, is_traced, library, namespace, to_numpy

RNG: TypeAlias = Any
"""int, NumPy SeedSequence or Generator, torch Generator, JAX key, or None for fresh entropy."""


def resolve_rng(rng: RNG, like: Array, traced: bool = False) -> tuple[Key, int | None]:
    """A key beside `like`, and the integer that repeats it (None where the key is traced).

    No global random state is read or changed; a generator that is passed in moves on.
    """
    if isinstance(rng, Key):
        return rng, None  # a key that is already beside `like`; the host does not know its integer
    if library(rng) == "jax":
        return _from_jax_key(rng, like)
    if is_captured(like):
        _check_captured(rng)
    if _moves_on(rng) and (traced or _is_compiling(like)):
        what = "`None`" if rng is None else f"a {type(rng).__module__.split('.')[0]} Generator"
        raise ValueError(
            f"`rng` must be an integer or a JAX key under tracing: {what} would draw once, when the function "
            "is compiled, and repeat those directions at every call."
        )
    seed = _integer_seed(rng)
    return Key.from_seed(seed, like), seed


def _moves_on(rng: RNG) -> bool:
    """Whether the source gives other directions at its next use."""
    return rng is None or isinstance(rng, np.random.Generator) or _is_torch_generator(rng)


def _is_torch_generator(rng: RNG) -> bool:
    return "torch" in sys.modules and isinstance(rng, sys.modules["torch"].Generator)


def _is_compiling(like: Array) -> bool:
    """Whether JAX is compiling what happens here, also where it happens to arrays from outside."""
    return library(like) == "jax" and is_traced(namespace(like).zeros(()))


def _integer_seed(rng: RNG) -> int:
    if rng is None:
        return secrets.randbits(64)
    if isinstance(rng, np.random.SeedSequence):
        return int(rng.generate_state(1, np.uint64)[0])
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(0, 2**64, dtype=np.uint64))
    if _is_torch_generator(rng):
        torch = sys.modules["torch"]
        word = torch.randint(-(2**63), 2**63 - 1, (1,), generator=rng, device=rng.device)
        return int(word.item()) % 2**64
    seed = None
    with contextlib.suppress(TypeError):
        seed = operator.index(rng)
    if seed is not None and not isinstance(rng, bool):
        if seed < 0:
            raise ValueError(f"`rng` must not be negative; got {seed}.")
        if seed < 2**64:
            return seed
        return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    raise TypeError(
        "`rng` must be None, an integer, a NumPy SeedSequence or Generator, a torch Generator or a JAX key; "
        f"got {type(rng).__name__}."
    )


def host_generator(rng: RNG) -> np.random.Generator:
    """A NumPy generator from a source of randomness; the same one if that is what it is."""
    is_numpy = rng is None or isinstance(rng, np.random.Generator | np.random.SeedSequence)
    return np.random.default_rng(rng if is_numpy else _integer_seed(rng))


def _check_captured(rng: RNG) -> None:
    """Refuse what would be drawn once, on the host, while the replays of a CUDA graph repeat it."""
    torch = sys.modules["torch"]
    if rng is not None and not isinstance(rng, np.random.Generator | torch.Generator):
        return
    what = "None" if rng is None else f"a {type(rng).__module__.partition('.')[0]} Generator"
    raise ValueError(
        f"`rng` must be an integer while a CUDA graph is captured; got {what}, which would be drawn from once, "
        "and every replay would repeat those directions. The losses in `osl.nn` draw new ones at every replay."
    )


def _from_jax_key(key: Array, like: Array) -> tuple[Key, int | None]:
    """A JAX key is two words of the same generator, so `jax.random.key(7)` and 7 mean the same directions."""
    jax = sys.modules["jax"]
    traced = is_traced(key)
    # A key from outside has values, also while something else is being compiled.
    with contextlib.nullcontext() if traced else jax.ensure_compile_time_eval():
        data = jax.random.key_data(key) if jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    if data.dtype != jax.numpy.uint32 or data.shape not in ((2,), (4,)):
        raise TypeError(
            f"`rng` must be a single JAX key; got an array of shape {key.shape} and type {key.dtype}."
        )
    if not traced:
        high, low = (int(word[0]) & 0xFFFFFFFF for word in _two_words(to_numpy(data)))
        seed = high << 32 | low
        return Key.from_seed(seed, like), seed
    if library(like) != "jax":
        raise TypeError(
            "`rng` may be a traced JAX key only beside JAX arrays, since nothing else can be part of the "
            f"compiled program; got arrays of {library(like)}. Pass `jax.numpy.asarray` of them, or an integer."
        )
    return _two_words(data), None


def _two_words(data: HostArray | JaxArray) -> Key:
    """The words of a key, two as they are; of four, two are encrypted under the others, so that all count.

    Keys of `rbg` repeat their first two words: sums or exclusive ors of the halves would all be the same.
    """
    words = data.view(namespace(data).int32)
    first = Key(words[0:1], words[1:2])
    return first if words.shape == (2,) else Key(*threefry(first, words[2:3], words[3:4]))


def index_beside(key: Key, start: int | Array, count: int) -> Array:
    """Consecutive int32 indices beside the key; `start` may be traced."""
    xp = namespace(key.high)
    return xp.arange(count, dtype=xp.int32, device=device(key.high)) + start

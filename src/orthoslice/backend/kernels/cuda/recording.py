"""Launches written down instead of made: a recipe that a compiled program of JAX follows at every run.

The host code of :mod:`.rows` and :mod:`.loss` is run once, on tensors of which only shapes are known. Where it
asks for memory, the recipe has one more result; where it starts a kernel, one more launch.
"""

from __future__ import annotations

import hashlib
import math
import struct
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from orthoslice.backend.array_types import IntArray
from orthoslice.backend.kernels.cuda.compiling import Program, machine_code

# Launches for device k are written down under this number less k. Host memory is -1.
_FIRST = -2

# An address is the number of an argument or a result, from 1 on, above an offset of this many bits; 0 is null.
OFFSET_BITS = 48

_ZEROS = 0
"""In the place of a kernel's key: memory is filled with zeros."""

Output: TypeAlias = tuple[tuple[int, ...], str]
"""The shape of a result and the name of its type."""

# Words of a launch before its addresses.
_HEAD = 6

_here = threading.local()


class RecordedKernel(NamedTuple):
    """A kernel that a recipe names, and what its handle is made of."""

    key: int
    name: str
    program: Program
    shared_bytes: int


class Recipe(NamedTuple):
    """What is to be launched, and which results hold what was asked for.

    A launch is words: the key of its kernel, blocks, threads, bytes of shared memory, how many addresses and
    how many bytes of numbers follow, and those. To fill memory with zeros, "blocks" are words of 32 bits.
    """

    launches: tuple[IntArray, ...]
    results: tuple[Output, ...]
    outputs: tuple[int, ...]
    kernels: frozenset[RecordedKernel]


class Recorded:
    """In place of a torch tensor: a shape, a type, and once its address was asked for, a number."""

    def __init__(self, recorder: Recorder, shape: tuple[int, ...], kind: str, source: int | None) -> None:
        self._recorder, self.shape, self.kind, self._source = recorder, shape, kind, source

    def get_device(self) -> int:
        return self._recorder.device

    def contiguous(self) -> Recorded:
        return self

    def numel(self) -> int:
        return math.prod(self.shape)

    def data_ptr(self) -> int:
        return self.source << OFFSET_BITS

    @property
    def source(self) -> int:
        if self._source is None:
            self._source = self._recorder.add_result(self)
        return self._source

    def new_empty(self, shape: int | tuple[int, ...], kind: str = "float32") -> Recorded:
        return Recorded(self._recorder, (shape,) if isinstance(shape, int) else shape, kind, None)

    def new_zeros(self, shape: int | tuple[int, ...]) -> Recorded:
        made = self.new_empty(shape)
        self._recorder.add_words(_ZEROS, made.numel(), 0, 0, struct.pack("P", made.data_ptr()), 1)
        return made

    def reshape(self, shape: tuple[int, ...]) -> Recorded:
        return Recorded(self._recorder, shape, self.kind, self.source)

    def unbind(self, axis: int) -> list[Recorded]:
        """Parts of memory that was not used yet."""
        assert axis == 0
        assert self._source is None
        return [self.new_empty(self.shape[1:], self.kind) for _ in range(self.shape[0])]

    def sum(self, axis: int) -> Recorded:
        """The sums of the rows of a table of float64, of the same type."""
        from orthoslice.backend.kernels.cuda.jax_step import add_parts

        assert axis == 1
        added: Recorded = add_parts(self, "float64")
        return added

    def __getitem__(self, index: tuple[slice, int]) -> Recorded:
        """The only column of a table."""
        assert index == (slice(None), 0)
        assert self.shape[1] == 1
        return self.reshape(self.shape[:1])


class Recorder:
    """What was launched so far, and which memory that takes."""

    def __init__(self, device: int, arguments: Sequence[tuple[int, ...]]) -> None:
        self.device = _FIRST - device
        self.arguments = [Recorded(self, shape, "float32", k) for k, shape in enumerate(arguments, 1)]
        self._results: list[Output] = []
        self._launches: list[IntArray] = []
        self._kernels: set[RecordedKernel] = set()

    def add_result(self, tensor: Recorded) -> int:
        self._results.append((tensor.shape, tensor.kind))
        return len(self.arguments) + len(self._results)

    def add_launch(self, kernel: RecordedKernel, grid: int, threads: int, held: bytes, addresses: int) -> None:
        self._kernels.add(kernel)
        self.add_words(kernel.key, grid, threads, kernel.shared_bytes, held, addresses)

    def add_words(
        self, key: int, grid: int, threads: int, shared_bytes: int, held: bytes, addresses: int
    ) -> None:
        numbers = np.frombuffer(held + bytes(-len(held) % 8), dtype=np.int64)
        head = key, grid, threads, shared_bytes, addresses, len(held) - 8 * addresses
        self._launches.append(np.concatenate([np.asarray(head, dtype=np.int64), numbers]))

    def recipe(self, outputs: Sequence[Recorded]) -> Recipe:
        places = tuple(tensor.source - len(self.arguments) - 1 for tensor in outputs)
        return Recipe(tuple(self._launches), tuple(self._results), places, frozenset(self._kernels))


def record(run: Callable[..., Sequence[Any]], device: int, arguments: Sequence[tuple[int, ...]]) -> Recipe:
    """The recipe of what `run` does with float32 arguments of these shapes; it returns what is asked for."""
    recorder = _here.recorder = Recorder(device, arguments)
    try:
        return recorder.recipe(run(*recorder.arguments))
    finally:
        del _here.recorder


def part_of(
    launches: Sequence[IntArray], known: Collection[int]
) -> tuple[list[IntArray], list[int], list[int]]:
    """Launches as a recipe of their own, which of the memory that is `known` they read, and which they fill."""
    found = [launch.copy() for launch in launches]
    addresses = [words[_HEAD : _HEAD + words[_HEAD - 2]] for words in found]
    used = sorted({source for some in addresses for source in (some >> OFFSET_BITS).tolist()} - {0})
    read, filled = [s for s in used if s in known], [s for s in used if s not in known]
    place = {0: 0} | {source: k for k, source in enumerate((*read, *filled), 1)}
    for some in addresses:
        sources = some >> OFFSET_BITS
        some += (np.asarray([place[s] for s in sources.tolist()], dtype=np.int64) - sources) << OFFSET_BITS
    return found, read, filled


def is_recorded(device: int) -> bool:
    """Whether launches for this device are written down."""
    return device <= _FIRST


def real_device(device: int) -> int:
    """The number of a device by that under which its launches are written down, or its own."""
    return _FIRST - device if is_recorded(device) else device


def recording_starter(
    name: str, program: Program, device: int, grid: int, threads: int, shared_bytes: int
) -> Callable[[int, Any], None]:
    """As :func:`orthoslice.backend.kernels.cuda.starter`, of launches that are written down."""
    kernel = RecordedKernel(kernel_key(name, program, device), name, program, shared_bytes)

    def start(stream: int, packed: Any) -> None:
        held, addresses = bytes(packed.room.raw), packed.addresses.size // 8
        _here.recorder.add_launch(kernel, grid, threads, held, addresses)

    return start


def kernel_key(name: str, program: Program, device: int) -> int:
    """A number for a kernel: programs that JAX keeps on disk for other processes know it by that."""
    digest = hashlib.sha256(machine_code(program, real_device(device)) + name.encode()).digest()
    # Not negative, and not that for zeros.
    return int.from_bytes(digest[:8], "little") >> 1 or 1

"""Types of arrays: of any library by what the library uses of it, and of NumPy by what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

DType: TypeAlias = Any
"""A type of numbers: each array library has a class of its own for them."""

HostArray: TypeAlias = NDArray[Any]
"""A NumPy array."""

Floats: TypeAlias = NDArray[np.floating]
"""A NumPy array of single or double precision."""

Indices: TypeAlias = NDArray[np.integer]
"""A NumPy array of integers: places, counts, masses in units."""

FloatArray: TypeAlias = NDArray[np.float64]
"""A NumPy array of double precision."""

IntArray: TypeAlias = NDArray[np.int64]
"""A NumPy array of integers of 64 bits."""

Words: TypeAlias = NDArray[np.unsignedinteger]
"""A NumPy array of bits: labels of many labellings, numbers as they are sorted, random words."""

Flags: TypeAlias = NDArray[np.bool]
"""A NumPy array of truth values."""

Tensor: TypeAlias = Any
"""A torch tensor, whose types checkers are not asked to follow."""

JaxArray: TypeAlias = Any
"""An array or a tracer of JAX, likewise."""

Operand: TypeAlias = Any
"""What stands on the other side of an operator or between brackets: an array, a number, a mask, a slice."""


class Array(Protocol):
    """An array of any library: what the standard and all libraries agree on, as far as it is used here.

    What one library has beyond that is used where the array is known to be of that library: it is annotated as
    a `HostArray` or a `torch.Tensor` there.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def T(self) -> Self: ...
    @property
    def mT(self) -> Self: ...
    @property
    def device(self) -> Any: ...
    def __array__(self) -> HostArray: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __bool__(self) -> bool: ...
    def __float__(self) -> float: ...
    def __int__(self) -> int: ...
    def __index__(self) -> int: ...
    def __getitem__(self, key: Operand, /) -> Array: ...
    def __setitem__(self, key: Operand, value: Operand, /) -> None: ...
    def __neg__(self) -> Array: ...
    def __abs__(self) -> Array: ...
    def __invert__(self) -> Array: ...
    def __add__(self, other: Operand, /) -> Array: ...
    def __radd__(self, other: Operand, /) -> Array: ...
    def __sub__(self, other: Operand, /) -> Array: ...
    def __rsub__(self, other: Operand, /) -> Array: ...
    def __mul__(self, other: Operand, /) -> Array: ...
    def __rmul__(self, other: Operand, /) -> Array: ...
    def __truediv__(self, other: Operand, /) -> Array: ...
    def __rtruediv__(self, other: Operand, /) -> Array: ...
    def __floordiv__(self, other: Operand, /) -> Array: ...
    def __mod__(self, other: Operand, /) -> Array: ...
    def __pow__(self, other: Operand, /) -> Array: ...
    def __rpow__(self, other: Operand, /) -> Array: ...
    def __matmul__(self, other: Operand, /) -> Array: ...
    def __and__(self, other: Operand, /) -> Array: ...
    def __or__(self, other: Operand, /) -> Array: ...
    def __xor__(self, other: Operand, /) -> Array: ...
    def __lshift__(self, other: Operand, /) -> Array: ...
    def __rshift__(self, other: Operand, /) -> Array: ...
    def __lt__(self, other: Operand, /) -> Array: ...
    def __le__(self, other: Operand, /) -> Array: ...
    def __gt__(self, other: Operand, /) -> Array: ...
    def __ge__(self, other: Operand, /) -> Array: ...
    def __eq__(self, other: Operand, /) -> Array: ...  # type: ignore[override]
    def __ne__(self, other: Operand, /) -> Array: ...  # type: ignore[override]


_Function: TypeAlias = Callable[..., Array]


class Namespace(Protocol):
    """The functions of an array library that are used here, by their names in the array API standard."""

    def __hash__(self) -> int: ...

    float32: DType
    float64: DType
    int32: DType
    int64: DType
    inf: float
    linalg: Any
    finfo: Callable[[DType], Any]
    iinfo: Callable[[DType], Any]
    isdtype: Callable[[DType, str], bool]
    result_type: Callable[..., DType]
    broadcast_arrays: Callable[..., list[Array]]
    __array_namespace_info__: Callable[[], Any]
    abs: _Function
    all: _Function
    any: _Function
    arange: _Function
    argmax: _Function
    argmin: _Function
    argsort: _Function
    asarray: _Function
    astype: _Function
    atan2: _Function
    broadcast_to: _Function
    clip: _Function
    concat: _Function
    cos: _Function
    cumulative_sum: _Function
    diff: _Function
    exp: _Function
    eye: _Function
    flip: _Function
    floor: _Function
    full: _Function
    full_like: _Function
    isfinite: _Function
    isinf: _Function
    log: _Function
    log1p: _Function
    matmul: _Function
    matrix_transpose: _Function
    max: _Function
    maximum: _Function
    mean: _Function
    min: _Function
    minimum: _Function
    ones: _Function
    ones_like: _Function
    prod: _Function
    reshape: _Function
    roll: _Function
    searchsorted: _Function
    sign: _Function
    sin: _Function
    sort: _Function
    sqrt: _Function
    stack: _Function
    sum: _Function
    take: _Function
    take_along_axis: _Function
    tan: _Function
    where: _Function
    zeros: _Function
    zeros_like: _Function


Rows: TypeAlias = slice | Array
"""Some rows of a table, by a slice or by indices, which may be traced."""

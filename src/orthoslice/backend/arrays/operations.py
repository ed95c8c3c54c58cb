"""Named operations: where the array standard is missing something or is slow.

An operation is a list of implementations. Each accepts the arguments or says why not, and the first that
accepts runs. A kernel adds an implementation; no caller changes. A forced choice never falls back in silence.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import numpy as np

from orthoslice.backend import kernels
from orthoslice.backend.array_types import Array, DType, HostArray, JaxArray, Tensor
from orthoslice.backend.arrays.namespace import device, is_readable, is_traced, library, namespace, to_numpy
from orthoslice.backend.kernels import when_to_compile
from orthoslice.backend.kernels.cuda import cuda_refusal
from orthoslice.backend.kernels.cuda.lexsort import lexicographic_order

Result = TypeVar("Result")


class PlainWork(NamedTuple):
    """What plain code would do in place of a kernel."""

    numbers: int
    """How many numbers it would go through, where one takes about 50 ns."""
    kind: str
    """The type of numbers that the kernel is compiled for."""

    @classmethod
    def of(cls, *arrays: Array, times: float = 1) -> PlainWork:
        """`times` times the numbers of some arrays, of the first one's type.

        Examples
        --------
        >>> PlainWork.of(np.ones((2, 3)), np.ones(4), times=0.5)
        PlainWork(numbers=5, kind='float64')
        """
        # A loop, since calls count where clouds are small.
        count = 0
        for array in arrays:
            count += math.prod(array.shape)
        return cls(int(times * count), str(arrays[0].dtype).rpartition(".")[2])


class Implementation(NamedTuple, Generic[Result]):
    """One way to carry out an operation."""

    name: str
    accepts: Callable[..., str | None]
    run: Callable[..., Result]
    row_bytes: Callable[..., int] | None
    """Working memory a row of the arguments needs at its peak, for those that are given many at a time."""
    plain_work: Callable[..., PlainWork] | None
    """For kernels of numba, which are compiled at first use: what the last implementation would do instead."""


class _Choice(NamedTuple, Generic[Result]):
    implementation: Implementation[Result]
    kernel: str | None
    """The name of a kernel of numba as it is compiled for the arguments."""
    postponed: list[tuple[str, int]]
    """Kernels that take the arguments and do not pay yet, with the numbers that plain code goes through."""

    def run(self, *args: object) -> Result:
        """Run the implementation, and note a kernel that is in the cache from then on."""
        is_new = self.begin()
        result = self.implementation.run(*args)
        if self.kernel is not None and is_new:
            when_to_compile.keep_ready(self.kernel)
        return result

    def begin(self) -> bool:
        """Use the implementation from now on; whether it is a kernel and that is new."""
        if self.kernel is None or not when_to_compile.begin(self.kernel):
            return False
        # Plans that were made with plain code are out of date.
        Operation.revision += 1
        return True


# How many implementations were picked by hand, in this thread and in those that work for it.
_forcing = contextvars.ContextVar("orthoslice_forcing", default=0)


class Operation(Generic[Result]):
    """Implementations under one name; calling it runs the first that accepts the arguments.

    Examples
    --------
    >>> double = Operation("double")
    >>> @double.implementation("ints", lambda v: None if isinstance(v, int) else "it takes integers only")
    ... def _(v): return 2 * v
    >>> double(4)
    8
    >>> double("a")
    Traceback (most recent call last):
      ...
    TypeError: No implementation of `double` takes these arguments: ints: it takes integers only.
    """

    revision: ClassVar[int] = 0
    """Grows whenever any operation gets an implementation: what was chosen before may be out of date."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._implementations: list[Implementation[Result]] = []
        # Other threads go on as before; threads that work for this one get a copy.
        self._forced = contextvars.ContextVar[str | None](f"orthoslice_{name}", default=None)

    @staticmethod
    def is_any_forced() -> bool:
        """Whether any operation runs an implementation that was picked by :meth:`using`."""
        return _forcing.get() > 0

    @property
    def names(self) -> list[str]:
        """The implementations, in the order in which they are tried."""
        return [one.name for one in self._implementations]

    def implementation(
        self,
        name: str,
        accepts: Callable[..., str | None],
        *,
        before: str | None = None,
        row_bytes: Callable[..., int] | None = None,
        plain_work: Callable[..., PlainWork] | None = None,
    ) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
        """Decorate a function as a further implementation; all functions given here get its arguments.

        It is tried after all others, or just `before` one of them. A reference accepts everything, so what is
        added from outside has to go before it: `before="reference"`, or before a faster one that it replaces.
        One that does not say how much memory it needs is taken to need what the last one does. One that says
        what `plain_work` it saves is a kernel of numba: it needs numba, and is compiled when that pays.
        """
        if name in self.names:
            raise ValueError(f"`{self.name}` has an implementation {name!r} already. Give yours another name.")
        place = len(self._implementations) if before is None else self._place(before)

        def register(run: Callable[..., Result]) -> Callable[..., Result]:
            self._implementations.insert(place, Implementation(name, accepts, run, row_bytes, plain_work))
            Operation.revision += 1
            return run

        return register

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise ValueError(f"`{self.name}` has the implementations {self.names}; got {name!r}.")
        return self.names.index(name)

    @contextlib.contextmanager
    def using(self, name: str) -> Iterator[None]:
        """Run this implementation and no other: refused arguments are then an error.

        It holds for calls by this thread, however many threads share their work, and not for tasks of Dask.
        """
        self._place(name)
        token, outer = self._forced.set(name), _forcing.set(_forcing.get() + 1)
        try:
            yield
        finally:
            _forcing.reset(outer)
            self._forced.reset(token)

    def __call__(self, *args: object) -> Result:
        choice = self._choose(args)
        for kernel, numbers in choice.postponed:
            when_to_compile.count_plain(kernel, numbers)
        return choice.run(*args)

    def chosen(self, *args: object) -> Callable[..., Result]:
        """What would run for these arguments; for callers that repeat themselves."""
        choice = self._choose(args)
        if choice.kernel is not None and not when_to_compile.is_ready(choice.kernel):
            return choice.run
        choice.begin()
        return choice.implementation.run

    def is_chosen(self, run: Callable[..., Result], *args: object) -> bool:
        """Whether that is what would run for these arguments."""
        return self._choose(args).implementation.run is run

    def is_postponed(self, *args: object) -> bool:
        """Whether a kernel takes these arguments that it does not pay to compile yet."""
        return bool(self._choose(args).postponed)

    def row_bytes(self, *args: object) -> int:
        """The working memory that a row of these arguments needs at its peak."""
        says = self._choose(args).implementation.row_bytes or self._implementations[-1].row_bytes
        assert says is not None, f"no implementation of {self.name} says what it needs"
        return says(*args)

    def _choose(self, args: tuple[Any, ...]) -> _Choice[Result]:
        refusals, postponed, forced = [], [], self._forced.get()
        for one in self._implementations:
            if forced is not None and one.name != forced:
                continue
            reason, kernel = one.accepts(*args), None
            if reason is None and one.plain_work is not None:
                numbers, kind = one.plain_work(*args)
                kernel = f"{self.name}-{one.name}-{kind}"
                if forced is None and not when_to_compile.pays(kernel, numbers):
                    postponed.append((kernel, numbers))
                    continue
                reason = kernels.numba_refusal()
            if reason is None:
                return _Choice(one, kernel, postponed)
            refusals.append(f"{one.name}: {reason}")
        raise TypeError(f"No implementation of `{self.name}` takes these arguments: {'; '.join(refusals)}.")


def _only(*kinds: str) -> Callable[..., str | None]:
    def accepts(array: Array, *_: object) -> str | None:
        return None if library(array) in kinds else f"it takes arrays of {' or '.join(kinds)}"

    return accepts


def host_refusal(*arrays: Any) -> str | None:
    """Why compiled kernels cannot work on the memory of these arrays, or None if they can."""
    for array in arrays:
        kind = library(array)
        if kind not in ("numpy", "torch") or not is_readable(array):
            return "it takes NumPy arrays and torch tensors in host memory"
        if kind == "torch" and array.requires_grad and sys.modules["torch"].is_grad_enabled():
            return "it leaves no trace on a gradient tape"
        xp = namespace(array)
        if array.dtype not in (xp.float32, xp.float64):
            return f"it takes float32 and float64, not {array.dtype}"
    return None


def from_host(table: HostArray, like: Array) -> Array:
    """An array of the library of `like`, a NumPy array or torch tensor in host memory: nothing is copied."""
    return namespace(like).asarray(table, device=device(like))


scatter_add: Operation[Array] = Operation("scatter_add")
"""scatter_add(values (k,) or (k, dim), index (k,), size) -> (size,) or (size, dim).

Sums the values that share an index. The array standard has no such function.
"""


@scatter_add.implementation("numpy", _only("numpy", "array_api_strict"))
def _scatter_numpy(values: Array, index: Array, size: int) -> Array:
    xp, rows, at = namespace(values), to_numpy(values), to_numpy(index)
    if rows.ndim == 1:
        total = np.bincount(at, weights=rows, minlength=size)
    else:
        from scipy.sparse import csc_array  # costs a tenth of a second, and only gradients need it

        # One unit entry a column: the product adds row k of the values to row index[k].
        unit = csc_array((np.ones(len(at)), at, np.arange(len(at) + 1)), shape=(size, len(at)))
        total = unit @ rows
    return xp.asarray(total.astype(rows.dtype, copy=False))


@scatter_add.implementation("torch", _only("torch"))
def _scatter_torch(values: Tensor, index: Tensor, size: int) -> Tensor:
    return values.new_zeros((size, *values.shape[1:])).index_add_(0, index, values)


@scatter_add.implementation("jax", _only("jax"))
def _scatter_jax(values: JaxArray, index: JaxArray, size: int) -> JaxArray:
    return (
        cast(JaxArray, namespace(values).zeros((size, *values.shape[1:]), dtype=values.dtype))
        .at[index]
        .add(values)
    )


lexsort_rows: Operation[Array] = Operation("lexsort_rows")
"""lexsort_rows(points (clouds, n, dim)) -> (clouds, n): the order of the points, first coordinate first."""


@lexsort_rows.implementation(
    "host", lambda points: None if is_readable(points) else "it takes arrays in host memory"
)
def _lexsort_host(points: Array) -> Array:
    orders = np.stack([_lexsort_table(table) for table in to_numpy(points)])
    return namespace(points).asarray(orders, device=device(points))


# Numbers of a table that are sorted by all coordinates as soon as two points tie.
_FEW_NUMBERS = 1 << 13


def _lexsort_table(table: HostArray) -> HostArray:
    """Most clouds are in order after one coordinate; only points that tie are sorted by further ones."""
    n, dim = table.shape
    keys = _shortened(table[:, 0])
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    # Places of points that tie with another so far, and for each whether it does with the one before.
    places, ties, done = np.arange(n), np.zeros(n, dtype=bool), 1
    ties[1:] = keys[1:] == keys[:-1]
    if table.size <= _FEW_NUMBERS and ties.any():
        return np.lexsort(table.T[::-1])
    while done < dim and ties.any():
        tied = ties.copy()
        tied[:-1] |= ties[1:]
        places, ties = places[tied], ties[tied]
        keys, group = _shortened(table[order[places], done : 2 * done].T), np.cumsum(~ties)
        found = np.lexsort((*keys[::-1], group.astype(np.min_scalar_type(group[-1]))))
        order[places], keys = order[places[found]], keys[:, found]
        ties[1:] &= (keys[:, 1:] == keys[:, :-1]).all(axis=0)
        done *= 2
    return order


def _shortened(keys: HostArray) -> HostArray:
    """The same numbers in 16 bits where they are whole and small, as most that tie are: NumPy counts those."""
    keys = np.ascontiguousarray(keys)
    if np.abs(keys).max(initial=0) < 1 << 15:
        short = keys.astype(np.int16)
        if (short == keys).all():
            return short
    return keys


@lexsort_rows.implementation("jax", _only("jax"))
def _lexsort_jax(points: JaxArray) -> JaxArray:
    jax = sys.modules["jax"]
    n, dim = points.shape[1:]

    def order_one(cloud: JaxArray) -> JaxArray:
        def refine(step: JaxArray, order: JaxArray) -> JaxArray:
            # A loop of the compiled program: one sort in its code, whatever the dimension.
            column = jax.lax.dynamic_index_in_dim(cloud, dim - 1 - step, axis=1, keepdims=False)
            return order[jax.numpy.argsort(column[order], stable=True)]

        return jax.lax.fori_loop(0, dim, refine, jax.numpy.arange(n))

    return jax.vmap(order_one)(points)


@lexsort_rows.implementation("cuda", lambda points: cuda_refusal(points))
def _lexsort_cuda(points: Tensor) -> Tensor:
    return lexicographic_order(points)


@lexsort_rows.implementation("passes", lambda points: None)
def _lexsort_passes(points: Array) -> Array:
    xp = namespace(points)
    order = xp.argsort(points[:, :, -1], axis=1, stable=True)
    for column in range(points.shape[2] - 2, -1, -1):
        keys = xp.take_along_axis(points[:, :, column], order, axis=1)
        order = xp.take_along_axis(order, xp.argsort(keys, axis=1, stable=True), axis=1)
    return order


orthonormal_rows: Operation[Array] = Operation("orthonormal_rows")
"""orthonormal_rows(matrices (..., rows, dim)) -> the same shape: Gram-Schmidt on the rows in turn.

The triangular factor has a positive diagonal, so that fewer rows are a prefix of more.
"""


def _cholesky_refusal(matrices: Array) -> str | None:
    if library(matrices) != "torch" or is_readable(matrices):
        return "it takes torch tensors on an accelerator"
    return None if str(matrices.dtype) == "torch.float64" else "it takes float64"


@orthonormal_rows.implementation("cholesky", _cholesky_refusal)
def _orthonormal_rows_cholesky(matrices: Tensor) -> Tensor:
    # Products and triangular solves keep an accelerator busy, Householder reflections do not. The first time
    # the diagonal is raised by more than rounding can do to it, so that there is a factor; the next two times
    # repair the rows.
    linalg = sys.modules["torch"].linalg
    for shift in (1e-15, 0.0, 0.0):
        gram = matrices @ matrices.mT
        size = gram.diagonal(dim1=-2, dim2=-1).sum(-1)
        gram.diagonal(dim1=-2, dim2=-1).add_(shift * size[..., None])
        factor, _ = linalg.cholesky_ex(gram)
        matrices = linalg.solve_triangular(factor, matrices, upper=False)
    return matrices


@orthonormal_rows.implementation("reference", lambda matrices: None)
def _orthonormal_rows(matrices: Array) -> Array:
    xp = namespace(matrices)
    q, r = xp.linalg.qr(xp.matrix_transpose(matrices))
    # QR alone is not Haar: LAPACK's sign convention biases the columns.
    diagonal = xp.linalg.diagonal(r)
    q = q * xp.where(diagonal < 0, -xp.ones_like(diagonal), xp.ones_like(diagonal))[..., None, :]
    return xp.matrix_transpose(q)


def at_rank(array: Array, rank: int) -> Array:
    """The same numbers with axes of length 1 in front, for arithmetic with an array of that rank.

    Broadcasting would do the same, but JAX can be configured to forbid it.
    """
    if array.ndim == rank or library(array) != "jax":
        return array
    return namespace(array).reshape(array, (*(1,) * (rank - array.ndim), *array.shape))


def call_on_host(
    function: Callable[..., HostArray], shape: tuple[int, ...], dtype: DType, *arrays: Array
) -> Array:
    """`function` of the arrays as NumPy arrays, beside them and of this shape and type.

    A compiled program calls it at every run, and waits for it.
    """
    if is_traced(*arrays):
        jax, kind = sys.modules["jax"], np.dtype(dtype)
        result = jax.ShapeDtypeStruct(shape, kind)
        return cast(
            Array,
            jax.pure_callback(
                lambda *given: function(*given).astype(kind), result, *arrays, vmap_method="sequential"
            ),
        )
    table = function(*(to_numpy(a) for a in arrays))
    return namespace(arrays[0]).asarray(table, dtype=dtype, device=device(arrays[0]))


def erf(array: Any) -> Array:
    """The error function, which the array standard lacks."""
    kind = library(array)
    if kind == "torch":
        return cast(Array, sys.modules["torch"].special.erf(array))
    if kind == "jax":
        return cast(Array, sys.modules["jax"].scipy.special.erf(array))
    if kind == "cupy":
        on_device = importlib.import_module("cupyx.scipy.special")

        return cast(Array, on_device.erf(array))
    from scipy.special import erf as on_host  # scipy.special is not needed to import orthoslice

    return namespace(array).asarray(on_host(to_numpy(array)), dtype=array.dtype)


def add_totals(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
    """Sums term by term; an empty tuple is zero."""
    return tuple(u + v for u, v in zip(a, b, strict=True)) if a else b


def map_sum(
    step: Callable[..., tuple[Array, tuple[Array, ...]]],
    inputs: tuple[Array, ...],
    rows: int,
    traced: bool = False,
) -> tuple[Array, tuple[Array, ...]]:
    """Walk over the leading axis of the inputs, `rows` at a time.

    `step` returns one result a row and a tuple of totals. The results are concatenated, the totals added up.
    Under tracing (of the inputs, or `traced`: of what `step` closes over) the walk is a loop of the compiled
    program, so that neither its size nor its memory grows with the number of rows.
    """
    traced = traced or is_traced(*inputs)
    n = inputs[0].shape[0]
    whole = n // rows if traced else 0
    parts: list[Array] = []
    totals: tuple[Array, ...] = ()
    if whole > 1:
        result, totals = _scan(step, tuple(a[: whole * rows, ...] for a in inputs), rows)
        parts.append(result)
    for first in range(whole * rows if whole > 1 else 0, n, rows):
        result, extra = step(*(a[first : min(first + rows, n), ...] for a in inputs))
        parts.append(result)
        totals = add_totals(totals, extra)
    return concat_rows(parts), totals


def iterate(step: Callable[..., tuple[Array, ...]], state: tuple[Array, ...], times: int) -> tuple[Array, ...]:
    """`state = step(*state)`, this many times; under tracing a loop of the compiled program.

    Examples
    --------
    >>> iterate(lambda a, b: (b, a + b), (0, 1), 10)
    (55, 89)
    """
    if is_traced(*state):
        looped: tuple[Array, ...] = sys.modules["jax"].lax.fori_loop(0, times, lambda _, s: step(*s), state)
        return looped
    for _ in range(times):
        state = step(*state)
    return state


def concat_rows(parts: list[Array]) -> Array:
    """Arrays one after the other along the leading axis; one alone is not copied."""
    return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(parts, axis=0)


def _scan(
    step: Callable[..., tuple[Array, tuple[Array, ...]]], inputs: tuple[JaxArray, ...], rows: int
) -> tuple[Array, tuple[Array, ...]]:
    jax = sys.modules["jax"]
    chunks = tuple(a.reshape(-1, rows, *a.shape[1:]) for a in inputs)
    shapes = jax.eval_shape(step, *(c[0] for c in chunks))[1]

    def body(totals: tuple[JaxArray, ...], chunk: tuple[JaxArray, ...]) -> tuple[tuple[Array, ...], Array]:
        result, extra = step(*chunk)
        return add_totals(totals, extra), result

    totals, results = jax.lax.scan(body, tuple(jax.numpy.zeros(s.shape, s.dtype) for s in shapes), chunks)
    return results.reshape(-1, *results.shape[2:]), totals

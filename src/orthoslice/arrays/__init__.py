"""The only place that names array libraries: namespaces, random streams, operations, gradients."""

from orthoslice.arrays.autodiff import Outcome, Wanted, differentiable
from orthoslice.arrays.namespace import (
    Array,
    DType,
    Namespace,
    default_float,
    detach,
    device,
    full_precision,
    is_bridged,
    is_readable,
    is_traced,
    library,
    namespace,
    to_numpy,
    wide_float,
    wide_int,
)
from orthoslice.arrays.operations import (
    Operation,
    add_totals,
    concat_rows,
    lexsort_rows,
    map_sum,
    scatter_add,
)
from orthoslice.arrays.pytree import register_pytree
from orthoslice.arrays.rng import RNG, resolve_rng, stream_index
from orthoslice.arrays.stream import DIRECTIONS, PRICES, STEPS, Stream, normals, signs

__all__ = [
    "DIRECTIONS",
    "PRICES",
    "RNG",
    "STEPS",
    "Array",
    "DType",
    "Namespace",
    "Operation",
    "Outcome",
    "Stream",
    "Wanted",
    "add_totals",
    "concat_rows",
    "default_float",
    "detach",
    "device",
    "differentiable",
    "full_precision",
    "is_bridged",
    "is_readable",
    "is_traced",
    "lexsort_rows",
    "library",
    "map_sum",
    "namespace",
    "normals",
    "register_pytree",
    "resolve_rng",
    "scatter_add",
    "signs",
    "stream_index",
    "to_numpy",
    "wide_float",
    "wide_int",
]

"""Private names of torch, one function each: the library works without any of them.

Torch does not promise to keep these names. Each function says what it answers where torch has lost one, and
`tests/backend/test_internals.py` says what to do then.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any


def are_transforms_active() -> bool:
    """Whether a transform of `torch.func` is under way; False if torch does not tell.

    Transformed tensors are refused early and by name so. Without it, torch's own errors say less.
    """
    try:
        return bool(sys.modules["torch"]._C._are_functorch_transforms_active())
    except AttributeError:
        return False


def outside_transforms() -> contextlib.AbstractContextManager[object]:
    """Let the body change a tensor that no transform of `torch.func` has wrapped, which they forbid otherwise.

    Where torch has lost this, it raises its own error at the change.
    """
    try:
        cleared: contextlib.AbstractContextManager[object] = importlib.import_module(
            "torch._functorch.pyfunctorch"
        ).temporarily_clear_interpreter_stack()
        return cleared
    except (ImportError, AttributeError):
        return contextlib.nullcontext()


def recording_gradients() -> contextlib.AbstractContextManager[object]:
    """Let the body use a gradient tape of its own within an operator, where torch has none.

    Where torch has lost this, an operator has no gradient that is found by a tape, and torch says so.
    """
    try:
        core = sys.modules["torch"]._C
        excluded = core._dispatch_tls_local_exclude_set()
        for key in ("AutogradFunctionality", "ADInplaceOrView"):
            excluded = excluded.remove(getattr(core.DispatchKey, key))
        guard: contextlib.AbstractContextManager[object] = core._ForceDispatchKeyGuard(
            core._dispatch_tls_local_include_set(), excluded
        )
        return guard
    except AttributeError:
        return contextlib.nullcontext()


def is_transformed(tensor: object) -> bool:
    """Whether a transform of `torch.func` has put this tensor in the place of another; False if not known."""
    try:
        return bool(sys.modules["torch"]._C._functorch.is_functorch_wrapped_tensor(tensor))
    except AttributeError:
        return False


def is_forward_mode() -> bool:
    """Whether torch tensors may have tangents now; True if torch does not tell.

    Then more is saved for derivatives than is needed, and each tensor is asked for its tangent.
    """
    try:
        return bool(sys.modules["torch"].autograd.forward_ad._current_level >= 0)
    except AttributeError:
        return True


def is_exporting() -> bool:
    """Whether `torch.export` records a graph; False if torch does not tell, and export freezes or refuses more.

    To `torch.compile` of torch 2.7 to 2.11 or so, the public function of this name is always true.
    """
    try:
        return bool(sys.modules["torch"].compiler._is_exporting_flag)
    except AttributeError:
        return False


def write_count(tensor: Any) -> Any:
    """How often a tensor was written to; without torch's count a new object, which equals no other.

    What is kept until a tensor changes is then worked out at every call.
    """
    # Tensors of inference mode count no writes, and cannot be changed outside of it.
    if tensor.is_inference():
        return 0
    try:
        return tensor._version
    except AttributeError:
        return object()


def current_device() -> int:
    """The number of the current CUDA device; a public function says so too, in more time."""
    torch = sys.modules["torch"]
    try:
        return int(torch._C._cuda_getDevice())
    except AttributeError:
        return int(torch.cuda.current_device())


def current_stream(device: int) -> int:
    """The address of the CUDA stream that torch would use next on a device; likewise."""
    torch = sys.modules["torch"]
    try:
        return int(torch._C._cuda_getCurrentRawStream(device))
    except AttributeError:
        return int(torch.cuda.current_stream(device).cuda_stream)

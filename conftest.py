"""Set before anything is imported. Modules whose examples need a missing library are not collected."""

import os
from importlib.util import find_spec
from pathlib import Path

# JAX would take three quarters of a GPU's memory, and torch and other test processes need theirs.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# JAX compiles every operation for every shape; what it compiled is kept for later runs and other processes.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent / "tests" / "__pycache__" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

_ADAPTERS = {"torchmetrics": "torch_metric", "anndata": "single_cell"}
collect_ignore = [f"src/orthoslice/adapters/{a}.py" for name, a in _ADAPTERS.items() if find_spec(name) is None]

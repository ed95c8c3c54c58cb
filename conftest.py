"""Set before anything is imported. Modules whose examples need a missing library are not collected."""

import os
from importlib.util import find_spec

# JAX would take three quarters of a GPU's memory, and torch and other test processes need theirs.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

_ADAPTERS = {"torchmetrics": "torch_metric", "anndata": "single_cell"}
collect_ignore = [f"src/orthoslice/adapters/{a}.py" for name, a in _ADAPTERS.items() if find_spec(name) is None]

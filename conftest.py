"""Modules whose examples need a library that is not there are not collected."""

from importlib.util import find_spec

_ADAPTERS = {"torchmetrics": "torch_metric", "anndata": "single_cell"}
collect_ignore = [f"src/orthoslice/adapters/{a}.py" for name, a in _ADAPTERS.items() if find_spec(name) is None]

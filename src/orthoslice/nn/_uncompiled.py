"""Calls that a compiler of torch leaves alone.

A module of its own, imported while `torch.compile` reads a loss: the decorator loads `torch._dynamo`, which
takes seconds, and which such a compiler has loaded already.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from orthoslice.nn._inputs import NOT_IN_A_GRAPH, refuse_graph

# `disable` of older versions of torch takes no reason.
_WHY = {"reason": NOT_IN_A_GRAPH} if "reason" in inspect.signature(torch.compiler.disable).parameters else {}


@torch.compiler.disable(**_WHY)  # type: ignore[untyped-decorator]
def run_uncompiled(method: Callable[..., Any], *arguments: object) -> Any:
    """Break the graph of `torch.compile` for this call; `torch.export`, which cannot, is refused."""
    if torch.compiler.is_compiling():  # by `torch.export`, which runs what a compiler would leave alone
        refuse_graph()
    return method(*arguments)

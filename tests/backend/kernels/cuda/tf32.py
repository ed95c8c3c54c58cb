"""A GPU whose matrix products round to TF32, in host memory."""

from __future__ import annotations

from typing import Any

import pytest

from orthoslice.backend.kernels.cuda import products


def round_products_to_tf32(patch: pytest.MonkeyPatch) -> None:
    """Have torch keep 11 bits of the factors of float32 products, and have us see that it would."""
    import torch

    multiply, add_product = torch.Tensor.__matmul__, torch.Tensor.addmm_

    def rounded(factor: Any) -> Any:
        if factor.dtype != torch.float32:
            return factor
        return (factor.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)

    patch.setattr(torch.Tensor, "__matmul__", lambda a, b: multiply(rounded(a), rounded(b)))
    patch.setattr(
        torch.Tensor, "addmm_", lambda t, a, b, **options: add_product(t, rounded(a), rounded(b), **options)
    )
    patch.setattr(products, "_is_rounded", lambda factor: factor.dtype == torch.float32)

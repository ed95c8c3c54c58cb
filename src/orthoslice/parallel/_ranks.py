"""The processes of a group that share clouds: what they tell each other, and what they exchange."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from orthoslice.backend.arrays import Array, HostArray

# Bytes of a message about what went wrong; longer ones are cut.
_MESSAGE_BYTES = 1024


@dataclass(frozen=True)
class Ranks:
    """The ranks of a process group, and which of them this process is.

    Every exchange needs a call on all ranks: if one does not call, the others wait until the group's
    timeout. Arrays are torch tensors, or NumPy arrays in host memory.
    """

    group: Any
    rank: int
    size: int

    @classmethod
    def of(cls, group: object) -> Ranks:
        """Those of a group, or of the default one if None; a process on its own where none was started."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls(None, 0, 1)
        rank = dist.get_rank(group)
        if rank < 0:
            raise ValueError(
                f"Only ranks of `process_group` share its clouds; rank {dist.get_rank()} is none of them. Call "
                "the loss on its ranks alone."
            )
        return cls(group, rank, dist.get_world_size(group))

    @property
    def is_alone(self) -> bool:
        """Whether this is the only rank."""
        return self.size == 1

    def starts(self, n: int) -> list[int]:
        """Where the shares begin that `n` rows fall into, one for each rank, and the end."""
        return [n * k // self.size for k in range(self.size + 1)]

    def share(self, n: int) -> tuple[int, int]:
        """The first of this rank's rows, and the one after the last."""
        starts = self.starts(n)
        return starts[self.rank], starts[self.rank + 1]

    def tell(self, words: torch.Tensor, trouble: Exception | None) -> list[list[int]]:
        """The words of every rank; or, if a rank is in trouble, an error of its kind on all of them.

        `words (k,)` are integers, as many on every rank.
        """
        report = torch.cat([words.new_full((1,), trouble is not None), words])
        rows = [row.tolist() for row in self._gather(report)]
        in_trouble = [k for k, row in enumerate(rows) if row[0]]
        if in_trouble:
            raise self._told_trouble(words, trouble, in_trouble[0]) from trouble
        return [row[1:] for row in rows]

    def _told_trouble(self, words: torch.Tensor, trouble: Exception | None, of: int) -> Exception:
        """What went wrong on rank `of`."""
        text = "" if trouble is None else f"{type(trouble).__name__}:{trouble}"
        sent = text.encode()[:_MESSAGE_BYTES].ljust(_MESSAGE_BYTES, b"\0")
        letters = torch.frombuffer(bytearray(sent), dtype=torch.uint8).to(words.device)
        kind, _, message = (
            bytes(self._gather(letters)[of].tolist()).rstrip(b"\0").decode(errors="ignore").partition(":")
        )
        error = getattr(builtins, kind, RuntimeError)
        made: Exception = error(f"On rank {of} of {self.size}: {message}")
        return made

    def _gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        received = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(received, tensor, group=self.group)
        return received

    def total(self, array: Array) -> Array:
        """The sum over all ranks, the same on all of them to the last digit."""
        return self._reduce(array, dist.ReduceOp.SUM)

    def largest(self, array: Array) -> Array:
        """The largest over all ranks, number by number."""
        return self._reduce(array, dist.ReduceOp.MAX)

    def _reduce(self, array: Array, operation: object) -> Array:
        total = _tensor(array).clone()
        dist.all_reduce(total, op=operation, group=self.group)
        return _beside(total, array)

    def gather_rows(self, rows: Array, counts: Sequence[int]) -> Array:
        """The rows of all ranks, one after the other; rank k holds `counts[k]`."""
        sent = _tensor(rows)
        missing = max(counts) - sent.shape[0]
        if missing:
            # Padded, since not every backend gathers tensors of different lengths.
            sent = torch.cat([sent, sent.new_zeros(missing, *sent.shape[1:])])
        received = self._gather(sent)
        return _beside(torch.cat([part[:n] for part, n in zip(received, counts, strict=True)]), rows)

    def add_rows(self, rows: Array, counts: Sequence[int]) -> Array:
        """The sum over ranks of the rows that this rank holds: the way back of :meth:`gather_rows`.

        By all-to-all, since not every backend can reduce and scatter.
        """
        sent = _tensor(rows)
        item = sent[:1].numel()
        own = counts[self.rank]
        received = self._swap(sent, [n * item for n in counts], [own * item] * self.size)
        return _beside(received.view(self.size, own, *sent.shape[1:]).sum(dim=0), rows)

    def by_direction(self, projections: Array, counts: Sequence[int]) -> Array:
        """From projections `(slices, own points)` to `(own share of slices, all points)`."""
        sent = _tensor(projections)
        starts, own = self.starts(sent.shape[0]), counts[self.rank]
        first, stop = self.share(sent.shape[0])
        sizes = [own * (b - a) for a, b in pairwise(starts)]
        received = self._swap(sent, sizes, [(stop - first) * n for n in counts])
        parts = received.split([(stop - first) * n for n in counts])
        blocks = [part.view(stop - first, n) for part, n in zip(parts, counts, strict=True)]
        return _beside(torch.cat(blocks, dim=1), projections)

    def by_point(self, slopes: Array, counts: Sequence[int], slices: int) -> Array:
        """From `(own share of slices, all points)` to `(slices, own points)`: the way back."""
        sent = _tensor(slopes)
        starts, own, ends = self.starts(slices), counts[self.rank], list(accumulate(counts))
        blocks = [sent[:, end - n : end].reshape(-1) for n, end in zip(counts, ends, strict=True)]
        received = self._swap(
            torch.cat(blocks),
            [block.numel() for block in blocks],
            [own * (b - a) for a, b in pairwise(starts)],
        )
        return _beside(received.view(slices, own), slopes)

    def _swap(self, tensor: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
        """Send the first `sent[0]` numbers to rank 0, and so on; what came, in the order of ranks."""
        result = tensor.new_empty(sum(received))
        dist.all_to_all_single(result, tensor.reshape(-1), received, sent, group=self.group)
        return result


class GatheredRows(torch.autograd.Function):  # type: ignore[misc]
    """:meth:`Ranks.gather_rows` on the tape, of a value that every rank works out from all rows."""

    @staticmethod
    def forward(ctx: Any, ranks: Ranks, counts: list[int], factor: float, rows: torch.Tensor) -> torch.Tensor:
        first = sum(counts[: ranks.rank])
        ctx.own, ctx.factor = slice(first, first + counts[ranks.rank]), factor
        gathered: torch.Tensor = ranks.gather_rows(rows, counts)
        return gathered

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # Nothing has to be sent: every rank has the gradient by all rows.
        return None, None, None, ctx.factor * cotangent[ctx.own]


def _tensor(array: Array) -> torch.Tensor:
    """The array as a contiguous tensor."""
    if isinstance(array, torch.Tensor):
        return array.detach().contiguous()
    return torch.from_numpy(np.asarray(array, order="C"))


def _beside(tensor: torch.Tensor, array: Array) -> HostArray | torch.Tensor:
    """The tensor as a tensor or a NumPy array, whichever `array` is."""
    return tensor if isinstance(array, torch.Tensor) else tensor.numpy()

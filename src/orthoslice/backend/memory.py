"""Shares of a limit of memory."""

from __future__ import annotations


def share_memory(memory: int, row_bytes: int, workers: int, own_bytes: int = 0) -> tuple[int, int]:
    """How many workers have room for a row each, and how many rows each of them may hold; one at least.

    A worker needs `own_bytes` besides, however many rows it has.

    Examples
    --------
    >>> share_memory(100, 10, 4), share_memory(100, 40, 4), share_memory(100, 400, 4)
    ((4, 2), (2, 1), (1, 1))
    """
    workers = max(1, min(workers, memory // (row_bytes + own_bytes)))
    return workers, max(1, (memory // workers - own_bytes) // row_bytes)


def check_room(memory: int, takes: int, what: str) -> None:
    """Refuse a memory that does not hold what has to be in it all at once."""
    if memory < takes:
        raise ValueError(
            f"`memory` must hold {what}: {-(-takes // 10**6)}MB; got {memory / 1e6:.4g}MB. Pass that much, "
            "or some of the rows."
        )

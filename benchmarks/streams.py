"""Summaries of streams: are their certain bounds true, how wide are they, and how large are the summaries?"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import orthoslice as osl

FILE = "streams.jsonl"
MOST = 10**8
_PIECE = 1 << 18

Draw = Callable[[np.random.Generator, int], Any]

LAWS: dict[str, tuple[Draw, Draw]] = {
    "normal, moved by 0.1": (lambda r, n: r.normal(size=n), lambda r, n: r.normal(size=n) + 0.1),
    "normal, 5% wider": (lambda r, n: r.normal(size=n), lambda r, n: r.normal(size=n) * 1.05),
    "Cauchy, moved by 1": (lambda r, n: r.standard_cauchy(n), lambda r, n: r.standard_cauchy(n) + 1),
    "rounded to 0.1": (lambda r, n: r.normal(size=n).round(1), lambda r, n: (r.normal(size=n) + 0.3).round(1)),
    "far away": (lambda r, n: r.normal(size=n) + 1e6, lambda r, n: r.normal(size=n) + 1e6 + 0.1),
}


@dataclass(frozen=True)
class Measured:
    """One pair of streams of n numbers on a line, beside the answer from all numbers."""

    law: str
    n: int
    p: float
    kb: float
    """Of the larger summary."""
    lower: float
    true: float
    upper: float
    seconds: float
    """To summarise both."""

    @property
    def is_inside(self) -> bool:
        return self.lower <= self.true <= self.upper

    @property
    def relative_width(self) -> float:
        """Of the distance, not of its power."""
        return float((self.upper ** (1 / self.p) - self.lower ** (1 / self.p)) / self.true ** (1 / self.p))


def run(folder: Path, say: Callable[[str], None], *, smoke: bool = False) -> list[Measured]:
    """All laws at 10^7 numbers and the first one at 10^8, unless the folder has them."""
    folder.mkdir(parents=True, exist_ok=True)
    path, many = folder / FILE, 10**4 if smoke else 10**7
    wanted = [(law, many) for law in LAWS] + ([] if smoke else [(next(iter(LAWS)), MOST)])
    for law, n in wanted:
        if (law, n) in {(row.law, row.n) for row in stored(path)}:
            continue
        for row in measure(law, n):
            with path.open("a") as file:
                file.write(json.dumps(asdict(row)) + "\n")
            say(f"{law}, n = {n:,}, p = {row.p:g}: {row.kb:.0f} kB, relative width {row.relative_width:.1e}")
    return stored(path)


def stored(path: Path) -> list[Measured]:
    """The rows of a file, none where there is no file."""
    return [Measured(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def measure(law: str, n: int) -> Iterator[Measured]:
    """Summarise numbers as they come, and compare with what they are all together."""
    for p in (1.0, 2.0) if n < MOST else (2.0,):
        clouds, streams = [], []
        spent = 0.0
        for seed, draw in enumerate(LAWS[law]):
            stream = osl.Stream(1, p, n_directions=1, directions="iid")
            table = np.empty((n, 1))
            for k, first in enumerate(range(0, n, _PIECE)):
                rows = table[first : first + _PIECE]
                rows[:, 0] = draw(np.random.default_rng([seed, k]), len(rows))
                start = time.process_time()
                stream.update(rows)
                spent += time.process_time() - start
            clouds.append(table)
            streams.append(stream)
        found = streams[0].compare(streams[1])
        true = osl.sliced_wasserstein(*clouds, p, n_directions=1, directions="iid", rng=0, workers=1)
        kb = max(stream.nbytes for stream in streams) / 1e3
        yield Measured(law, n, p, kb, found.lower, float(true.value), found.upper, spent)


def lines(rows: list[Measured]) -> Iterator[str]:
    """A table, in Markdown."""
    yield "\n## Streams: summaries instead of points\n"
    yield (
        "W_p of two streams of n numbers on a line from their summaries (`osl.Stream`), beside the answer from "
        "all numbers. Relative width: of the certain bounds of the distance. ns: processor time to summarise a "
        "number.\n"
    )
    yield "| law | n | p | kB a direction | inside | relative width | ns |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in rows:
        inside = "yes" if row.is_inside else "**NO**"
        yield (
            f"| {row.law} | {row.n:,} | {row.p:g} | {row.kb:.0f} | {inside} | {row.relative_width:.1e} | "
            f"{1e9 * row.seconds / (2 * row.n):.0f} |"
        )

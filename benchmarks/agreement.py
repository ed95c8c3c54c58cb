"""Whether an answer is right: nothing is timed before this says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.data import base_kind, pooled
from benchmarks.problems import Contender

TOLERANCE = {"float32": 1e-4, "float64": 1e-8}
"""Relative error of SW_p^p or PW_p^p against a float64 computation with the same directions."""
VECTOR_TOLERANCE = {"float32": 1e-3, "float64": 1e-7}
"""Relative error of a gradient or of projections, in the Euclidean norm."""
COUPLING_TOLERANCE = 1e-2
"""The same of a gradient of PW in float32: points that rounding makes change places change partners too."""
STANDARD_ERRORS = 6.0
"""How far apart two independent estimates may be where each library draws its own directions. With 64 or more
directions right answers differ more than that about once in ten million rows."""
KNOWN_LIMIT = 0.1
"""A known defect explains a relative error up to this, not more."""


@dataclass(frozen=True)
class Verdict:
    """The relative error of an answer and what it is allowed to be."""

    error: float
    tolerance: float
    known: str | None = None
    """Why a peer is wrong, where that is known."""

    @property
    def agrees(self) -> bool:
        return self.error <= self.tolerance

    @property
    def may_be_timed(self) -> bool:
        """A right answer, or a peer's known defect, which is reported beside its time."""
        return self.agrees or (self.known is not None and self.error <= KNOWN_LIMIT)

    @property
    def text(self) -> str:
        """Empty where the answer is right."""
        if self.agrees:
            return ""
        return f"wrong by {100 * self.error:.3g}%" + (f": {self.known}" if self.known else "")


def judge(
    answer: Mapping[str, Any], expected: Mapping[str, Any], contender: Contender, data: str = "Gaussian"
) -> Verdict:
    """Compare the value, and the vector where there is one, with the reference.

    Where that has `numbers` of equal points, vectors are summed over those.

    Examples
    --------
    >>> from benchmarks.problems import NUMPY
    >>> judge({"value": 1.00001}, {"value": 1.0}, NUMPY).agrees
    True
    >>> judge({"value": 1.01}, {"value": 1.0}, NUMPY).text
    'wrong by 1%'
    """
    scale = abs(float(expected["value"]))
    tolerance = TOLERANCE[contender.dtype]
    is_drawn = contender.directions != "given" and "stderr" in expected
    if is_drawn:
        tolerance = STANDARD_ERRORS * 2**0.5 * float(expected["stderr"]) / scale
    error = _relative(answer["value"], expected["value"])
    # A gradient on some directions says nothing of that on others.
    if "vector" in expected and "vector" in answer and not is_drawn:
        allowed = float(expected.get("vector_tolerance", VECTOR_TOLERANCE[contender.dtype]))
        # One number for both: whichever uses up more of its allowance.
        vectors = [np.asarray(one["vector"]) for one in (answer, expected)]
        if "numbers" in expected and vectors[0].shape == vectors[1].shape:
            vectors = [pooled(vector, np.asarray(expected["numbers"])) for vector in vectors]
        vector_error = _relative(*vectors)
        if vector_error / allowed > error / tolerance:
            error, tolerance = vector_error, allowed
    return Verdict(error, tolerance, known_defect(contender, data))


def known_defect(contender: Contender, data: str = "Gaussian") -> str | None:
    """What is known to be wrong with a peer; reproduced here, so that its time can be shown with its error."""
    if base_kind(data) == "offset" and contender.dtype == "float32" and contender.library != "orthoslice":
        return "products of float32 numbers that are far from 0 lose digits of their differences"
    if contender.library == "pot" and contender.dtype == "float32":
        return "POT takes differences of float32 sums of weights"
    return None


def _relative(got: Any, expected: Any) -> float:
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    if got.shape != expected.shape:
        return float("inf")
    # Where 0 is expected, the error is absolute.
    error = float(np.linalg.norm(got - expected) / (np.linalg.norm(expected) or 1.0))
    return error if np.isfinite(error) else float("inf")

"""Step 2, draw: directions, one sampler a file; and what a sampler of your own is made of."""

from __future__ import annotations

from orthoslice.backend.arrays import Key, normals, signs
from orthoslice.directions.auto import Auto, Choice
from orthoslice.directions.base import DenseDirections, Directions, Sample, Sampler
from orthoslice.directions.equispaced import Equispaced
from orthoslice.directions.function import from_function
from orthoslice.directions.given import Given
from orthoslice.directions.hadamard import HadamardRademacher
from orthoslice.directions.iid import IID
from orthoslice.directions.kerdock import Kerdock
from orthoslice.directions.layout import Run
from orthoslice.directions.optimized import Optimized
from orthoslice.directions.orthogonal import Orthogonal
from orthoslice.directions.planes import Planes
from orthoslice.directions.point_set import PointSet, Replicated
from orthoslice.directions.sobol import Sobol
from orthoslice.directions.stratified import Stratified

__all__ = [
    "IID",
    "Auto",
    "Choice",
    "DenseDirections",
    "Directions",
    "Equispaced",
    "Given",
    "HadamardRademacher",
    "Kerdock",
    "Key",
    "Optimized",
    "Orthogonal",
    "Planes",
    "PointSet",
    "Replicated",
    "Run",
    "Sample",
    "Sampler",
    "Sobol",
    "Stratified",
    "from_function",
    "normals",
    "signs",
]

NAMED: dict[str, Sampler] = {
    Auto.name: Auto(),
    IID.name: IID(),
    Orthogonal.name: Orthogonal(),
    HadamardRademacher.name: HadamardRademacher(),
    Equispaced.name: Equispaced(),
    Sobol.name: Sobol(),
    Optimized.name: Optimized(),
    Kerdock.name: Kerdock(),
}
"""What the names accepted by ``directions=`` stand for."""

OWN: frozenset[type[Sampler]] = frozenset(
    {IID, Equispaced, Given, HadamardRademacher, Orthogonal, Planes, Stratified}
)
"""Samplers whose promises the tests check; others are checked before their first use."""

"""How directions are drawn: one sampler a file."""

from __future__ import annotations

from orthoslice.directions.base import Sample, Sampler
from orthoslice.directions.given import Given
from orthoslice.directions.hadamard import HadamardRademacher
from orthoslice.directions.iid import IID
from orthoslice.directions.orthogonal import Orthogonal
from orthoslice.directions.stratified import Stratified

__all__ = ["IID", "Given", "HadamardRademacher", "Orthogonal", "Sample", "Sampler", "Stratified"]

NAMED: dict[str, Sampler] = {
    "auto": Orthogonal(),
    IID.name: IID(),
    Orthogonal.name: Orthogonal(),
    HadamardRademacher.name: HadamardRademacher(),
}
"""What the names accepted by ``directions=`` stand for."""

OWN: frozenset[type[Sampler]] = frozenset({IID, Given, HadamardRademacher, Orthogonal, Stratified})
"""Samplers that keep what they promise, as tests show; others are looked at before they are used."""

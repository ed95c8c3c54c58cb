"""Real clouds that come with the package, for examples and tests."""

from __future__ import annotations

from importlib.resources import files

import numpy as np

from orthoslice.backend.array_types import HostArray


def digits(label: int) -> HostArray:
    """Images of one handwritten digit as a cloud: `(about 180, 64)`, pixels 0 to 16 in float64.

    From the UCI data set "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak, 1998, CC BY 4.0).

    Examples
    --------
    >>> from orthoslice import datasets
    >>> datasets.digits(0).shape, datasets.digits(1).shape
    ((178, 64), (182, 64))
    """
    if label not in range(10):
        raise ValueError(f"`label` must be a digit from 0 to 9; got {label!r}.")
    with (files(__name__) / "digits.npz").open("rb") as file, np.load(file) as archive:
        return np.asarray(archive["images"][archive["labels"] == label], dtype=np.float64)

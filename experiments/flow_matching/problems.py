"""Laws to be reached from noise: sixteen Gaussians in the plane, and digits.

Digits are seen along the principal components of the training images, in one unit of length for all: the mean
variance of a component is 1, as that of noise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments import mixture
from experiments.flow_matching.config import Config, ProblemName

Floats = NDArray[np.float32]

# What random numbers are for.
_POOLS, _START, _FRESH, _OTHER = range(4)

_SIDE = {"mnist": 28, "small_digits": 8}


class Problem(NamedTuple):
    """A law by its samples."""

    name: ProblemName
    dim: int
    train: Callable[[int, np.random.Generator], Floats]
    """Points `(n, dim)` to train with."""
    test: Callable[[int, np.random.Generator], Floats]
    """Points to compare with, none of which is among those to train with."""
    to_images: Callable[[Floats], NDArray[np.uint8]] | None
    """Of digits: the images that points stand for, `(n, side, side)`."""


class Components(NamedTuple):
    """Principal components of images."""

    mean: NDArray[np.float64]
    axes: NDArray[np.float64]
    """(components, pixels)"""
    unit: float


def make_problem(name: ProblemName, config: Config) -> Problem:
    """A problem, with its data read."""
    if name == "sixteen":
        return Problem(name, 2, _sixteen, _sixteen, None)
    images, others = _read_images(name)
    known = find_components(images, config.n_components)
    train, test = (
        np.asarray((part - known.mean) @ known.axes.T / known.unit, np.float32) for part in (images, others)
    )
    side = _SIDE[name]

    def to_images(points: Floats) -> NDArray[np.uint8]:
        pixels = points * known.unit @ known.axes + known.mean
        return np.rint(255 * np.clip(pixels, 0, 1)).astype(np.uint8).reshape(-1, side, side)

    return Problem(
        name, config.n_components, *(functools.partial(_draw, part) for part in (train, test)), to_images
    )


def noise_and_data(problem: Problem, config: Config, seed: int) -> tuple[Floats, Floats]:
    """All pools of a seed, one after the other: two arrays `(n_pairs, dim)`, of which nothing is paired yet."""
    random = np.random.default_rng([config.seed, seed, _POOLS])
    noise = random.standard_normal((config.n_pairs, problem.dim), dtype=np.float32)
    return noise, problem.train(config.n_pairs, random)


def starts(problem: Problem, config: Config, seed: int) -> Floats:
    """Noise `(n_points, dim)` that a trained flow is measured from."""
    random = np.random.default_rng([config.seed, seed, _START])
    return random.standard_normal((config.n_points, problem.dim), dtype=np.float32)


def fresh_samples(problem: Problem, config: Config, seed: int) -> tuple[Floats, Floats]:
    """Points `(n_points, dim)` to compare with, and as many from the side of training."""
    of_test, of_train = (np.random.default_rng([config.seed, seed, part]) for part in (_FRESH, _OTHER))
    return problem.test(config.n_points, of_test), problem.train(config.n_points, of_train)


def find_components(images: NDArray[np.float64], n_components: int) -> Components:
    """The first principal components of images `(n, pixels)`, with signs that every computer finds alike."""
    mean = images.mean(axis=0)
    centred = images - mean
    variances, vectors = np.linalg.eigh(centred.T @ centred / len(images))
    axes = vectors[:, ::-1][:, :n_components].T
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    return Components(mean, axes * np.sign(largest), float(np.sqrt(variances[::-1][:n_components].mean())))


def _sixteen(n: int, random: np.random.Generator) -> Floats:
    modes = mixture.MODES[random.integers(mixture.N_MODES, size=n)]
    return np.asarray(modes + mixture.SPREAD * random.standard_normal((n, 2)), np.float32)


def _draw(points: Floats, n: int, random: np.random.Generator) -> Floats:
    """Some of the points, all different as long as there are enough."""
    return points[random.choice(len(points), n, replace=n > len(points))]


def _read_images(name: ProblemName) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Images to train with and others, `(n, pixels)` from 0 to 1."""
    if name == "small_digits":
        from orthoslice import datasets

        images = np.concatenate([datasets.digits(label) for label in range(10)]) / 16
        images = images[np.random.default_rng(0).permutation(len(images))]
        return images[: len(images) // 2], images[len(images) // 2 :]
    from experiments.data import load

    train, test = (load("mnist", part).images.reshape(-1, 28 * 28) / 255 for part in ("train", "test"))
    return train[:50_000], test

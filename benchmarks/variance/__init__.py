"""How much error is left from as many directions, and in the same time: ``python -m benchmarks variance``.

`problems` says what is estimated, `peers` holds other people's estimators, written from their papers, `methods`
names all that take part, `measure` repeats them and keeps what it finds row by row, `gradients` does so for
gradients, `analysis` makes errors and ratios of the rows, and `page` tables and pictures of those.
"""

GROUPS = {
    "shown": "The problems of the targets: 20 data sets each for some methods, the first for all",
    "default": "As many directions as by default, 20 data sets, few methods",
    "gaussians": "The paper's Gaussians with equal means, in 2 to 784 dimensions, 2 to 1,000 points a cloud",
    "digits": "Handwritten digits that come with the package, class against class",
    "shapes": "Point clouds in space, as scans give them",
    "cells": "Single cells: clusters of scanpy's pbmc68k_reduced, 50 principal components",
    "mnist": "MNIST, class 3 against class 8",
    "gradients": "The gradient by the points of a cloud, which is what training feels",
}
"""Every group and what it shows."""

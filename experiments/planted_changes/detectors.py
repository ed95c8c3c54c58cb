"""What people would use to notice a change: the p-value of every method, or whether its rule calls it drift."""

from __future__ import annotations

import importlib.util
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import jensenshannon
from scipy.stats import binom, chi2_contingency, ks_2samp, wasserstein_distance

from experiments.planted_changes.tables import Column, Table, is_text
from experiments.power_two_sample import kernel_pvalues, ks_pvalue
from orthoslice.applications.columns import ColumnChange, compare_columns, edges_of, tally_rows
from orthoslice.applications.compare.compare import prepare_comparison
from orthoslice.applications.scaling import fit_scaling
from orthoslice.cli.column_kinds import Category, Number
from orthoslice.cli.encoding import Encoding, make_encoding

FloatArray = NDArray[np.float64]

LEVEL = 0.05
OURS = "orthoslice"
KERNELS = ("MMD, median", "MMD, tuned", "energy")
FOREST = "forest"
ANY_COLUMN = "Evidently, any column"
OTHERS = ("KS, Bonferroni", *KERNELS, "linear classifier", FOREST, "Evidently", ANY_COLUMN)
METHODS = (OURS, *OTHERS)

# Evidently's defaults: up to _FEW_ROWS of the reference it tests, beyond it measures; a column of numbers has
# more than _FEW_VALUES different ones; a table has drifted if _DRIFTED_SHARE of its columns have.
_FEW_ROWS, _FEW_VALUES, _DRIFTED_SHARE, _DRIFTED_DISTANCE = 1000, 5, 0.5, 0.1

# Methods that take quadratic time, or train trees, see this many rows of each table.
_MOST_ROWS = 500


class Encoded(NamedTuple):
    """Two tables as features, as the command line makes them, and what its columns come to."""

    x: FloatArray
    y: FloatArray
    columns: tuple[ColumnChange, ...]


def detect(x: Table, y: Table, n_permutations: int, seed: int) -> dict[str, bool]:
    """Whether ours calls the tables different."""
    return {OURS: our_pvalue(encode(x, y), n_permutations, seed) <= LEVEL}


def detect_otherwise(x: Table, y: Table, n_permutations: int, seed: int) -> dict[str, bool | None]:
    """Which other methods call the tables different; None for a method whose library is missing."""
    encoded, rng = encode(x, y), np.random.default_rng(seed)
    smallest = min(column_pvalue(x[name], y[name]) for name in x)
    pvalues: dict[str, float | None] = {"KS, Bonferroni": min(1.0, len(x) * smallest)}
    few_x, few_y = encoded.x[:_MOST_ROWS], encoded.y[:_MOST_ROWS]
    pvalues |= kernel_pvalues(few_x, few_y, n_permutations, rng)
    pvalues |= classifier_pvalues(few_x, few_y, rng)
    found = {method: None if p is None else p <= LEVEL for method, p in pvalues.items()}
    drifted = [has_drifted(x[name], y[name]) for name in x]
    return found | {"Evidently": sum(drifted) >= _DRIFTED_SHARE * len(x), ANY_COLUMN: any(drifted)}


def encode(x: Table, y: Table) -> Encoded:
    """Features as of ``orthoslice compare a.csv b.csv --missing indicate``, in standard units."""
    kinds = {name: _kind(x[name], y[name]) for name in x}
    pooled = {name: np.concatenate([x[name], y[name]]) for name in x}
    gaps = {n: float(np.nanmean(v)) for n, v in pooled.items() if not is_text(v) and np.isnan(v).any()}
    encoding = make_encoding(kinds, gaps)
    points = [_features(table, encoding) for table in (x, y)]
    edges = edges_of(points, encoding.columns)
    a, b = (tally_rows(p, encoding.columns, edges) for p in points)
    changes = compare_columns(a, b, encoding.columns)
    scaling = encoding.with_steps(fit_scaling(points, "standard"))
    first, second = (np.asarray(scaling.apply(p)) for p in points)
    return Encoded(first, second, changes)


def _kind(a: Column, b: Column) -> Any:
    if not is_text(a):
        return Number()
    counts = Counter([*a.tolist(), *b.tolist()])
    return Category(tuple(level for level, _ in counts.most_common()), has_others=False)


def _features(table: Table, encoding: Encoding) -> FloatArray:
    found = np.zeros((len(next(iter(table.values()))), encoding.n_features))
    for column in encoding.columns:
        values = table[column.name]
        if column.is_category:
            found[:, column.features] = values[:, None] == np.array(column.levels)
            continue
        if column.missing is not None:
            is_gap = np.isnan(values)
            found[:, column.missing] = is_gap
            values = np.where(is_gap, encoding.fills[column.name], values)
        found[:, column.place] = values
    return found


def our_pvalue(encoded: Encoded, n_permutations: int, seed: int) -> float:
    """What the command line decides by: the combined test, and columns by all rows if it looked at some."""
    ready = prepare_comparison(
        encoded.x, encoded.y, columns=encoded.columns, n_permutations=n_permutations, rng=seed, workers=1
    )
    found = ready.finish({"test": ready.work_out("test")}).pvalue
    assert found is not None
    return found


def column_pvalue(a: Column, b: Column) -> float:
    """Of a Kolmogorov-Smirnov test without the gaps, or of a chi-square test of shares."""
    if is_text(a):
        return _shares_pvalue(a, b)
    a, b = a[~np.isnan(a)], b[~np.isnan(b)]
    if max(len(a), len(b)) > _FEW_ROWS:
        return float(ks_2samp(a, b, method="asymp").pvalue)
    return ks_pvalue(a, b)


def _shares_pvalue(a: Column, b: Column) -> float:
    counts = _counts(a, b)
    return float(chi2_contingency(counts, correction=False).pvalue) if counts.shape[1] > 1 else 1.0


def _counts(a: Column, b: Column) -> NDArray[np.int64]:
    """How often both columns have every value of either, `(2, values)`."""
    values = np.unique(np.concatenate([a, b]))
    return np.array([np.bincount(np.searchsorted(values, c), minlength=len(values)) for c in (a, b)])


def classifier_pvalues(x: FloatArray, y: FloatArray, rng: np.random.Generator) -> dict[str, float | None]:
    """Whether classifiers tell rows that they were not trained on apart more often than by guessing."""
    points, labels = np.concatenate([x, y]), np.r_[np.zeros(len(x)), np.ones(len(y))]
    order = rng.permutation(len(points))
    train, held = order[: len(order) // 2], order[len(order) // 2 :]
    found: dict[str, float | None] = {FOREST: None}
    guesses = {"linear classifier": _linear(points[train], labels[train], points[held])}
    if importlib.util.find_spec("sklearn") is not None:
        from sklearn.ensemble import RandomForestClassifier

        forest = RandomForestClassifier(random_state=int(rng.integers(1 << 31)))
        guesses[FOREST] = forest.fit(points[train], labels[train]).predict(points[held])
    # Guessing is right as often as the larger class occurs.
    chance = max(labels[held].mean(), 1 - labels[held].mean())
    for method, guess in guesses.items():
        n_right = int(np.sum(guess == labels[held]))
        found[method] = float(binom.sf(n_right - 1, len(held), chance))
    return found


def _linear(points: FloatArray, labels: FloatArray, others: FloatArray) -> FloatArray:
    """Labels of other points by ridge regression, a penalty of 1 a feature."""
    middle, mean = points.mean(axis=0), labels.mean()
    centred = points - middle
    gram = centred.T @ centred + np.eye(points.shape[1])
    slopes = np.linalg.solve(gram, centred.T @ (labels - mean))
    return np.asarray((others - middle) @ slopes > 0, dtype=np.float64)


def has_drifted(reference: Column, current: Column) -> bool:
    """Evidently's default rule for a column, as its page "Data drift algorithm" says; gaps are dropped."""
    if not is_text(reference):
        reference, current = reference[~np.isnan(reference)], current[~np.isnan(current)]
    is_number = not is_text(reference) and len(np.unique(reference)) > _FEW_VALUES
    if len(reference) <= _FEW_ROWS:
        # For two values Evidently compares proportions by a z-test, whose square is this chi-square statistic.
        pvalue = ks_2samp(reference, current, method="asymp").pvalue if is_number else None
        return bool((_shares_pvalue(reference, current) if pvalue is None else pvalue) < LEVEL)
    if is_number:
        unit = max(float(np.std(reference)), 1e-3)
        return bool(wasserstein_distance(reference, current) / unit >= _DRIFTED_DISTANCE)
    return bool(jensenshannon(*_counts(reference, current)) >= _DRIFTED_DISTANCE)

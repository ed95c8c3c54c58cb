"""How often two-sample tests notice a difference: SW and PW beside MMD, energy distance and KS tests.

Every method gets the same samples and tests at 5%. All but the last are permutation tests, so their level is
exact. MMD is tried with the median bandwidth, and with the best of several: for every labelling the largest of
the standardised statistics, which is a fair statistic itself. The last is the Kolmogorov-Smirnov test of every
feature, with Bonferroni's correction.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.stats import binom, ks_2samp

import orthoslice as osl
from experiments.common import Claim, NoSuchPart, Row, wilson
from orthoslice.datasets import digits

FloatArray = NDArray[np.float64]
Samples = tuple[FloatArray, FloatArray]

LEVEL = 0.05
BANDWIDTHS = 2.0 ** np.arange(-3, 4)
"""Multiples of the median distance."""
OURS = ("SW_1", "SW_2", "PW_2")
METHODS = (*OURS, "MMD, median", "MMD, tuned", "energy", "KS, Bonferroni")
COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#d55e00", "#e69f00", "#cc79a7", "#666666")


@dataclass(frozen=True, kw_only=True)
class Config:
    """How many pairs of samples are drawn for each effect, and their size."""

    n_simulations: int = 200
    n_permutations: int = 199
    n_points: int = 100
    dim: int = 20
    n_digits: int = 60
    """Images of a sample, or cells."""
    n_effects: int = 4
    """How many effects are tried: none, and the largest ones."""
    seed: int = 20190416


SMOKE = Config(n_simulations=12, n_permutations=39, n_points=40, dim=10, n_digits=30, n_effects=2)


def mean_of_one_feature(rng: np.random.Generator, effect: float, config: Config) -> Samples:
    """The first feature moved by the effect."""
    x, y = rng.standard_normal((2, config.n_points, config.dim))
    y[:, 0] += effect
    return x, y


def mean_of_all_features(rng: np.random.Generator, effect: float, config: Config) -> Samples:
    """All features moved, together as far as the effect says."""
    x, y = rng.standard_normal((2, config.n_points, config.dim))
    return x, y + effect / np.sqrt(config.dim)


def scale_of_one_feature(rng: np.random.Generator, effect: float, config: Config) -> Samples:
    """The first feature stretched by 1 + effect."""
    x, y = rng.standard_normal((2, config.n_points, config.dim))
    y[:, 0] *= 1 + effect
    return x, y


def scale_of_all_features(rng: np.random.Generator, effect: float, config: Config) -> Samples:
    """All features stretched by 1 + effect."""
    x, y = rng.standard_normal((2, config.n_points, config.dim))
    return x, (1 + effect) * y


def correlation(rng: np.random.Generator, effect: float, config: Config) -> Samples:
    """Features with this correlation among all of them; each alone is as before."""
    x, y = rng.standard_normal((2, config.n_points, config.dim))
    common = rng.standard_normal((config.n_points, 1))
    return x, np.sqrt(effect) * common + np.sqrt(1 - effect) * y


def mixture(rng: np.random.Generator, effect: float, config: Config) -> Samples:
    """Two clusters instead of one, that far to either side along the diagonal; the mean is as before."""
    x, y = rng.standard_normal((2, config.n_points, config.dim))
    side = rng.choice([-1.0, 1.0], size=(config.n_points, 1))
    return x, y + effect * side / np.sqrt(config.dim)


def digits_mixed(rng: np.random.Generator, effect: float, config: Config) -> Samples:
    """Images of eights; in the second sample this share of them are threes."""
    eights = rng.permutation(digits(8))[: 2 * config.n_digits]
    x, y = eights[: config.n_digits], eights[config.n_digits :].copy()
    n_other = round(effect * config.n_digits)
    y[:n_other] = rng.permutation(digits(3))[:n_other]
    return x, y


@functools.cache
def cells(kind: str) -> FloatArray:
    """Cells of one kind from blood, `(cells, 50)`: principal components of the 700 cells that scanpy brings."""
    with warnings.catch_warnings():
        # Of libraries that are newer than it expects.
        warnings.simplefilter("ignore")
        import scanpy

        data = scanpy.datasets.pbmc68k_reduced()
    return np.asarray(data.obsm["X_pca"][data.obs["bulk_labels"] == kind], dtype=np.float64)


def cells_mixed(rng: np.random.Generator, effect: float, config: Config) -> Samples:
    """Dendritic cells; in the second sample this share of them are monocytes."""
    dendritic = rng.permutation(cells("Dendritic"))[: 2 * config.n_digits]
    x, y = dendritic[: config.n_digits], dendritic[config.n_digits :].copy()
    n_other = round(effect * config.n_digits)
    y[:n_other] = rng.permutation(cells("CD14+ Monocyte"))[:n_other]
    return x, y


PROBLEMS: dict[str, tuple[Callable[[np.random.Generator, float, Config], Samples], tuple[float, ...]]] = {
    "mean of one feature": (mean_of_one_feature, (0.0, 0.5, 0.75, 1.0)),
    "mean of all features": (mean_of_all_features, (0.0, 0.5, 0.75, 1.0)),
    "scale of one feature": (scale_of_one_feature, (0.0, 0.5, 1.0, 2.0)),
    "scale of all features": (scale_of_all_features, (0.0, 0.05, 0.1, 0.2)),
    "correlation": (correlation, (0.0, 0.1, 0.2, 0.4)),
    "mixture": (mixture, (0.0, 1.0, 1.5, 2.0)),
    "digits": (digits_mixed, (0.0, 0.1, 0.2, 0.3)),
    "pbmc68k": (cells_mixed, (0.0, 0.1, 0.2, 0.4)),
}
NEEDS_SCANPY = "pbmc68k"


SPREAD = ("mean of all features", "scale of all features", "correlation", "digits")


def kernel_pvalues(
    x: FloatArray, y: FloatArray, n_permutations: int, rng: np.random.Generator
) -> dict[str, float]:
    """Permutation p-values of MMD and of the energy distance, which are quadratic forms of the labels."""
    n, m = len(x), len(y)
    apart = cdist(np.concatenate([x, y]), np.concatenate([x, y]))
    signs = np.r_[np.full(n, 1 / n), np.full(m, -1 / m)]
    orders = np.argsort(rng.random((n_permutations, n + m)), axis=1)
    labels = np.column_stack([signs, signs[orders].T])

    def forms(kernel: FloatArray) -> FloatArray:
        return np.einsum("nb,nb->b", labels, kernel @ labels)

    median = np.median(apart[np.triu_indices(n + m, 1)])
    tried = np.array([forms(np.exp(-((apart / (factor * median)) ** 2) / 2)) for factor in BANDWIDTHS])
    # Means and deviations are those of all labellings, the observed one among them: no labelling is special.
    standard = (tried - tried.mean(axis=1, keepdims=True)) / tried.std(axis=1, keepdims=True)
    return {
        "MMD, median": share_reached(tried[BANDWIDTHS.tolist().index(1.0)]),
        "MMD, tuned": share_reached(standard.max(axis=0)),
        "energy": share_reached(forms(-apart)),
    }


def share_reached(statistics: FloatArray) -> float:
    """The share of labellings whose statistic is at least that of the first."""
    return float(np.mean(statistics >= statistics[0] * (1 - 1e-9 * np.sign(statistics[0]))))


def pvalues(x: FloatArray, y: FloatArray, config: Config, seed: int) -> dict[str, float]:
    """The p-value of every method."""
    found = {}
    for name in OURS:
        method = "sliced" if name.startswith("SW") else "projected"
        options = {"n_permutations": config.n_permutations, "rng": seed}
        found[name] = osl.two_sample_test(x, y, int(name[-1]), method=method, **options).pvalue
    found |= kernel_pvalues(x, y, config.n_permutations, np.random.default_rng(seed))
    return found | {"KS, Bonferroni": min(1.0, x.shape[1] * min(map(ks_pvalue, x.T, y.T)))}


def ks_pvalue(a: FloatArray, b: FloatArray) -> float:
    """The exact p-value, or the asymptotic one where there are ties."""
    ties = len(np.unique(np.concatenate([a, b]))) < len(a) + len(b)
    return float(ks_2samp(a, b, method="asymp" if ties else "exact").pvalue)


def run(config: Config) -> list[Row]:
    """One row a problem, effect and method."""
    return [row for problem in PROBLEMS for row in run_part(config, problem)]


def run_part(config: Config, problem: str) -> list[Row]:
    """The rows of one problem, which are the same whether others are run or not."""
    if problem not in PROBLEMS:
        raise NoSuchPart(f"There is no problem {problem!r}; there are {', '.join(PROBLEMS)}.")
    if problem == NEEDS_SCANPY and importlib.util.find_spec("scanpy") is None:
        print(
            f"{problem} is left out: it needs scanpy, pip install 'orthoslice[experiments]'.", file=sys.stderr
        )
        return []
    rows: list[Row] = []
    k, (draw, effects) = list(PROBLEMS).index(problem), PROBLEMS[problem]
    for j, effect in enumerate((effects[0], *effects[1 - config.n_effects :])):
        hits = dict.fromkeys(METHODS, 0)
        for simulation in range(config.n_simulations):
            rng = np.random.default_rng([config.seed, k, j, simulation])
            for method, pvalue in pvalues(*draw(rng, effect, config), config, simulation).items():
                hits[method] += pvalue <= LEVEL
        rows += [_row(problem, effect, method, hits[method], config.n_simulations) for method in METHODS]
    return rows


def _row(problem: str, effect: float, method: str, n_rejected: int, n_simulations: int) -> Row:
    low, high = wilson(n_rejected, n_simulations)
    row: Row = {"problem": problem, "effect": effect, "method": method, "n_simulations": n_simulations}
    return row | {"n_rejected": n_rejected, "power": n_rejected / n_simulations, "low": low, "high": high}


def power(rows: list[Row], problem: str, method: str) -> float:
    """The mean power of a method over the effects of a problem that are not nothing."""
    mine = (r for r in rows if (r["problem"], r["method"]) == (problem, method))
    return float(np.mean([r["power"] for r in mine if r["effect"]]))


def check(rows: list[Row]) -> list[Claim]:
    """Where SW wins, and where it loses."""
    nulls = {m: [r for r in rows if r["method"] == m and r["effect"] == 0] for m in METHODS}
    hits = {m: sum(r["n_rejected"] for r in null) for m, null in nulls.items()}
    n_null = sum(r["n_simulations"] for r in nulls["SW_1"])
    # Not all: one needs a library that may be missing.
    problems = tuple(dict.fromkeys(r["problem"] for r in rows))
    # At most two standard errors of a difference of powers that are averaged over effects.
    n_tried = sum(r["n_simulations"] for r in rows if r["method"] == "SW_1") - n_null
    chance = 2 * np.sqrt(0.5 * len(problems) / n_tried)
    return [
        Claim(
            "Where there is no difference, no method rejects too often.",
            all(n <= binom.isf(1e-4, n_null, LEVEL) for n in hits.values()),
            "; ".join(f"{m} {n / n_null:.3f}" for m, n in hits.items()),
        ),
        Claim(
            "Differences spread over many features: SW_1 notices more of them than tests of each feature do.",
            all(power(rows, q, "SW_1") > power(rows, q, "KS, Bonferroni") for q in SPREAD),
            _compare(rows, SPREAD, "SW_1", "KS, Bonferroni"),
        ),
        Claim(
            "A shift of one feature: tests of each feature notice it as often as SW_1, or more often.",
            power(rows, "mean of one feature", "KS, Bonferroni") >= power(rows, "mean of one feature", "SW_1"),
            _compare(rows, ("mean of one feature",), "SW_1", "KS, Bonferroni"),
        ),
        Claim(
            "SW_1 is nowhere far behind MMD with the median bandwidth: by .1 at most and what chance explains.",
            all(power(rows, q, "SW_1") > power(rows, q, "MMD, median") - 0.1 - chance for q in problems),
            _compare(rows, problems, "SW_1", "MMD, median"),
        ),
        Claim(
            "All features stretched: MMD with a tuned bandwidth notices it more often than SW_1 does.",
            power(rows, "scale of all features", "MMD, tuned") > power(rows, "scale of all features", "SW_1"),
            _compare(rows, ("scale of all features",), "SW_1", "MMD, tuned"),
        ),
        Claim(
            "All features stretched: PW_2 does not notice it.",
            power(rows, "scale of all features", "PW_2") < 0.15,
            _compare(rows, ("scale of all features",), "PW_2", "SW_2"),
        ),
    ]


def _compare(rows: list[Row], problems: tuple[str, ...], first: str, second: str) -> str:
    told = (f"{q} {power(rows, q, first):.2f} ({power(rows, q, second):.2f})" for q in problems)
    return f"power of {first} (of {second}): " + "; ".join(told)


def plot(rows: list[Row]) -> Figure:
    """Power against effect, one panel a problem."""
    figure = Figure(figsize=(11.6, 6.2), layout="constrained")
    axes = figure.subplots(2, 4)
    problems = dict.fromkeys(r["problem"] for r in rows)
    for panel in axes.flat[len(problems) :]:
        panel.axis("off")
    for panel, problem in zip(axes.flat, problems, strict=False):
        for method, colour in zip(METHODS, COLOURS, strict=True):
            mine = [r for r in rows if (r["problem"], r["method"]) == (problem, method)]
            middle = np.array([r["power"] for r in mine])
            arms = np.abs(np.array([[r["low"], r["high"]] for r in mine]).T - middle)
            style = "-" if method in OURS else "--"
            effects = [r["effect"] for r in mine]
            panel.errorbar(effects, middle, arms, color=colour, ls=style, capsize=2, label=method)
        panel.axhline(LEVEL, color="black", linewidth=0.6)
        panel.set(title=problem, ylim=(0, 1.02), xlabel="effect")
    for panel in axes[:, 0]:
        panel.set_ylabel("share of rejections at 5%")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure

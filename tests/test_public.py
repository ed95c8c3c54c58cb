"""The public surface: names, docstrings, imports, types and the version."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import orthoslice as osl

SOURCE = Path(osl.__file__).parent
PROJECT = Path(__file__).parents[1]
HEAVY = [
    "torch",
    "jax",
    "numba",
    "scipy.stats",
    "matplotlib",
    "pandas",
    "polars",
    "rich",
    "typer",
    "ot",
    "dask",
    "torchmetrics",
    "sklearn",
    "anndata",
    "scanpy",
    "pyarrow",
    "PIL",
]
MODULES = [osl, osl.directions]
LAWS = {n: getattr(osl.laws, n) for n in osl.laws.__all__}
FUNCTIONS = {n: f for n in osl.__all__ if inspect.isfunction(f := getattr(osl, n))}
FUNCTIONS |= {f"plot.{n}": getattr(osl.plot, n) for n in osl.plot.__all__}
FUNCTIONS["write_report"] = osl.Comparison.write_report
FUNCTIONS["laws.from_quantiles"] = osl.laws.from_quantiles
CLASSES = {n: c for m in MODULES for n in m.__all__ if inspect.isclass(c := getattr(m, n))}
CLASSES |= {f"laws.{n}": c for n, c in LAWS.items() if inspect.isclass(c)}
SAMPLERS = {
    n: c for n, c in CLASSES.items() if issubclass(c, osl.directions.Sampler) and not inspect.isabstract(c)
}


def imported_names(module):
    """What `__init__.py` brings in by `from ... import`, or defines, without a leading underscore."""
    tree = ast.parse(Path(module.__file__).read_text())
    # What is loaded when it is used is imported where types are checked.
    guarded = [n for node in tree.body if isinstance(node, ast.If) for n in node.body]
    for node in [*tree.body, *guarded]:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_all_is_what_the_package_offers(module):
    assert set(module.__all__) == {name for name in imported_names(module) if not name.startswith("_")}
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


def test_dir_has_public_names_only_and_all_of_them():
    assert dir(osl) == sorted([*osl.__all__, "adapters", "nn", "plot"])
    assert all(hasattr(osl, name) for name in dir(osl))


def test_the_contract_is_there():
    """Names and leading parameters that users and checks rely on, from the design."""
    contract = {
        "sliced_wasserstein": ["x", "y", "p"],
        "projected_wasserstein": ["x", "y", "p"],
        "wasserstein_bounds": ["x", "y", "p"],
        "induced_coupling": ["x", "y", "direction"],
        "match": ["x", "y", "p"],
        "value_and_grad": ["x", "y", "p"],
        "flow": ["x", "y"],
    }
    for name, leading in contract.items():
        parameters = inspect.signature(FUNCTIONS[name]).parameters.values()
        assert [q.name for q in parameters if q.kind is q.POSITIONAL_OR_KEYWORD] == leading
        assert {"x_weights", "y_weights"} <= {q.name for q in parameters if q.kind is q.KEYWORD_ONLY}
    options = ["x_weights", "y_weights", "directions", "n_directions", "rtol", "atol", "control", "rng"]
    options += ["memory", "workers", "progress"]
    assert list(inspect.signature(osl.sliced_wasserstein).parameters)[3:] == options
    assert list(inspect.signature(osl.projected_wasserstein).parameters)[3:] == ["cost", *options]
    test = list(inspect.signature(osl.two_sample_test).parameters)
    assert test[:3] == ["x", "y", "p"]
    assert {"n_permutations", "groups", "directions", "n_directions", "rng", "memory", "workers"} <= set(test)
    assert list(inspect.signature(osl.pairwise).parameters)[:3] == ["clouds", "method", "p"]
    barycenter = list(inspect.signature(osl.barycenter).parameters)
    assert barycenter[:4] == ["clouds", "weights", "n_points", "method"]
    compare = list(inspect.signature(osl.compare).parameters)
    assert compare[:5] == ["x", "y", "p", "names", "features"]
    assert {"x_weights", "y_weights", "n_permutations", "max_rows", "rng", "memory"} <= set(compare)
    explain = list(inspect.signature(osl.explain).parameters)
    assert explain[:4] == ["x", "y", "p", "names"]
    assert {"x_weights", "y_weights", "rng", "memory", "workers"} <= set(explain)
    assert list(inspect.signature(osl.scaled).parameters) == ["clouds", "method"]
    assert {"IID", "Orthogonal", "HadamardRademacher"} <= set(SAMPLERS)


@pytest.mark.parametrize("name", sorted(CLASSES | FUNCTIONS))
def test_everything_public_has_a_docstring_of_its_own(name):
    thing = (CLASSES | FUNCTIONS)[name]
    doc = inspect.cleandoc(thing.__doc__ or "")
    assert len(doc.split("\n")[0]) > 20
    assert not doc.startswith(f"{name}(")  # the docstring that dataclasses and named tuples get by default
    methods = [m for n, m in vars(thing).items() if inspect.isfunction(m) and not n.startswith("_")]
    for method in methods if isinstance(thing, type) else []:
        assert inspect.getdoc(method), f"{name}.{method.__name__}"


@pytest.mark.parametrize("name", sorted(FUNCTIONS | SAMPLERS))
def test_examples_and_parameters_are_documented(name):
    thing = (FUNCTIONS | SAMPLERS)[name]
    doc = inspect.cleandoc(thing.__doc__)
    assert re.search(r"^Examples\n-{8}\n>>> ", doc, re.MULTILINE), "no runnable example"
    accepted = [q for q in inspect.signature(thing).parameters if q != "self"]
    section = re.search(r"^Parameters\n-{10}\n(.*?)(?=^\w+\n-{3,}\n|\Z)", doc, re.MULTILINE | re.DOTALL)
    described = re.findall(r"^(\w.*)$", section.group(1), re.MULTILINE) if section else []
    assert sorted(", ".join(described).split(", ") if described else []) == sorted(accepted)


def run_fresh(code):
    """What a new interpreter that sees only this package prints, as JSON."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


LOADED = f"print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"


def test_import_is_light():
    assert run_fresh(f"import json, sys, orthoslice; {LOADED}") == []
    assert run_fresh(f"import json, sys, scipy.stats; {LOADED}") == ["scipy.stats"]  # the check can fail


def test_names_are_loaded_when_they_are_used():
    """Before that not even NumPy is loaded, so that the command line reacts to Ctrl-C from the start."""
    work = "import json, sys, orthoslice as osl, orthoslice.__main__; before = 'numpy' in sys.modules; "
    work += "osl.match; print(json.dumps([before, 'numpy' in sys.modules, 'match' in vars(osl)]))"
    assert run_fresh(work) == [False, True, True]
    assert dir(osl) == sorted({*osl.__all__, "adapters", "nn", "plot"})
    with pytest.raises(AttributeError, match="has no attribute 'distance'"):
        osl.distance  # noqa: B018


def test_adapters_load_nothing_before_it_is_needed():
    names = "CloudMetric, DriftDetector, group_clouds"
    assert run_fresh(f"import json, sys; from orthoslice.adapters import {names}; {LOADED}") == []


def test_adapters_are_listed():
    listed = set(osl.adapters.__all__)
    assert listed == {name for name in imported_names(osl.adapters) if not name.startswith("_")} - {
        "TYPE_CHECKING",
        "Any",
    } | {"CloudVectors", "SlicedWassersteinMetric"}
    with pytest.raises(AttributeError, match="has no attribute 'Metric'"):
        osl.adapters.Metric  # noqa: B018


def test_numpy_work_needs_no_other_array_library():
    work = "import json, sys, numpy as np, orthoslice as osl; x = np.eye(3); "
    work += "repr(osl.sliced_wasserstein(x, x + 1, rng=0)); osl.wasserstein_bounds(x, x + 1, rng=0); "
    assert set(run_fresh(work + LOADED)) <= {"numba"}


def test_types_are_shipped():
    assert (files("orthoslice") / "py.typed").is_file()
    for function in FUNCTIONS.values():
        signature = inspect.signature(function)
        annotations = [q.annotation for q in signature.parameters.values() if q.name != "self"]
        annotations.append(signature.return_annotation)
        assert inspect.Signature.empty not in annotations


def test_version_is_written_once():
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    assert "version" not in settings["project"]
    assert settings["project"]["dynamic"] == ["version"]
    place = PROJECT / settings["tool"]["hatch"]["version"]["path"]
    assert re.findall(r'^__version__ = "(.+)"$', place.read_text(), re.MULTILINE) == [osl.__version__]
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", osl.__version__)
    holders = [f for f in SOURCE.rglob("*.py") if re.search(r"^__version__\b", f.read_text(), re.MULTILINE)]
    assert [f.relative_to(SOURCE) for f in holders] == [Path("__init__.py")]
    cited = re.findall(r"^version: (.+)$", (PROJECT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited == [osl.__version__]
    installed = [d.version for d in importlib.metadata.distributions(name="orthoslice")]
    assert set(installed) <= {osl.__version__}


NAMES = {
    np: "float16 float32 float64",
    torch: "float16 bfloat16 float32 float64 int32",
    jnp: "bfloat16 float32 int32",
}
TYPES = [(xp, a, b) for xp, names in NAMES.items() for a in names.split() for b in names.split()]


@pytest.mark.parametrize("method", ["sliced_wasserstein", "projected_wasserstein"])
@pytest.mark.parametrize(("xp", "a", "b"), TYPES)
def test_types_promote_to_float32_at_least(method, xp, a, b):
    """Entries are small integers, which every type holds exactly."""
    rng = np.random.default_rng(5)
    x, y = rng.integers(-4, 5, size=(4, 3)), rng.integers(-3, 7, size=(5, 3))
    clouds = [xp.asarray(c.tolist(), dtype=getattr(xp, t)) for c, t in ((x, a), (y, b))]
    est, expected = (getattr(osl, method)(*c, p=3, rng=0) for c in (clouds, (x, y)))
    wide = "float64" in (a, b)
    for quantity in (est.value, est.distance, est.stderr, est.distance_stderr, *est.interval()):
        assert quantity.dtype == (xp.float64 if wide else xp.float32)
    rtol = 50 * np.finfo(np.float64 if wide else np.float32).eps
    np.testing.assert_allclose(float(est.value), float(expected.value), rtol=rtol)

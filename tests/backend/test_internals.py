"""Private names of other libraries: each is still there, and the library works without it.

The first kind of test fails when an upgrade has taken a name away or changed what it means, and says what to
do. The second kind takes the name away, and shows that nothing but a comfort is lost meanwhile.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import orthoslice as osl
from orthoslice.backend import torch_internals
from orthoslice.backend.kernels.numba import _compile
from orthoslice.backend.kernels.numba._compile import compiled
from orthoslice.clouds.mapped import is_file


def advice(name: str, where: str, lost: str) -> str:
    """What a failing test tells those who upgraded the library that owns a name."""
    return (
        f"`{name}` is gone, or does not mean any more what it meant. Private names may change. "
        f"orthoslice works without it, but {lost}. Find out in the library's source how to ask for it now, and "
        f"write that into {where} beside the old way, which the lowest supported version needs. If there is no "
        "way any more, take the function out together with its callers, and its tests here."
    )


# --- torch


TORCH = "src/orthoslice/backend/torch_internals.py"


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture
def clouds(torch: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    return tuple(torch.tensor(rng.normal(size=(8, 3)), dtype=torch.float32) for _ in "xy")


# Torch uses its own script compiler for derivatives forwards.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_torch_tells_of_transforms(torch: Any) -> None:
    told = []

    def look(a: Any) -> Any:
        told.append((torch_internals.are_transforms_active(), torch_internals.is_transformed(a)))
        return a.sum()

    look(torch.ones(2))
    torch.func.grad(look)(torch.ones(2))
    names = "torch._C._are_functorch_transforms_active, torch._C._functorch.is_functorch_wrapped_tensor"
    lost = "calls within `torch.func` fail with torch's words and not with ours"
    assert told == [(False, False), (True, True)], advice(names, TORCH, lost)


def test_torch_lets_a_transform_be_left(torch: Any) -> None:
    count = torch.zeros(())

    def counted(a: Any) -> Any:
        with torch_internals.outside_transforms():
            count.add_(1)
        return a.sum()

    torch.func.grad(counted)(torch.ones(2))
    lost = "losses within `torch.func` fail with torch's words, at the count of their steps"
    assert count == 1, advice("torch._functorch.pyfunctorch.temporarily_clear_interpreter_stack", TORCH, lost)


def test_torch_records_gradients_within_operators(torch: Any) -> None:
    def slope(a: Any) -> Any:
        with torch_internals.recording_gradients(), torch.enable_grad():
            a = a.detach().requires_grad_()
            return torch.autograd.grad((a * a).sum(), a)[0].clone()

    schema = "(Tensor a) -> Tensor"
    operator = torch.library.custom_op("orthoslice_tests::slope", slope, mutates_args=(), schema=schema)
    lost = "compiled losses have no gradient for batches, weights and all else that goes the general way"
    names = "torch._C._ForceDispatchKeyGuard, _dispatch_tls_local_exclude_set, _dispatch_tls_local_include_set"
    assert operator(torch.ones(3)).tolist() == [2.0] * 3, advice(names, TORCH, lost)


def test_torch_tells_of_tangents(torch: Any) -> None:
    outside = torch_internals.is_forward_mode()
    with torch.autograd.forward_ad.dual_level():
        inside = torch_internals.is_forward_mode()
    lost = "every tensor is asked for its tangent at every call"
    assert (outside, inside) == (False, True), advice("torch.autograd.forward_ad._current_level", TORCH, lost)


@pytest.mark.parametrize("strict", [False, True])
def test_torch_tells_of_exports(torch: Any, strict: bool) -> None:
    class Model(torch.nn.Module):
        def forward(self, a: Any) -> Any:
            return a + 1 if torch_internals.is_exporting() else a

    zeros = torch.zeros(2)
    exported = torch.export.export(Model(), (zeros,), strict=strict).module()
    compiled_model = torch.compile(Model(), backend="eager")
    told = [compiled_model(zeros).tolist(), exported(zeros).tolist()]
    lost = "`torch.export` takes losses, or refuses them in words of its own"
    assert told == [[0.0, 0.0], [1.0, 1.0]], advice("torch.compiler._is_exporting_flag", TORCH, lost)


def test_torch_counts_writes(torch: Any) -> None:
    tensor = torch.zeros(2)
    before, again = (torch_internals.write_count(tensor) for _ in "ab")
    tensor += 1
    lost = "losses sort a fixed target, and estimates look for doubts, at every call"
    assert before == again != torch_internals.write_count(tensor), advice("Tensor._version", TORCH, lost)


def test_torch_tells_of_devices_and_streams(torch: Any) -> None:
    names = [f"_cuda_{name}" for name in ("getDevice", "getCurrentRawStream")]
    if not torch.cuda.is_available():
        pytest.skip("builds of torch without CUDA have none of them")
    lost = "a training step takes a few microseconds longer on the host"
    assert all(hasattr(torch._C, name) for name in names), advice(" and ".join(names), TORCH, lost)
    assert torch_internals.current_device() == torch.cuda.current_device()
    with torch.cuda.stream(torch.cuda.Stream()):
        assert torch_internals.current_stream(0) == torch.cuda.current_stream(0).cuda_stream


class Without:
    """A module without some of its names."""

    def __init__(self, module: Any, *names: str) -> None:
        self._module, self._names = module, names

    def __getattr__(self, name: str) -> Any:
        if name in self._names:
            raise AttributeError(name)
        return getattr(self._module, name)


def missing(*_: Any) -> Any:
    raise AttributeError


@pytest.fixture
def bare_torch(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch without the private names, for the functions that touch them."""
    forward_ad = Without(torch.autograd.forward_ad, "_current_level")
    core = Without(
        torch._C,
        "_are_functorch_transforms_active",
        "_functorch",
        "_cuda_getDevice",
        "_cuda_getCurrentRawStream",
    )
    autograd = Without(torch.autograd, "forward_ad")
    autograd.forward_ad = forward_ad
    stripped = Without(torch, "_C", "autograd")
    stripped._C, stripped.autograd = core, autograd
    monkeypatch.setattr(torch_internals, "sys", SimpleNamespace(modules={"torch": stripped}))
    monkeypatch.setattr(torch.Tensor, "_version", property(missing), raising=False)


def answers(torch: Any, x: Any, y: Any) -> list[np.ndarray]:
    """Values, gradients backwards and forwards, and steps of a loss with a fixed target."""
    ours = x.clone().requires_grad_()
    value = osl.sliced_wasserstein(ours, y, n_directions=8, rng=0).value
    (gradient,) = torch.autograd.grad(value, ours)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        moved = osl.projected_wasserstein(dual, y, n_directions=8, rng=0).value
        tangent = torch.autograd.forward_ad.unpack_dual(moved).tangent
    loss = osl.nn.SlicedWassersteinLoss(8, target=y.clone(), seed=0)
    first = loss(x)
    loss.target += 1
    return [a.detach().numpy() for a in (value, gradient, tangent, first, loss(x))]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_without_the_private_names_of_torch(
    torch: Any, clouds: tuple[Any, Any], request: pytest.FixtureRequest
) -> None:
    expected = answers(torch, *clouds)
    assert np.abs(expected[2]) > 0
    request.getfixturevalue("bare_torch")
    assert not torch_internals.are_transforms_active()
    assert torch_internals.is_forward_mode()
    assert not torch_internals.is_exporting()
    assert torch_internals.write_count(clouds[0]) != torch_internals.write_count(clouds[0])
    for found, exact in zip(answers(torch, *clouds), expected, strict=True):
        np.testing.assert_array_equal(found, exact)


@pytest.mark.usefixtures("bare_torch")
def test_devices_and_streams_without_private_names(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=100 + device))
    assert torch_internals.current_device() == 3
    assert torch_internals.current_stream(2) == 102


# --- numba


NUMBA = "src/orthoslice/backend/kernels/numba/_cache.py"


def double(value: int) -> int:
    return 2 * value


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that numba keeps its machine code in."""
    pytest.importorskip("numba")
    monkeypatch.setenv("ORTHOSLICE_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_numba_keeps_kernels(kernels: Path) -> None:
    hits = []
    for _ in range(2):
        kernel: Any = compiled(double)
        assert kernel(21) == 42
        hits.append(sum(kernel.stats.cache_hits.values()))
    names = "numba.core.caching: FunctionCache, IndexDataCacheFile, InTreeCacheLocator, or private names"
    lost = "kernels are compiled again in every process, which takes seconds"
    assert hits == [0, 1], advice(names, NUMBA, lost)
    assert list(kernels.rglob("*.nbc"))


@pytest.mark.usefixtures("kernels")
def test_numba_lets_us_tell_that_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(_compile, "say_if_slow", lambda what: contextlib.nullcontext(told.append(what)))
    assert compiled(double)(21) == 42
    lost = "users are not told why a first call takes long"
    assert len(told) == 1, advice("Dispatcher._compiler.compile", "kernels/numba/_compile.py", lost)


def is_written_only() -> property:
    """An attribute that can be set, as a constructor does, and not be read."""
    return property(None, lambda *_: None)


@pytest.mark.parametrize(
    "lose",
    [
        lambda patch, caching: patch.setattr(
            caching.IndexDataCacheFile, "_source_stamp", is_written_only(), raising=False
        ),
        lambda patch, caching: patch.delattr(caching.IndexDataCacheFile, "_data_path"),
        lambda patch, caching: patch.delattr(caching.IndexDataCacheFile, "_open_for_write"),
        lambda patch, caching: patch.setattr(caching.Cache, "_impl", is_written_only(), raising=False),
        lambda patch, caching: patch.setattr(caching.IndexDataCacheFile, "__init__", lambda self: None),
        lambda patch, caching: patch.delattr(caching, "FunctionCache"),
        lambda patch, caching: patch.delattr(caching, "InTreeCacheLocator"),
    ],
    ids=[
        "_source_stamp",
        "_data_path",
        "_open_for_write",
        "_impl",
        "other arguments",
        "FunctionCache",
        "InTreeCacheLocator",
    ],
)
def test_without_the_private_names_of_numba(
    lose: Callable[..., None], kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is kept, and kernels run."""
    from numba.core import caching

    # Imported anew, as in a process that finds such a numba.
    monkeypatch.delitem(sys.modules, "orthoslice.backend.kernels.numba._cache", raising=False)
    lose(monkeypatch, caching)
    for _ in range(2):
        kernel: Any = compiled(double)
        assert kernel(21) == 42
        assert not kernel.stats.cache_hits
    assert not list(kernels.rglob("*.nbc"))


def test_without_the_compiler_of_numba() -> None:
    for kernel in (SimpleNamespace(), SimpleNamespace(_compiler=SimpleNamespace())):
        assert _compile._announced(kernel) is kernel


# --- NumPy


@pytest.fixture
def mapped(tmp_path: Path, rng: np.random.Generator) -> Any:
    np.save(tmp_path / "points.npy", rng.normal(size=(8, 3)))
    return np.load(tmp_path / "points.npy", mmap_mode="r")


def test_numpy_tells_files_from_copies(mapped: Any) -> None:
    where, lost = "src/orthoslice/clouds/mapped.py", "memory maps are read as a whole"
    assert (is_file(mapped), is_file(mapped.copy())) == (True, False), advice("np.memmap._mmap", where, lost)


def test_without_the_private_name_of_numpy(mapped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = np.array(mapped)
    expected = osl.sliced_wasserstein(plain, plain + 1, n_directions=8, rng=0).value
    # NumPy reads it itself.
    monkeypatch.setattr(np.memmap, "_mmap", property(lambda _: None, lambda *_: None), raising=False)
    assert not is_file(mapped)
    found = osl.sliced_wasserstein(mapped, plain + 1, n_directions=8, rng=0).value
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# --- Dask


@pytest.fixture
def client() -> Iterator[Any]:
    distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")
    options = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": None}
    with dask.config.set(scheduler=None), distributed.Client(**options) as made:
        yield made


def test_dask_tells_who_works(client: Any) -> None:
    from orthoslice.parallel.shuffle import Cluster, current_cluster

    where = "src/orthoslice/parallel/shuffle.py"
    lost = "work for a cluster is cut as if threads of this process did it"
    assert current_cluster(3) == Cluster(client, 1, 2), advice(
        "dask.base.get_scheduler().__self__", where, lost
    )


def test_without_the_private_name_of_dask(
    client: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orthoslice.parallel.shuffle import Cluster, current_cluster

    base = pytest.importorskip("dask.base")
    array = pytest.importorskip("dask.array")
    x, y = (array.from_array(rng.normal(size=(20, 3)), chunks=(7, 3)) for _ in "xy")
    expected = osl.sliced_wasserstein(x, y, n_directions=8, rng=0).value
    get_scheduler = base.get_scheduler

    def anonymous(*args: Any, **options: Any) -> Any:
        get = get_scheduler(*args, **options)
        return lambda *tasks, **settings: get(*tasks, **settings)

    monkeypatch.setattr(base, "get_scheduler", anonymous)
    assert current_cluster(3) == Cluster(None, 1, 3)
    found = osl.sliced_wasserstein(x, y, n_directions=8, rng=0).value
    np.testing.assert_allclose(found, expected, rtol=1e-12)

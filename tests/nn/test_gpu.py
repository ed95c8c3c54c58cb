"""Losses for PyTorch on a GPU: graphs, streams, and a host that does not wait."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from helpers import assert_rounded
from nn.plain import COUNT, DIM, SEED, drawn, on_gpu, points

import orthoslice as osl

torch = pytest.importorskip("torch")
nn = osl.nn


@pytest.fixture
def strict_gpu():
    """Complain of whatever makes the host wait for the GPU."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.fixture(params=[300, 257])
def gpu_clouds(rng, request):
    return points(rng, "cuda", 300).requires_grad_(), points(rng, "cuda", request.param)


def gpu_losses(target):
    theta = drawn().float()
    options = [{}, {"directions": "iid"}, {"p": 1}, {"memory": 20_000}, {"distance": True}]
    options += [{"directions": "hadamard"}, {"directions": "hadamard", "memory": 20_000}]
    losses = [nn.SlicedWassersteinLoss(COUNT, seed=SEED, **given).to("cuda") for given in options]
    fixed = nn.SlicedWassersteinLoss(directions=theta, target=target).to("cuda")
    return [*((loss, (target,)) for loss in losses), (fixed, ())]


def some_weights(n):
    weights = torch.rand(n, device="cuda")
    return weights / weights.sum()


@on_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_replays_of_a_graph_see_other_weights(gpu_clouds, dtype):
    """Those that lie in the same tensor then, sound or not; weights seen before the capture are not kept."""
    x, y = (c.detach() for c in gpu_clouds)
    loss = nn.SlicedWassersteinLoss(directions=drawn().float()).to("cuda")
    weights = some_weights(300).to(dtype)
    loss(x, y, x_weights=weights)
    loss.value_and_grad(x, y, x_weights=weights)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value, gradient = loss.value_and_grad(x, y, x_weights=weights)
    for _ in range(3):
        weights.copy_(some_weights(300))
        graph.replay()
        expected = loss.value_and_grad(x, y, x_weights=weights.clone())
        assert torch.equal(value, expected[0])
        assert torch.equal(gradient, expected[1])
    weights[3] = -1
    graph.replay()
    assert value.isnan()


# The eager run keeps nodes of the graph alive on another stream than the one captured, on purpose.
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
@on_gpu
def test_replays_of_a_graph_draw_anew(gpu_clouds):
    """Values and gradients of replays are those of the steps of an eager run."""
    x, y = gpu_clouds
    for loss, rest in gpu_losses(y):
        eager = copy.deepcopy(loss)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                torch.autograd.grad(loss(x, *rest), x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            value = loss(x, *rest)
            (gradient,) = torch.autograd.grad(value, x)
        eager.load_state_dict(loss.state_dict())
        values = []
        for _ in range(3):
            graph.replay()
            expected = eager(x, *rest)
            assert_rounded(value, expected, np.float32, DIM * COUNT)
            assert_rounded(gradient, torch.autograd.grad(expected, x)[0], np.float32, DIM * COUNT)
            assert loss.step.item() == eager.step.item()
            values.append(value.item())
        assert len(set(values)) == (3 if rest else 1)


@on_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_step_does_not_wait_for_the_gpu(gpu_clouds, request):
    x, y = gpu_clouds
    losses = gpu_losses(y)
    weights = some_weights(300)

    def use(loss, rest):
        for given in ({}, {"x_weights": weights}, {"x_weights": weights.clone()}):
            loss.train()(x, *rest, **given).backward()
            loss.value_and_grad(x, *rest, **given)
            loss.eval()(x, *rest, **given)

    for loss, rest in losses:
        use(loss, rest)
    request.getfixturevalue("strict_gpu")
    for loss, rest in losses:
        use(loss, rest)


@on_gpu
def test_streams_of_their_own(gpu_clouds):
    """Kernels run on the stream that is current, in order with what it does before and after."""
    x, y = gpu_clouds
    for loss, rest in gpu_losses(y):
        eager = copy.deepcopy(loss)
        expected = [(k + 1) * eager((k + 1) * x, *rest) for k in range(3)]
        streams = [torch.cuda.Stream() for _ in range(3)]
        values = []
        for k, stream in enumerate(streams):
            # One step after the other: the number of the step is written to by each.
            stream.wait_stream(streams[k - 1] if k else torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                torch.cuda._sleep(10_000_000)
                values.append((k + 1) * loss((k + 1) * x, *rest))
        for found, wanted, stream in zip(values, expected, streams, strict=True):
            torch.cuda.current_stream().wait_stream(stream)
            assert_rounded(found, wanted, np.float32, DIM * COUNT)


@on_gpu
def test_gradients_without_a_tape_in_a_graph(gpu_clouds):
    """They draw anew at every replay, as the losses do."""
    x, y = (c.detach() for c in gpu_clouds)
    loss, eager = (nn.SlicedWassersteinLoss(COUNT, seed=SEED).to("cuda") for _ in range(2))
    loss.value_and_grad(x, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = loss.value_and_grad(x, y)
    eager.load_state_dict(loss.state_dict())
    for _ in range(3):
        graph.replay()
        for one, other in zip(found, eager.value_and_grad(x, y), strict=True):
            assert_rounded(one, other, np.float32, DIM * COUNT)
    assert loss.step.item() == eager.step.item()


@on_gpu
def test_functions_in_a_graph_ask_for_a_seed(gpu_clouds):
    x, y = (c.detach() for c in gpu_clouds)
    expected = osl.sliced_wasserstein(x, y, rng=1).value
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for rng in (None, np.random.default_rng(0)):
            with pytest.raises(ValueError, match="must be an integer while a CUDA graph is captured"):
                osl.sliced_wasserstein(x, y, rng=rng)
        value = osl.sliced_wasserstein(x, y, rng=1).value
    graph.replay()
    torch.testing.assert_close(value, expected)


@on_gpu
def test_products_of_a_gpu_are_not_rounded(rng):
    """With TF32 on, under its newer name; products of the library itself are the control."""
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this torch has only the old switch")
    x, y = (points(rng, "cuda", 20_000) + 1 for _ in "xy")
    unit = drawn().to("cuda")
    theta = unit.float()
    loss = nn.SlicedWassersteinLoss(directions=theta).to("cuda")
    exact = osl.sliced_wasserstein(x.double(), y.double(), directions=unit).value
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        for value in (loss(x, y), osl.sliced_wasserstein(x, y, directions=theta).value):
            torch.testing.assert_close(value.double(), exact, rtol=1e-4, atol=0)
        rough = theta @ x.T - (theta.double() @ x.T.double())
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert rough.abs().max() > 1e-4

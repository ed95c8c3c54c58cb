"""What the ranks of a process group do together: one process each, and one start for all cases.

A case is a function of a :class:`World`. It first calls what all ranks must call, and then looks at the
results, so that a difference on one rank leaves no other waiting.
"""

from __future__ import annotations

import datetime as dt
import faulthandler
import json
import sys
import traceback
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import orthoslice as osl
from orthoslice.parallel.torch import ProjectedWassersteinLoss, SlicedWassersteinLoss

# A rank that waits longer than this for the others fails.
TIMEOUT = dt.timedelta(seconds=60)

# Seconds for all cases; a rank that is not done by then says where it is, and ends.
PATIENCE = 180

LOSSES = {
    "SW": (SlicedWassersteinLoss, osl.nn.SlicedWassersteinLoss),
    "PW": (ProjectedWassersteinLoss, osl.nn.ProjectedWassersteinLoss),
}

# Dimension and number of directions: more directions than dimensions, and fewer.
POINTS, PROJECTIONS = (3, 60), (40, 26)


class World(NamedTuple):
    rank: int
    size: int

    def counts(self, n, kind="unequal"):
        """How many of n points each rank holds."""
        if kind == "equal":
            return [n // self.size] * self.size
        if kind == "one holds all":
            return [0] * (self.size - 1) + [n]
        few = [3 * k + 2 for k in range(self.size - 1)]
        return [*few, n - sum(few)]

    def shard(self, whole, counts):
        """The rows of this rank, as a leaf."""
        return whole.split(counts)[self.rank].detach().clone()


def clouds(dim, n=37, m=53, dtype=torch.float64, seed=0, offset=0.0):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, dim)), 1.5 * rng.normal(size=(m, dim)) + 0.3
    return [torch.as_tensor(a + offset, dtype=dtype) for a in (x, y)]


def random_weights(n, seed):
    weights = np.random.default_rng(seed).uniform(0.1, 1, size=n)
    return torch.as_tensor(weights / weights.sum())


def assert_near(found, wanted, tolerance, scale=None):
    """Equal up to a share of the largest of `wanted`, or of `scale`."""
    assert found.shape == wanted.shape
    if wanted.numel():
        error = float((found.detach() - wanted.detach()).abs().max())
        allowed = tolerance * (float(wanted.detach().abs().max()) if scale is None else scale)
        assert error <= allowed, f"off by {error:.3g}, and {allowed:.3g} are allowed"


def compare(world, kind, dim, n_directions, *, tolerance=1e-12, counts="unequal", weighted=False, **given):
    """Value and gradients of two steps against those of all points in one process."""
    names = ("dtype", "offset", "n", "m")
    inputs = clouds(dim, **{k: given.pop(k) for k in names if k in given})
    if weighted:
        inputs += [random_weights(len(a), k).to(a.dtype) for k, a in enumerate(inputs)]
    sizes = [world.counts(len(a), how) for a, how in zip(inputs, (counts, "unequal") * 2, strict=False)]
    sharded, single = LOSSES[kind]
    loss = sharded(n_directions, seed=5, averaged=False, **given)
    reference = single(n_directions, seed=5, **given)
    results = []
    for _ in range(2):
        own = [world.shard(a, s).requires_grad_() for a, s in zip(inputs, sizes, strict=True)]
        everyone = [a.clone().requires_grad_() for a in inputs]
        value, wanted = (
            f(*a[:2], **dict(zip(("x_weights", "y_weights"), a[2:], strict=False)))
            for f, a in ((loss, own), (reference, everyone))
        )
        results.append((value, wanted, torch.autograd.grad(value, own), torch.autograd.grad(wanted, everyone)))
    assert loss.step == 2
    for value, wanted, gradients, wanted_gradients in results:
        assert value.dtype == wanted.dtype
        assert_near(value, wanted, tolerance)
        for gradient, whole, size in zip(gradients, wanted_gradients, sizes, strict=True):
            assert_near(gradient, whole.split(size)[world.rank], tolerance, float(whole.abs().max()))


def losses_and_gradients(world):
    for kind in LOSSES:
        for p in (1, 1.5, 2):
            for dim, n_directions in (POINTS, PROJECTIONS):
                for counts in ("unequal", "one holds all"):
                    compare(world, kind, dim, n_directions, p=p, counts=counts)


def single_precision(world):
    for kind in LOSSES:
        for p in (1, 2):
            for size in (POINTS, PROJECTIONS):
                compare(world, kind, *size, p=p, dtype=torch.float32, tolerance=1e-6)


def weights(world):
    for kind in LOSSES:
        for size in (POINTS, PROJECTIONS):
            compare(world, kind, *size, weighted=True, tolerance=1e-11)


def without_the_bridge(world):
    """Torch's own functions, which other devices go through."""
    namespace = sys.modules["orthoslice.backend.arrays.namespace"]
    namespace.BRIDGE_TORCH = False
    try:
        for kind in LOSSES:
            for size in (POINTS, PROJECTIONS, (40, 1)):
                compare(world, kind, *size, tolerance=1e-11)
                compare(world, kind, *size, tolerance=1e-11, counts="one holds all", n=53)
        compare(world, "SW", *POINTS, weighted=True, tolerance=1e-11)
    finally:
        namespace.BRIDGE_TORCH = True


def far_from_the_origin(world):
    for kind in LOSSES:
        for size in (POINTS, PROJECTIONS):
            compare(world, kind, *size, dtype=torch.float32, offset=1e4, tolerance=1e-5)


def samplers_and_options(world):
    for size in (POINTS, PROJECTIONS):
        for directions in ("iid", "hadamard", osl.directions.Auto(replicates=1)):
            compare(world, "SW", *size, directions=directions)
        dim, n_directions = size
        theta = np.cos(np.arange(dim * n_directions)).reshape(-1, dim)
        theta /= np.linalg.norm(theta, axis=1, keepdims=True)
        compare(world, "SW", dim, None, directions=theta)
        compare(world, "SW", *size, distance=True)
        compare(world, "PW", *size, distance=True, p=1)
    for cost in ("pooled", "independent"):
        compare(world, "PW", *POINTS, cost=cost)


def fewer_directions_than_ranks(world):
    for kind in LOSSES:
        compare(world, kind, 40, 1)
    compare(world, "SW", 1, 1)


def little_memory(world):
    """Directions go round in several exchanges."""
    compare(world, "SW", *PROJECTIONS, memory=30_000)


def powers_out_of_range(world):
    compare(world, "SW", *PROJECTIONS, p=9, dtype=torch.float32, tolerance=1e-6)
    x, y = (1e25 * a for a in clouds(40, dtype=torch.float32))
    sizes = world.counts(37), world.counts(53)
    own = [world.shard(a, s).requires_grad_() for a, s in zip((x, y), sizes, strict=True)]
    distance = SlicedWassersteinLoss(26, seed=5, distance=True, averaged=False)(*own)
    x.requires_grad_()
    wanted = osl.nn.SlicedWassersteinLoss(26, seed=5, distance=True)(x, y)
    assert_near(distance, wanted, 1e-6)
    gradient, whole = torch.autograd.grad(distance, own[0])[0], torch.autograd.grad(wanted, x)[0]
    assert_near(gradient, whole.split(sizes[0])[world.rank], 1e-5, float(whole.abs().max()))


def equal_clouds(world):
    x = clouds(40)[0]
    own = world.shard(x, world.counts(37)).requires_grad_()
    value = SlicedWassersteinLoss(26, seed=0, distance=True)(own, world.shard(x, world.counts(37)))
    value.backward()
    assert value == 0
    assert not own.grad.any()


def steps_and_seeds(world):
    x, y = clouds(40)
    sizes = world.counts(37), world.counts(53)
    own = [world.shard(a, s) for a, s in zip((x, y), sizes, strict=True)]
    # Another seed on every rank, another step: those of the first count.
    loss = SlicedWassersteinLoss(26, seed=7 + world.rank)
    loss.step.fill_(4 * world.rank)
    loss.eval()
    values = [loss(*own), loss(*own), loss(*own, rng=3)]
    loss.train()
    values += [loss(*own), loss(*own)]
    unseeded = SlicedWassersteinLoss(26)
    agreed = unseeded(*own)
    taken_up = SlicedWassersteinLoss(26, seed=1)
    taken_up.load_state_dict(loss.state_dict())
    values.append(taken_up(*own))
    fixed = SlicedWassersteinLoss(26, seed=7, target=own[1])
    values.append(fixed(own[0]))
    everyone = [torch.zeros(()) for _ in range(world.size)]
    dist.all_gather(everyone, agreed.float())
    reference = osl.nn.SlicedWassersteinLoss(26, seed=7)
    first, seeded = reference.eval()(x, y), reference(x, y, rng=3)
    reference.train()
    steps = [reference(x, y) for _ in range(3)]
    assert loss.seed == 7
    assert loss.step == 2
    for value, wanted in zip(values, [first, first, seeded, *steps[:2], steps[2], first], strict=True):
        assert_near(value, wanted, 1e-12)
    assert len({float(v) for v in everyone}) == 1
    assert_near(agreed, osl.nn.SlicedWassersteinLoss(26, seed=unseeded.seed)(x, y), 1e-12)


def without_a_tape(world):
    x, y = clouds(40)
    sizes = world.counts(37), world.counts(53)
    own = [world.shard(a, s) for a, s in zip((x, y), sizes, strict=True)]
    value, *gradients = SlicedWassersteinLoss(26, seed=0).value_and_grad(*own, y_grad=True)
    # Only the last rank wants a gradient.
    wants = world.rank == world.size - 1
    taped = SlicedWassersteinLoss(26, seed=0, averaged=False)(own[0].requires_grad_(wants), own[1])
    wanted, *whole = osl.nn.SlicedWassersteinLoss(26, seed=0).value_and_grad(x, y, y_grad=True)
    assert_near(value, wanted, 1e-12)
    assert_near(taped, wanted, 1e-12)
    assert taped.requires_grad == wants
    for gradient, of_all, size in zip(gradients, whole, sizes, strict=True):
        assert_near(gradient, of_all.split(size)[world.rank], 1e-12)
    if wants:
        assert_near(torch.autograd.grad(taped, own[0])[0], whole[0].split(sizes[0])[world.rank], 1e-12)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 12)).double()


def data_parallel(world):
    """Parameters get the gradient of the global loss, beside that of a mean over the batch."""
    inputs, target = clouds(5, n=8 * world.size)[0], clouds(12)[1]
    found, wanted, of_shards = [], [], []
    for sharded, single in LOSSES.values():
        for counts in ("equal", "unequal", "one holds all"):
            model, plain = DistributedDataParallel(network()), network()
            sizes, parts = world.counts(len(inputs), counts), world.counts(len(target))
            z = model(world.shard(inputs, sizes))
            loss = sharded(10, seed=2)(z, world.shard(target, parts))
            of_all = plain(inputs)
            one_loss = single(10, seed=2)(of_all, target)
            if counts == "equal":
                of_shards.append(single(10, seed=2)(z.detach(), target) / one_loss.detach())
                loss, one_loss = loss + z.square().mean(), one_loss + of_all.square().mean()
            loss.backward()
            one_loss.backward()
            found += [p.grad for p in model.parameters()]
            wanted += [p.grad for p in plain.parameters()]
    # The loss of a small batch is another one: otherwise nothing would have been shown.
    assert all(abs(ratio - 1) > 1e-6 for ratio in of_shards)
    for gradient, of_plain in zip(found, wanted, strict=True):
        assert_near(gradient, of_plain, 1e-11)


class Regularised(torch.nn.Module):
    """A network that holds its loss, with a shard of the target."""

    def __init__(self, shard):
        super().__init__()
        self.network = network()
        self.loss = SlicedWassersteinLoss(10, seed=2, target=shard)

    def forward(self, inputs):
        return self.loss(self.network(inputs))


def targets_within_data_parallel(world):
    """DDP makes buffers of all ranks those of the first; a shard of the target is no buffer."""
    inputs, target = clouds(5, n=8 * world.size)[0], clouds(12)[1]
    shard = world.shard(target, world.counts(len(target)))
    model = DistributedDataParallel(Regularised(shard))
    values = [model(world.shard(inputs, world.counts(len(inputs)))) for _ in range(2)]
    values[0].backward()
    plain, reference = network(), osl.nn.SlicedWassersteinLoss(10, seed=2)
    wanted = [reference(plain(inputs), target) for _ in range(2)]
    wanted[0].backward()
    single = Regularised(shard).float()
    assert torch.equal(model.module.loss.target, shard)
    assert single.loss.target.dtype == torch.float32
    for value, of_all in zip(values, wanted, strict=True):
        assert_near(value, of_all, 1e-12)
    for own, of_all in zip(model.parameters(), plain.parameters(), strict=True):
        assert_near(own.grad, of_all.grad, 1e-11)


def gradients_to_be_averaged(world):
    """By default a shard gets as many times the gradient as there are ranks."""
    x, y = clouds(40)
    sizes = world.counts(37), world.counts(53)
    results = []
    for averaged in (True, False):
        own = world.shard(x, sizes[0]).requires_grad_()
        loss = SlicedWassersteinLoss(26, seed=0, averaged=averaged)
        results.append(torch.autograd.grad(loss(own, world.shard(y, sizes[1])), own)[0])
    assert_near(results[0], world.size * results[1], 1e-12)


def process_groups(world):
    """Some of the ranks, which share clouds of their own."""
    members = list(range(world.size))[1::2]
    group = dist.new_group(members, timeout=TIMEOUT)
    if world.rank not in members:
        x = clouds(40)[0]
        loss = SlicedWassersteinLoss(26, process_group=group)
        found = raises(lambda: loss(x, x), ValueError, f"rank {world.rank} is none of them")
        assert not found, found
        return
    x, y = clouds(40)
    sub = World(members.index(world.rank), len(members))
    own = [sub.shard(a, sub.counts(len(a))).requires_grad_() for a in (x, y)]
    loss = SlicedWassersteinLoss(26, seed=0, process_group=group, averaged=False)
    value = loss(*own)
    gradient = torch.autograd.grad(value, own[0])[0]
    wanted, whole = osl.nn.SlicedWassersteinLoss(26, seed=0).value_and_grad(x, y)
    assert_near(value, wanted, 1e-12)
    assert_near(gradient, whole.split(sub.counts(37))[sub.rank], 1e-12)


def traffic(world):
    """A rank receives n x min(directions / ranks, dim) numbers of a cloud of n points, and as many back."""
    received = []
    swap, gather = dist.all_to_all_single, dist.all_gather

    def count_swap(result, *arguments, **options):
        received.append(result.numel())
        return swap(result, *arguments, **options)

    def count_gather(results, *arguments, **options):
        received.append(sum(r.numel() for r in results))
        return gather(results, *arguments, **options)

    dist.all_to_all_single, dist.all_gather = count_swap, count_gather
    counted = []
    try:
        for dim, n_directions in ((64, 8), (64, 16 * world.size), (4, 64 * world.size)):
            x, y = (a.requires_grad_() for a in clouds(dim, n=128, m=128))
            own = [world.shard(a, world.counts(128, "equal")).requires_grad_() for a in (x, y)]
            for needs_gradient in (False, True):
                received.clear()
                with torch.set_grad_enabled(needs_gradient):
                    SlicedWassersteinLoss(n_directions, seed=0)(*own)
                counted.append((sum(received), needs_gradient, dim, n_directions))
    finally:
        dist.all_to_all_single, dist.all_gather = swap, gather
    for numbers, needs_gradient, dim, n_directions in counted:
        bound = 256 * min(n_directions / world.size, dim) * (1 + needs_gradient)
        words = 16 * world.size
        assert numbers <= bound + words, (numbers, bound)


def raises(call, kind, *words):
    """What is wrong with how a call fails, or None."""
    try:
        call()
    except kind as error:
        missing = [w for w in words if w not in str(error)]
        return f"{missing} not in {error}" if missing else None
    except Exception as error:
        return f"{type(error).__name__} instead of {kind.__name__}: {error}"
    return "did not raise"


def trouble_on_one_rank(world):
    """Every rank raises, says where it went wrong, and can go on."""
    x, y = clouds(40)
    own = [world.shard(a, world.counts(len(a))) for a in (x, y)]
    last, is_last = world.size - 1, world.rank == world.size - 1
    nan, short = own[0].clone(), own[0][:, :39]
    nan[1:2, 0] = torch.nan
    weights = random_weights(37, 0).split(world.counts(37))[world.rank]
    loss = SlicedWassersteinLoss(26, seed=0)

    def here(bad, good):
        return bad if is_last else good

    def fails(x_here, y_here, kind, *words, **options):
        return raises(lambda: loss(x_here, y_here, **options), kind, *words)

    def drawn(rows, dim, rng):
        if is_last:
            raise RuntimeError("no directions today")
        draws = rng.normal(size=(rows, dim))
        return draws / np.linalg.norm(draws, axis=1, keepdims=True)

    def fails_with_gradient(x_here, kind, *words, **options):
        return raises(lambda: loss.value_and_grad(x_here, y_here, **options), kind, *words)

    def made(**options):
        return raises(
            lambda: SlicedWassersteinLoss(seed=0, **options)(*own), ValueError, "How the loss is made"
        )

    x_here, y_here = own
    of_rank, on_rank = f"On rank {last} of {world.size}: ", f"on rank {last}"
    found = [
        fails(here(nan, x_here), y_here, ValueError, of_rank, "`x` must be finite; got nan at index (1, 0)"),
        fails(here(short, x_here), here(y_here[:, :39], y_here), ValueError, f"39 {on_rank}"),
        fails(here(short, x_here), y_here, ValueError, of_rank, "must share `dim`"),
        fails(here(x_here.float(), x_here), y_here.float(), ValueError, "floating type", f"float32 {on_rank}"),
        fails(here(x_here[0], x_here), y_here, ValueError, of_rank, "must be a shard (n, dim)"),
        fails(x_here[:0], y_here, ValueError, "`x` must hold at least one point"),
        fails(x_here, here(None, y_here), TypeError, of_rank, "Pass `y`"),
        fails(here([[0.0] * 40], x_here), y_here, TypeError, of_rank, "must be a torch tensor"),
        fails(*own, ValueError, f"none {on_rank}", "on all ranks, or", x_weights=here(None, weights)),
        fails(*own, ValueError, "must sum to 1; got a sum of 2", x_weights=2 * weights),
        fails(*own, ValueError, of_rank, "one weight for each", x_weights=here(weights[1:], weights)),
        fails(*own, ValueError, "`rng` must be the same on all ranks", rng=here(1, 0)),
        fails(*own, ValueError, of_rank, "`rng` must be an integer from 0", rng=here(-1, 0)),
        fails_with_gradient(here(x_here.long(), x_here), TypeError, of_rank, "Pass `x.float()`"),
        raises(
            lambda: SlicedWassersteinLoss(26, target=y_here).value_and_grad(x_here, y_grad=is_last),
            ValueError,
            of_rank,
            "a `target` has none",
        ),
        raises(
            lambda: SlicedWassersteinLoss(26, directions=osl.directions.from_function(drawn))(*own),
            RuntimeError,
            of_rank,
            "no directions today",
        ),
        made(n_directions=here(27, 26)),
        made(directions=here(-1, 1) * torch.eye(40)),
        made(directions=osl.directions.Orthogonal(block_size=here(3, 2))),
    ]
    after = loss(*own)
    listed = loss(*own, x_weights=[1 / 37] * len(x_here))
    assert not any(found), [f for f in found if f]
    assert loss.step == 2
    reference = osl.nn.SlicedWassersteinLoss(26, seed=0)
    assert_near(after, reference(x, y), 1e-12)
    assert_near(listed, reference(x, y), 1e-12)


CASES = {
    case.__name__: case
    for case in (
        losses_and_gradients,
        single_precision,
        weights,
        without_the_bridge,
        far_from_the_origin,
        samplers_and_options,
        fewer_directions_than_ranks,
        little_memory,
        powers_out_of_range,
        equal_clouds,
        steps_and_seeds,
        without_a_tape,
        data_parallel,
        targets_within_data_parallel,
        gradients_to_be_averaged,
        process_groups,
        traffic,
        trouble_on_one_rank,
    )
}


def compile_kernels():
    """Run what compiles, in one process: ranks would compile the same kernels all at once, for minutes."""
    for case in (losses_and_gradients, single_precision, weights, samplers_and_options, powers_out_of_range):
        case(World(0, 1))
    with torch.no_grad():
        for _, single in LOSSES.values():
            for dtype in (torch.float32, torch.float64):
                single(26)(*clouds(40, dtype=dtype))


def run_rank(rank: int, size: int, folder: str) -> None:
    """All cases, as one rank; what went wrong in each is left in a file."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    torch.set_num_threads(1)
    place = Path(folder)
    dist.init_process_group(
        "gloo", init_method=f"file://{place / 'meeting'}", rank=rank, world_size=size, timeout=TIMEOUT
    )
    failures = {}
    for name, case in CASES.items():
        failures[name] = ""
        try:
            case(World(rank, size))
        except AssertionError:
            failures[name] = traceback.format_exc()
        except Exception:
            # The others may be waiting, and would go on waiting in every case to come.
            failures[name] = traceback.format_exc()
            break
    (place / f"{rank}.json").write_text(json.dumps(failures))
    if len(failures) == len(CASES):
        # No rank leaves while another still receives.
        dist.barrier()
    dist.destroy_process_group()

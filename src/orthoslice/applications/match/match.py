"""Couplings near the optimal one, found by sorting."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from orthoslice.applications.match.auctioned import auction_pairs, auction_partners, auction_refusal
from orthoslice.applications.match.regroup import (
    MASS_UNITS,
    MassPairs,
    Match,
    halve,
    integer_masses,
    inverse,
    largest_group,
    levels_for,
    make_match,
    merge_matches,
    pair_costs,
    parts_of_pairs,
    recouple,
    rematch,
)
from orthoslice.backend.arrays import (
    NO_GRADIENTS,
    RNG,
    TREES,
    Array,
    HostArray,
    Key,
    detach,
    device,
    full_precision,
    is_bridged,
    is_readable,
    is_traced,
    library,
    namespace,
    resolve_rng,
    to_numpy,
    wide_float,
    wide_int,
)
from orthoslice.backend.kernels.cuda.groups import LARGEST_GROUP
from orthoslice.backend.memory import check_room, share_memory
from orthoslice.backend.progress import progress_bar
from orthoslice.backend.threads import default_workers, ordered_map
from orthoslice.check.names import answers_other_names
from orthoslice.check.options import check_directions, check_memory, check_n_directions, check_p, check_sampler
from orthoslice.clouds.cloud import Cloud, single_clouds
from orthoslice.clouds.conditioning import centred, scale_on_device, unit_scale
from orthoslice.clouds.ready import ReadyCloud, make_ready
from orthoslice.costs.space import price_in_space
from orthoslice.couplings.coupling import Coupling, Pairs, couple, couple_orders, couples_ranks, unreadable_nan
from orthoslice.directions import Auto, Given, Orthogonal, Sampler
from orthoslice.directions.base import check_count, projection_dtype
from orthoslice.directions.drawing import Blocks, draw_blocks
from orthoslice.directions.layout import Layout
from orthoslice.directions.walks import Piece, sweep_directions

DEFAULT_DIRECTIONS = 32

# Up to this many dimensions mass may have to move far, in chains of many small steps, and a sweep over groups
# makes few of them: there more trees are merged first (measured for dim 2, 3, 10 and 50).
_FEW_DIMENSIONS = 4
_FEW_TREES, _MANY_TREES = 8, 32

# Points, or pairs, of a group on the host: the table of a group's costs still fits a core's cache. More than
# _MANY_POINTS points in few dimensions have small groups, which come as near to the optimum in less time
# (measured).
_GROUP = 256
_SMALL_GROUP, _MANY_POINTS = 128, 1 << 14

# On the host up to _ONE_GROUP points, or _ONE_GROUP_IN_FEW in few dimensions, are a single group, which ends at
# the optimum in less time than several sweeps take (measured for dim 2, 10 and 50).
_ONE_GROUP_IN_FEW, _ONE_GROUP = 512, 1024

# More points are matched by auction, up to so many: in few dimensions it takes a fifth of the time that rounds
# take, or less, and in more about as long (measured for dim 2 to 64, clusters, counts and heavy tails). With
# weights or unequal sizes it takes a quarter or less in all of them.
_MOST_AUCTIONED_IN_FEW, _MOST_AUCTIONED = _MANY_POINTS, 5000

# Groups are made of points of x, of their partners and of the sums of both in turn; a round is one of each.
# On the host rounds go on until one lowers the cost by less than _LEAST_GAIN of it. Elsewhere the number of
# sweeps is fixed, since reading a cost would wait for the device.
_ROUND = 3
_LEAST_GAIN = 0.005
_MOST_SWEEPS = 30
_DEVICE_SWEEPS = 24
_PLAIN_SWEEPS = 12

T = TypeVar("T")


@answers_other_names
def match(
    x: Any,
    y: Any,
    p: float = 2,
    *,
    x_weights: Any = None,
    y_weights: Any = None,
    directions: Any = "auto",
    n_directions: int | None = None,
    n_sweeps: int | None = None,
    rng: RNG = None,
    memory: int | str | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Coupling:
    """A coupling of two clouds whose cost is close to the least one, W_p^p, for clouds of any size.

    Of clouds of equal size without weights it is a permutation: ``y[coupling.iy]`` are the partners of the
    points of x, row by row. Use it to pair noise with data (flow matching), or as a point-cloud loss,
    ``match(x, y).cost()``, which has a gradient. In host memory it is optimal up to 512 points a side, or
    1,024 in more than 4 dimensions. With numba and p up to 4 it is within 0.1% of W_p up to 5,000 (fewer in
    more than 100 dimensions), or 16,384 in up to 4 dimensions or with weights or unequal sizes. Of more
    points it is within some percent, and takes about n log n time. :func:`wasserstein` is always optimal, or
    as near as was asked for, and takes n^2 to n^3.

    Parameters
    ----------
    x, y, p, x_weights, y_weights, rng, workers
        As in :func:`sliced_wasserstein`, for single clouds `(n, dim)`.
    memory
        Working memory in bytes or as text, beyond the clouds. All points are held in float64, in an order of
        their own, with a matching of them and a direction or a tree: (n + m) (16 dim + 160) bytes of host
        memory at least; with less `match` says so. With weights or unequal sizes there are several pairs a
        point, and it is (n + m) (16 dim + 1800). None means as much as all workers take. An auction is held
        from (n + m) (56 dim + 1100) bytes on, and 8 n m more for clouds of equal size without weights in more
        than 4 dimensions, at most 256MB.
    directions, n_directions
        What induces couplings to begin with; 32 directions by default. If given, no auction is held.
    n_sweeps
        How often all points are put into new groups and matched anew there. If given, no auction is held. None
        means until three sweeps lower the cost by less than half a percent, at most 30 of them; on
        accelerators, where no cost is read, 24, or 12 other than on NVIDIA GPUs.
    progress
        Show a progress bar on stderr.

    Returns
    -------
    Coupling
        Index pairs and masses, of the clouds' library and on their device.

    Notes
    -----
    Up to the sizes above an auction (that of :func:`wasserstein`) finds the pairs in host memory. Otherwise
    there are three steps, none of which ever makes the cost higher.

    1. Every direction couples by order. The union of two permutations falls into cycles, and each keeps its
       cheaper side: the merged permutation is at most as dear as either.
    2. The permutations of *trees* are merged in the same way: both clouds are halved along a random direction,
       the halves along a second one, and so on; leaves with the same place in both trees are partners.
    3. A further tree, cut short, makes groups of up to 256 points near each other, or with partners near each
       other, and every group is matched in the best possible way among itself. This is repeated with new trees.
       (Above 16,384 points in up to 4 dimensions groups have up to 128 points.)

    With weights or unequal sizes the cheapest coupling of steps 1 and 2 is taken, without merging, and groups
    are made of its pairs. On accelerators all work is done by the device and no value is looked at. Groups of
    torch tensors on NVIDIA GPUs have up to 128 points; elsewhere they have up to 64, which exchange partners
    two by two, and that ends some percent higher. Unequal sizes and weights get steps 1 and 2 only there.

    The answer depends on `rng`, but for that of an auction, and not on the number of workers nor, on the host,
    on the order of rows.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(1000, 3)), rng.normal(size=(1000, 3)) + 1
    >>> coupling = osl.match(x, y, rng=0)
    >>> bool(coupling.cost() < 1.01 * osl.wasserstein(x, y).value)
    True
    >>> partners = y[coupling.iy]
    >>> bool(np.isclose(coupling.cost(), ((x - partners) ** 2).sum(axis=1).mean()))
    True
    """
    p = check_p(p)
    cloud_x, cloud_y = single_clouds(x, y, x_weights, y_weights)
    given = (cloud_x.points, cloud_y.points, cloud_x.weights, cloud_y.weights)
    if is_traced(*given):
        raise TypeError(
            "`match` needs values and cannot be traced (jit, grad or vmap). Call it outside and use its pairs, "
            "`ix` and `iy`, inside."
        )
    sampler = check_directions(directions, cloud_x)
    if isinstance(sampler, Auto):
        sampler = Orthogonal()  # nothing is averaged, so only their number counts
    count = check_n_directions(n_directions, sampler)
    if count is None:
        count = sampler.theta.shape[0] if isinstance(sampler, Given) else DEFAULT_DIRECTIONS
    is_free = isinstance(directions, str) and directions == "auto" and n_directions is None and n_sweeps is None
    if n_sweeps is not None:
        n_sweeps = check_count("n_sweeps", n_sweeps, least=0)
    workers = default_workers() if workers is None else check_count("workers", workers)
    like, theta = cloud_x.points, sampler.theta if isinstance(sampler, Given) else None
    # Clouds in host memory become float64, the type of the compiled kernels: copies are small beside the rest.
    on_host = is_bridged(like) or (library(like) in ("numpy", "jax") and is_readable(like))
    room = (
        _room(cloud_x, cloud_y, memory, workers)
        if on_host
        else check_memory("256MB" if memory is None else memory)
    )
    plain: list[Any] = [
        None if a is None else to_numpy(a).astype(np.float64, copy=False) if on_host else detach(a)
        for a in given
    ]
    if on_host and theta is not None:
        sampler = Given(theta=to_numpy(theta))
    key, _ = resolve_rng(rng, plain[0])
    steps = _MOST_SWEEPS if n_sweeps is None else n_sweeps
    with (
        full_precision(like),
        progress_bar("steps", count + _n_trees(cloud_x.dim) + steps, progress) as advance,
    ):
        search = _Search(p, sampler, count, n_sweeps, key, room, workers, advance, is_free)
        ix, iy, mass = search.run(Cloud(plain[0], plain[2]), Cloud(plain[1], plain[3]))
    xp, place = namespace(like), device(like)
    if on_host:
        ix, iy = (xp.asarray(i, dtype=wide_int(like), device=place) for i in (ix, iy))
        mass = xp.asarray(mass, dtype=wide_float(like), device=place)
    mass = mass + unreadable_nan(theta, cloud_x.weights, cloud_y.weights)
    return Coupling(cloud_x.points, cloud_y.points, ix, iy, mass)


def match_bytes(x: Cloud, y: Cloud) -> tuple[int, int]:
    """What :func:`match` holds of host clouds, and what a direction or a tree takes (measured, rounded up)."""
    held, row = (64, 96) if couples_ranks(x, y) else (1640, 160)
    return (16 * x.dim + held) * (x.n + y.n), row * (x.n + y.n)


def _room(x: Cloud, y: Cloud, memory: int | str | None, workers: int) -> int:
    """Working memory for directions and trees, besides what is held."""
    held, row = match_bytes(x, y)
    if memory is None:
        return max(check_memory("256MB"), workers * row)
    given = check_memory(memory)
    check_room(given, held + row, "all points twice, in float64, and a matching of them")
    return given - held


def _n_trees(dim: int) -> int:
    """How many trees are merged."""
    return _MANY_TREES if dim <= _FEW_DIMENSIONS else _FEW_TREES


def _sliced(x: ReadyCloud, y: ReadyCloud, piece: Piece) -> Pairs:
    px, py = (c.project(piece.directions, piece.rows, widely=True) for c in (x, y))
    return couple(px, py, x, y)


@dataclass(frozen=True, eq=False)
class _Search:
    """How to look for a coupling of two clouds: all that the steps of a search share."""

    p: float
    sampler: Sampler
    n_directions: int
    n_sweeps: int | None
    key: Key
    memory: int
    workers: int
    advance: Callable[[int], None]
    is_free: bool
    """Whether the user left it open how to search."""

    def run(self, given_x: Cloud, given_y: Cloud) -> MassPairs:
        """A coupling of the clouds, in the order of their rows."""
        scaled = unit_scale if is_readable(given_x.points) else scale_on_device
        x, y = make_ready(*centred(*scaled(given_x, given_y, self.p)[:2]), for_ties=True)
        xp = namespace(x.points)
        if x.n == y.n and x.weights is None and y.weights is None:
            partner = self._partner(x, y)
            # In the order of the rows of x, as the user gave them.
            back = inverse(cast(Array, x.order))
            iy = xp.take(y.order, xp.take(partner, back))
            ix = xp.arange(x.n, dtype=iy.dtype, device=device(iy))
            mass = xp.full((x.n,), 1 / x.n, dtype=wide_float(x.points), device=device(x.points))
            return MassPairs(ix, iy, mass)
        pairs = self._pairs(x, y)
        return MassPairs(xp.take(x.order, pairs.ix), xp.take(y.order, pairs.iy), pairs.mass)

    def _partner(self, x: ReadyCloud, y: ReadyCloud) -> Array:
        """The partner in y of every point of x."""
        if self.is_free and isinstance(x.points, np.ndarray):
            is_in_few = x.dim <= _FEW_DIMENSIONS
            most = _MOST_AUCTIONED_IN_FEW if is_in_few else _MOST_AUCTIONED
            is_many = x.dim > 1 and x.n > (_ONE_GROUP_IN_FEW if is_in_few else _ONE_GROUP)
            refusal = auction_refusal(x, y, self.p, most, self.memory, has_table=not is_in_few)
            if is_many and refusal is None:
                return cast(Array, auction_partners(x, y, self.p, self.memory))
        return self._improve(self._merge(x, y), x, y).partner

    def _pairs(self, x: ReadyCloud, y: ReadyCloud) -> MassPairs:
        """A coupling of clouds with weights or of unequal sizes."""
        on_host = isinstance(x.points, np.ndarray)
        is_open = self.is_free and on_host and x.dim > 1 and x.n + y.n > 2 * _GROUP
        if is_open and auction_refusal(x, y, self.p, _MANY_POINTS, self.memory) is None:
            return auction_pairs(x, y, self.p, self.memory)
        pairs = self._cheapest(x, y)
        if not on_host:
            return pairs
        pairs = self._improve_pairs(integer_masses(pairs), x, y)
        return pairs._replace(mass=pairs.mass / MASS_UNITS)

    def _merge(self, x: ReadyCloud, y: ReadyCloud) -> Match:
        """The matchings of all directions and trees, merged."""
        xp = namespace(x.points)
        partners = (
            xp.take(pairs.iy[s, :], inverse(pairs.ix[s, :]))
            for pairs in self._couplings(x, y)
            for s in range(pairs.ix.shape[0])
        )
        best = make_match(next(partners), x, y, self.p)
        if self.n_sweeps != 0 and self._groups(best, x) == (0, True):
            # One group holds all points, and is matched optimally from any start.
            return best
        for other in partners:
            best = merge_matches(best, other, x, y, self.p)
        return best

    def _cheapest(self, x: ReadyCloud, y: ReadyCloud) -> MassPairs:
        """The cheapest coupling of all directions and trees, chosen on the device (no synchronisation)."""
        xp = namespace(x.points)

        def cheapest_of(pairs: Pairs) -> tuple[Array, MassPairs]:
            scores, _ = price_in_space(x, y, self.p, pairs, NO_GRADIENTS)
            at = xp.reshape(xp.argmin(scores), (1,))
            tables = (pairs.ix, pairs.iy, xp.broadcast_to(pairs.mass, pairs.ix.shape))
            return xp.take(scores, at), MassPairs(*(xp.take(t, at, axis=0)[0, :] for t in tables))

        found = (cheapest_of(pairs) for pairs in self._couplings(x, y))
        least, best = next(found)
        for score, other in found:
            cheaper = score < least
            best = MassPairs(*(xp.where(cheaper, new, old) for new, old in zip(other, best, strict=True)))
            least = xp.minimum(score, least)
        return best

    def _couplings(self, x: ReadyCloud, y: ReadyCloud) -> Iterator[Pairs]:
        """Couplings by order along every direction, then those of trees; threads work on NumPy arrays."""
        workers = self.workers if library(x.points) == "numpy" else 1
        workers, chunk = share_memory(self.memory, match_bytes(x, y)[1], workers)
        for pairs in ordered_map(self._pieces(x, y, chunk), workers):
            yield pairs
            self.advance(pairs.ix.shape[0])

    def _pieces(self, x: ReadyCloud, y: ReadyCloud, chunk: int) -> Iterator[Callable[[], Pairs]]:
        layout = Layout(check_sampler(self.sampler, self.n_directions, x.dim))
        dtype = projection_dtype(x.points)
        for piece in sweep_directions(self.sampler, layout, self.key, x.dim, dtype, chunk):
            yield functools.partial(_sliced, x, y, piece)
        for tree in range(_n_trees(x.dim)):
            yield functools.partial(self._tree, x, y, tree)

    def _tree(self, x: ReadyCloud, y: ReadyCloud, tree: int) -> Pairs:
        n = max(x.n, y.n)
        levels = levels_for(n, 1)
        ix, iy = (halve(self._keys(tree, levels, n, c), c.masses)[None, :] for c in (x, y))
        return couple_orders(ix, iy, x, y)

    def _keys(self, tree: int, levels: int, most_points: int, x: ReadyCloud) -> Array:
        """Projections `(levels, n)` of a cloud on the directions of a tree, which depend on `most_points`."""
        most = max(1, levels_for(most_points, 1))
        rows = min(most, x.dim)
        blocks = -(-most // rows)
        drawn = draw_blocks(
            Blocks(
                sampler=Orthogonal(),
                key=self.key,
                first=tree * blocks,
                n_blocks=blocks,
                rows=rows,
                dim=x.dim,
                dtype=projection_dtype(x.points),
                purpose=TREES,
            )
        )
        return x.project(drawn, slice(0, levels), widely=True)

    def _paired_keys(
        self, number: int, levels: int, x: ReadyCloud, y: ReadyCloud, ix: Array | None, iy: Array
    ) -> Array:
        """Keys that group pairs: in turn projections of their points of x, of those of y, or sums of both."""
        keys = None
        for turn, cloud, index in ((0, x, ix), (1, y, iy)):
            if number % _ROUND in (turn, _ROUND - 1):
                own = self._keys(_MANY_TREES + number, levels, max(x.n, y.n), cloud)
                keys = own if index is None else _add_columns(keys, own, index)
        return cast(Array, keys)

    def _improve(self, match: Match, x: ReadyCloud, y: ReadyCloud) -> Match:
        """Match the points of groups anew, in one sweep after the other."""
        levels, is_optimal = self._groups(match, x)

        def sweep(number: int, match: Match) -> Match:
            order = halve(self._paired_keys(number, levels, x, y, None, match.partner), None)
            better: Match = rematch(match, order, levels, x, y, self.p, self.workers)
            return better

        once = is_optimal and levels == 0
        if isinstance(x.points, np.ndarray):
            return self._repeat(sweep, match, lambda m: float(cast(HostArray, m.cost).sum()), once)
        count = self.n_sweeps
        if count is None:
            count = _DEVICE_SWEEPS if is_optimal else _PLAIN_SWEEPS
        for number in range(min(count, 1) if once else count):
            match = sweep(number, match)
            self.advance(1)
        return match

    def _groups(self, match: Match, x: ReadyCloud) -> tuple[int, bool]:
        """How often points are halved into groups, and whether groups are matched optimally."""
        if isinstance(x.points, np.ndarray):
            is_in_few = x.dim <= _FEW_DIMENSIONS
            if x.n <= (_ONE_GROUP_IN_FEW if is_in_few else _ONE_GROUP):
                return 0, True
            return levels_for(x.n, _SMALL_GROUP if is_in_few and x.n > _MANY_POINTS else _GROUP), True
        size = largest_group(match.partner)
        return levels_for(x.n, size), size == LARGEST_GROUP

    def _improve_pairs(self, pairs: MassPairs, x: ReadyCloud, y: ReadyCloud) -> MassPairs:
        """Move the masses of groups of pairs anew, in one sweep after the other; NumPy arrays."""

        def sweep(number: int, pairs: MassPairs) -> MassPairs:
            levels = levels_for(len(pairs.ix), _GROUP)
            order = halve(self._paired_keys(number, levels, x, y, pairs.ix, pairs.iy), None)
            return recouple(pairs, cast(HostArray, order), levels, x, y, self.p, self.workers)

        def cost(pairs: MassPairs) -> float:
            return math.fsum(
                pairs.mass[part] @ pair_costs(x.points[pairs.ix[part]], y.points[pairs.iy[part]], self.p)
                for part in parts_of_pairs(x.points, len(pairs.ix))
            )

        return self._repeat(sweep, pairs, cost, len(pairs.ix) <= _GROUP)

    def _repeat(self, sweep: Callable[[int, T], T], found: T, cost: Callable[[T], float], once: bool) -> T:
        """Sweep until a round gains less than `_LEAST_GAIN`, or `n_sweeps` times; at most once if `once`."""
        count = _MOST_SWEEPS if self.n_sweeps is None else self.n_sweeps
        before = cost(found)
        for number in range(min(count, 1) if once else count):
            found = sweep(number, found)
            self.advance(1)
            if self.n_sweeps is None and (number + 1) % _ROUND == 0:
                after = cost(found)
                if after >= (1 - _LEAST_GAIN) * before:
                    break
                before = after
        return found


def _add_columns(keys: Array | None, table: Array, index: Array) -> Array:
    """Columns of a table, at `index`, added to `keys` if there are any; of NumPy arrays row by row."""
    if not isinstance(table, np.ndarray):
        columns = namespace(table).take(table, index, axis=1)
        return columns if keys is None else keys + columns
    if keys is None:
        keys = np.zeros((len(table), len(index)))
    for own, row in zip(keys, table, strict=True):
        own += row[index]
    return cast(Array, keys)

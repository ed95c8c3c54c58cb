// What the pairs of any couplings cost in full space, and the gradients by the points. Differences are taken before
// anything is squared, in the type of the points; the costs of pairs are added in double precision.
//
// Compiled with THREADS and REAL_BYTES, the size of a number, defined.

#include "matches.cuh"

#if REAL_BYTES == 8
typedef double real;
#else
typedef float real;
#endif

// A table `(slices, pairs)` of which rows or columns may be one and the same: where it is, and how far apart they are.
template <class Entry>
struct Spread {
    const Entry* entries;
    long long slice, pair;

    __device__ Entry at(int s, int k) const { return entries[s * slice + k * pair]; }
};

// Costs `scores (slices, parts)` of the pairs `(ix, iy)` with their masses. Tables that are not null get what pulls the
// points: `x_matches` and `y_matches (slices, n)` where every slice has each point once; otherwise `x_gradient` and
// `y_gradient`, which are added to in any order.
extern "C" __global__ void __launch_bounds__(THREADS) price_couplings(
    const real* x, const real* y, const long long* ix, const long long* iy, const double* mass, double* scores,
    Match<real>* x_matches, Match<real>* y_matches, real* x_gradient, real* y_gradient, int n, int dim, int pairs,
    int parts, double p, long long ix_slice, long long ix_pair, long long iy_slice, long long iy_pair,
    long long mass_slice, long long mass_pair) {
    SHARED(u32, shared);
    Spread<long long> x_index = {ix, ix_slice, ix_pair}, y_index = {iy, iy_slice, iy_pair};
    Spread<double> masses = {mass, mass_slice, mass_pair};
    int slice = blockIdx.x / parts, part = blockIdx.x % parts;
    int first = (int)((long long)part * pairs / parts), last = (int)((long long)(part + 1) * pairs / parts);
    int lanes = lanes_for(dim), at_once = 32 / lanes, lane = threadIdx.x % lanes;
    double total = 0.0;
    // All lanes of a warp go on together, with or without a pair.
    for (int start = first + threadIdx.x / 32 * at_once; start < last; start += WARPS * at_once) {
        int k = start + threadIdx.x % 32 / lanes;
        bool live = k < last;
        long long i = live ? x_index.at(slice, k) : 0, j = live ? y_index.at(slice, k) : 0;
        const real *x_point = x + i * dim, *y_point = y + j * dim;
        real square = square_of_difference(x_point, y_point, dim, lane, lanes);
        if (!live) continue;
        double weight = masses.at(slice, k), cost = power_of_root(square, p);
        if (lane == 0) total += weight * cost;
        real pull = pull_of<real>(square, p, weight, cost);
        if (x_matches && lane == 0) x_matches[(long long)slice * n + i] = {(int)j, pull};
        if (y_matches && lane == 0) y_matches[(long long)slice * n + j] = {(int)i, pull};
        if (!x_gradient && !y_gradient) continue;
        for (int d = lane; d < dim; d += lanes) {
            real step = pull * (x_point[d] - y_point[d]);
            if (x_gradient) atomicAdd(x_gradient + i * dim + d, step);
            if (y_gradient) atomicAdd(y_gradient + j * dim + d, -step);
        }
    }
    double sum = block_sum(total, shared);
    if (threadIdx.x == 0) scores[blockIdx.x] = sum;
}

// The gradient by the points `own (n, dim)`, whose partners `matches (slices, n)` are among `others`: a block a point.
extern "C" __global__ void __launch_bounds__(THREADS) pull_matched(
    const real* own, const real* others, const Match<real>* matches, real* gradient, int n, int dim, int slices) {
    SHARED(real, sums);
    long long start = (long long)blockIdx.x * dim;
    pull_point(own + start, others, matches + blockIdx.x, n, slices, dim, gradient + start, sums);
}

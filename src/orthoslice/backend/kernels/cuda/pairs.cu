// What it costs to match the points of two clouds `x (n, dim)` and `y (n, dim)` by their orders along
// directions, and the gradients by the points.
//
// Places are those of sorted projections, `places (2, slices, n)`, in clouds that are themselves read in an order,
// `order (2, n)`. Compiled with THREADS defined.

#include "matches.cuh"

// Costs in full space, each pair with a share `mass` of the whole: `scores (slices, parts)`. `more_mass` is
// added to `mass`: 0, or NaN where a direction is NaN. Where `matches (2, slices, n)` is not null, the matches
// of the wanted clouds are written.
extern "C" __global__ void __launch_bounds__(THREADS) price_pairs(
    const float* x, const float* y, const long long* order, const int* places, const float* more_mass, double* scores,
    Match<float>* matches, int slices, int n, int dim, int parts, int of_x, int of_y, double p, double mass) {
    SHARED(u32, shared);
    int slice = blockIdx.x / parts, part = blockIdx.x % parts;
    int first = (int)((long long)part * n / parts), last = (int)((long long)(part + 1) * n / parts);
    int lanes = lanes_for(dim), at_once = 32 / lanes, lane = threadIdx.x % lanes;
    const int *x_places = places + (long long)slice * n, *y_places = x_places + (long long)slices * n;
    Match<float> *of_this = matches + (long long)slice * n, *of_other = of_this + (long long)slices * n;
    if (more_mass) mass += *more_mass;
    double total = 0.0;
    // All lanes of a warp go on together, with or without a pair.
    for (int start = first + threadIdx.x / 32 * at_once; start < last; start += WARPS * at_once) {
        int k = start + threadIdx.x % 32 / lanes;
        bool live = k < last;
        int i = live ? (int)order[x_places[k]] : 0, j = live ? (int)order[n + y_places[k]] : 0;
        float square = square_of_difference(x + (long long)i * dim, y + (long long)j * dim, dim, lane, lanes);
        if (!live || lane) continue;
        double cost = power_of_root(square, p);
        total += mass * cost;
        float pull = pull_of<float>(square, p, mass, cost);
        if (of_x) of_this[i] = {j, pull};
        if (of_y) of_other[j] = {i, pull};
    }
    double sum = block_sum(total, shared);
    if (threadIdx.x == 0) scores[blockIdx.x] = sum;
}

// Gradients by the points of the clouds that are wanted, one below the other, by one block a point: what pulls it is
// added up over the directions, always in the same order. A launch is saved by adding up the scores on the way.
extern "C" __global__ void __launch_bounds__(THREADS) pull_points(
    const float* x, const float* y, const Match<float>* matches, float* gradient, const double* scores, float* total,
    long long* step, int slices, int n, int dim, int parts, int of_x) {
    SHARED(u32, shared);
    float* sums = reinterpret_cast<float*>(shared);
    if (blockIdx.x == 0) add_up_scores(scores, slices * parts, total, step, shared);
    __syncthreads();
    bool is_x = of_x && blockIdx.x < n;
    int point = of_x && !is_x ? blockIdx.x - n : blockIdx.x;
    const float *own = (is_x ? x : y) + (long long)point * dim, *others = is_x ? y : x;
    const Match<float>* mine = matches + (is_x ? 0 : (long long)slices * n) + point;
    pull_point(own, others, mine, n, slices, dim, gradient + (long long)blockIdx.x * dim, sums);
}

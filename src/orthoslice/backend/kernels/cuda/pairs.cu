// What it costs to match the points of two clouds `x (n, dim)` and `y (n, dim)` by their orders along
// directions, and the gradients by the points.
//
// Places are those of sorted projections, `places (2, slices, n)`, in clouds that are themselves read in an order,
// `order (2, n)`. Compiled with THREADS defined.

#include "block.cuh"

// Of a point: its partner along a direction, and how much of their difference pulls it.
struct Match {
    int partner;
    float pull;
};

// As many threads of a warp as there are coordinates work on one pair, up to a power of two.
__device__ __forceinline__ int lanes_for(int dim) {
    int lanes = 1;
    while (lanes < dim && lanes < 32) lanes *= 2;
    return lanes;
}

// Costs in full space, each pair with a share `mass` of the whole: `scores (slices, parts)`. `more_mass` is
// added to `mass`: 0, or NaN where a direction is NaN. Where `matches (2, slices, n)` is not null, the matches
// of the wanted clouds are written.
extern "C" __global__ void __launch_bounds__(THREADS) price_pairs(
    const float* x, const float* y, const long long* order, const int* places, const float* more_mass, double* scores,
    Match* matches, int slices, int n, int dim, int parts, int of_x, int of_y, double p, double mass) {
    SHARED(u32, shared);
    int slice = blockIdx.x / parts, part = blockIdx.x % parts;
    int first = (int)((long long)part * n / parts), last = (int)((long long)(part + 1) * n / parts);
    int lanes = lanes_for(dim), at_once = 32 / lanes, lane = threadIdx.x % lanes;
    const int *x_places = places + (long long)slice * n, *y_places = x_places + (long long)slices * n;
    Match *of_this = matches + (long long)slice * n, *of_other = of_this + (long long)slices * n;
    if (more_mass) mass += *more_mass;
    double total = 0.0;
    // All lanes of a warp go on together, with or without a pair.
    for (int start = first + threadIdx.x / 32 * at_once; start < last; start += WARPS * at_once) {
        int k = start + threadIdx.x % 32 / lanes;
        bool live = k < last;
        int i = live ? (int)order[x_places[k]] : 0, j = live ? (int)order[n + y_places[k]] : 0;
        float square = 0.0f;
        for (int d = lane; d < dim; d += lanes) {
            float difference = x[(long long)i * dim + d] - y[(long long)j * dim + d];
            square = fmaf(difference, difference, square);
        }
        for (int step = lanes / 2; step > 0; step /= 2) square += __shfl_xor_sync(EVERYONE, square, step);
        if (!live || lane) continue;
        double wide = square;
        double power = p == 2.0 ? wide : p == 1.0 ? sqrt(wide) : pow(wide, 0.5 * p);
        total += mass * power;
        // |d|^(p - 2) has no value where points coincide, and nothing pulls there.
        float pull = wide == 0.0 ? 0.0f : (float)(p * mass * power / wide);
        if (of_x) of_this[i] = {j, pull};
        if (of_y) of_other[j] = {i, pull};
    }
    double sum = block_sum(total, shared);
    if (threadIdx.x == 0) scores[blockIdx.x] = sum;
}

// Gradients by the points of the clouds that are wanted, one below the other, by one block a point: what pulls it is
// added up over the directions, always in the same order. A launch is saved by adding up the scores on the way.
extern "C" __global__ void __launch_bounds__(THREADS) pull_points(
    const float* x, const float* y, const Match* matches, float* gradient, const double* scores, float* total,
    long long* step, int slices, int n, int dim, int parts, int of_x) {
    SHARED(u32, shared);
    float* sums = reinterpret_cast<float*>(shared);
    if (blockIdx.x == 0) add_up_scores(scores, slices * parts, total, step, shared);
    __syncthreads();
    bool is_x = of_x && blockIdx.x < n;
    int point = of_x && !is_x ? blockIdx.x - n : blockIdx.x;
    const float *own = (is_x ? x : y) + (long long)point * dim, *others = is_x ? y : x;
    const Match* mine = matches + (is_x ? 0 : (long long)slices * n) + point;
    // Groups of threads share out the directions, and hold 4 coordinates a thread.
    int lanes = lanes_for(dim), groups = THREADS / lanes, group = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    for (int first = 0; first < dim; first += 4 * lanes) {
        float here[4], pulled[4] = {};
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int d = first + c * lanes + lane;
            here[c] = d < dim ? own[d] : 0.0f;
        }
#pragma unroll 4
        for (int slice = group; slice < slices; slice += groups) {
            Match match = mine[(long long)slice * n];
            const float* other = others + (long long)match.partner * dim;
#pragma unroll
            for (int c = 0; c < 4; c++) {
                int d = first + c * lanes + lane;
                if (d < dim) pulled[c] = fmaf(match.pull, here[c] - other[d], pulled[c]);
            }
        }
#pragma unroll
        for (int c = 0; c < 4; c++) sums[group * 4 * lanes + c * lanes + lane] = pulled[c];
        __syncthreads();
        for (int k = threadIdx.x; k < 4 * lanes && first + k < dim; k += THREADS) {
            float sum = 0.0f;
            for (int g = 0; g < groups; g++) sum += sums[g * 4 * lanes + k];
            gradient[(long long)blockIdx.x * dim + first + k] = sum;
        }
        __syncthreads();
    }
}

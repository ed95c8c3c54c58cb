// Sorted rows of one length matched, with slopes that are put in order of place on chip: written one by one to their places in
// memory, they would take several times as long as all that is read.

#include "block.cuh"

// Costs of sorted rows `x (rows, n)` against `y (rows, n)`, summed over parts of the ranks: `(rows, parts)`; and slopes by the
// clouds for which there is room, at least one. A block finds the slopes of a range of the places of one cloud, for which
// it reads the whole rows: `parts` is how many ranges a row has, of all clouds.
extern "C" __global__ void __launch_bounds__(THREADS) match_places(
    const float* x, const float* y, const int* x_places, const int* y_places, double* sums, float* x_slopes,
    float* y_slopes, int n, int parts, float p, double factor) {
    SHARED(u32, shared);
    // Pairs that a thread reads at a time.
    constexpr int AT_ONCE = 4;
    float* slopes = reinterpret_cast<float*>(shared + SCRATCH_WORDS);
    const int row = blockIdx.x / parts, part = blockIdx.x % parts, ranges = x_slopes && y_slopes ? parts / 2 : parts;
    const bool of_x = x_slopes && part < ranges;
    const int share = (n + ranges - 1) / ranges, base = part % ranges * share, size = min(share, n - base);
    const int summed = (n + parts - 1) / parts, first = part * summed, last = min(first + summed, n);
    const long long start = (long long)row * n;
    const int* places = (of_x ? x_places : y_places) + start;
    float *out = (of_x ? x_slopes : y_slopes) + start + base, mass = (float)((of_x ? factor : -factor) / n);
    x += start;
    y += start;
    double total = 0.0;
    for (int block = 0; block < n; block += AT_ONCE * THREADS) {
        float difference[AT_ONCE];
        int to[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            int i = block + j * THREADS + threadIdx.x;
            difference[j] = i < n ? x[i] - y[i] : 0.0f;
            to[j] = i < n ? places[i] - base : -1;
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            int i = block + j * THREADS + threadIdx.x;
            if ((u32)to[j] < (u32)max(size, 0)) slopes[to[j]] = mass * slope(difference[j], p);
            if (i >= first && i < last) total += cost(difference[j], p);
        }
    }
    double sum = block_sum(total, shared);
    if (threadIdx.x == 0) sums[blockIdx.x] = factor / n * sum;
    for (int k = threadIdx.x; k < size; k += THREADS) out[k] = slopes[k];
}

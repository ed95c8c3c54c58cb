// What a step on Walsh-Hadamard blocks begins with, in one launch: their factors, and where the clouds sit.
//
// Compiled with THREADS defined. The numbers are those of `HadamardRademacher.draw`, to rounding.

#include "block.cuh"
#include "threefry.cuh"

// `factors (blocks, rounds, columns)` of blocks from `first_block` on: signs or, if `paired`, the cosine and the sine of
// an angle for each pair of columns. If there are points `x (n, dim)`, `centre (dim)` is where they sit in coordinates
// in which that is far from 0, and 0 in the others, and flag k says whether it is not 0 in some of the THREADS
// coordinates from k THREADS on. Counters become zero.
extern "C" __global__ void __launch_bounds__(THREADS) start_on_blocks(
    const u32* high, const u32* low, const long long* step, const float* x, float* factors, float* centre, int* flags,
    int* counters, long long first_block, int steps, int purpose, int blocks, int rounds, int columns, int paired, int n,
    int dim, int n_counters) {
    long long k = (long long)blockIdx.x * THREADS + threadIdx.x;
    int across = paired ? columns / 2 : columns;
    if (k < (long long)blocks * rounds * across) {
        int column = (int)(k % across), round = (int)(k / across % rounds), block = (int)(k / across / rounds);
        Words key = block_key(high, low, step, step ? (u32)*step : 0, steps, (int)first_block + block, purpose);
        Words words = threefry(key, round, column);
        if (paired) {
            double cosine, sine;
            point_on_circle(words.low, &cosine, &sine);
            factors[2 * k] = (float)cosine;
            factors[2 * k + 1] = (float)sine;
        } else {
            factors[k] = words.high & 1 ? -1.0f : 1.0f;
        }
    }
    if (k < n_counters) counters[k] = 0;
    if (!x || (long long)blockIdx.x * THREADS >= dim) return;
    float off = k < dim ? far_coordinate(x, nullptr, n, dim, (int)k) : 0.0f;
    if (k < dim) centre[k] = off;
    bool is_far = __syncthreads_or(off != 0.0f);
    if (threadIdx.x == 0) flags[blockIdx.x] = is_far;
}

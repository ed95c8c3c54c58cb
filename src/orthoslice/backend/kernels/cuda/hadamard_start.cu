// What a step on Walsh-Hadamard blocks begins with: their factors, and where the clouds sit.
//
// Compiled with what hadamard.cuh needs, of float32, and FLAGGED, the coordinates of a flag, defined. The numbers are
// those of `HadamardRademacher.draw`, to rounding.

#include "hadamard.cuh"
#include "threefry.cuh"

// `factors (blocks, rounds, 2^log_columns)`: see `draw_factor`. If there are points `x (n, dim)`, `centre (dim)` is where they sit in coordinates
// in which that is far from 0, and 0 in the others, and flag k says whether it is not 0 in some of the FLAGGED
// coordinates from k FLAGGED on. Counters become zero.
extern "C" __global__ void __launch_bounds__(FLAGGED) start_on_blocks(
    const u32* high, const u32* low, const long long* step, const float* x, float* factors, float* centre, int* flags,
    int* counters, int steps, int purpose, int blocks, int rounds, int log_columns, int paired, int n, int dim,
    int n_counters) {
    long long k = (long long)blockIdx.x * FLAGGED + threadIdx.x;
    int of_block = rounds << (paired ? log_columns - 1 : log_columns);
    if (k < (long long)blocks * of_block) {
        int block = (int)(k / of_block);
        Words key = block_key(high, low, step, step ? (u32)*step : 0, steps, block, purpose);
        draw_factor(key, (int)(k % of_block), log_columns, paired, factors + ((long long)block * rounds << log_columns));
    }
    if (k < n_counters) counters[k] = 0;
    if (!x || (long long)blockIdx.x * FLAGGED >= dim) return;
    float off = k < dim ? far_coordinate(x, nullptr, n, dim, (int)k) : 0.0f;
    if (k < dim) centre[k] = off;
    bool is_far = __syncthreads_or(off != 0.0f);
    if (threadIdx.x == 0) flags[blockIdx.x] = is_far;
}

// The same, and `project_on_blocks` of hadamard.cu, for clouds so small that a launch takes longer than to draw in every
// thread block, and to look where x is. Factors are left in `signs`, and `counts` (n_counts) become zero.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) project_on_drawn_blocks(
    const real* x, const real* y, const u32* high, const u32* low, const long long* step, real* signs, real* px,
    real* py, int* counts, long long first_row, long long n_rows, int n, int m, int dim, int n_tiles, int block_rows,
    int rounds, int paired, int log_dim, int log_lanes, double scale, int steps, int purpose, int n_counts) {
    SHARED(real, shared);
    Side side(blockIdx.x % n_tiles, log_dim, log_lanes, n, m);
    Tile tile(side.number, log_dim, log_lanes);
    int block = blockIdx.x / n_tiles, threads = tile.threads(), n_factors = rounds << log_dim;
    real *factors = shared + tile.items(), *centre = factors + n_factors;
    Words key = block_key(high, low, step, step ? (u32)*step : 0, steps, block, purpose);
    for (int k = threadIdx.x; k < (paired ? n_factors / 2 : n_factors); k += threads)
        draw_factor(key, k, log_dim, paired, factors);
    bool is_far = false;
    for (int d = threadIdx.x; d < dim; d += threads) {
        centre[d] = far_coordinate(x, nullptr, n, dim, d);
        is_far |= centre[d] != 0.0f;
    }
    if (blockIdx.x == 0)
        for (int k = threadIdx.x; k < n_counts; k += threads) counts[k] = 0;
    __syncthreads();
    if (blockIdx.x % n_tiles == 0)
        for (int k = threadIdx.x; k < n_factors; k += threads) signs[(long long)block * n_factors + k] = factors[k];
    project_tile(tile, side, side.is_first ? x : y, centre, is_far, factors, side.is_first ? px : py, shared, block,
                 first_row, n_rows, dim, block_rows, rounds, paired, (real)scale);
}

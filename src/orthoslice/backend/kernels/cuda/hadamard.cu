// Projections on Walsh-Hadamard blocks, and the transpose.
//
// Compiled with what hadamard.cuh needs, and FLAGGED, the coordinates of a flag, defined.

#include "hadamard.cuh"

// `px (n_rows, n)` of `x (n, dim)` and `py (n_rows, m)` of `y (m, dim)`, by a thread block a tile and block of
// directions; `signs (blocks, rounds, 2^log_dim)`. There may be no y. Where some of `flags` says that a coordinate is
// far from 0, `centre (dim)` is taken off all points; there need not be any.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) project_on_blocks(
    const real* x, const real* y, const real* centre, const int* flags, const real* signs, real* px, real* py,
    long long first_row, long long n_rows, int n, int m, int dim, int n_tiles, int block_rows, int rounds, int paired,
    int log_dim, int log_lanes, double scale) {
    SHARED(real, shared);
    Side side(blockIdx.x % n_tiles, log_dim, log_lanes, n, m);
    Tile tile(side.number, log_dim, log_lanes);
    int block = blockIdx.x / n_tiles;
    bool is_far = flags && threadIdx.x < (dim + FLAGGED - 1) / FLAGGED && flags[threadIdx.x];
    const real* factors = signs + ((long long)block * rounds << log_dim);
    project_tile(tile, side, side.is_first ? x : y, centre, is_far, factors, side.is_first ? px : py, shared, block,
                 first_row, n_rows, dim, block_rows, rounds, paired, (real)scale);
}

// The value of a step from `count` scores, by one thread block of `threads` threads, always in the same order.
__device__ void put_scores(const double* scores, int count, float* total, long long* step, int threads, double* sums) {
    double sum = 0.0;
    for (int k = threadIdx.x; k < count; k += threads) sum += scores[k];
    sums[threadIdx.x] = sum;
    for (int half = threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) put_sum(sums[0], total, step);
}

// `count` numbers of `out`, each the sum of `splits` numbers of `parts` that are `size` apart, by `threads` threads.
__device__ __forceinline__ void add_parts(
    const real* parts, real* out, int count, long long size, int splits, int threads) {
    // Many numbers at a time, whose parts are on the way together.
    constexpr int AT_ONCE = 8;
    for (int first = threadIdx.x; first < count; first += AT_ONCE * threads) {
        real sum[AT_ONCE] = {};
#pragma unroll 4
        for (int split = 0; split < splits; split++)
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                int at = first + k * threads;
                // Past the cache of the multiprocessor, which may hold what stood there before.
                sum[k] += at < count ? __ldcg(parts + split * size + at) : (real)0;
            }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (first + k * threads < count) out[first + k * threads] = sum[k];
    }
}

// The transpose: `out (n + m, dim)` of `x_slopes (n_rows, n)` and, below, of `y_slopes (n_rows, m)`; either may have no
// points. A thread block takes a tile and `split_blocks` blocks of directions, whose sum is kept in shared memory; of
// several that share a tile, each leaves its sum in `parts (splits, n + m, dim)`, and the last one, which `counts`
// (tiles) from 0 tell, adds them up in their order. Where there are scores, one more thread block, the first, makes
// them the value of a step.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) carry_back_from_blocks(
    const real* x_slopes, const real* y_slopes, const real* signs, real* out, real* parts, int* counts,
    const double* scores, float* total, long long* step, long long first_row, long long n_rows, int n, int m, int dim,
    int n_tiles, int block_rows, int rounds, int paired, int log_dim, int log_lanes, double scale, int n_blocks,
    int split_blocks) {
    SHARED(real, shared);
    int number = scores ? (int)blockIdx.x - 1 : (int)blockIdx.x;
    Side side(max(number, 0) % n_tiles, log_dim, log_lanes, n, m);
    Tile tile(side.number, log_dim, log_lanes);
    if (number < 0) {
        put_scores(scores, (int)n_rows, total, step, tile.threads(), reinterpret_cast<double*>(shared));
        return;
    }
    const real* slopes = side.is_first ? x_slopes : y_slopes;
    // One block needs no sum.
    real* sums = split_blocks == 1 ? shared : shared + tile.items();
    int split = number / n_tiles, first_block = split * split_blocks;
    for (int block = first_block; block < min(first_block + split_blocks, n_blocks); block++) {
        real own[ITEMS];
        Part part(tile, side.n, block, block_rows, first_row, n_rows);
        part.each(tile, Window(tile, 0), [&](int k, bool is_inside, long long from) {
            real value = slopes[from];
            own[k] = is_inside ? value : (real)0;
        });
        int index = 0;
        for (int round = rounds - 1; round >= 0; round--) {
            const real* factor = signs + ((long long)(block * rounds + round) << log_dim);
            index = transform(own, tile, index, shared);
            Window(tile, index).multiply(own, tile, factor, (real)scale, paired);
        }
        // Where there is no sum, others may still read what stands there.
        __syncthreads();
        bool is_first = block == first_block;
        Window(tile, index).each(sums, [&](int k, real& sum) { sum = is_first ? own[k] : sum + own[k]; });
    }
    __syncthreads();
    long long start = (side.is_first ? tile.first : n + tile.first) * dim, size = ((long long)n + m) * dim;
    int splits = (n_blocks + split_blocks - 1) / split_blocks;
    real* to = (splits == 1 ? out : parts + split * size) + start;
    each_coordinate(tile, side.n, dim, [&](int, bool is_inside, int at, int place) {
        if (is_inside) to[at] = number_at(sums, place);
    });
    if (splits == 1) return;
    // The sum of this thread block is there for all others before it is counted.
    __threadfence();
    __syncthreads();
    bool is_last = threadIdx.x == 0 && atomicAdd(counts + number % n_tiles, 1) == splits - 1;
    if (!__syncthreads_or(is_last)) return;
    __threadfence();
    add_parts(parts + start, out + start, tile.points_of(side.n) * dim, size, splits, tile.threads());
}

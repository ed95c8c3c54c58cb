// What every point of a cloud finds cheapest in another one: all pairs, in tiles that stay on chip.

// Compiled with THREADS = 256, REAL_BYTES of a number, ROWS and COLUMNS of a thread, SOFT or not, and SQUARED if p
// is 2, defined.

#include "block.cuh"

#if REAL_BYTES == 8
typedef double real;
constexpr real FARTHEST = 1e300;
#else
typedef float real;
constexpr real FARTHEST = 3e38f;
#endif

constexpr int SIDE = 16;              // threads that share a row of a tile, or a column
constexpr int WIDE = 16 / REAL_BYTES;  // numbers that are read from shared memory at once
constexpr int TALL_TILE = SIDE * ROWS, WIDE_TILE = SIDE * COLUMNS;
constexpr int DEPTH = 16;  // coordinates that are on chip at a time
constexpr int STAGE = DEPTH * (TALL_TILE + WIDE_TILE);
static_assert(THREADS == SIDE * SIDE, "a thread for every part of a tile");

// Where the k-th number of a thread stands in its side of a tile.
__device__ __forceinline__ int place(int thread, int k) { return thread * WIDE + k % WIDE + SIDE * WIDE * (k / WIDE); }

__device__ __forceinline__ float power(float square, float p) { return p == 1 ? sqrtf(square) : powf(square, p / 2); }
__device__ __forceinline__ double power(double square, double p) { return p == 1 ? sqrt(square) : pow(square, p / 2); }

// Start to copy `depth` coordinates of a tile's points to shared memory, for both sides.
__device__ void start_stage(
    real* stage, const real* x, const real* y, long long n, long long m, long long row, long long column, int depth) {
    for (int k = threadIdx.x; k < depth * (TALL_TILE / WIDE); k += THREADS) {
        int d = k / (TALL_TILE / WIDE), at = k % (TALL_TILE / WIDE) * WIDE;
        start_copy(
            reinterpret_cast<double*>(stage + d * TALL_TILE + at),
            reinterpret_cast<const double*>(x + d * n + row + at));
    }
    real* others = stage + DEPTH * TALL_TILE;
    for (int k = threadIdx.x; k < depth * (WIDE_TILE / WIDE); k += THREADS) {
        int d = k / (WIDE_TILE / WIDE), at = k % (WIDE_TILE / WIDE) * WIDE;
        start_copy(
            reinterpret_cast<double*>(others + d * WIDE_TILE + at),
            reinterpret_cast<const double*>(y + d * m + column + at));
    }
}

// Add the squares of the differences of `depth` coordinates.
__device__ __forceinline__ void add_squares(real (&sums)[ROWS][COLUMNS], const real* stage, int depth) {
    const real* others = stage + DEPTH * TALL_TILE;
    int own = threadIdx.x / SIDE * WIDE, other = threadIdx.x % SIDE * WIDE;
#pragma unroll 4
    for (int d = 0; d < depth; d++) {
        real a[ROWS], b[COLUMNS];
#pragma unroll
        for (int r = 0; r < ROWS; r += WIDE)
#pragma unroll
            for (int k = 0; k < WIDE; k++) a[r + k] = stage[d * TALL_TILE + own + SIDE * r + k];
#pragma unroll
        for (int c = 0; c < COLUMNS; c += WIDE)
#pragma unroll
            for (int k = 0; k < WIDE; k++) b[c + k] = others[d * WIDE_TILE + other + SIDE * c + k];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                real gap = a[r] - b[c];
                sums[r][c] += gap * gap;
            }
        }
    }
}

// What the results of a row are of: all tiles that a block has, every tile, or every one of the list of tiles.
enum { BY_PART, BY_TILE, BY_PLACE };

// Over some columns, for points x `(dim, n)` and y `(dim, m)` in whole tiles: the least of |x - y|^p + price, to
// `least (n, groups)`; or if SOFT, s being the largest of its negative over `eps`, s to `least` and the sum of
// exp(its negative over `eps` - s) to `sums`. `parts` blocks share the tiles of y for a tile of x; TILE points of x
// have those of `tiles` from the place in `starts` on, where they are given, and else all.
extern "C" __global__ void __launch_bounds__(THREADS, 2) sweep(
    const real* x, const real* y, const real* price, real* least, real* sums, const int* tiles, const long long* starts,
    int n, int m, int dim, int parts, int groups, int kind, real p, real sharpness) {
    SHARED(real, stages);
    const long long row = (long long)(blockIdx.x / parts) * TALL_TILE;
    const int part = blockIdx.x % parts;
    const int* mine = tiles ? tiles + starts[row / WIDE_TILE] : tiles;
    const long long count = tiles ? starts[row / WIDE_TILE + 1] - starts[row / WIDE_TILE] : m / WIDE_TILE;
    const int first = (int)(count * part / parts), stop = (int)(count * (part + 1) / parts);
    const int chunks = (dim + DEPTH - 1) / DEPTH, steps = (stop - first) * chunks;
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    real total[ROWS][COLUMNS], best[ROWS];
#if SOFT
    real mass[ROWS];
#endif
    // Tiles are looked up one before they are needed.
    int tile = 0, upcoming = steps > 0 ? (tiles ? mine[first] : first) : 0;
    if (steps > 0) start_stage(stages, x, y, n, m, row, (long long)upcoming * WIDE_TILE, min(DEPTH, dim));
    for (int step = 0; step < steps; step++) {
        int place_of = first + step / chunks, chunk = step % chunks;
        if (chunk == 0) {
            tile = upcoming;
            if (place_of + 1 < stop) upcoming = tiles ? mine[place_of + 1] : place_of + 1;
        }
        wait_for_copies();
        __syncthreads();
        if (step + 1 < steps) {
            int next = chunk + 1 < chunks ? tile : upcoming, from = (step + 1) % chunks * DEPTH;
            start_stage(
                stages + (step + 1) % 2 * STAGE, x + (long long)from * n, y + (long long)from * m, n, m, row,
                (long long)next * WIDE_TILE, min(DEPTH, dim - from));
        }
        if (chunk == 0) {
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) total[r][c] = 0;
        }
        add_squares(total, stages + step % 2 * STAGE, min(DEPTH, dim - chunk * DEPTH));
        if (chunk + 1 < chunks) continue;
#if !SQUARED
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) total[r][c] = power(total[r][c], p);
#endif
        if (kind != BY_PART || place_of == first) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
#if SOFT
                best[r] = -FARTHEST;
                mass[r] = 0;
#else
                best[r] = FARTHEST;
#endif
            }
        }
        real dear[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) dear[c] = price[(long long)tile * WIDE_TILE + place(tx, c)];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#if SOFT
            real top = best[r];
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                total[r][c] = -(total[r][c] + dear[c]) * sharpness;
                top = max(top, total[r][c]);
            }
            real sum = mass[r] * __expf(best[r] - top);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) sum += __expf(total[r][c] - top);
            best[r] = top;
            mass[r] = sum;
#else
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) best[r] = min(best[r], total[r][c] + dear[c]);
#endif
        }
        if (kind == BY_PART && place_of + 1 < stop) continue;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            real top = best[r];
            long long at = (row + place(ty, r)) * groups + (kind == BY_PART ? part : kind == BY_TILE ? tile : place_of);
#if SOFT
            for (int k = SIDE / 2; k > 0; k /= 2) top = max(top, __shfl_xor_sync(EVERYONE, top, k));
            real sum = mass[r] * __expf(best[r] - top);
            for (int k = SIDE / 2; k > 0; k /= 2) sum += __shfl_xor_sync(EVERYONE, sum, k);
            if (tx == 0) sums[at] = sum;
#else
            for (int k = SIDE / 2; k > 0; k /= 2) top = min(top, __shfl_xor_sync(EVERYONE, top, k));
#endif
            if (tx == 0) least[at] = top;
        }
    }
    if (steps == 0 && kind == BY_PART && tx == 0) {
        for (int r = 0; r < ROWS; r++) {
            long long at = (row + place(ty, r)) * groups + part;
#if SOFT
            least[at] = -FARTHEST;
            sums[at] = 0;
#else
            least[at] = FARTHEST;
#endif
        }
    }
}

// Directions drawn where they are used: a counter-based generator of random numbers, and Haar blocks from it.
//
// Compiled with the numbers of threads defined, DRAWERS of thread blocks that draw and THREADS of those that make rows
// orthonormal, and with what gram_schmidt.cuh needs.
//
// The numbers are those of `orthoslice.backend.arrays.key`, and the blocks those of `Orthogonal`, to rounding.

#include "gram_schmidt.cuh"
#include "threefry.cuh"

constexpr int PARTS = WARPS / 4;  // of the inner products of a panel

// Standard normals `(ahead, blocks, rows, dim)`: of one step, or of all steps of its group unless those are held. They
// stand in tables `(ahead, blocks, tall, wide)` that are filled up with zeros. On the way, counters become zero.
extern "C" __global__ void __launch_bounds__(DRAWERS) draw_normals(
    const u32* high, const u32* low, const long long* step, const Held* held, double* out, int* counters,
    long long first_block, int steps, int purpose, int ahead, int blocks, int rows, int dim, int tall, int wide,
    int n_counters) {
    if (held && held->has(group_of(*step, ahead), high, low)) return;
    int pairs = (wide + 1) / 2;
    long long k = (long long)blockIdx.x * DRAWERS + threadIdx.x;
    if (k < n_counters) counters[k] = 0;
    if (k >= (long long)ahead * blocks * tall * pairs) return;
    int pair = k % pairs, row = k / pairs % tall, block = k / pairs / tall, column = 2 * pair;
    u32 now = step ? (u32)(group_of(*step, ahead) * ahead + block / blocks) : 0;
    double both[2] = {0.0, 0.0};
    if (row < rows && column < dim) {
        Words key = block_key(high, low, step, now, steps, (int)first_block + block % blocks, purpose);
        two_normals(key, row, pair, both, both + 1);
    }
    double* target = out + ((long long)block * tall + row) * wide + column;
    target[0] = both[0];
    if (column + 1 < wide) target[1] = column + 1 < dim ? both[1] : 0.0;
}

// Independent unit rows `(blocks, dim)`: every block is one row.
extern "C" __global__ void __launch_bounds__(DRAWERS) draw_unit_rows(
    const u32* high, const u32* low, const long long* step, float* out, long long first_block, int steps, int purpose,
    int dim) {
    SHARED(double, row);
    double* sums = row + dim + 1;
    Words key = block_key(high, low, step, step ? (u32)*step : 0, steps, (int)first_block + blockIdx.x, purpose);
    double square = 0.0;
    for (int pair = threadIdx.x; 2 * pair < dim; pair += DRAWERS) {
        two_normals(key, 0, pair, row + 2 * pair, row + 2 * pair + 1);
        square += row[2 * pair] * row[2 * pair];
        if (2 * pair + 1 < dim) square += row[2 * pair + 1] * row[2 * pair + 1];
    }
    for (int half = 16; half > 0; half /= 2) square += __shfl_down_sync(EVERYONE, square, half);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = square;
    __syncthreads();
    double total = 0.0;
    for (int w = 0; w < DRAWERS / 32; w++) total += sums[w];
    double scale = 1.0 / sqrt(total);
    for (int d = threadIdx.x; d < dim; d += DRAWERS) out[(long long)blockIdx.x * dim + d] = (float)(scale * row[d]);
}

// Steps `first` to `last` of the product of 8 rows with 8 rows, four coordinates a step, by a warp; each lane says where
// it starts. Four sums are taken in turn, so that one need not wait for the other.
__device__ __forceinline__ double2 multiply_rows(const double* a, const double* b, int first, int last) {
    double even[2][2] = {}, odd[2][2] = {};
    int s = first;
    for (; s + 4 <= last; s += 4)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            multiply_add(even[k][0], even[k][1], a[4 * (s + 2 * k)], b[4 * (s + 2 * k)]);
            multiply_add(odd[k][0], odd[k][1], a[4 * (s + 2 * k + 1)], b[4 * (s + 2 * k + 1)]);
        }
    for (; s < last; s++) multiply_add(even[0][0], even[0][1], a[4 * s], b[4 * s]);
    return {even[0][0] + odd[0][0] + (even[1][0] + odd[1][0]), even[0][1] + odd[0][1] + (even[1][1] + odd[1][1])};
}

// Inner products of the rows of a panel, `gram (PARTS, PANEL, SMALL)`: parts of the sum.
__device__ void multiply_panel(const double* panel, int columns, int width, double* gram) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int i = 8 * (warp % 4 / 2), j = 8 * (warp % 2), part = warp / 4, steps = columns / 4;
    int from = lane / 4 * width + lane % 4;
    double* target = gram + (part * PANEL + i + lane / 4) * SMALL + j + 2 * (lane % 4);
    *reinterpret_cast<double2*>(target) = multiply_rows(
        panel + i * width + from, panel + j * width + from, part * steps / PARTS, (part + 1) * steps / PARTS);
    __syncthreads();
}

// Make the rows of a panel orthonormal by lower triangular transforms with positive diagonals: Gram-Schmidt in turn.
__device__ void orthonormalise_panel(double* panel, int live, int columns, int width, double* gram, double* factor) {
    double* pivots = factor + PANEL * SMALL;
    int* again = reinterpret_cast<int*>(pivots + 2 * PANEL);
    // Once is enough, unless a row comes too close to those before it.
    for (int pass = 0; pass < MOST_PASSES; pass++) {
        multiply_panel(panel, columns, width, gram);
        if (threadIdx.x < 32) {
            bool is_low = factorise(gram, SMALL, PARTS, live, nullptr, factor, pivots);
            if (threadIdx.x == 0) *again = is_low;
        }
        __syncthreads();
        solve_panel(panel, columns, width, factor);
        bool is_done = !*again;
        __syncthreads();
        if (is_done) return;
    }
}

// Take the part along a panel out of the rows below it; `along (rest, SMALL)` is room for their inner products.
__device__ void project_out(const double* panel, double* below, int rest, int columns, int width, double* along) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int from = lane / 4 * width + lane % 4;
    for (int tile = warp; tile < rest / 8 * 2; tile += WARPS) {
        int i = tile / 2 * 8, j = tile % 2 * 8;
        *reinterpret_cast<double2*>(along + (i + lane / 4) * SMALL + j + 2 * (lane % 4)) =
            multiply_rows(below + i * width + from, panel + j * width + from, 0, columns / 4);
    }
    __syncthreads();
    subtract_along(below, rest, columns, width, along, SMALL, 1, panel);
    __syncthreads();
}

// Orthonormal rows from Gaussian ones `(ahead, blocks, rows, dim)`, one thread block each; only the first `total` of each
// step are kept, `out (ahead, total, dim)`. Those of the step that it is go to `now` too, whether they were held or not.
extern "C" __global__ void __launch_bounds__(THREADS) orthonormalise(
    const double* gaussian, float* out, const u32* high, const u32* low, const long long* step, Held* held, float* now,
    int ahead, int blocks, int rows, int dim, int total) {
    SHARED(double, shared);
    long long from = (long long)(blockIdx.x % blocks) * rows;
    int kept = (int)min((long long)rows, total - from);
    out += ((long long)(blockIdx.x / blocks) * total + from) * dim;
    long long group = held ? group_of(*step, ahead) : 0;
    bool is_now = held && *step - group * ahead == blockIdx.x / blocks;
    if (is_now) now += from * dim;
    if (held && held->has(group, high, low)) {
        if (is_now)
            for (int k = threadIdx.x; k < kept * dim; k += THREADS) now[k] = out[k];
        return;
    }
    int columns = (dim + 7) / 8 * 8, width = (columns + 15) / 16 * 16 + 4;
    int padded = (rows + PANEL - 1) / PANEL * PANEL, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    double *matrix = shared, *along = matrix + padded * width, *gram = along + padded * SMALL;
    double* factor = gram + PARTS * PANEL * SMALL;
    const double* source = gaussian + (long long)blockIdx.x * rows * dim;
    for (int r = warp; r < padded; r += WARPS)
#pragma unroll 4
        for (int c = lane; c < columns; c += 32)
            matrix[r * width + c] = r < rows && c < dim ? source[r * dim + c] : 0.0;
    __syncthreads();
    for (int first = 0; first < padded; first += PANEL) {
        double* panel = matrix + first * width;
        orthonormalise_panel(panel, rows - first, columns, width, gram, factor);
        project_out(panel, panel + PANEL * width, padded - first - PANEL, columns, width, along);
    }
    for (int r = warp; r < kept; r += WARPS)
        for (int c = lane; c < dim; c += 32) {
            float value = (float)matrix[r * width + c];
            out[r * dim + c] = value;
            if (is_now) now[r * dim + c] = value;
        }
    if (held && threadIdx.x == 0) held->finish(group, high, low, ahead * blocks);
}

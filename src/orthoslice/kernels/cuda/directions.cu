// Directions drawn where they are used: a counter-based stream of random numbers, and Haar blocks from it.
//
// Compiled with the numbers of threads defined, DRAWERS of blocks that draw and THREADS of those that make rows
// orthonormal; with PANEL, the rows that are made so at once; and with SMALL, the width of small tables, which keeps
// loads of tiles free of conflicts if it is four more than a multiple of 16.
//
// The numbers are those of `orthoslice.arrays.stream`, and the blocks those of `Orthogonal`, to rounding.

typedef unsigned int u32;

constexpr int WARPS = THREADS / 32, PARTS = WARPS / 4;

struct Words {
    u32 high, low;
};

// Threefry-2x32 with 20 rounds.
__device__ Words threefry(Words key, u32 c0, u32 c1) {
    const u32 keys[3] = {key.high, key.low, key.high ^ key.low ^ 0x1BD11BDAu};
    const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    u32 x0 = c0 + keys[0], x1 = c1 + keys[1];
#pragma unroll
    for (int group = 0; group < 5; group++) {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            int by = rotations[group % 2][r];
            x0 += x1;
            x1 = (x1 << by | x1 >> (32 - by)) ^ x0;
        }
        x0 += keys[(group + 1) % 3];
        x1 += keys[(group + 2) % 3] + group + 1;
    }
    return {x0, x1};
}

// The key of a block: of the stream itself, or of a step of a training run.
__device__ Words block_key(const u32* high, const u32* low, const long long* step, int steps, int block, int purpose) {
    Words key = {*high, *low};
    if (step) key = threefry(key, (u32)*step, steps);
    return threefry(key, block, purpose);
}

// Two independent standard normals by the Box-Muller transform.
__device__ void two_normals(Words key, int row, int pair, double* first, double* second) {
    Words words = threefry(key, row, pair);
    double high = words.high >> 16, low = words.high & 0xffffu;
    double below = high * 0x1p-16 + (low + 0.5) * 0x1p-32;
    double above = (65535.0 - high) * 0x1p-16 + (65535.5 - low) * 0x1p-32;
    double radius = sqrt(-2.0 * (below < 0.5 ? log(below) : log1p(-above)));
    double turn = (words.low >> 16) * 0x1p-16 + ((words.low & 0xffffu) + 0.5) * 0x1p-32;
    double sine, cosine;
    sincospi(2.0 * turn, &sine, &cosine);
    *first = radius * cosine;
    *second = radius * sine;
}

// Standard normals `(blocks, rows, dim)`.
extern "C" __global__ void __launch_bounds__(DRAWERS) draw_normals(
    const u32* high, const u32* low, const long long* step, double* out, int steps, int first_block, int purpose, int blocks,
    int rows, int dim) {
    int pairs = (dim + 1) / 2;
    long long k = (long long)blockIdx.x * DRAWERS + threadIdx.x;
    if (k >= (long long)blocks * rows * pairs) return;
    int pair = k % pairs, row = k / pairs % rows, block = k / pairs / rows;
    double both[2];
    two_normals(block_key(high, low, step, steps, first_block + block, purpose), row, pair, both, both + 1);
    double* target = out + ((long long)block * rows + row) * dim + 2 * pair;
    target[0] = both[0];
    if (2 * pair + 1 < dim) target[1] = both[1];
}

// Independent unit rows `(blocks, dim)`: every block is one row.
extern "C" __global__ void __launch_bounds__(DRAWERS) draw_unit_rows(
    const u32* high, const u32* low, const long long* step, float* out, int steps, int first_block, int purpose, int dim) {
    SHARED(double, row);
    double* sums = row + dim + 1;
    Words key = block_key(high, low, step, steps, first_block + blockIdx.x, purpose);
    double square = 0.0;
    for (int pair = threadIdx.x; 2 * pair < dim; pair += DRAWERS) {
        two_normals(key, 0, pair, row + 2 * pair, row + 2 * pair + 1);
        square += row[2 * pair] * row[2 * pair];
        if (2 * pair + 1 < dim) square += row[2 * pair + 1] * row[2 * pair + 1];
    }
    for (int half = 16; half > 0; half /= 2) square += __shfl_down_sync(0xffffffffu, square, half);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = square;
    __syncthreads();
    double total = 0.0;
    for (int w = 0; w < DRAWERS / 32; w++) total += sums[w];
    double scale = 1.0 / sqrt(total);
    for (int d = threadIdx.x; d < dim; d += DRAWERS) out[(long long)blockIdx.x * dim + d] = (float)(scale * row[d]);
}

// Two running sums of products, taken in turn: one need not wait for the other.
struct Tile {
    double even[2] = {0.0, 0.0}, odd[2] = {0.0, 0.0};

    __device__ __forceinline__ void add(int step, double a, double b) {
        if (step % 2) multiply_add(odd[0], odd[1], a, b);
        else multiply_add(even[0], even[1], a, b);
    }
    __device__ __forceinline__ double first() const { return even[0] + odd[0]; }
    __device__ __forceinline__ double second() const { return even[1] + odd[1]; }
};

// Inner products of the rows of a panel, `gram (PARTS, PANEL, SMALL)`: parts of the sum.
__device__ void multiply_panel(const double* panel, int columns, int width, double* gram) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int i = 8 * (warp % 4 / 2) + lane / 4, j = 8 * (warp % 2) + lane / 4, part = warp / 4, steps = columns / 4;
    Tile tile;
    for (int s = part * steps / PARTS; s < (part + 1) * steps / PARTS; s++)
        tile.add(s, panel[i * width + 4 * s + lane % 4], panel[j * width + 4 * s + lane % 4]);
    double* target = gram + (part * PANEL + i) * SMALL + 8 * (warp % 2) + 2 * (lane % 4);
    target[0] = tile.first();
    target[1] = tile.second();
    __syncthreads();
}

// A Cholesky factor of the Gram matrix in single precision, with a floor under its pivots: rough is good enough,
// since the caller comes back until the rows are orthonormal. Thread (i, j) owns the entry (i, j); the others wait.
__device__ void factorise(float entry, int i, int j, float* column, float* floors, double* factor) {
    bool owner = i < PANEL;
    if (i == j) floors[i] = 1e-6f * entry;
    for (int c = 0; c < PANEL; c++) {
        float* now = column + (c % 2) * PANEL;
        if (owner && j == c) now[i] = entry;
        __syncthreads();
        if (!owner) continue;
        float pivot = fmaxf(now[c], floors[c]);
        float inverse = rsqrtf(pivot);
        // The diagonal holds its own inverse, which is what it is used for.
        if (j == c && i >= c) factor[i * SMALL + c] = i == c ? inverse : now[i] * inverse;
        entry -= (now[i] * inverse) * (now[j] * inverse);
    }
    __syncthreads();
}

// Make the rows of a panel orthonormal by lower triangular transforms with positive diagonals: Gram-Schmidt in turn.
__device__ void orthonormalise_panel(double* panel, int live, int columns, int width, double* gram, double* factor) {
    float* column = reinterpret_cast<float*>(factor + PANEL * SMALL);
    float* floors = column + 2 * PANEL;
    int* far = reinterpret_cast<int*>(floors + PANEL);
    int i = threadIdx.x / PANEL, j = threadIdx.x % PANEL;
    for (int pass = 0; pass < 8; pass++) {
        if (threadIdx.x == 0) *far = 0;
        multiply_panel(panel, columns, width, gram);
        double entry = i == j;
        // Rows that only fill the panel up are zero, and stay so.
        if (i < min(live, PANEL) && j < live) {
            entry = 0.0;
            for (int part = 0; part < PARTS; part++) entry += gram[(part * PANEL + i) * SMALL + j];
        }
        double error = entry - (i == j);
        if (fabs(error) > 1e-5) *far = 1;
        __syncthreads();
        bool close = !*far;
        __syncthreads();
        if (!close)
            factorise((float)entry, i, j, column, floors, factor);
        else if (i < PANEL && j <= i)
            // A Cholesky factor of almost the identity, to first order; what is left out is of the order of 1e-10.
            factor[i * SMALL + j] = j < i ? error : error / 2;
        __syncthreads();
        for (int c = threadIdx.x; c < columns; c += THREADS) {
            double row[PANEL];
#pragma unroll
            for (int r = 0; r < PANEL; r++) row[r] = panel[r * width + c];
            if (close) {
#pragma unroll
                for (int r = PANEL - 1; r >= 0; r--) {
                    double change = 0.0;
#pragma unroll
                    for (int s = 0; s <= r; s++) change += factor[r * SMALL + s] * row[s];
                    row[r] -= change;
                }
            } else {
#pragma unroll
                for (int s = 0; s < PANEL; s++) {
                    row[s] *= factor[s * SMALL + s];
#pragma unroll
                    for (int r = s + 1; r < PANEL; r++) row[r] -= factor[r * SMALL + s] * row[s];
                }
            }
#pragma unroll
            for (int r = 0; r < PANEL; r++) panel[r * width + c] = row[r];
        }
        __syncthreads();
        if (close) return;
    }
}

// Take the part along a panel out of the rows below it; `along (rest, SMALL)` is room for their inner products.
__device__ void project_out(const double* panel, double* below, int rest, int columns, int width, double* along) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int tile = warp; tile < rest / 8 * 2; tile += WARPS) {
        int i = tile / 2 * 8 + lane / 4, j = tile % 2 * 8 + lane / 4;
        Tile sum;
#pragma unroll 4
        for (int s = 0; s < columns / 4; s++)
            sum.add(s, below[i * width + 4 * s + lane % 4], panel[j * width + 4 * s + lane % 4]);
        along[i * SMALL + tile % 2 * 8 + 2 * (lane % 4)] = sum.first();
        along[i * SMALL + tile % 2 * 8 + 2 * (lane % 4) + 1] = sum.second();
    }
    __syncthreads();
#pragma unroll 2
    for (int tile = warp; tile < rest / 8 * (columns / 8); tile += WARPS) {
        int i = tile / (columns / 8) * 8 + lane / 4, first = tile % (columns / 8) * 8;
        double* target = below + i * width + first + 2 * (lane % 4);
        double c0 = target[0], c1 = target[1];
#pragma unroll
        for (int s = 0; s < PANEL; s += 4)
            multiply_add(c0, c1, -along[i * SMALL + s + lane % 4], panel[(s + lane % 4) * width + first + lane / 4]);
        target[0] = c0;
        target[1] = c1;
    }
    __syncthreads();
}

// Orthonormal rows from Gaussian ones `(blocks, rows, dim)`, one thread block each; only the first `total` are kept.
extern "C" __global__ void __launch_bounds__(THREADS) orthonormalise(
    const double* gaussian, float* out, int rows, int dim, int total) {
    SHARED(double, shared);
    int columns = (dim + 7) / 8 * 8, width = (columns + 15) / 16 * 16 + 4;
    int padded = (rows + PANEL - 1) / PANEL * PANEL;
    double *matrix = shared, *along = matrix + padded * width, *gram = along + padded * SMALL;
    double* factor = gram + PARTS * PANEL * SMALL;
    const double* source = gaussian + (long long)blockIdx.x * rows * dim;
    for (int k = threadIdx.x; k < padded * columns; k += THREADS) {
        int r = k / columns, c = k % columns;
        matrix[r * width + c] = r < rows && c < dim ? source[r * dim + c] : 0.0;
    }
    __syncthreads();
    for (int first = 0; first < padded; first += PANEL) {
        double* panel = matrix + first * width;
        orthonormalise_panel(panel, rows - first, columns, width, gram, factor);
        project_out(panel, panel + PANEL * width, padded - first - PANEL, columns, width, along);
    }
    long long from = (long long)blockIdx.x * rows;
    int kept = (int)min((long long)rows, total - from);
    for (int k = threadIdx.x; k < kept * dim; k += THREADS)
        out[from * dim + k] = (float)matrix[k / dim * width + k % dim];
}

// Directions drawn where they are used: a counter-based stream of random numbers, and Haar blocks from it.
//
// Compiled with the numbers of threads defined, DRAWERS of blocks that draw and THREADS of those that make rows
// orthonormal; with PANEL, the rows that are made so at once; and with SMALL, the width of small tables, which keeps
// loads of tiles free of conflicts if it is four more than a multiple of 16.
//
// The numbers are those of `orthoslice.arrays.stream`, and the blocks those of `Orthogonal`, to rounding.

typedef unsigned int u32;

constexpr int WARPS = THREADS / 32;
constexpr u32 EVERYONE = 0xffffffffu;

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
    for (int half = 16; half > 0; half /= 2) square += __shfl_down_sync(EVERYONE, square, half);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = square;
    __syncthreads();
    double total = 0.0;
    for (int w = 0; w < DRAWERS / 32; w++) total += sums[w];
    double scale = 1.0 / sqrt(total);
    for (int d = threadIdx.x; d < dim; d += DRAWERS) out[(long long)blockIdx.x * dim + d] = (float)(scale * row[d]);
}

// The product of 8 rows with 8 rows by a warp, four coordinates a step; each lane says where it starts. Four sums are
// taken in turn, so that one need not wait for the other.
__device__ __forceinline__ double2 multiply_rows(const double* a, const double* b, int steps) {
    double sum[4][2] = {};
    int s = 0;
    for (; s + 4 <= steps; s += 4)
#pragma unroll
        for (int k = 0; k < 4; k++) multiply_add(sum[k][0], sum[k][1], a[4 * (s + k)], b[4 * (s + k)]);
    for (; s < steps; s++) multiply_add(sum[0][0], sum[0][1], a[4 * s], b[4 * s]);
    return {sum[0][0] + sum[1][0] + (sum[2][0] + sum[3][0]), sum[0][1] + sum[1][1] + (sum[2][1] + sum[3][1])};
}

// 1 / value for positive values, to about 1e-12.
__device__ __forceinline__ double inverse(double value) {
    double rough = rough_inverse(value);
    return fma(rough, fma(-value, rough, 1.0), rough);
}

// What makes the rows of a panel orthonormal: a Cholesky factor of their inner products, with its diagonal inverted, and
// a floor under its pivots. Says whether one was below. By one warp, which then waits for nobody.
__device__ void factorise(
    const double* panel, int live, int columns, int width, double* gram, double* factor, double* pivots, int* was_low) {
    constexpr int HALF = PANEL / 2;
    static_assert(2 * PANEL == 32, "two lanes a row");
    int lane = threadIdx.x % 32, from = lane / 4 * width + lane % 4;
    for (int tile = 0; tile < 3; tile++) {
        int i = tile ? 8 : 0, j = tile == 2 ? 8 : 0;
        *reinterpret_cast<double2*>(gram + (i + lane / 4) * SMALL + j + 2 * (lane % 4)) =
            multiply_rows(panel + i * width + from, panel + j * width + from, columns / 4);
    }
    __syncwarp();
    // A lane holds half a row.
    int i = lane / 2, side = lane % 2;
    double entry[HALF], floor = 1e-6;
#pragma unroll
    for (int k = 0; k < HALF; k++) {
        int j = HALF * side + k;
        // Rows that only fill the panel up are zero, and stay so.
        entry[k] = max(i, j) < live ? gram[max(i, j) * SMALL + min(i, j)] : i == j;
        if (i == j) floor *= entry[k];
    }
    bool is_low = false;
#pragma unroll
    for (int c = 0; c < PANEL; c++) {
        int owner = 2 * c + c / HALF;
        double least = __shfl_sync(EVERYONE, floor, owner), pivot = __shfl_sync(EVERYONE, entry[c % HALF], owner);
        is_low |= pivot < least;
        pivot = fmax(pivot, least);
        double scale = inverse(pivot), mine = __shfl_sync(EVERYONE, entry[c % HALF], lane - side + c / HALF);
        if (side == 0) factor[i * SMALL + c] = mine;
        if (lane == 0) pivots[c] = pivot;
#pragma unroll
        for (int k = 0; k < HALF; k++) entry[k] -= mine * __shfl_sync(EVERYONE, entry[k], 2 * c + side) * scale;
    }
    __syncwarp();
    // Columns are divided by the roots of their pivots in the end.
    double root = rsqrt(pivots[i]);
#pragma unroll
    for (int k = 0; k < HALF; k++) {
        int j = HALF * side + k;
        double scale = __shfl_sync(EVERYONE, root, 2 * j);
        factor[i * SMALL + j] = i == j ? scale : factor[i * SMALL + j] * scale;
    }
    if (lane == 0) *was_low = is_low;
}

// Apply the inverse of a factor to the rows of a panel.
__device__ void transform(double* panel, int columns, int width, const double* factor) {
    for (int c = threadIdx.x; c < columns; c += THREADS) {
        double row[PANEL];
#pragma unroll
        for (int r = 0; r < PANEL; r++) row[r] = panel[r * width + c];
#pragma unroll
        for (int s = 0; s < PANEL; s++) {
            row[s] *= factor[s * SMALL + s];
#pragma unroll
            for (int r = s + 1; r < PANEL; r++) row[r] -= factor[r * SMALL + s] * row[s];
        }
#pragma unroll
        for (int r = 0; r < PANEL; r++) panel[r * width + c] = row[r];
    }
}

// Take the part along a panel out of 8 rows, by one warp; `along (8, SMALL)` is room for their inner products.
__device__ void project_out(const double* panel, double* rows, int columns, int width, double* along) {
    int lane = threadIdx.x % 32, row = lane / 4, place = lane % 4;
    for (int j = 0; j < PANEL; j += 8)
        *reinterpret_cast<double2*>(along + row * SMALL + j + 2 * place) =
            multiply_rows(rows + row * width + place, panel + (j + row) * width + place, columns / 4);
    __syncwarp();
    double2* target = reinterpret_cast<double2*>(rows + row * width + 2 * place);
    // Four neighbouring tiles at once.
    for (int first = 0, tiles = columns / 8; first < tiles; first += 4) {
        double2 sum[4];
#pragma unroll
        for (int t = 0; t < 4; t++)
            if (first + t < tiles) sum[t] = target[4 * (first + t)];
#pragma unroll
        for (int s = 0; s < PANEL; s += 4) {
            double a = -along[row * SMALL + s + place];
#pragma unroll
            for (int t = 0; t < 4; t++)
                if (first + t < tiles)
                    multiply_add(sum[t].x, sum[t].y, a, panel[(s + place) * width + 8 * (first + t) + row]);
        }
#pragma unroll
        for (int t = 0; t < 4; t++)
            if (first + t < tiles) target[4 * (first + t)] = sum[t];
    }
}

// Orthonormal rows from Gaussian ones `(blocks, rows, dim)`, one thread block each; only the first `total` are kept.
// Panels go through Gram-Schmidt in turn. While most warps take a panel out of the rows below it, the first two do so
// for the next panel alone, and factorise it.
extern "C" __global__ void __launch_bounds__(THREADS) orthonormalise(
    const double* gaussian, float* out, int rows, int dim, int total) {
    SHARED(double, shared);
    int columns = (dim + 7) / 8 * 8, width = (columns + 15) / 16 * 16 + 4;
    int padded = (rows + PANEL - 1) / PANEL * PANEL, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    double *matrix = shared, *along = matrix + padded * width, *gram = along + padded * SMALL;
    double *factor = gram + PANEL * SMALL, *pivots = factor + PANEL * SMALL;
    int* was_low = reinterpret_cast<int*>(pivots + PANEL);
    const double* source = gaussian + (long long)blockIdx.x * rows * dim;
    for (int r = warp; r < padded; r += WARPS)
#pragma unroll 4
        for (int c = lane; c < columns; c += 32)
            matrix[r * width + c] = r < rows && c < dim ? source[r * dim + c] : 0.0;
    __syncthreads();
    if (warp == 0) factorise(matrix, rows, columns, width, gram, factor, pivots, was_low);
    for (int first = 0; first < padded; first += PANEL) {
        double *panel = matrix + first * width, *below = panel + PANEL * width;
        // Once is enough, unless a row comes too close to those before it.
        bool again = true;
        for (int pass = 0; again && pass < 8; pass++) {
            if (pass && warp == 0) factorise(panel, rows - first, columns, width, gram, factor, pivots, was_low);
            __syncthreads();
            transform(panel, columns, width, factor);
            again = *was_low;
            __syncthreads();
        }
        int strips = (padded - first) / 8 - 2;
        // The first two warps have the next panel.
        for (int strip = warp; strip < (warp < 2 ? min(2, strips) : strips); strip += WARPS - 2)
            project_out(panel, below + 8 * strip * width, columns, width, along + 8 * strip * SMALL);
        if (warp < 2 && strips) {
            sync_pair();
            if (warp == 0) factorise(below, rows - first - PANEL, columns, width, gram, factor, pivots, was_low);
        }
    }
    long long from = (long long)blockIdx.x * rows;
    int kept = (int)min((long long)rows, total - from);
    for (int r = warp; r < kept; r += WARPS)
        for (int c = lane; c < dim; c += 32) out[(from + r) * dim + c] = (float)matrix[r * width + c];
}

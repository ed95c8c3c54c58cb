// Directions drawn where they are used: a counter-based stream of random numbers, and Haar blocks from it.
//
// Compiled with the numbers of threads defined, DRAWERS of blocks that draw and THREADS of those that make rows
// orthonormal; with PANEL, the rows that are made so at once; and with SMALL, the width of small tables, which keeps
// loads of tiles free of conflicts if it is four more than a multiple of 16.
//
// The numbers are those of `orthoslice.arrays.stream`, and the blocks those of `Orthogonal`, to rounding.

typedef unsigned int u32;

constexpr int WARPS = THREADS / 32, PARTS = WARPS / 4;
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
__device__ Words block_key(const u32* high, const u32* low, bool is_step, u32 step, int steps, int block, int purpose) {
    Words key = {*high, *low};
    if (is_step) key = threefry(key, step, steps);
    return threefry(key, block, purpose);
}

// Directions of `ahead` steps that were drawn at once: which steps, counted in such groups, of which key, and how many
// blocks are through with drawing others.
struct Held {
    long long group, high, low, through;

    __device__ bool has(long long wanted, const u32* of_high, const u32* of_low) const {
        return group == wanted && high == *of_high && low == *of_low;
    }
};

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

// Which group of `ahead` steps a step is of; steps may be negative.
__device__ __forceinline__ long long group_of(long long step, int ahead) {
    return (step >= 0 ? step : step - ahead + 1) / ahead;
}

// Standard normals `(ahead, blocks, rows, dim)`: of one step, or of all steps of its group unless those are held.
extern "C" __global__ void __launch_bounds__(DRAWERS) draw_normals(
    const u32* high, const u32* low, const long long* step, const Held* held, double* out, int steps, int first_block,
    int purpose, int ahead, int blocks, int rows, int dim) {
    if (held && held->has(group_of(*step, ahead), high, low)) return;
    int pairs = (dim + 1) / 2;
    long long k = (long long)blockIdx.x * DRAWERS + threadIdx.x;
    if (k >= (long long)ahead * blocks * rows * pairs) return;
    int pair = k % pairs, row = k / pairs % rows, block = k / pairs / rows;
    u32 now = step ? (u32)(group_of(*step, ahead) * ahead + block / blocks) : 0;
    double both[2];
    Words key = block_key(high, low, step, now, steps, first_block + block % blocks, purpose);
    two_normals(key, row, pair, both, both + 1);
    double* target = out + ((long long)block * rows + row) * dim + 2 * pair;
    target[0] = both[0];
    if (2 * pair + 1 < dim) target[1] = both[1];
}

// Independent unit rows `(blocks, dim)`: every block is one row.
extern "C" __global__ void __launch_bounds__(DRAWERS) draw_unit_rows(
    const u32* high, const u32* low, const long long* step, float* out, int steps, int first_block, int purpose, int dim) {
    SHARED(double, row);
    double* sums = row + dim + 1;
    Words key = block_key(high, low, step, step ? (u32)*step : 0, steps, first_block + blockIdx.x, purpose);
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

// 1 / value for positive values, to about 1e-12.
__device__ __forceinline__ double inverse(double value) {
    double rough = rough_inverse(value);
    return fma(rough, fma(-value, rough, 1.0), rough);
}

// A Cholesky factor of a Gram matrix, the inverse of its diagonal in its place, with a floor under the pivots; returns
// whether one was below. By one warp, which need wait for nobody: a lane holds half a row of 16 entries.
__device__ bool factorise(const double* gram, int live, double* factor, double* pivots) {
    constexpr int HALF = PANEL / 2;
    static_assert(2 * PANEL == 32, "a warp has two lanes a row");
    int lane = threadIdx.x % 32, i = lane / 2, side = lane % 2;
    double entry[HALF], floor = 1e-5;
#pragma unroll
    for (int k = 0; k < HALF; k++) {
        int j = HALF * side + k;
        entry[k] = i == j;
        // Rows that only fill the panel up are zero, and stay so.
        if (i < live && j < live) {
            entry[k] = 0.0;
            for (int part = 0; part < PARTS; part++) entry[k] += gram[(part * PANEL + i) * SMALL + j];
        }
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
    // What the columns were divided by is known; now they are.
    if (side == 0) pivots[PANEL + i] = rsqrt(pivots[i]);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < HALF; k++) {
        int j = HALF * side + k;
        double root = pivots[PANEL + j];
        factor[i * SMALL + j] = i == j ? root : factor[i * SMALL + j] * root;
    }
    return is_low;
}

// Make the rows of a panel orthonormal by lower triangular transforms with positive diagonals: Gram-Schmidt in turn.
__device__ void orthonormalise_panel(double* panel, int live, int columns, int width, double* gram, double* factor) {
    double* pivots = factor + PANEL * SMALL;
    int* again = reinterpret_cast<int*>(pivots + 2 * PANEL);
    // Once is enough, unless a row comes too close to those before it.
    for (int pass = 0; pass < 8; pass++) {
        multiply_panel(panel, columns, width, gram);
        if (threadIdx.x < 32) {
            bool is_low = factorise(gram, live, factor, pivots);
            if (threadIdx.x == 0) *again = is_low;
        }
        __syncthreads();
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
    // A warp takes four neighbouring tiles at once.
    int tiles = columns / 8, fours = (tiles + 3) / 4;
    for (int item = warp; item < rest / 8 * fours; item += WARPS) {
        int i = item / fours * 8 + lane / 4, first = item % fours * 4;
        double2* target = reinterpret_cast<double2*>(below + i * width + 2 * (lane % 4));
        double2 sum[4];
#pragma unroll
        for (int t = 0; t < 4; t++)
            if (first + t < tiles) sum[t] = target[4 * (first + t)];
#pragma unroll
        for (int s = 0; s < PANEL; s += 4) {
            double a = -along[i * SMALL + s + lane % 4];
#pragma unroll
            for (int t = 0; t < 4; t++)
                if (first + t < tiles)
                    multiply_add(sum[t].x, sum[t].y, a, panel[(s + lane % 4) * width + 8 * (first + t) + lane / 4]);
        }
#pragma unroll
        for (int t = 0; t < 4; t++)
            if (first + t < tiles) target[4 * (first + t)] = sum[t];
    }
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
    // Who is last has everybody's word that they have looked.
    if (held && threadIdx.x == 0 && atomicAdd((unsigned long long*)&held->through, 1ull) == ahead * blocks - 1)
        *held = {group, *high, *low, 0};
}

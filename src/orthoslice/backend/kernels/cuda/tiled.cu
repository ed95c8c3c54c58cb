// Orthonormal rows from matrices that do not fit on a chip, made by all thread blocks of a GPU together.
//
// Compiled with TILE defined, the rows of a large panel, and with what gram_schmidt.cuh needs.
//
// Gram-Schmidt goes through the rows of a matrix by panels of TILE rows. The inner products of a panel's rows have a
// Cholesky factor; its inverse makes the rows orthonormal, and the panels below lose their part along them. The columns
// are cut into chunks, over which products are summed, so that each of these steps is several jobs, one for a chunk:
//   multiply  a tile (TILE rows) with a panel, over the columns of a chunk; the last job of a tile adds up and
//             finds the tile's part along the panel;
//   factor    the products of a panel with itself, and invert;
//   update    a tile: subtract that part, in the columns of a chunk; and multiply the next panel with itself;
//   write     the orthonormal rows of a panel, in the columns of a chunk.
//
// Thread blocks take the jobs one after the other from a list, and wait for the jobs whose results they need. Those all
// stand earlier in the list, so that some thread block has taken them and works on them: no wait is for ever, however few
// thread blocks run at a time. What a job computes does not depend on which thread block does, so that results
// are always the same.

#include "gram_schmidt.cuh"

static_assert(WARPS == 8 && TILE == 64, "a warp has 32 x 16 entries of a tile");

constexpr int WIDTH = TILE + 4;       // of a tile in shared memory
constexpr int BESIDE = 2 * TILE + 4;  // of two tiles beside each other
constexpr int ENTRIES = TILE * TILE;  // of a tile in global memory

// In numbers of double precision, where shared memory has: two tiles, or two beside each other and what factors need; and
// the number of the job.
constexpr int FACTOR = TILE * BESIDE, PIVOTS = FACTOR + PANEL * SMALL, SQUARES = PIVOTS + 2 * PANEL;
constexpr int AGAIN = SQUARES + TILE, TICKET = AGAIN + 1;
static_assert(TICKET >= 2 * TILE * WIDTH, "the number of the job is kept while tiles are used");

// One of the matrices: `entries (panels * TILE, width)`; for every tile its products with the latest panel, and after
// those the products of that panel with itself, `products (panels + 1, chunks, TILE, TILE)`; and for every panel the
// inverses of its factor and of its products, `inverses (panels, 2, TILE, TILE)`. The counters say how many panels have
// their inverses, how often a tile was multiplied and updated, chunks counted, and along how many panels its part is known.
struct Matrix {
    double *entries, *products, *inverses;
    int *factored, *multiplied, *updated, *known;
    int panels, width, chunks, span;

    __device__ double* tile(int t, int chunk) const { return entries + (long long)t * TILE * width + chunk * span; }
    __device__ int columns(int chunk) const { return min(span, width - chunk * span); }
    __device__ double* product(int t, int panel, int chunk) const {
        return products + ((long long)(t == panel ? panels : t) * chunks + chunk) * ENTRIES;
    }
    __device__ double* inverse_factor(int panel) const { return inverses + (long long)panel * 2 * ENTRIES; }
    __device__ double* inverse_products(int panel) const { return inverse_factor(panel) + ENTRIES; }
};

// Wait until a counter has reached a number. What was written before it was counted can then be read.
__device__ void wait_for(const int* counter, int number) {
    if (threadIdx.x == 0) {
        while (*(volatile const int*)counter < number) __nanosleep(100);
        __threadfence();
    }
    __syncthreads();
}

// Count one more, after everything that this thread block has written. Returns the number; what others wrote before they
// counted can then be read.
__device__ int count_one(int* counter, double* shared) {
    int* number = reinterpret_cast<int*>(shared + TICKET);
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        *number = atomicAdd(counter, 1) + 1;
        __threadfence();
    }
    __syncthreads();
    return *number;
}

// What a warp has of a tile (TILE, TILE): four times two tiles of 8 x 8, as `multiply_add` spreads them over its lanes.
struct Sums {
    double2 at[4][2] = {};

    static __device__ __forceinline__ int first_row() { return 32 * (threadIdx.x / 32 / 4) + threadIdx.x % 32 / 4; }
    static __device__ __forceinline__ int first_column() { return 16 * (threadIdx.x / 32 % 4); }

    // Add the product of a (TILE, depth), with strides `a_row` and `a_column`, and b (depth, TILE), with
    // strides `b_row` and `b_column`; the depth is a multiple of 16.
    __device__ __forceinline__ void add(
        const double* a, int a_row, int a_column, const double* b, int b_row, int b_column, int depth) {
        int lane = threadIdx.x % 32;
        a += first_row() * a_row + lane % 4 * a_column;
        b += lane % 4 * b_row + (first_column() + lane / 4) * b_column;
#pragma unroll 1
        for (int s = 0; s < depth; s += 16) {
            double left[2][8], right[2][4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
#pragma unroll
                for (int t = 0; t < 4; t++) left[t / 2][2 * k + t % 2] = a[8 * t * a_row + (s + 4 * k) * a_column];
#pragma unroll
                for (int u = 0; u < 2; u++) right[u][k] = b[(s + 4 * k) * b_row + 8 * u * b_column];
            }
#pragma unroll
            for (int t = 0; t < 2; t++)
#pragma unroll
                for (int u = 0; u < 2; u++) multiply_add(at[2 * t][u], at[2 * t + 1][u], left[t], right[u]);
        }
    }

    // Call put(row, column, pair) for every two neighbours in a row.
    template <class Put>
    __device__ __forceinline__ void each(Put put) const {
#pragma unroll
        for (int t = 0; t < 4; t++)
#pragma unroll
            for (int u = 0; u < 2; u++)
                put(first_row() + 8 * t, first_column() + 8 * u + 2 * (threadIdx.x % 4), at[t][u]);
    }
};

// Start to copy the first columns, an even number, of TILE rows to shared memory.
__device__ __forceinline__ void load_tile(double* tile, const double* from, int width, int columns) {
    constexpr int PAIRS = TILE / 2, ROWS = THREADS / PAIRS;
    int row = threadIdx.x / PAIRS, column = 2 * (threadIdx.x % PAIRS);
    if (column >= columns) return;
#pragma unroll
    for (int r = row; r < TILE; r += ROWS) start_copy(tile + r * WIDTH + column, from + (long long)r * width + column);
}

// Wait until the tiles are there, those that other threads copy too.
__device__ __forceinline__ void wait_for_tiles() {
    wait_for_copies();
    __syncthreads();
}

// The inner products of the rows of two tiles, over some columns of them.
__device__ __noinline__ void multiply(const double* a, const double* b, int width, int columns, double* out, double* shared) {
    double *left = shared, *right = a == b ? left : shared + TILE * WIDTH;
    Sums sums;
    for (int c = 0; c < columns; c += TILE) {
        int depth = min(TILE, columns - c);
        load_tile(left, a + c, width, depth);
        if (right != left) load_tile(right, b + c, width, depth);
        wait_for_tiles();
        sums.add(left, WIDTH, 1, right, 1, WIDTH, depth);
        __syncthreads();
    }
    sums.each([&](int row, int column, double2 pair) { *reinterpret_cast<double2*>(out + row * TILE + column) = pair; });
}

// Call put(row, column, pair) for the product of a table in shared memory with some columns of a tile.
template <class Put>
__device__ void multiply_columns(
    const double* table, const double* tile, int width, int columns, double* shared, Put put) {
    for (int c = 0; c < columns; c += TILE) {
        int count = min(TILE, columns - c);
        load_tile(shared, tile + c, width, count);
        wait_for_tiles();
        Sums sums;
        if (Sums::first_column() < count) sums.add(table, WIDTH, 1, shared, WIDTH, 1, TILE);
        sums.each([&](int row, int column, double2 pair) {
            if (column < count) put(row, c + column, pair);
        });
        __syncthreads();
    }
}

// The sum over all chunks of the products of a tile with a panel, as a table in shared memory.
__device__ void add_up_products(const Matrix& m, int tile, int panel, double* table, int width) {
    constexpr int PAIRS = ENTRIES / 2 / THREADS;
    double2 sums[PAIRS] = {};
#pragma unroll 2
    for (int chunk = 0; chunk < m.chunks; chunk++) {
        const double2* part = reinterpret_cast<const double2*>(m.product(tile, panel, chunk)) + threadIdx.x;
#pragma unroll
        for (int k = 0; k < PAIRS; k++) {
            double2 pair = part[k * THREADS];
            sums[k] = {sums[k].x + pair.x, sums[k].y + pair.y};
        }
    }
#pragma unroll
    for (int k = 0; k < PAIRS; k++) {
        int entry = 2 * (k * THREADS + threadIdx.x);
        *reinterpret_cast<double2*>(table + entry / TILE * width + entry % TILE) = sums[k];
    }
}

// The inverse of the Cholesky factor of a panel's products, and of the products if there are tiles below; whether the
// panel came too close to losing a row, so that the inverse makes it better but not good.
__device__ bool invert(const Matrix& m, int panel, int live, double* shared) {
    double *table = shared, *factor = shared + FACTOR, *pivots = shared + PIVOTS, *squares = shared + SQUARES;
    int* again = reinterpret_cast<int*>(shared + AGAIN);
    // Elimination turns the products, and the identity beside them, into the transposed factor and its inverse.
    add_up_products(m, panel, panel, table, BESIDE);
    for (int k = threadIdx.x; k < ENTRIES; k += THREADS)
        table[k / TILE * BESIDE + TILE + k % TILE] = k / TILE == k % TILE;
    if (threadIdx.x == 0) *again = 0;
    __syncthreads();
    if (threadIdx.x < TILE) squares[threadIdx.x] = table[threadIdx.x * (BESIDE + 1)];
    __syncthreads();
    for (int first = 0; first < TILE; first += PANEL) {
        double* rows = table + first * BESIDE;
        if (threadIdx.x < 32) {
            bool is_low = factorise(rows + first, BESIDE, 1, live - first, squares + first, factor, pivots);
            if (threadIdx.x == 0) *again |= is_low;
        }
        __syncthreads();
        solve_panel(rows, 2 * TILE, BESIDE, factor);
        __syncthreads();
        int next = first + PANEL;
        subtract_along(rows + PANEL * BESIDE, TILE - next, 2 * TILE, BESIDE, rows + next, 1, BESIDE, rows);
        __syncthreads();
    }
    const double* inverse = table + TILE;
    for (int k = threadIdx.x; k < ENTRIES; k += THREADS)
        m.inverse_factor(panel)[k] = inverse[k / TILE * BESIDE + k % TILE];
    if (panel + 1 < m.panels) {
        Sums sums;
        sums.add(inverse, 1, BESIDE, inverse, BESIDE, 1, TILE);
        double* out = m.inverse_products(panel);
        sums.each([&](int row, int column, double2 pair) { *reinterpret_cast<double2*>(out + row * TILE + column) = pair; });
    }
    bool is_low = *again;
    __syncthreads();
    return is_low;
}

__device__ void multiply_chunk(const Matrix& m, int tile, int panel, int chunk, double* shared) {
    double* out = m.product(tile, panel, chunk);
    multiply(m.tile(tile, chunk), m.tile(panel, chunk), m.width, m.columns(chunk), out, shared);
}

__device__ void factor_panel(const Matrix& m, int panel, int live, double* shared) {
    // Once is enough, unless a row comes too close to those before it.
    for (int pass = 0; invert(m, panel, live, shared) && pass < MOST_PASSES; pass++) {
        load_tile(shared, m.inverse_factor(panel), TILE, TILE);
        double* rows = m.tile(panel, 0);
        multiply_columns(shared, rows, m.width, m.width, shared + TILE * WIDTH, [&](int row, int column, double2 pair) {
            *reinterpret_cast<double2*>(rows + (long long)row * m.width + column) = pair;
        });
        for (int chunk = 0; chunk < m.chunks; chunk++) multiply_chunk(m, panel, panel, chunk, shared);
        __syncthreads();
    }
}

// With the products P of a tile with a panel, and the inverse H of the panel's own, the part of the tile along the panel
// is P H times the panel. P H takes the place of the first products.
__device__ void find_part(const Matrix& m, int panel, int tile, double* shared) {
    double *table = shared, *other = shared + TILE * WIDTH, *out = m.product(tile, panel, 0);
    load_tile(other, m.inverse_products(panel), TILE, TILE);
    add_up_products(m, tile, panel, table, WIDTH);
    wait_for_tiles();
    Sums sums;
    sums.add(table, WIDTH, 1, other, WIDTH, 1, TILE);
    sums.each([&](int row, int column, double2 pair) { *reinterpret_cast<double2*>(out + row * TILE + column) = pair; });
}

__device__ void update_tile(const Matrix& m, int panel, int tile, int chunk, double* shared) {
    load_tile(shared, m.product(tile, panel, 0), TILE, TILE);
    double* target = m.tile(tile, chunk);
    multiply_columns(
        shared, m.tile(panel, chunk), m.width, m.columns(chunk), shared + TILE * WIDTH,
        [&](int row, int column, double2 pair) {
            double2* entry = reinterpret_cast<double2*>(target + (long long)row * m.width + column);
            *entry = {entry->x - pair.x, entry->y - pair.y};
        });
}

// The list of jobs is made of stages, six for each panel: what the next panel needs comes before what later ones need.
enum Kind { MULTIPLY, UPDATE, FACTORISE, WRITE };
constexpr int STAGES = 6;

struct Stage {
    Kind kind;
    int panel, first_tile, n_tiles;

    // The first STAGES stages only prepare panel 0; the next STAGES belong to panel 0, and so on.
    __device__ static Stage number(int stage, int panels) {
        int panel = stage / STAGES - 1, next = panel + 1, below = panels - next;
        if (panel < 0) return {stage == 0 ? MULTIPLY : FACTORISE, 0, 0, stage < 2};
        switch (stage % STAGES) {
            case 0: return {MULTIPLY, panel, next, min(below, 1)};
            case 1: return {UPDATE, panel, next, min(below, 1)};
            case 2: return {FACTORISE, next, next, min(below, 1)};
            case 3: return {MULTIPLY, panel, next + 1, max(below - 1, 0)};
            case 4: return {UPDATE, panel, next + 1, max(below - 1, 0)};
            default: return {WRITE, panel, panel, 1};
        }
    }
};

// Orthonormal rows from Gaussian ones: `matrices (ahead, blocks, panels * TILE, width)` with `rows` rows and `dim`
// columns that are not zero. Only the first `total` of each step are kept, `out (ahead, total, dim)`. Those of the step
// that it is go to `now` too, whether they were held or not. Counters start at zero: of jobs that were taken, and those
// of each matrix, `apart` numbers from each other so that different matrices do not share cache lines.
extern "C" __global__ void __launch_bounds__(THREADS, 2) orthonormalise_tiles(
    double* matrices, double* products, double* inverses, int* counters, float* out, const u32* high, const u32* low,
    const long long* step, Held* held, float* now, int ahead, int blocks, int rows, int dim, int total, int span,
    int apart, int workers) {
    SHARED(double, shared);
    long long group = held ? group_of(*step, ahead) : 0, size = (long long)total * dim;
    int current = held ? (int)(*step - group * ahead) : -1;
    if (held && held->has(group, high, low)) {
        for (long long k = (long long)blockIdx.x * THREADS + threadIdx.x; k < size; k += (long long)workers * THREADS)
            now[k] = out[current * size + k];
        return;
    }
    int n_matrices = ahead * blocks, panels = (rows + TILE - 1) / TILE, width = (dim + 15) / 16 * 16;
    int chunks = (width + span - 1) / span;
    // Of this thread block's job: its stage, and the jobs of all stages before that.
    int number = 0, n_before = 0, n_stages = STAGES * (panels + 1);
    for (;;) {
        int job = count_one(counters, shared) - 1;
        Stage stage;
        for (; number < n_stages; number++) {
            stage = Stage::number(number, panels);
            int n_jobs = n_matrices * stage.n_tiles * (stage.kind == FACTORISE ? 1 : chunks);
            if (job < n_before + n_jobs) break;
            n_before += n_jobs;
        }
        if (number == n_stages) break;
        job -= n_before;
        int index = job % n_matrices, chunk = job / n_matrices % chunks, panel = stage.panel;
        int tile = stage.first_tile + (stage.kind == FACTORISE ? 0 : job / n_matrices / chunks);
        int* own = counters + (index + 1) * apart;
        Matrix m = {
            matrices + (long long)index * panels * TILE * width,
            products + (long long)index * (panels + 1) * chunks * ENTRIES,
            inverses + (long long)index * panels * 2 * ENTRIES,
            own,
            own + 1,
            own + 1 + panels,
            own + 1 + 2 * panels,
            panels,
            width,
            chunks,
            span,
        };
        if (stage.kind == WRITE || (stage.kind == MULTIPLY && tile != panel)) wait_for(m.factored, panel + 1);
        switch (stage.kind) {
            case MULTIPLY:
                wait_for(m.updated + tile, panel * chunks);
                multiply_chunk(m, tile, panel, chunk, shared);
                if (count_one(m.multiplied + tile, shared) == (panel + 1) * chunks && tile != panel) {
                    find_part(m, panel, tile, shared);
                    count_one(m.known + tile, shared);
                }
                break;
            case FACTORISE:
                wait_for(m.multiplied + panel, (panel + 1) * chunks);
                factor_panel(m, panel, rows - panel * TILE, shared);
                count_one(m.factored, shared);
                break;
            case UPDATE:
                wait_for(m.known + tile, panel + 1);
                update_tile(m, panel, tile, chunk, shared);
                count_one(m.updated + tile, shared);
                if (tile == panel + 1) {
                    multiply_chunk(m, tile, tile, chunk, shared);
                    count_one(m.multiplied + tile, shared);
                }
                break;
            case WRITE:
                load_tile(shared, m.inverse_factor(panel), TILE, TILE);
                int from = index % blocks * rows + panel * TILE, left = min(rows - panel * TILE, total - from);
                int first = chunk * span, is_now = index / blocks == current;
                float* kept = out + index / blocks * size + (long long)from * dim;
                multiply_columns(
                    shared, m.tile(panel, chunk), width, m.columns(chunk), shared + TILE * WIDTH,
                    [&](int row, int column, double2 pair) {
                        for (int side = 0; side < 2; side++)
                            if (row < left && first + column + side < dim) {
                                float value = (float)(side ? pair.y : pair.x);
                                long long place = (long long)row * dim + first + column + side;
                                kept[place] = value;
                                if (is_now) now[(long long)from * dim + place] = value;
                            }
                    });
        }
    }
    if (held && threadIdx.x == 0) held->finish(group, high, low, workers);
}

// Projections on blocks H D_k ... H D_1 of the padded space, and the transpose: all rounds of a block without leaving
// the chip. H is the orthonormal Walsh-Hadamard transform; D is a diagonal of signs or reflects neighbouring columns.
//
// A thread block has a tile of points, `(columns, lanes)`: lanes are points, and neighbouring threads work on them, so
// that all threads of a warp do the same and what is read and written along points is contiguous. Of its point a thread
// holds ITEMS columns in registers, where it adds and subtracts. Shared memory is the way to other columns.
//
// Of points with fewer columns than ITEMS, several stand below each other: their columns make one long column.
//
// Included with THREADS, the most threads of a block, RESIDENT, how many blocks shall fit on a multiprocessor, OWN_BITS,
// of which ITEMS are made, and REAL_BYTES, the size of a number, defined.

#pragma once

#include "block.cuh"

#if REAL_BYTES == 8
typedef double real;
typedef double2 Pair;
#else
typedef float real;
typedef float2 Pair;
#endif

constexpr int BITS = OWN_BITS, ITEMS = 1 << BITS;

// Rounded before it is added to anything. Otherwise a compiler may fuse either product of a b + c d with the sum, and
// equal points could project to different numbers.
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }

// How a tile lies in shared memory, and which of its points and columns this thread has.
struct Tile {
    int log_dim, log_columns, log_lanes;
    long long first;  // of its points
    int lane, group;  // of this thread: its point, and which of the threads of that point it is

    __device__ Tile(int number, int log_dim, int log_lanes)
        : log_dim(log_dim), log_columns(max(log_dim, BITS)), log_lanes(log_lanes) {
        first = (long long)number << (log_columns + log_lanes - log_dim);
        lane = threadIdx.x & ((1 << log_lanes) - 1);
        group = threadIdx.x >> log_lanes;
    }

    __device__ int threads() const { return 1 << (log_columns + log_lanes - BITS); }
    __device__ int items() const { return 1 << (log_columns + log_lanes); }

    // How many of its points there are in a cloud of n.
    __device__ int points_of(long long n) const { return (int)min(n - first, (long long)items() >> log_dim); }

    // The column of a number within its point, and that point's number in the tile.
    __device__ int own_column(int column) const { return column & ((1 << log_dim) - 1); }
    __device__ int own_point(int column) const { return column >> log_dim << log_lanes | lane; }

    // Where a number stands, in bytes. The exclusive or spreads what a warp reads at once over the banks of shared memory. Like
    // all exclusive ors it adds up: a bit of the column changes the same bits of the place whatever the others are.
    __device__ int place(int column, int lane) const {
        int plain = column << log_lanes | lane;
        return (plain ^ ((plain >> 5 ^ plain >> 6) & 31)) * (int)sizeof(real);
    }

    // The same for number k of the tile's points, one after the other as they are in memory.
    __device__ int place_of_item(int k) const {
        int point = k >> log_dim;
        return place(point >> log_lanes << log_dim | own_column(k), point & ((1 << log_lanes) - 1));
    }

    // Columns are transformed in several windows: bit 0 and BITS - 1 further bits of a column at a time.
    __device__ int windows() const { return (log_columns + BITS - 3) / (BITS - 1); }
};

// The number at a place of a tile.
__device__ __forceinline__ real& number_at(real* shared, int place) {
    return *reinterpret_cast<real*>(reinterpret_cast<char*>(shared) + place);
}

// Call `visit(k, place)` for the numbers of a thread: where number 0 stands and what every bit of k changes of that is
// given. The order is that of a Gray code: from each to the next one bit changes, and one exclusive or leads there.
template <class Visit>
__device__ __forceinline__ void each_place(int place, const int (&steps)[BITS], Visit visit) {
#pragma unroll
    for (int turn = 0; turn < ITEMS; turn++) {
#pragma unroll
        for (int bit = 0; bit < BITS; bit++)
            if (turn && (turn & -turn) == 1 << bit) place ^= steps[bit];
        visit(turn ^ turn >> 1, place);
    }
}

// The columns that a thread has in its registers: bit 0 of the number of a register is bit 0 of its column, and the
// other bits are bits `first`, `first + 1` and so on.
struct Window {
    int first, start, stages;
    int at, steps[BITS];  // where number 0 stands, and what every bit changes of that

    __device__ __forceinline__ Window(const Tile& tile, int index) {
        int fresh = 1 + index * (BITS - 1);
        first = min(fresh, tile.log_columns - (BITS - 1));
        int below = (1 << (first - 1)) - 1;
        start = (tile.group & below) << 1 | (tile.group & ~below) << BITS;
        at = tile.place(start, tile.lane);
        stages = index == 0 && tile.log_dim > 0;
#pragma unroll
        for (int bit = 0; bit < BITS; bit++) {
            int column_bit = bit ? first + bit - 1 : 0;
            steps[bit] = tile.place(1 << column_bit, 0);
            // The last window may begin with bits that the one before it has had.
            if (bit && column_bit >= fresh && column_bit < tile.log_dim) stages |= 1 << bit;
        }
    }

    __device__ __forceinline__ int column(int k) const { return start | (k & 1) | k >> 1 << first; }

    // Call `visit(k, the number that stands there)` for every number.
    template <class Visit>
    __device__ __forceinline__ void each(real* shared, Visit visit) const {
        each_place(at, steps, [&](int k, int place) { visit(k, number_at(shared, place)); });
    }

    // Put sums and differences in the place of numbers whose columns differ in one bit, for all bits that are due. In a
    // first window those are all bits, in one between all others; a loop without branches moves no numbers about.
    __device__ __forceinline__ void add_and_subtract(real (&own)[ITEMS]) const {
        constexpr int ALL = (1 << BITS) - 1;
        if (stages == ALL) combine<ALL>(own, ALL);
        else if (stages == (ALL ^ 1)) combine<ALL ^ 1>(own, ALL);
        else combine<ALL>(own, stages);
    }

    // For those bits of DUE that are in `due` too.
    template <int DUE>
    __device__ __forceinline__ static void combine(real (&own)[ITEMS], int due) {
#pragma unroll
        for (int bit = 0; bit < BITS; bit++) {
            if (!(DUE >> bit & 1) || !(due >> bit & 1)) continue;
#pragma unroll
            for (int k = 0; k < ITEMS; k++) {
                if (k >> bit & 1) continue;
                real low = own[k], high = own[k | 1 << bit];
                own[k] = low + high;
                own[k | 1 << bit] = low - high;
            }
        }
    }

    // Multiply by a factor D, and by what makes the transform orthonormal.
    __device__ __forceinline__ void multiply(
        real (&own)[ITEMS], const Tile& tile, const real* factor, real scale, bool paired) const {
        if (tile.log_dim < BITS) {
            // The other number of a pair; of a single column it is the same.
            const real* odd_factor = factor + tile.own_column(1);
#pragma unroll
            for (int k = 0; k < ITEMS; k += 2) {
                int place = tile.own_column(column(k));
                multiply_pair(own + k, factor[place], odd_factor[place], scale, paired);
            }
            return;
        }
        const Pair* pair = reinterpret_cast<const Pair*>(factor + start);
#pragma unroll
        for (int k = 0; k < ITEMS; k += 2) {
            const Pair both = *pair;
            multiply_pair(own + k, both.x, both.y, scale, paired);
            pair += 1 << (first - 1);
        }
    }

    __device__ __forceinline__ static void multiply_pair(
        real* own, real even_factor, real odd_factor, real scale, bool paired) {
        real first = product(scale, even_factor), second = product(scale, odd_factor);
        real even = own[0], odd = own[1];
        own[0] = paired ? product(first, even) + product(second, odd) : product(first, even);
        own[1] = paired ? product(second, even) - product(first, odd) : product(second, odd);
    }
};

// Add and subtract along all bits of the columns, from window `index` to the last one, or back to the first one.
// Returns the window that the numbers are in afterwards.
__device__ __forceinline__ int transform(real (&own)[ITEMS], const Tile& tile, int index, real* shared) {
    int last = tile.windows() - 1, step = index ? -1 : 1;
    for (int turn = 0;; turn++) {
        Window window(tile, index);
        window.add_and_subtract(own);
        if (turn == last) return index;
        index += step;
        __syncthreads();
        window.each(shared, [&](int k, real& there) { there = own[k]; });
        __syncthreads();
        Window(tile, index).each(shared, [&](int k, real& there) { own[k] = there; });
    }
}

// The part of a table `(n_rows, n)` that belongs to a tile of points and a block of directions. Its rows are those of
// blocks one after the other, from `first_row` of block 0 on.
struct Part {
    long long start, n;
    int low, high, points;  // the columns that are wanted, and how many points of the tile exist

    __device__ Part(const Tile& tile, long long n, int block, int block_rows, long long first_row, long long n_rows)
        : n(n) {
        long long before = (long long)block * block_rows - first_row;  // the row of column 0, if it were wanted
        start = before * n + tile.first;
        low = (int)max(0ll, -before);
        high = (int)min((long long)block_rows, n_rows - before);
        points = tile.points_of(n);
    }

    // Call `visit(k, is inside, where in the table)` for every number of a thread; 0 is where those outside are.
    template <class Visit>
    __device__ __forceinline__ void each(const Tile& tile, const Window& window, Visit visit) const {
        if (low == 0 && high >= 1 << tile.log_columns && points == 1 << tile.log_lanes) {
            // A whole tile, as most are: a step for two neighbouring columns, and one from pair to pair.
            long long at = start + window.start * n + tile.lane, step = n << window.first;
#pragma unroll
            for (int k = 0; k < ITEMS; k += 2) {
                visit(k, true, at);
                visit(k + 1, true, at + n);
                at += step;
            }
            return;
        }
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            int column = tile.own_column(window.column(k)), point = tile.own_point(window.column(k));
            bool is_inside = column >= low && column < high && point < points;
            visit(k, is_inside, is_inside ? start + column * n + point : 0);
        }
    }
};

// Numbers of a tile in the order of memory, neighbouring ones by neighbouring threads, of points of a cloud `(n, dim)`.
// Call `visit(k, is inside, where after the tile's first point, where in shared memory)` for every one of a thread.
template <class Visit>
__device__ __forceinline__ void each_coordinate(const Tile& tile, int n, int dim, Visit visit) {
    int points = tile.points_of(n), steps[BITS];
#pragma unroll
    for (int bit = 0; bit < BITS; bit++) steps[bit] = tile.place_of_item(tile.threads() << bit);
    if (dim == 1 << tile.log_dim && points == tile.items() >> tile.log_dim) {
        // A whole tile, as most are: its numbers follow each other.
        int threads = tile.threads();
        each_place(tile.place_of_item(threadIdx.x), steps, [&](int k, int place) {
            visit(k, true, k * threads + (int)threadIdx.x, place);
        });
        return;
    }
    each_place(tile.place_of_item(threadIdx.x), steps, [&](int k, int place) {
        int item = k * tile.threads() | threadIdx.x;
        int point = item >> tile.log_dim, column = tile.own_column(item);
        bool is_inside = point < points && column < dim;
        visit(k, is_inside, is_inside ? point * dim + column : 0, place);
    });
}

// Which of two clouds, of n and m points, a tile belongs to: those of the first one come first.
struct Side {
    bool is_first;
    int number, n;  // of the tile within its cloud, and of the points of that

    __device__ Side(int tile, int log_dim, int log_lanes, int n, int m) {
        int log_points = max(log_dim, BITS) + log_lanes - log_dim, tiles = (n + (1 << log_points) - 1) >> log_points;
        is_first = tile < tiles;
        number = is_first ? tile : tile - tiles;
        this->n = is_first ? n : m;
    }
};

// Projections of a tile on a block, into `out (n_rows, side.n)`: `factors (rounds, 2^log_dim)`, and what is taken off all
// points if `is_far`. Threads come here together.
__device__ __forceinline__ void project_tile(
    const Tile& tile, const Side& side, const real* points, const real* centre, bool is_far, const real* factors,
    real* out, real* shared, int block, long long first_row, long long n_rows, int dim, int block_rows, int rounds,
    bool paired, real scale) {
    points += tile.first * dim;
    // All are loaded before any is stored, and without a branch, so that a thread waits for memory once.
    real own[ITEMS];
    each_coordinate(tile, side.n, dim, [&](int k, bool is_inside, int from, int) {
        real value = points[from];
        own[k] = is_inside ? value : (real)0;
    });
    each_coordinate(tile, side.n, dim, [&](int k, bool, int, int place) { number_at(shared, place) = own[k]; });
    if (__syncthreads_or(is_far)) {
        for (int k = threadIdx.x; k < tile.items(); k += tile.threads()) {
            int column = tile.own_column(k);
            if (column < dim) number_at(shared, tile.place_of_item(k)) -= centre[column];
        }
        __syncthreads();
    }
    Window(tile, 0).each(shared, [&](int k, real& there) { own[k] = there; });
    int index = 0;
    for (int round = 0; round < rounds; round++) {
        Window(tile, index).multiply(own, tile, factors + (round << tile.log_dim), scale, paired);
        index = transform(own, tile, index, shared);
    }
    Part part(tile, side.n, block, block_rows, first_row, n_rows);
    part.each(tile, Window(tile, index), [&](int k, bool is_inside, long long to) {
        if (is_inside) out[to] = own[k];
    });
}

// Sorted rows of weighted points, or of unequal numbers of points, matched by merging the masses up to their points.
//
// Compiled with THREADS defined, PIECES of a thread, and RANKS that a block adds up the masses of. Where the masses up to
// a point of x and to one of y are equal, the point of x comes first, and a pair without mass follows.

#include "masses.cuh"

constexpr int TILE = THREADS * PIECES;
constexpr int ROOM = TILE + 4;
constexpr int RUN = RANKS / THREADS;
static_assert(WARPS >= 2, "two warps find where a part begins and ends");

// Words of double precision in shared memory, before those of a tile.
constexpr int SUMS = 4 * WARPS + 2;

__device__ __forceinline__ int at(int k) { return k + (k >> 5); }

// The masses of sorted points up to each of RANKS ranks, from the first of those on, and their sums `(rows, parts)`. The points
// have places, and row k has the weights of cloud k % batch, of x or `of_y`; or without a table they have weights of
// single precision instead of places.
extern "C" __global__ void __launch_bounds__(THREADS) add_masses(
    const u32* places, const void* table, const Scale* scales, u64* ends, u64* sums, int n, int parts, int is_double, int of_y,
    int batch) {
    SHARED(u64, shared);
    u64* staged = shared + WARPS;
    int row = blockIdx.x / parts, part = blockIdx.x % parts;
    const int size = min(RANKS, n - part * RANKS);
    const long long first = (long long)row * n + part * RANKS;
    places += first;
    const Weights weights = weights_of(table, is_double, scales, of_y, row, batch, n);
    ends += first;
#pragma unroll
    for (int r = 0; r < RUN; r++) {
        int k = r * THREADS + threadIdx.x;
        if (k < size)
            staged[at(k)] = table ? weights.mass(places[k]) : mass_of(__uint_as_float(places[k]), weights.scale);
    }
    __syncthreads();
    u64 sum = 0, upto[RUN];
#pragma unroll
    for (int r = 0; r < RUN; r++) {
        int k = threadIdx.x * RUN + r;
        sum += k < size ? staged[at(k)] : 0;
        upto[r] = sum;
    }
    u64 before = block_scan(sum, shared);
#pragma unroll
    for (int r = 0; r < RUN; r++) staged[at(threadIdx.x * RUN + r)] = before + upto[r];
    __syncthreads();
    for (int k = threadIdx.x; k < size; k += THREADS) ends[k] = staged[at(k)];
    if (threadIdx.x == THREADS - 1) sums[blockIdx.x] = before + sum;
}

// From the sums of parts `(rows, parts)` to the masses before them.
extern "C" __global__ void __launch_bounds__(THREADS) start_parts(u64* sums, int parts) {
    SHARED(u64, shared);
    sums += (long long)blockIdx.x * parts;
    u64 total = 0;
    for (int first = 0; first < parts; first += THREADS) {
        int k = first + threadIdx.x;
        u64 sum = k < parts ? sums[k] : 0, before = total + block_scan(sum, shared);
        if (k < parts) sums[k] = before;
        if (threadIdx.x == THREADS - 1) shared[WARPS] = before + sum;
        __syncthreads();
        total = shared[WARPS];
    }
}

// A sorted row, and the mass up to each of its points: in a table, from the start of its part where parts have starts;
// or the same for each point.
struct Ends {
    const float* keys;
    const u64 *ends, *starts;
    u64 mass;
    int size;

    __device__ __forceinline__ u64 upto(int k) const {
        return !ends ? (u64)(k + 1) * mass : starts ? ends[k] + starts[(u32)k / RANKS] : ends[k];
    }
};

// How many of the first `count` points to end are of x, found by a warp: in each round 32 places are looked at.
__device__ int ended(const Ends& x, const Ends& y, int count) {
    int low = max(0, count - y.size), high = min(count, x.size);
    while (low < high) {
        int step = (high - low + 31) / 32, k = low + ((int)threadIdx.x % 32 + 1) * step - 1;
        bool is_before = k < high && x.upto(k) <= y.upto(count - 1 - k);
        low += step * __popc(__ballot_sync(EVERYONE, is_before));
        high = min(low + step - 1, high);
    }
    return low;
}

// What the threads before this one have left open, since the last of them that closed something; `sums` and `closed` are
// room for one of every warp. The last thread's own is added in `after`.
__device__ double carry_in(double open, bool closes, double* sums, bool& any, double& after) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 closing = __ballot_sync(EVERYONE, closes);
    // Lanes from the last one that closes, up to this one.
    u32 upto = closing & (EVERYONE >> (31 - lane));
    int first = upto ? 31 - __clz(upto) : 0;
    double sum = open;
    for (int step = 1; step < 32; step *= 2) {
        double other = __shfl_up_sync(EVERYONE, sum, step);
        if (lane - step >= first) sum += other;
    }
    double* flags = sums + WARPS;
    if (lane == 31) {
        sums[warp] = sum;
        flags[warp] = closing != 0;
    }
    double mine = __shfl_up_sync(EVERYONE, sum, 1);
    __syncthreads();
    double before = 0, total = 0;
    any = false;
    for (int w = 0; w < WARPS; w++) {
        if (w == warp) before = total;
        total = flags[w] != 0 ? sums[w] : total + sums[w];
        any |= flags[w] != 0;
    }
    after = total;
    __syncthreads();
    if (lane == 0) return before;
    // Of lanes before this one.
    return closing & (EVERYONE >> (32 - lane)) ? mine : before + mine;
}

// What a part leaves open to the next one: slopes of its last points of x and of y, and the ranks of the first points that
// end in it, which still lack what parts before have left open; -1 if none does.
struct Open {
    double slopes[2];
    int ranks[2];
};

// Where a thread is in a tile, what its pairs cost so far, and the slopes of the points that it has not used up.
struct Walk {
    int i, j;
    double cost, open_x, open_y;
};

// Price `count` pairs: at each, the point that ends first is used up, and has its slope where SLOPES says that they are
// wanted. SQUARES says that p is 2. Masses are rounded: beyond the `limit` that both clouds have nothing moves, however far
// off the last points may be.
template <bool SLOPES, bool SQUARES>
__device__ __forceinline__ void walk_pairs(
    Walk& walk, const u64* ends, const float* keys, float* slopes, int count, u64 limit, float p, double unit) {
    int i = walk.i, j = walk.j;
    u64 before = min(max(ends[i - 1], ends[j - 1]), limit), end_x = ends[i], end_y = ends[j];
    float a = keys[i], b = keys[j];
    double total = 0, open_x = 0, open_y = 0;
    const float power = SQUARES ? 2.0f : p;
    for (int k = 0; k < count; k++) {
        bool ends_x = end_x <= end_y;
        u64 end = min(ends_x ? end_x : end_y, limit);
        double mass = (double)(end - before);
        float difference = a - b;
        // Nothing moves over a distance that may be beyond all numbers; but NaN is not lost.
        if (end == before && difference == difference) difference = 0;
        before = end;
        total += mass * cost(difference, power);
        int done = ends_x ? i : j;
        i += ends_x;
        j += !ends_x;
        if (SLOPES) {
            double pull = unit * mass * slope(difference, power);
            open_x += pull;
            open_y += pull;
            slopes[done] = (float)(ends_x ? open_x : -open_y);
            open_x = ends_x ? 0 : open_x;
            open_y = ends_x ? open_y : 0;
        }
        u64 next_end = ends[done + 1];
        float next_key = keys[done + 1];
        end_x = ends_x ? next_end : end_x;
        end_y = ends_x ? end_y : next_end;
        a = ends_x ? next_key : a;
        b = ends_x ? b : next_key;
    }
    walk = {i, j, total, open_x, open_y};
}

// Costs of sorted rows `x (rows, n)` against sorted rows `y (rows, m)`, summed over parts of the n + m pairs:
// `(rows, parts)`. With slopes where they are asked for, of either cloud; those go to the points' places.
//
// Masses up to the points are in tables, and count from the starts of parts of RANKS where those are not null. A cloud without a
// table has points of one mass. Costs are NaN where weights are unsound by the `scales` of clouds, which may be null.
extern "C" __global__ void __launch_bounds__(THREADS) merge_rows(
    const float* x, const float* y, const u64* x_ends, const u64* y_ends, const u64* x_starts, const u64* y_starts,
    const int* x_places, const int* y_places, const Scale* scales, double* sums, float* x_slopes, float* y_slopes,
    Open* open, long long x_mass, long long y_mass, int n, int m, int parts, int batch, float p, double factor) {
    SHARED(u64, shared);
    double* scratch = reinterpret_cast<double*>(shared);
    const int row = blockIdx.x / parts, first = blockIdx.x % parts * TILE, last = min(first + TILE, n + m);
    const long long x_row = (long long)row * n, y_row = (long long)row * m;
    Ends own_x = {x + x_row, x_ends ? x_ends + x_row : nullptr, nullptr, (u64)x_mass, n};
    Ends own_y = {y + y_row, y_ends ? y_ends + y_row : nullptr, nullptr, (u64)y_mass, m};
    if (x_starts) own_x.starts = x_starts + (long long)row * ((n + RANKS - 1) / RANKS);
    if (y_starts) own_y.starts = y_starts + (long long)row * ((m + RANKS - 1) / RANKS);
    const u64 limit = min(own_x.upto(n - 1), own_y.upto(m - 1));
    int* bounds = reinterpret_cast<int*>(shared + 4 * WARPS);
    if (threadIdx.x < 64) {
        int split = ended(own_x, own_y, threadIdx.x < 32 ? first : last);
        if (threadIdx.x % 32 == 0) bounds[threadIdx.x / 32] = split;
    }
    __syncthreads();
    // Ranks of this part, with one before and one after.
    const int first_x = bounds[0], first_y = first - first_x;
    const int count = last - first, count_x = bounds[1] - first_x, count_y = count - count_x, of_y = count_x + 2;
    u64* ends = shared + SUMS;
    float *keys = reinterpret_cast<float*>(ends + ROOM), *slopes = keys + ROOM;
    auto load = [&](const Ends& side, int start, int size, int to) {
#pragma unroll 4
        for (int k = threadIdx.x; k < size; k += THREADS) {
            ends[to + 1 + k] = side.upto(start + k);
            keys[to + 1 + k] = side.keys[start + k];
        }
        if (threadIdx.x == 0) ends[to] = start > 0 ? side.upto(start - 1) : 0;
        if (threadIdx.x == 32) {
            int next = start + size, known = min(next, side.size - 1);
            ends[to + size + 1] = next == known ? side.upto(next) : ~0ULL;
            keys[to + size + 1] = side.keys[known];
        }
    };
    load(own_x, first_x, count_x, 0);
    load(own_y, first_y, count_y, of_y);
    __syncthreads();
    int pieces = (count + THREADS - 1) / THREADS, from = min((int)threadIdx.x * pieces, count), to = min(from + pieces, count);
    int low = max(0, from - count_y), high = min(from, count_x);
    while (low < high) {
        int middle = (low + high) / 2;
        if (ends[1 + middle] <= ends[of_y + from - middle]) low = middle + 1;
        else high = middle;
    }
    const int start_x = 1 + low, start_y = of_y + 1 + from - low;
    const bool slopes_wanted = x_slopes || y_slopes;
    const int cloud = row % batch;
    const double unit = scales ? factor * scales[cloud].factor * scales[batch + cloud].factor : factor;
    Walk walk = {start_x, start_y, 0, 0, 0};
    if (slopes_wanted && p == 2.0f) walk_pairs<true, true>(walk, ends, keys, slopes, to - from, limit, p, unit);
    else if (slopes_wanted) walk_pairs<true, false>(walk, ends, keys, slopes, to - from, limit, p, unit);
    else if (p == 2.0f) walk_pairs<false, true>(walk, ends, keys, slopes, to - from, limit, p, unit);
    else walk_pairs<false, false>(walk, ends, keys, slopes, to - from, limit, p, unit);
    double sum = block_sum(walk.cost, reinterpret_cast<u32*>(shared));
    if (threadIdx.x == 0) sums[blockIdx.x] = unit * sum;
    if (!slopes_wanted) return;
    __syncthreads();
    // Points that end in another thread's pieces than they begin in.
    const bool closes_x = walk.i > start_x, closes_y = walk.j > start_y;
    bool any_x, any_y;
    double left_x, left_y;
    double carried_x = carry_in(walk.open_x, closes_x, scratch, any_x, left_x);
    double carried_y = carry_in(walk.open_y, closes_y, scratch, any_y, left_y);
    if (closes_x) slopes[start_x] += (float)carried_x;
    if (closes_y) slopes[start_y] -= (float)carried_y;
    if (threadIdx.x == 0 && parts > 1)
        open[blockIdx.x] = {{left_x, -left_y}, {any_x ? first_x : -1, any_y ? first_y : -1}};
    __syncthreads();
    if (x_slopes)
        for (int k = threadIdx.x; k < count_x; k += THREADS)
            x_slopes[x_row + x_places[x_row + first_x + k]] = slopes[1 + k];
    if (y_slopes)
        for (int k = threadIdx.x; k < count_y; k += THREADS)
            y_slopes[y_row + y_places[y_row + first_y + k]] = slopes[of_y + 1 + k];
}

// Add to the slopes of the first points that end in a part what parts before have left open.
extern "C" __global__ void __launch_bounds__(THREADS) carry_over(
    const int* x_places, const int* y_places, const Open* open, float* x_slopes, float* y_slopes, int n, int m, int parts,
    int count) {
    int k = blockIdx.x * THREADS + threadIdx.x;
    if (k >= count) return;
    const int row = k / parts;
    for (int side = 0; side < 2; side++) {
        float* slopes = side ? y_slopes : x_slopes;
        const int rank = open[k].ranks[side];
        const long long start = (long long)row * (side ? m : n);
        if (!slopes || rank < 0) continue;
        double sum = 0;
        for (int before = k - 1; before >= row * parts; before--) {
            sum += open[before].slopes[side];
            if (open[before].ranks[side] >= 0) break;
        }
        slopes[start + (side ? y_places : x_places)[start + rank]] += (float)sum;
    }
}

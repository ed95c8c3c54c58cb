// Many labellings of one pooled sample at once: which units belong to x, and what each labelling costs.
//
// Compiled with THREADS defined, 32 for each of the words that hold the labels of a unit, which is a point or a cluster
// of points, under THREADS labellings. A group of labellings has a table `(units, WARPS)` of such words: a row of it is
// what memory hands out at a time. A lane of a warp stands for a labelling.
//
// Sums are in double precision, and leads of one side over the other are whole numbers: they do not depend on the order
// of ties.

#include "block.cuh"
#include "threefry.cuh"

static_assert(WARPS == 8, "a row of words is two loads of four");

// Where the word of a unit is, under labellings 32 `word` and on.
__device__ __forceinline__ long long word_place(int word, int units, long long unit) {
    return ((long long)(word / WARPS) * units + unit) * WARPS + word % WARPS;
}

// Labels from labelling `first` on, by one warp for each 32 of them. Selection sampling (Knuth, 3.4.2 S): a unit is taken
// with probability needed / left, in its stratum. `sizes` is how many points each labelling gives to x.
extern "C" __global__ void __launch_bounds__(32) draw_labels(
    const int* left, const int* quota, const int* weight, u32* words, long long* sizes, u64 key, u64 first, int units) {
    int lane = threadIdx.x, word = blockIdx.x;
    Words keys = {(u32)(key >> 32), (u32)key};
    u32 labelling = (u32)first + 32 * word + lane;
    u32 needed = 0;
    long long size = 0;
    for (int start = 0; start < units; start += 32) {
        int own = start + lane;
        bool inside = own < units;
        int own_left = inside ? left[own] : 0, own_quota = inside ? quota[own] : -1, own_weight = inside ? weight[own] : 0;
        u32 own_word = 0;
        // A few at a time: only the comparisons have to wait for each other.
#pragma unroll 8
        for (int k = 0; k < 32; k++) {
            u64 remaining = __shfl_sync(EVERYONE, own_left, k);
            int stratum = __shfl_sync(EVERYONE, own_quota, k);
            int points = __shfl_sync(EVERYONE, own_weight, k);
            Words random = threefry(keys, labelling, start + k);
            // The whole part of u * left, for u of 64 bits: whole numbers choose the same on every machine.
            u64 draw = (random.high * remaining + (random.low * remaining >> 32)) >> 32;
            if (stratum >= 0) needed = stratum;
            bool take = draw < needed;
            needed -= take;
            size += take ? points : 0;
            u32 taken = __ballot_sync(EVERYONE, take);
            if (k == lane) own_word = taken;
        }
        if (inside) words[word_place(word, units, own)] = own_word;
    }
    sizes[32 * word + lane] = size;
}

// Costs on lines for p = 1, `totals (slices, labellings)`: the area between both distribution functions, walked from left
// to right. A block takes one direction and one group of labellings; what it walks over is laid ready in shared memory,
// THREADS places at a time.
extern "C" __global__ void __launch_bounds__(THREADS) walk_lines(
    const double* values, const u32* at, const u32* words, const long long* sizes, double* totals, int units, int points,
    int slices, int labellings) {
    SHARED(double, gaps);
    u32* ready = reinterpret_cast<u32*>(gaps + THREADS);
    // Blocks that run together read the same table of words, of which caches then hold more.
    int group = blockIdx.x / slices, slice = blockIdx.x % slices, thread = threadIdx.x;
    const double* line = values + (long long)slice * points;
    const u32* units_at = at + (long long)slice * points;
    const uint4* table = reinterpret_cast<const uint4*>(words) + (long long)group * units * (WARPS / 4);
    const u32* mine = ready + thread / 32 * THREADS;
    u32 bit = 1u << thread % 32;
    long long labelling = (long long)group * THREADS + thread;
    double n = sizes[labelling], m = points - n;
    // (F - G) n m: every point of x adds m to it, and every point of y takes n off.
    double lead = 0.0, total = 0.0;
    for (int start = 0; start < points; start += THREADS) {
        int k = start + thread;
        uint4 low = {0, 0, 0, 0}, high = {0, 0, 0, 0};
        double gap = 0.0;
        if (k < points) {
            const uint4* row = table + (long long)units_at[k] * (WARPS / 4);
            low = row[0];
            high = row[1];
            if (k + 1 < points) gap = line[k + 1] - line[k];
        }
        __syncthreads();
        const u32 own[WARPS] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        gaps[thread] = gap;
#pragma unroll
        for (int w = 0; w < WARPS; w++) ready[w * THREADS + thread] = own[w];
        __syncthreads();
#pragma unroll 4
        for (int j = 0; j < THREADS; j += 4) {
            uint4 four = *reinterpret_cast<const uint4*>(mine + j);
            double2 first = *reinterpret_cast<const double2*>(gaps + j);
            double2 second = *reinterpret_cast<const double2*>(gaps + j + 2);
            const u32 labels[4] = {four.x, four.y, four.z, four.w};
            const double widths[4] = {first.x, first.y, second.x, second.y};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                lead += labels[i] & bit ? m : -n;
                total += fabs(lead) * widths[i];
            }
        }
    }
    totals[slice * (long long)labellings + labelling] = total / n / m;
}

// The places on one side, one after the other. Every 32nd word of `rows` holds 32 bits of the labelling.
struct Side {
    const u32* rows;
    u32 flip;  // 0 for the side whose bits are set, all ones for the other
    int at;
    u32 bits;

    __device__ Side(const u32* rows, u32 flip) : rows(rows), flip(flip), at(0), bits(rows[0] ^ flip) {}

    __device__ __forceinline__ int next() {
        while (bits == 0) bits = rows[32ll * ++at] ^ flip;
        int place = 32 * at + __ffs(bits) - 1;
        bits &= bits - 1;
        return place;
    }
};

struct OnLine {
    const double* values;
    double p;

    __device__ __forceinline__ double operator()(int i, int j) const {
        double apart = fabs(values[i] - values[j]);
        return p == 2.0 ? apart * apart : p == 1.0 ? apart : pow(apart, p);
    }
};

struct InSpace {
    const double* points;
    const u32* order;
    int dim;
    double p;

    __device__ __forceinline__ double operator()(int i, int j) const {
        const double* a = points + (long long)order[i] * dim;
        const double* b = points + (long long)order[j] * dim;
        double square = 0.0;
        for (int d = 0; d < dim; d++) square += (a[d] - b[d]) * (a[d] - b[d]);
        return p == 2.0 ? square : p == 1.0 ? sqrt(square) : pow(square, p / 2);
    }
};

// What one labelling costs whose labels, in the order of a direction, are the bits of `rows`: points of both sides are
// coupled by rank. Masses are whole numbers, in units of 1 / (n m).
template <class Cost>
__device__ double match_ranks(const u32* rows, long long n, long long m, Cost cost) {
    Side x(rows, 0), y(rows, EVERYONE);
    int i = x.next(), j = y.next();
    long long left_i = m, left_j = n, done = 0;
    double total = 0.0;
    while (true) {
        long long mass = min(left_i, left_j);
        total += (double)mass * cost(i, j);
        left_i -= mass;
        left_j -= mass;
        if (left_i == 0) {
            if (++done == n) break;
            i = x.next();
            left_i = m;
        }
        if (left_j == 0) {
            j = y.next();
            left_j = n;
        }
    }
    return total / (double)n / (double)m;
}

// The labels of 32 labellings in the order of a direction, turned: word k of labelling b, at `rows[32 k + b]`, has those of
// places 32 k and on. `unit`, where there is one, says which unit a point is of; `at` has units otherwise.
__device__ void turn_labels(
    const u32* at, const u32* unit, const u32* words, int word, int units, int points, u32* rows) {
    int lane = threadIdx.x;
    for (int start = 0; start < points; start += 32) {
        u32 label = 0;
        if (start + lane < points) {
            u32 place = at[start + lane];
            label = words[word_place(word, units, unit ? unit[place] : place)];
        }
        u32 turned = 0;
#pragma unroll
        for (int b = 0; b < 32; b++) {
            u32 bits = __ballot_sync(EVERYONE, label >> b & 1);
            if (b == lane) turned = bits;
        }
        rows[start + lane] = turned;
    }
    __syncwarp();
}

// Costs on lines for any p, `totals (slices, labellings)`: one warp at a time has room for turned labels in `rows`, of as
// many as there are warps.
extern "C" __global__ void __launch_bounds__(32) match_lines(
    const double* values, const u32* at, const u32* words, const long long* sizes, double* totals, u32* rows, int units,
    int points, int slices, int labellings, int warps, double p) {
    u32* own = rows + (long long)blockIdx.x * ((points + 31) / 32 * 32);
    int tasks = labellings / 32 * slices;
    for (int task = blockIdx.x; task < tasks; task += warps) {
        int word = task / slices, slice = task % slices, labelling = 32 * word + threadIdx.x;
        turn_labels(at + (long long)slice * points, nullptr, words, word, units, points, own);
        OnLine cost = {values + (long long)slice * points, p};
        long long n = sizes[labelling];
        totals[slice * (long long)labellings + labelling] = match_ranks(own + threadIdx.x, n, points - n, cost);
        __syncwarp();
    }
}

// The same in full space, of the couplings that directions induce; `order` has the points in the order of a direction.
extern "C" __global__ void __launch_bounds__(32) match_in_space(
    const double* cloud, const u32* order, const u32* unit, const u32* words, const long long* sizes, double* totals,
    u32* rows, int units, int points, int dim, int slices, int labellings, int warps, double p) {
    u32* own = rows + (long long)blockIdx.x * ((points + 31) / 32 * 32);
    int tasks = labellings / 32 * slices;
    for (int task = blockIdx.x; task < tasks; task += warps) {
        int word = task / slices, slice = task % slices, labelling = 32 * word + threadIdx.x;
        const u32* places = order + (long long)slice * points;
        turn_labels(places, unit, words, word, units, points, own);
        InSpace cost = {cloud, places, dim, p};
        long long n = sizes[labelling];
        totals[slice * (long long)labellings + labelling] = match_ranks(own + threadIdx.x, n, points - n, cost);
        __syncwarp();
    }
}

// What it costs to match the points of two clouds `x (n, dim)` and `y (n, dim)` by their orders along directions, and
// the gradients by the points.
//
// A point meets its partners one after the other: it is held in registers, and a partner is read once for both cost and
// gradient. So a pair is read once for the costs and the gradients by one cloud, and once more for those by the other.
//
// Compiled with THREADS, WIDTH, CHUNKS and ROWS defined: a thread holds CHUNKS runs of WIDTH coordinates of a point,
// and as many of each of ROWS partners at a time. Without CHUNKS a point has too many coordinates for that.

#include "matches.cuh"

// Blocks on a multiprocessor at a time: the more, the better the waiting for memory is hidden.
constexpr int RESIDENT = CHUNKS == 1 ? 3 : 2;

// Coordinates that are loaded at once. Rows are made of whole runs, and so aligned.
struct Run {
    float value[WIDTH];
};

__device__ __forceinline__ Run load_run(const float* from) {
#if WIDTH == 4
    const float4 four = *reinterpret_cast<const float4*>(from);
    return {four.x, four.y, four.z, four.w};
#else
    return {*from};
#endif
}

__device__ __forceinline__ void store_run(float* to, const Run& run) {
#if WIDTH == 4
    *reinterpret_cast<float4*>(to) = {run.value[0], run.value[1], run.value[2], run.value[3]};
#else
    *to = run.value[0];
#endif
}

__device__ __forceinline__ Run operator-(const Run& a, const Run& b) {
    Run difference;
#pragma unroll
    for (int w = 0; w < WIDTH; w++) difference.value[w] = a.value[w] - b.value[w];
    return difference;
}

__device__ __forceinline__ float square_of(const Run& run) {
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < WIDTH; w++) sum += run.value[w] * run.value[w];
    return sum;
}

__device__ __forceinline__ void add_scaled(Run& sum, float factor, const Run& run) {
#pragma unroll
    for (int w = 0; w < WIDTH; w++) sum.value[w] += factor * run.value[w];
}

// A block's share of the points of one cloud, and whether it is this cloud by which costs are added up.
struct Side {
    const float *own, *others;
    const int* partners;
    bool counts;
    int block;

    __device__ Side(const float* x, const float* y, const int* of_x, const int* of_y, int blocks) {
        bool is_x = of_x && blockIdx.x < blocks;
        own = is_x ? x : y;
        others = is_x ? y : x;
        partners = is_x ? of_x : of_y;
        counts = is_x || !of_x;
        block = blockIdx.x - (counts ? 0 : blocks);
    }
};

// Where scores go. The last block of `blocks` adds up all `count` scores, those of launches before this one among them,
// if `total` is not null.
struct Scores {
    double *scores, *all;
    u32* done;
    float* total;
    long long* step;
    int blocks, count;

    __device__ void put(double score, u32* shared) const {
        double sum = block_sum(score, shared);
        __syncthreads();
        if (threadIdx.x == 0) {
            scores[blockIdx.x] = sum;
            __threadfence();
            shared[0] = total && atomicAdd(done, 1u) == blocks - 1;
        }
        __syncthreads();
        bool is_last = shared[0];
        __syncthreads();
        if (!is_last) return;
        __threadfence();
        add_up_scores(all, count, total, step, shared);
    }
};

// Costs in full space, each pair with a share `mass` of the whole, by the points of the clouds that have partners,
// `of_x (slices, n)` and `of_y (slices, n)`: those of x are added up, or those of y where x has none. `more_mass` is
// added to `mass`: 0, or NaN where a direction is NaN. Where `gradient` is not null it gets the gradients by these
// points, those of y below those of x; they are added to it unless these directions are the `first`. What is added up
// is always added in the same order.
//
// A cloud takes `blocks`. `lanes` threads hold a point, at least as many as it has partners at a time, and `spread`
// groups of them share out its directions.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) price_points(
    const float* x, const float* y, const int* of_x, const int* of_y, const float* more_mass, float* gradient,
    double* scores, double* all_scores, u32* done, float* total, long long* step, long long first, int slices, int n,
    int dim, int lanes, int spread, int blocks, int n_scores, double p, double mass) {
    SHARED(u32, shared);
    Side side(x, y, of_x, of_y, blocks);
    if (more_mass) mass += *more_mass;
    if (gradient && !side.counts) gradient += (long long)n * dim;
    double cost_of_all = 0.0;
#if CHUNKS
    int lane = threadIdx.x % lanes, group = threadIdx.x / lanes, at_once = THREADS / lanes / spread;
    int shares = lanes / ROWS;
    int point = side.block * at_once + group % at_once, part = group / at_once;
    bool there = point < n;
    // Lanes without a point, a row or a coordinate work on others, and what they find counts nowhere.
    const int* partners = side.partners + min(point, n - 1);
    // Registers are scarce where there are many chunks.
#if CHUNKS > 4
    Run* here_of_all = reinterpret_cast<Run*>(shared) + threadIdx.x;
    auto here = [&](int c) -> Run& { return here_of_all[c * THREADS]; };
#else
    Run held[CHUNKS];
    auto here = [&](int c) -> Run& { return held[c]; };
#endif
    Run pulled[CHUNKS] = {};
    int from[CHUNKS];
    bool inside[CHUNKS];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        // There are several chunks only where there are 32 lanes.
        int d = (c * 32 + lane) * WIDTH;
        inside[c] = d < dim;
        from[c] = inside[c] ? d : 0;
        here(c) = load_run(side.own + (long long)min(point, n - 1) * dim + from[c]);
    }
    int rows = (slices + spread - 1) / spread;
    auto partner_at = [&](int k) { return partners[(long long)min(k * spread + part, slices - 1) * n]; };
    int next = partner_at(lane % ROWS);
    for (int row = 0; row < rows; row += ROWS) {
        int now = next;
        next = partner_at(row + ROWS + lane % ROWS);
        Run gap[ROWS][CHUNKS];
        float square[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int partner = __shfl_sync(EVERYONE, now, r, lanes);
            const float* other = side.others + (long long)partner * dim;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) gap[r][c] = load_run(other + from[c]);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            square[r] = 0.0f;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                gap[r][c] = here(c) - gap[r][c];
                float own = square_of(gap[r][c]);
                square[r] += inside[c] ? own : 0.0f;
            }
        }
        // Of two halves of the rows a lane hands on one and keeps the other, until it has a single row.
#pragma unroll
        for (int half = ROWS / 2, away = lanes / 2; half > 0; half /= 2, away /= 2) {
            bool upper = lane & away;
#pragma unroll
            for (int r = 0; r < half; r++) {
                float given = upper ? square[r] : square[r + half], kept = upper ? square[r + half] : square[r];
                square[r] = kept + __shfl_xor_sync(EVERYONE, given, away);
            }
        }
        for (int away = shares / 2; away > 0; away /= 2) square[0] += __shfl_xor_sync(EVERYONE, square[0], away);
        double cost = power_of_root(square[0], p);
        bool live = there && (row + lane / shares) * spread + part < slices;
        if (live && lane % shares == 0) cost_of_all += cost;
        if (!gradient) continue;
        float pull = live ? pull_of<float>(square[0], p, mass, cost) : 0.0f;
        float strength[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) strength[r] = __shfl_sync(EVERYONE, pull, r * shares, lanes);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            // These rows are added up by themselves first, so that fewer sums follow one another and less is rounded.
            Run some = {};
#pragma unroll
            for (int r = 0; r < ROWS; r++) add_scaled(some, strength[r], gap[r][c]);
            add_scaled(pulled[c], 1.0f, some);
        }
    }
    if (gradient) {
        Run* sums = reinterpret_cast<Run*>(shared);
        if (spread > 1) {
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) sums[c * THREADS + threadIdx.x] = pulled[c];
            __syncthreads();
        }
        if (part == 0 && there) {
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                if (!inside[c]) continue;
                float* to = gradient + (long long)point * dim + from[c];
                for (int q = 1; q < spread; q++)
                    add_scaled(pulled[c], 1.0f, sums[c * THREADS + q * at_once * lanes + threadIdx.x]);
                if (!first) add_scaled(pulled[c], 1.0f, load_run(to));
                store_run(to, pulled[c]);
            }
        }
    }
#else
    // A block has one point. Its warps share out the directions for the costs, then its threads the coordinates.
    int point = side.block, lane = threadIdx.x % 32;
    const float* own = side.own + (long long)point * dim;
    int* partners = reinterpret_cast<int*>(shared);
    float* pulls = reinterpret_cast<float*>(shared) + THREADS;
    if (gradient) gradient += (long long)point * dim;
    for (int start = 0; start < slices; start += THREADS) {
        int count = min(THREADS, slices - start);
        __syncthreads();
        if (threadIdx.x < count) partners[threadIdx.x] = side.partners[(long long)(start + threadIdx.x) * n + point];
        __syncthreads();
        for (int k = threadIdx.x / 32 * ROWS; k < count; k += WARPS * ROWS) {
            const float* other[ROWS];
            float square[ROWS] = {};
#pragma unroll
            for (int r = 0; r < ROWS; r++) other[r] = side.others + (long long)partners[min(k + r, count - 1)] * dim;
            for (int d = lane * WIDTH; d < dim; d += 32 * WIDTH) {
                Run here = load_run(own + d);
#pragma unroll
                for (int r = 0; r < ROWS; r++) square[r] += square_of(here - load_run(other[r] + d));
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                for (int away = 16; away > 0; away /= 2) square[r] += __shfl_xor_sync(EVERYONE, square[r], away);
            float one = square[0];
#pragma unroll
            for (int r = 1; r < ROWS; r++) one = lane == r ? square[r] : one;
            if (lane < ROWS && k + lane < count) {
                double cost = power_of_root(one, p);
                cost_of_all += cost;
                pulls[k + lane] = pull_of<float>(one, p, mass, cost);
            }
        }
        if (!gradient) continue;
        __syncthreads();
        for (int d = threadIdx.x * WIDTH; d < dim; d += THREADS * WIDTH) {
            Run here = load_run(own + d), sum = start || !first ? load_run(gradient + d) : Run{};
#pragma unroll 8
            for (int k = 0; k < count; k++)
                add_scaled(sum, pulls[k], here - load_run(side.others + (long long)partners[k] * dim + d));
            store_run(gradient + d, sum);
        }
    }
#endif
    if (side.counts) Scores{scores, all_scores, done, total, step, blocks, n_scores}.put(mass * cost_of_all, shared);
}

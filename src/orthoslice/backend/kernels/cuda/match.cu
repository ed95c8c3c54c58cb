// Rows that fit on a chip, matched with each other and priced at once.
//
// Compiled with PROJECTS defined too: whether the rows are made here, as projections of clouds. That takes registers, which
// rows that are given can do without.

#include "projecting.cuh"

static_assert((ITEMS & (ITEMS - 1)) == 0, "costs are added up in halves of halves");

// What a thread's differences cost in all. They become `unit` times the slopes of their costs.
__device__ __forceinline__ double price(float (&value)[ITEMS], float* staged, int n, float p, float unit) {
    const int own = own_count(n);
    if (p == 2.0f) {
        float costs[ITEMS];
#pragma unroll
        for (int r = 0; r < ITEMS; r++) {
            costs[r] = r < own ? cost(value[r], 2.0f) : 0.0f;
            value[r] = unit * slope(value[r], 2.0f);
        }
        // Sums of sums: a large cost is rounded a few times, not once for every other cost of the thread.
#pragma unroll
        for (int step = 1; step < ITEMS; step *= 2)
#pragma unroll
            for (int r = 0; r < ITEMS; r += 2 * step) costs[r] += costs[r + step];
        return costs[0];
    }
    // Other powers are long to write out for every number, and to compile: a loop goes over the numbers in shared memory.
#pragma unroll
    for (int r = 0; r < ITEMS; r++)
        if (r < own) staged[at_own(r)] = value[r];
    double total = 0.0;
#pragma unroll 1
    for (int k = threadIdx.x; k < n; k += THREADS) {
        float difference = staged[at(k)];
        total += cost(difference, p);
        staged[at(k)] = unit * slope(difference, p);
    }
#pragma unroll
    for (int r = 0; r < ITEMS; r++)
        if (r < own) value[r] = staged[at_own(r)];
    return total;
}

// Match two rows of the same length by order: the cost, and its slopes where they are asked for (PAIRS). The rows are
// given; or with PROJECTS they are the projections of two clouds on `theta`, moved to the origin where x is far from it.
// Of several pairs of clouds, all projected on `slices` directions, scores and slopes are `(slices, clouds)` rows.
extern "C" __global__ void __launch_bounds__(THREADS, blocks_of(PAIRS ? (ITEMS > 16 ? 256 : 512) : 768)) match_rows(
    const float* x, const float* y, const float* theta, double* scores, float* x_slopes, float* y_slopes, int n, int dim,
    int slices, float p, double factor) {
    SHARED(u32, shared);
    long long line = blockIdx.x;
    if (PROJECTS) {
        // Blocks of one cloud follow each other, and find it in the cache.
        const int cloud = blockIdx.x / slices, slice = blockIdx.x % slices;
        line = (long long)slice * (gridDim.x / slices) + cloud;
        x += (long long)cloud * n * dim;
        y += (long long)cloud * n * dim;
        theta += (long long)slice * dim;
    }
    const int own = own_count(n);
    float value[ITEMS];
    u32 place[PAIRS ? ITEMS : 1];
    const float* centre = nullptr;
    // One copy of the code sorts both.
#pragma unroll 1
    for (int side = 0; side < 2; side++) {
        const float* source = side ? y : x;
        float row[ITEMS];
        // Few clouds are far from the origin: x is checked after it is projected, and if far, projected again.
        if (PROJECTS) {
            for (bool again = true; again;) {
                project_row(row, source, theta, centre, n, dim);
                again = !side && !centre && (centre = find_centre(x, n, dim, shared));
            }
        } else load_row(row, source + line * n, n);
        // Places are costly: only a cloud whose slopes are wanted is sorted with them.
        sort_on_chip(row, side ? y_slopes : x_slopes, nullptr, n, shared);
#pragma unroll
        for (int r = 0; r < ITEMS; r++) {
            float sorted = r < own ? number(shared[at_own(r)]) : 0.0f;
            value[r] = side ? value[r] - sorted : sorted;
            if (PAIRS && !side) place[PAIRS ? r : 0] = r < own ? shared[PADDED + at_own(r)] : 0;
        }
        __syncthreads();
    }
    float* staged = reinterpret_cast<float*>(shared);
    double sum = block_sum(price(value, staged, n, p, (float)(factor / n)), shared + SCRATCH);
    if (threadIdx.x == 0) scores[line] = factor * sum / n;
#if PAIRS
    // Slopes go to their places on chip, so that rows are written in order. No thread is still pricing:
    // `block_sum` waits for all of them.
    if (x_slopes)
#pragma unroll
        for (int r = 0; r < ITEMS; r++)
            if (r < own) staged[at(place[r])] = value[r];
    __syncthreads();
    if (x_slopes)
        for (int k = threadIdx.x; k < n; k += THREADS) x_slopes[line * n + k] = staged[at(k)];
    if (!y_slopes) return;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ITEMS; r++)
        if (r < own) staged[at(shared[PADDED + at_own(r)])] = -value[r];
    __syncthreads();
    for (int k = threadIdx.x; k < n; k += THREADS) y_slopes[line * n + k] = staged[at(k)];
#endif
}

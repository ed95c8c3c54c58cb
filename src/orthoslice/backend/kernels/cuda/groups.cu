// Groups of points matched with their partners as cheaply as can be: a block a group, whose costs are in shared memory.

// Compiled with THREADS and LARGEST, the most points of a group, defined.

#include "block.cuh"

constexpr int EACH = LARGEST / 32;  // columns that a lane has: every 32nd

// |a - b|^p of points with `dim` coordinates.
__device__ float distance_power(const float* a, const float* b, int dim, float p) {
    float square = 0;
    for (int d = 0; d < dim; d++) {
        float gap = a[d] - b[d];
        square += gap * gap;
    }
    return p == 2 ? square : p == 1 ? sqrtf(square) : powf(square, p / 2);
}

// A warp matches rows with columns of `costs (size, size)`, whose rows are LARGEST apart: the `column` of every row.
//
// Shortest augmenting paths (Jonker and Volgenant 1987): prices u of rows and v of columns keep cost - u - v at
// least 0, and 0 on matched pairs, so that a search in order of length finds how best to match one more row.
// Every loop ends, and what it finds is a matching, whatever the costs are; NaN among them.
__device__ void assign(const float* costs, int size, float* u, int* column) {
    const int lane = threadIdx.x % 32;
    float v[EACH], path[EACH];
    int row[EACH], came[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        v[k] = INFINITE;
        row[k] = -1;
    }
    for (int i = 0; i < size; i++) {
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (lane + 32 * k < size) v[k] = fminf(v[k], costs[i * LARGEST + lane + 32 * k]);
    }
    for (int start = 0; start < size; start++) {
        // A bit for each of a lane's columns to which the shortest path is known.
        u32 done = 0;
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            path[k] = INFINITE;
            came[k] = start;
            if (lane + 32 * k >= size) done |= 1u << k;
        }
        int i = start, end = -1;
        float length = 0, price = 0;
        while (end == -1) {
            // Path lengths are inverted, since the instruction finds the maximum and the shortest is wanted.
            u32 best = 0;
            int which = 0, owner = -1;
#pragma unroll
            for (int k = 0; k < EACH; k++) {
                if (done >> k & 1) continue;
                float through = length + (costs[i * LARGEST + lane + 32 * k] - price - v[k]);
                if (through < path[k]) {
                    path[k] = through;
                    came[k] = i;
                }
                u32 nearness = max(~ordered(path[k]), 1u);
                if (nearness > best) {
                    best = nearness;
                    which = k;
                    owner = row[k];
                }
            }
            u32 top = __reduce_max_sync(EVERYONE, best);
            u32 nearest = __ballot_sync(EVERYONE, best == top);
            int winner = __popc((nearest & (0u - nearest)) - 1);
            if (lane == winner) done |= 1u << which;
            int found = __shfl_sync(EVERYONE, which, winner) * 32 + winner;
            i = __shfl_sync(EVERYONE, owner, winner);
            length = number(~top);
            if (i == -1) end = found;
            else price = u[i];
        }
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            int j = lane + 32 * k;
            if (j < size && (done >> k & 1) && row[k] != -1) {
                u[row[k]] += length - path[k];
                v[k] -= length - path[k];
            }
        }
        if (lane == 0) u[start] = length;
        // Back along the path, every row takes the column that it leads to.
        for (int j = end; j != -1;) {
            int from = 0;
#pragma unroll
            for (int k = 0; k < EACH; k++)
                if (k == j / 32) from = came[k];
            from = __shfl_sync(EVERYONE, from, j % 32);
#pragma unroll
            for (int k = 0; k < EACH; k++)
                if (lane + 32 * k == j) row[k] = from;
            int next = from == start ? -1 : column[from];
            __syncwarp();
            if (lane == 0) column[from] = j;
            __syncwarp();
            j = next;
        }
        __syncwarp();
    }
}

// Where a group begins if n places are halved `levels` times.
__device__ long long group_start(long long n, int levels, long long group) {
    return (2 * group * n + (1ll << levels) - 1) >> (levels + 1);
}

// What the points `order[first .. stop]` of every group should have for partners, among those that they have.
extern "C" __global__ void __launch_bounds__(THREADS) match_groups(
    const float* x, const float* y, const long long* order, const long long* partner, long long* better, int n, int dim,
    int levels, float p) {
    SHARED(float, costs);
    float* u = costs + LARGEST * LARGEST;
    int* column = reinterpret_cast<int*>(u + LARGEST);
    int* mine = column + LARGEST;
    int* theirs = mine + LARGEST;
    long long first = group_start(n, levels, blockIdx.x);
    int size = (int)(group_start(n, levels, blockIdx.x + 1ll) - first);
    for (int k = threadIdx.x; k < size; k += THREADS) {
        mine[k] = (int)order[first + k];
        theirs[k] = (int)partner[mine[k]];
    }
    __syncthreads();
    for (int cell = threadIdx.x; cell < size * size; cell += THREADS) {
        int i = cell / size, j = cell % size;
        costs[i * LARGEST + j] =
            distance_power(x + (long long)mine[i] * dim, y + (long long)theirs[j] * dim, dim, p);
    }
    __syncthreads();
    if (threadIdx.x < 32) assign(costs, size, u, column);
    __syncthreads();
    for (int k = threadIdx.x; k < size; k += THREADS) better[mine[k]] = theirs[column[k]];
}

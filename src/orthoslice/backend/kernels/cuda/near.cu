// The columns that cost a row least, from the groups of columns that have them: a warp a row.

// Compiled with THREADS and GROUP, the columns of a group, defined.

#include "block.cuh"

constexpr int EACH = GROUP / 32;  // columns of a group that a lane has, one after the other
static_assert(EACH == 4, "a lane reads its columns at once");
constexpr float GONE = 3.4e38f;

__device__ __forceinline__ float power(float square, float p) {
    return p == 2 ? square : p == 1 ? sqrtf(square) : powf(square, p / 2);
}
__device__ __forceinline__ double power(double square, double p) {
    return p == 2 ? square : p == 1 ? sqrt(square) : pow(square, p / 2);
}

// For the row `rows[k]` of every warp: the `size` columns of least |x - y|^p + price of those in its `groups
// (n_rows, size)`, whose least such numbers are at most `limit (n_rows)`, with their costs, in float64, and the
// last one's |x - y|^p + price, which no other column is below. `x_columns (dim, n)`, `y_columns (dim, m)` and
// `price (m)` are rounded; `x (., dim)` and `y (., dim)` are not.
extern "C" __global__ void __launch_bounds__(THREADS) nearest_columns(
    const float* x_columns, const float* y_columns, const float* price, const double* x, const double* y,
    const long long* rows, const long long* groups, const float* limit, int* columns, double* near, double* bound,
    long long n, long long m, int n_rows, int dim, int size, double p) {
    SHARED(float, room);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, most = size * GROUP;
    const long long task = (long long)blockIdx.x * WARPS + warp;
    if (task >= n_rows) return;
    float* values = room + (long long)warp * (2 * most + dim);
    int* where = reinterpret_cast<int*>(values + most);
    float* own = values + 2 * most;
    const long long row = rows[task];
    for (int d = lane; d < dim; d += 32) own[d] = x_columns[d * n + row];
    __syncwarp();
    const float reach = limit[task] + 1e-5f * fabsf(limit[task]);
    int count = 0;
    for (int k = 0; k < size; k++) {
        const long long column = groups[task * size + k] * GROUP + lane * EACH;
        float total[EACH];
#pragma unroll
        for (int c = 0; c < EACH; c++) total[c] = 0;
        for (int d = 0; d < dim; d++) {
            float4 other = *reinterpret_cast<const float4*>(y_columns + d * m + column);
            float theirs[EACH] = {other.x, other.y, other.z, other.w};
#pragma unroll
            for (int c = 0; c < EACH; c++) {
                float gap = own[d] - theirs[c];
                total[c] += gap * gap;
            }
        }
#pragma unroll
        for (int c = 0; c < EACH; c++) {
            float value = power(total[c], (float)p) + price[column + c];
            u32 takers = __ballot_sync(EVERYONE, value <= reach);
            if (value <= reach) {
                int at = count + __popc(takers & ((1u << lane) - 1));
                values[at] = value;
                where[at] = (int)column + c;
            }
            count += __popc(takers);
        }
    }
    __syncwarp();
    float last = GONE;
    for (int k = 0; k < size; k++) {
        float least = GONE;
        int which = -1;
        for (int at = lane; at < count; at += 32) {
            if (values[at] < least) {
                least = values[at];
                which = at;
            }
        }
        u32 top = __reduce_max_sync(EVERYONE, ~ordered(least));
        u32 winners = __ballot_sync(EVERYONE, which >= 0 && ~ordered(least) == top);
        // Rounding may have left fewer: the first one then stands for the others.
        int winner = winners ? __ffs((int)winners) - 1 : 0;
        if (winners && lane == winner) {
            columns[row * size + k] = where[which];
            values[which] = GONE;
        } else if (!winners && lane == 0) {
            columns[row * size + k] = k ? columns[row * size] : (int)(groups[task * size] * GROUP);
        }
        if (winners) last = number(~top);
        __syncwarp();
    }
    for (int k = lane; k < size; k += 32) {
        const double* other = y + (long long)columns[row * size + k] * dim;
        double total = 0;
        for (int d = 0; d < dim; d++) {
            double gap = x[row * dim + d] - other[d];
            total += gap * gap;
        }
        near[row * size + k] = power(total, p);
    }
    if (lane == 0) bound[row] = last;
}

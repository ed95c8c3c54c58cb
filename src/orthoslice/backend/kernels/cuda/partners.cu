// Who is matched with whom where two clouds `x (n, dim)` and `y (n, dim)` are coupled by their orders along directions.
//
// Places `(2, slices, n)` are those of sorted projections, in clouds that are themselves read in an order,
// `order (2, n)`. Partners `of_x (slices, n)` and `of_y (slices, n)` are written for the clouds for which they are not
// null. No block of the kernel that reads them is `done` yet.
//
// Compiled with THREADS defined.

#include "block.cuh"

// A direction and a cloud: where its partners go, and the places of both clouds.
struct Row {
    const int *x_places, *y_places;
    int* out;
    bool of_x;

    // Row k of all rows of x, where it has partners, and then of y.
    __device__ Row(const int* places, int* x_out, int* y_out, int k, int slices, int n) : of_x(x_out && k < slices) {
        long long start = (long long)(x_out && !of_x ? k - slices : k) * n;
        x_places = places + start;
        y_places = x_places + (long long)slices * n;
        out = (of_x ? x_out : y_out) + start;
    }
};

// Short rows, by `blocks` that take one after the other, with both orders on chip: partners are put in order there, and
// written in one go. There are `rows` of all clouds that have partners.
extern "C" __global__ void __launch_bounds__(THREADS) match_short_rows(
    const long long* order, const int* places, int* of_x, int* of_y, u32* done, int slices, int n, int rows,
    int blocks) {
    SHARED(u16, on_chip);
    u16 *x_order = on_chip, *y_order = x_order + n, *partners = y_order + n;
    if (blockIdx.x == 0 && threadIdx.x == 0) *done = 0;
    for (int k = threadIdx.x; k < 2 * n; k += THREADS) on_chip[k] = (u16)order[k];
    for (int k = blockIdx.x; k < rows; k += blocks) {
        Row row(places, of_x, of_y, k, slices, n);
        __syncthreads();
#pragma unroll 4
        for (int j = threadIdx.x; j < n; j += THREADS) {
            u16 one = x_order[row.x_places[j]], other = y_order[row.y_places[j]];
            partners[row.of_x ? one : other] = row.of_x ? other : one;
        }
        __syncthreads();
#pragma unroll 4
        for (int j = threadIdx.x; j < n; j += THREADS) row.out[j] = partners[j];
    }
}

// Rows of any length, by `parts` blocks each.
extern "C" __global__ void __launch_bounds__(THREADS) match_long_rows(
    const long long* order, const int* places, int* of_x, int* of_y, u32* done, int slices, int n, int parts) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *done = 0;
    int j = blockIdx.x % parts * THREADS + threadIdx.x;
    if (j >= n) return;
    Row row(places, of_x, of_y, blockIdx.x / parts, slices, n);
    int one = (int)order[row.x_places[j]], other = (int)order[n + row.y_places[j]];
    row.out[row.of_x ? one : other] = row.of_x ? other : one;
}

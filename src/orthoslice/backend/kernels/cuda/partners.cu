// Who is matched with whom where two clouds `x (n, dim)` and `y (n, dim)` are coupled by their orders along directions.
//
// Compiled with THREADS defined.

#include "block.cuh"

// Partners `of_x (slices, n)` and `of_y (slices, n)` of the points of the clouds for which they are not null. Places
// `(2, slices, n)` are those of sorted projections, in clouds that are themselves read in an order, `order (2, n)`. With
// one of `parts` a block puts partners in order on chip, so that they are written in one go. No block of the
// next kernel is `done` yet.
extern "C" __global__ void __launch_bounds__(THREADS) match_points(
    const long long* order, const int* places, int* of_x, int* of_y, u32* done, int slices, int n, int parts) {
    SHARED(int, on_chip);
    int row = blockIdx.x / parts, part = blockIdx.x % parts;
    if (blockIdx.x == 0 && threadIdx.x == 0) *done = 0;
    bool is_x = of_x && row < slices;
    if (of_x && !is_x) row -= slices;
    const int *x_places = places + (long long)row * n, *y_places = x_places + (long long)slices * n;
    int *out = (is_x ? of_x : of_y) + (long long)row * n, *to = parts > 1 ? out : on_chip;
#pragma unroll 4
    for (int k = part * THREADS + threadIdx.x; k < n; k += parts * THREADS) {
        int i = (int)order[x_places[k]], j = (int)order[n + y_places[k]];
        to[is_x ? i : j] = is_x ? j : i;
    }
    if (parts > 1) return;
    __syncthreads();
    for (int k = threadIdx.x; k < n; k += THREADS) out[k] = on_chip[k];
}

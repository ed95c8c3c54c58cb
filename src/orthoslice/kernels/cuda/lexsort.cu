// The lexicographic order of points: a sort by the first coordinate, with the others for those that tie.

// Compiled with THREADS defined.

#include "block.cuh"

// Whether point i comes before point j, whose first coordinates are equal.
__device__ bool before(const float* points, int dim, u32 i, u32 j) {
    for (int d = 1; d < dim; d++) {
        u32 a = ordered(points[(long long)i * dim + d]), b = ordered(points[(long long)j * dim + d]);
        if (a != b) return a < b;
    }
    return i < j;
}

// The order of the points of every cloud, `points (clouds, n, dim)`: a bitonic network, one block a cloud.
extern "C" __global__ void __launch_bounds__(THREADS) lexicographic_order(
    const float* points, int n, int dim, long long* order) {
    SHARED(u32, shared);
    u32 *keys = shared, *places = shared + n;
    const float* cloud = points + (long long)blockIdx.x * n * dim;
    for (int k = threadIdx.x; k < n; k += THREADS) {
        keys[k] = ordered(cloud[(long long)k * dim]);
        places[k] = k;
    }
    __syncthreads();
    int half = 1;
    while (2 * half < n) half *= 2;
    for (int length = 2; length <= 2 * half; length *= 2)
        for (int stride = length / 2; stride > 0; stride /= 2) {
            bool flip = stride == length / 2;
            for (int pair = threadIdx.x; pair < half; pair += THREADS) {
                int offset = pair % stride, first = (pair / stride) * 2 * stride;
                int i = first + offset, j = flip ? first + 2 * stride - 1 - offset : i + stride;
                if (j >= n) continue;
                u32 a = keys[i], b = keys[j];
                if (b < a || (a == b && before(cloud, dim, places[j], places[i]))) {
                    u32 place = places[i];
                    keys[i] = b;
                    keys[j] = a;
                    places[i] = places[j];
                    places[j] = place;
                }
            }
            __syncthreads();
        }
    for (int k = threadIdx.x; k < n; k += THREADS) order[(long long)blockIdx.x * n + k] = places[k];
}

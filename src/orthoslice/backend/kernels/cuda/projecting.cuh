// Projections of a cloud made where they are sorted. Included with THREADS, ITEMS and PAIRS defined.

#pragma once
#include "on_chip.cuh"

// Words of shared memory beyond those for sorting, at a multiple of 16 bytes: the centre of clouds.
constexpr int CENTRE = (DIGIT_COUNTS + DIGIT_COUNT_WORDS + 3) / 4 * 4;

__device__ __forceinline__ float4 four(const float* from, bool aligned) {
    if (aligned) return *reinterpret_cast<const float4*>(from);
    return {from[0], from[1], from[2], from[3]};
}

// Project n points (n, dim) on one direction; where `centre (dim,)` in shared memory is not null, less that.
__device__ void project_row(
    float (&values)[ITEMS], const float* points, const float* theta, const float* centre, int n, int dim) {
#pragma unroll
    for (int r = 0; r < ITEMS; r++) values[r] = 0.0f;
    bool aligned = ((size_t)points | (size_t)theta) % 16 == 0;
    if (dim % 4 == 0) {
        for (int d = 0; d < dim; d += 4) {
            const float4 along = four(theta + d, aligned), zero = {0.0f, 0.0f, 0.0f, 0.0f};
            const float4 off = centre ? *reinterpret_cast<const float4*>(centre + d) : zero;
#pragma unroll
            for (int r = 0; r < ITEMS; r++) {
                int k = r * THREADS + threadIdx.x;
                if (k < n) {
                    const float4 a = four(points + (long long)k * dim + d, aligned);
                    values[r] += (a.x - off.x) * along.x + (a.y - off.y) * along.y +
                                 ((a.z - off.z) * along.z + (a.w - off.w) * along.w);
                }
            }
        }
        return;
    }
    for (int d = 0; d < dim; d++) {
        float off = centre ? centre[d] : 0.0f;
#pragma unroll
        for (int r = 0; r < ITEMS; r++) {
            int k = r * THREADS + threadIdx.x;
            if (k < n) values[r] += (points[(long long)k * dim + d] - off) * theta[d];
        }
    }
}

// Where a cloud sits in coordinates in which that is far from 0, with 0 for the others; null if there are no such.
__device__ const float* find_centre(const float* x, int n, int dim, u32* shared) {
    float* centre = reinterpret_cast<float*>(shared + CENTRE);
    u32 is_far = 0;
    for (int d = threadIdx.x; d < dim; d += THREADS) {
        centre[d] = far_coordinate(x, nullptr, n, dim, d);
        is_far |= centre[d] != 0.0f;
    }
    return block_max(is_far, shared + SCRATCH) ? centre : nullptr;
}

// Weights of points as integers of 64 bits, whose sums are exact in any order. Included with THREADS defined.

#pragma once
#include "block.cuh"

constexpr double ALL_MASS = 4611686018427387904.0;  // 2^62: the masses of a cloud sum to it, up to half a unit a point

// Of a cloud: its weights times `scale` are masses; `factor` is 1, or NaN where its weights are unsound.
struct Scale {
    double scale, factor;
};

__device__ __forceinline__ u64 mass_of(double weight, double scale) { return (u64)llrint(weight * scale); }

// The weights of a cloud, of single or double precision, and how masses are made of them.
struct Weights {
    const void* table;
    bool is_double;
    double scale;

    __device__ __forceinline__ u64 mass(u32 place) const {
        if (is_double) return mass_of(static_cast<const double*>(table)[place], scale);
        return mass_of(static_cast<const float*>(table)[place], scale);
    }
};

// Weights `(batch, size)` of cloud k % batch, of x or of y; scales are those of all clouds of x, then of y.
__device__ __forceinline__ Weights weights_of(
    const void* table, bool is_double, const Scale* scales, bool of_y, int k, int batch, int size) {
    int cloud = k % batch;
    long long first = (long long)cloud * size;
    const void* own = is_double ? (const void*)(static_cast<const double*>(table) + first)
                                : (const void*)(static_cast<const float*>(table) + first);
    return {own, is_double, scales[of_y ? batch + cloud : cloud].scale};
}

__device__ __forceinline__ u64 shuffle_up(u64 value, int step) {
    u64 high = __shfl_up_sync(EVERYONE, (u32)(value >> 32), step);
    return high << 32 | __shfl_up_sync(EVERYONE, (u32)value, step);
}

// The sum over all threads before this one; `sums` is room for one of every warp.
__device__ u64 block_scan(u64 value, u64* sums) {
    u64 sum = value;
    for (int step = 1; step < 32; step *= 2) {
        u64 other = shuffle_up(sum, step);
        if (threadIdx.x % 32 >= step) sum += other;
    }
    if (threadIdx.x % 32 == 31) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    u64 before = 0;
    for (int w = 0; w < threadIdx.x / 32; w++) before += sums[w];
    __syncthreads();
    return before + sum - value;
}

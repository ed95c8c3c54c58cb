// How masses are made of weights.

#include "masses.cuh"

template <class Real>
__device__ __forceinline__ void add_up_weights(
    const Real* weights, long long size, double& sum, u64& units, bool& sound) {
#pragma unroll 8
    for (long long k = threadIdx.x; k < size; k += THREADS) {
        double weight = weights[k];
        // Written so that NaN is unsound.
        bool usable = weight >= 0 && weight <= 2;
        sound = sound && usable;
        sum += weight;
        units += usable ? mass_of(weight, ALL_MASS) : 0;
    }
}

// Scales of clouds with weights x `(batch, n)` and y `(batch, m)`; null where points weigh the same. Weights are sound if none
// is negative and their sum is 1 up to a tolerance. A block takes one cloud.
//
// Scales are of sums of integers, so that clouds whose weights are in another order have the same masses.
extern "C" __global__ void __launch_bounds__(THREADS) scale_weights(
    const void* x_weights, const void* y_weights, Scale* scales, long long n, long long m, int doubles, int batch,
    double x_tolerance, double y_tolerance) {
    SHARED(u64, shared);
    bool of_y = blockIdx.x >= batch;
    const void* table = of_y ? y_weights : x_weights;
    long long size = of_y ? m : n, first = (of_y ? blockIdx.x - batch : blockIdx.x) * size;
    double sum = 0;
    u64 units = 0;
    bool sound = true;
    if (table) {
        if (doubles >> of_y & 1) add_up_weights(static_cast<const double*>(table) + first, size, sum, units, sound);
        else add_up_weights(static_cast<const float*>(table) + first, size, sum, units, sound);
        sum = block_sum(sum, reinterpret_cast<u32*>(shared));
        sound = !__syncthreads_or(!sound) && fabs(sum - 1) <= (of_y ? y_tolerance : x_tolerance);
        units += block_scan(units, shared);
    }
    // The last thread has the sum of all.
    if (threadIdx.x == THREADS - 1)
        scales[blockIdx.x] = {
            sound && table ? ALL_MASS / ((double)units / ALL_MASS) : 0, sound ? 1 : (double)INFINITE - (double)INFINITE};
}

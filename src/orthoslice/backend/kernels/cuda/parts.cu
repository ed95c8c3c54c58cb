// Sums of the parts of rows, for programs that have no double precision of their own.

#include "block.cuh"

// Rows of `sums (rows, parts)` added up, to double or to single precision: one of `wide` and `narrow` is null. A block takes a row.
extern "C" __global__ void __launch_bounds__(THREADS) add_parts(const double* sums, double* wide, float* narrow, int parts) {
    SHARED(u32, shared);
    double total = 0.0;
    for (int k = threadIdx.x; k < parts; k += THREADS) total += sums[(long long)blockIdx.x * parts + k];
    double sum = block_sum(total, shared);
    if (threadIdx.x) return;
    if (wide) wide[blockIdx.x] = sum;
    if (narrow) narrow[blockIdx.x] = (float)sum;
}

// What programs of JAX need besides the kernels of a step: sums in single precision, and clouds brought in range.

#include "block.cuh"

// Rows of `sums (rows, parts)` added up, to double or to single precision: one of `wide` and `narrow` is null. A block takes
// a row.
extern "C" __global__ void __launch_bounds__(THREADS) add_parts(const double* sums, double* wide, float* narrow, int parts) {
    SHARED(u32, shared);
    double total = 0.0;
    for (int k = threadIdx.x; k < parts; k += THREADS) total += sums[(long long)blockIdx.x * parts + k];
    double sum = block_sum(total, shared);
    if (threadIdx.x) return;
    if (wide) wide[blockIdx.x] = sum;
    if (narrow) narrow[blockIdx.x] = (float)sum;
}

// The largest magnitudes, as bits, of parts of clouds of n and m numbers: one a block. Those of NaN and infinity are largest.
extern "C" __global__ void __launch_bounds__(THREADS) find_tops(
    const float* x, const float* y, u32* tops, long long n, long long m, int parts) {
    SHARED(u32, shared);
    u32 top = 0;
    for (long long k = (long long)blockIdx.x * THREADS + threadIdx.x; k < n + m; k += (long long)parts * THREADS)
        top = max(top, __float_as_uint(k < n ? x[k] : y[k - n]) & 0x7fffffffu);
    top = block_max(top, shared);
    if (threadIdx.x == 0) tops[blockIdx.x] = top;
}

// Rows of `theta (slices, dim)` divided by 2^e, where p-th powers of distances might leave the range otherwise, and e: then
// the projections are those of clouds divided by that. `reach` is how many powers of two two points may be further apart
// than the largest magnitude. A block takes a row.
extern "C" __global__ void __launch_bounds__(THREADS) scale_rows(
    const float* theta, const u32* tops, float* out, float* exponent, int parts, int dim, double reach, double room, int most) {
    SHARED(u32, shared);
    u32 top = 0;
    for (int k = threadIdx.x; k < parts; k += THREADS) top = max(top, tops[k]);
    int field = block_max(top, shared) >> 23;
    // A number with this field is below 2^(field - 126).
    double extent = field - 126 + reach;
    // Clouds that hold NaN or infinity stay as they are.
    int power = field == 255 || fabs(extent) < room ? 0 : max(-most, min(most, (int)ceil(extent)));
    float down = __uint_as_float((u32)(127 - power) << 23);
    for (int d = threadIdx.x; d < dim; d += THREADS)
        out[(long long)blockIdx.x * dim + d] = theta[(long long)blockIdx.x * dim + d] * down;
    if (blockIdx.x == 0 && threadIdx.x == 0) *exponent = (float)power;
}

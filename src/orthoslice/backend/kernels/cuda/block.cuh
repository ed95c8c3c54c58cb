// What the threads of a block do together, and what a pair of numbers costs. Included with THREADS defined.

#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int WARPS = (THREADS + 31) / 32;
static_assert(WARPS <= 32, "a lane stands for a warp");
constexpr int SCRATCH_WORDS = 5 * WARPS + 1;  // of shared memory, for the functions that take `scratch`
constexpr u32 EVERYONE = 0xffffffffu;
#define INFINITE __uint_as_float(0x7f800000u)

// Unsigned integers in the order of the numbers; minus zero counts as zero.
__device__ __forceinline__ u32 ordered(float value) {
    u32 bits = __float_as_uint(value + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float number(u32 key) {
    return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

// The largest of what every warp has left at `words[stride * warp]`; a lane reads one of them.
__device__ __forceinline__ u32 max_of_warps(const u32* words, int stride) {
    int lane = threadIdx.x % 32;
    return __reduce_max_sync(EVERYONE, lane < WARPS ? words[stride * lane] : 0);
}

__device__ u32 block_max(u32 value, u32* scratch) {
    u32 top = __reduce_max_sync(EVERYONE, value);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = top;
    __syncthreads();
    top = max_of_warps(scratch, 1);
    __syncthreads();
    return top;
}

// The range of all threads' numbers, and whether all of them are finite.
__device__ void block_range(float& low, float& high, bool& finite, u32* scratch) {
    // Words that no other function here uses, so that the next one need not wait until all threads read them.
    u32* tops = scratch + 2 * WARPS;
    u32 below = __reduce_max_sync(EVERYONE, ordered(-low));
    u32 above = __reduce_max_sync(EVERYONE, ordered(high));
    u32 broken = __reduce_max_sync(EVERYONE, !finite);
    if (threadIdx.x % 32 == 0) {
        tops[3 * (threadIdx.x / 32)] = below;
        tops[3 * (threadIdx.x / 32) + 1] = above;
        tops[3 * (threadIdx.x / 32) + 2] = broken;
    }
    __syncthreads();
    low = -number(max_of_warps(tops, 3));
    high = number(max_of_warps(tops + 1, 3));
    finite = !max_of_warps(tops + 2, 3);
}

__device__ double block_sum(double value, u32* scratch) {
    double* sums = reinterpret_cast<double*>(scratch);
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(EVERYONE, value, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    double total = 0;
    for (int w = 0; w < WARPS; w++) total += sums[w];
    return total;
}

// Which lanes of the warp have the same `digit` as this one, which is less than 2^BITS.
template <int BITS>
__device__ __forceinline__ u32 lanes_alike(u32 digit) {
    u32 alike = EVERYONE;
#pragma unroll
    for (int bit = 0; bit < BITS; bit++) {
        bool is_set = digit >> bit & 1;
        u32 set = __ballot_sync(EVERYONE, is_set);
        alike &= is_set ? set : ~set;
    }
    return alike;
}

// The sum over all threads before this one.
__device__ u32 block_scan(u32 value, u32* scratch) {
    u32 sum = value;
    for (int step = 1; step < 32; step *= 2) {
        u32 other = __shfl_up_sync(EVERYONE, sum, step);
        if (threadIdx.x % 32 >= step) sum += other;
    }
    if (threadIdx.x % 32 == 31) scratch[threadIdx.x / 32] = sum;
    __syncthreads();
    int lane = threadIdx.x % 32;
    u32 before = __reduce_add_sync(EVERYONE, lane < threadIdx.x / 32 ? scratch[lane] : 0);
    __syncthreads();
    return before + sum - value;
}

// Sort entries 0 .. n - 1, which can be got, put and compared, by a bitonic network of the kind whose comparators all
// point the same way, so that any size will do.
template <class Entries>
__device__ __noinline__ void sort_by_network(Entries entries, int n) {
    typedef typename Entries::Entry Entry;
    int half = 1;
    while (2 * half < n) half *= 2;
    for (int length = 2; length <= 2 * half; length *= 2) {
        for (int stride = length / 2; stride > 0; stride /= 2) {
            bool flip = stride == length / 2;
            for (int pair = threadIdx.x; pair < half; pair += THREADS) {
                int offset = pair % stride;
                int i = (pair / stride) * 2 * stride + offset;
                int j = flip ? (pair / stride) * 2 * stride + 2 * stride - 1 - offset : i + stride;
                if (j < n) {
                    Entry a = entries.get(i), b = entries.get(j);
                    if (b < a) {
                        entries.put(i, b);
                        entries.put(j, a);
                    }
                }
            }
            __syncthreads();
        }
    }
}

// Where a cloud `x (n, dim)` sits in coordinate d if that is far from 0, by the middle of five of its points; otherwise 0.
// Taken off both clouds before they are projected, it changes no cost, and keeps digits that projections would lose.
// Clouds around 0 stay where they are. One point of the five may be anywhere. With `order` they are points in that order,
// and the answer does not depend on how the rows are ordered.
__device__ float far_coordinate(const float* x, const long long* order, int n, int dim, int d) {
    constexpr int POINTS = 5;
    float value[POINTS];
#pragma unroll
    for (int k = 0; k < POINTS; k++) {
        long long point = ((long long)(n - 1) * k + 2) / (POINTS - 1);
        value[k] = x[(order ? order[point] : point) * dim + d];
    }
    // NaN gives way to numbers here, and spoils its own point in the projection.
#pragma unroll
    for (int round = 0; round < POINTS; round++)
#pragma unroll
        for (int k = round % 2; k + 1 < POINTS; k += 2) {
            float low = fminf(value[k], value[k + 1]);
            value[k + 1] = fmaxf(value[k], value[k + 1]);
            value[k] = low;
        }
    return fabsf(value[2]) > 16.0f * (value[3] - value[1]) ? value[2] : 0.0f;
}

__device__ __forceinline__ float cost(float difference, float p) {
    float size = fabsf(difference);
    return p == 2.0f ? size * size : p == 1.0f ? size : powf(size, p);
}

// The derivative of the cost, 0 at 0; NaN stays NaN.
__device__ __forceinline__ float slope(float difference, float p) {
    if (p == 2.0f) return 2.0f * difference;
    if (difference == 0.0f) return 0.0f;
    float size = p == 1.0f ? 1.0f : p * powf(fabsf(difference), p - 1.0f);
    return difference != difference ? difference : copysignf(size, difference);
}

// The value of a step in single precision, and one more step of a training run.
__device__ __forceinline__ void put_sum(double sum, float* out, long long* step) {
    // A sum that float32 does not hold becomes NaN, as bad input does: never a silent infinity.
    float value = (float)sum;
    *out = fabsf(value) < INFINITE ? value : __uint_as_float(0x7fc00000u);
    if (step) ++*step;
}

// Such a value: `share` times the sum of `count` scores, `stride` apart, by one block, always in the same order.
__device__ void add_up_scores(
    const double* scores, int count, float* out, long long* step, u32* scratch, int stride = 1, double share = 1.0) {
    double total = 0.0;
    for (int k = threadIdx.x; k < count; k += THREADS) total += scores[(long long)k * stride];
    double sum = share * block_sum(total, scratch);
    if (threadIdx.x == 0) put_sum(sum, out, step);
}

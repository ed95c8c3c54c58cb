// What a pair of points costs in full space, and how its points are pulled. Numbers are float or double. Included with
// THREADS defined.

#pragma once

#include "block.cuh"

// Of a point: its partner along a direction, and how much of their difference pulls it.
template <class Real>
struct Match {
    int partner;
    Real pull;
};

// As many threads of a warp as there are coordinates work on one pair, up to a power of two.
__device__ __forceinline__ int lanes_for(int dim) {
    int lanes = 1;
    while (lanes < dim && lanes < 32) lanes *= 2;
    return lanes;
}

// |x - y|^2, by `lanes` threads that all get it; all threads of a warp call it together.
template <class Real>
__device__ __forceinline__ Real square_of_difference(const Real* x, const Real* y, int dim, int lane, int lanes) {
    Real square = 0;
    for (int d = lane; d < dim; d += lanes) {
        Real difference = x[d] - y[d];
        square += difference * difference;
    }
    for (int step = lanes / 2; step > 0; step /= 2) square += __shfl_xor_sync(EVERYONE, square, step);
    return square;
}

// square^(p/2); NaN stays NaN.
__device__ __forceinline__ double power_of_root(double square, double p) {
    return p == 2.0 ? square : p == 1.0 ? sqrt(square) : pow(square, 0.5 * p);
}

// How much of the difference of a pair pulls its points, for a pair with this mass and cost.
template <class Real>
__device__ __forceinline__ Real pull_of(double square, double p, double mass, double cost) {
    // |d|^(p - 2) has no value where points coincide, and nothing pulls there.
    return square == 0.0 ? (Real)0 : (Real)(p * mass * cost / square);
}

// The gradient `(dim,)` by the point `own`, by one block: what pulls it is added up over the directions, always in the
// same order. Of direction s its match is `mine[s * stride]`. `sums` is room for 4 numbers a thread.
template <class Real>
__device__ void pull_point(
    const Real* own, const Real* others, const Match<Real>* mine, long long stride, int slices, int dim, Real* gradient,
    Real* sums) {
    // Groups of threads share out the directions, and hold 4 coordinates a thread.
    int lanes = lanes_for(dim), groups = THREADS / lanes, group = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    for (int first = 0; first < dim; first += 4 * lanes) {
        Real here[4], pulled[4] = {};
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int d = first + c * lanes + lane;
            here[c] = d < dim ? own[d] : (Real)0;
        }
#pragma unroll 4
        for (int slice = group; slice < slices; slice += groups) {
            Match<Real> match = mine[slice * stride];
            const Real* other = others + (long long)match.partner * dim;
#pragma unroll
            for (int c = 0; c < 4; c++) {
                int d = first + c * lanes + lane;
                if (d < dim) pulled[c] += match.pull * (here[c] - other[d]);
            }
        }
#pragma unroll
        for (int c = 0; c < 4; c++) sums[group * 4 * lanes + c * lanes + lane] = pulled[c];
        __syncthreads();
        for (int k = threadIdx.x; k < 4 * lanes && first + k < dim; k += THREADS) {
            Real sum = 0;
            for (int g = 0; g < groups; g++) sum += sums[g * 4 * lanes + k];
            gradient[first + k] = sum;
        }
        __syncthreads();
    }
}

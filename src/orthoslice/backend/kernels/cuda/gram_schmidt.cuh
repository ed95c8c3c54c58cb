// Gram-Schmidt by panels of PANEL rows, and what a training run keeps of the directions of its next steps.
//
// Included with THREADS, PANEL and SMALL defined: threads of a block, rows of a panel, and the length of the rows of small
// tables. Tables in shared memory are read without bank conflicts if their rows are four numbers longer than a multiple
// of 16.

#pragma once

typedef unsigned int u32;

constexpr int WARPS = THREADS / 32;
constexpr u32 EVERYONE = 0xffffffffu;  // all lanes of a warp
constexpr double LEAST_PIVOT = 1e-5;   // of the square of a row
constexpr int MOST_PASSES = 8;         // over a panel

// Which directions were drawn ahead and are held: those of the steps group * ahead, ..., group * ahead + ahead - 1 of a
// training run with this key. `finished` counts the thread blocks that have made their part of the next group.
struct Held {
    long long group, high, low, finished;

    __device__ bool has(long long wanted, const u32* of_high, const u32* of_low) const {
        return group == wanted && high == *of_high && low == *of_low;
    }

    // To be called once by each of `workers` thread blocks at its end. The last one says what is held from now on: by
    // then every thread block has read what was held before.
    __device__ void finish(long long made, const u32* of_high, const u32* of_low, int workers) {
        if (atomicAdd((unsigned long long*)&finished, 1ull) == workers - 1) *this = {made, *of_high, *of_low, 0};
    }
};

// Which group of `ahead` steps a step is of; steps may be negative.
__device__ __forceinline__ long long group_of(long long step, int ahead) {
    return (step >= 0 ? step : step - ahead + 1) / ahead;
}

// 1 / value for positive values, without the corner cases of a division: each step of Newton's doubles the digits.
__device__ __forceinline__ double inverse(double value) {
    double guess = rough_inverse(value);
#pragma unroll
    for (int step = 0; step < 2; step++) guess = fma(guess, fma(-value, guess, 1.0), guess);
    return guess;
}

// The Cholesky factor of a Gram matrix (PANEL, width) that is given in parts to be added up. The inverse of its diagonal
// stands in the place of the diagonal. Rows from `live` on are those of the identity.
//
// A pivot is the square of what is left of a row without its part along the rows before it. Below LEAST_PIVOT of the
// square of the whole row, which is in `squares` or else on the diagonal, too few of its digits are right: it is raised
// to that, and the answer is true. Run by one warp, whose lanes hold half a row of 16 entries each.
__device__ bool factorise(
    const double* gram, int width, int parts, int live, const double* squares, double* factor,
    double* pivots) {
    constexpr int HALF = PANEL / 2;
    static_assert(2 * PANEL == 32, "a warp has two lanes a row");
    int lane = threadIdx.x % 32, i = lane / 2, side = lane % 2;
    double entry[HALF], floor = LEAST_PIVOT;
#pragma unroll
    for (int k = 0; k < HALF; k++) {
        int j = HALF * side + k;
        entry[k] = i == j;
        if (i < live && j < live) {
            entry[k] = 0.0;
            for (int part = 0; part < parts; part++) entry[k] += gram[(part * PANEL + i) * width + j];
        }
        if (i == j) floor *= squares && i < live ? squares[i] : entry[k];
    }
    bool is_low = false;
#pragma unroll
    for (int c = 0; c < PANEL; c++) {
        int owner = 2 * c + c / HALF;
        double least = __shfl_sync(EVERYONE, floor, owner), pivot = __shfl_sync(EVERYONE, entry[c % HALF], owner);
        is_low |= pivot < least;
        pivot = fmax(pivot, least);
        double scale = inverse(pivot), mine = __shfl_sync(EVERYONE, entry[c % HALF], lane - side + c / HALF);
        if (side == 0) factor[i * SMALL + c] = mine;
        if (lane == 0) pivots[c] = pivot;
#pragma unroll
        for (int k = 0; k < HALF; k++) entry[k] -= mine * __shfl_sync(EVERYONE, entry[k], 2 * c + side) * scale;
    }
    __syncwarp();
    // The columns still have to be divided by the roots of their pivots.
    if (side == 0) pivots[PANEL + i] = rsqrt(pivots[i]);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < HALF; k++) {
        int j = HALF * side + k;
        double root = pivots[PANEL + j];
        factor[i * SMALL + j] = i == j ? root : factor[i * SMALL + j] * root;
    }
    return is_low;
}

// Multiply the columns of a panel by the inverse of its factor.
__device__ void solve_panel(double* panel, int columns, int width, const double* factor) {
    for (int c = threadIdx.x; c < columns; c += THREADS) {
        double row[PANEL];
#pragma unroll
        for (int r = 0; r < PANEL; r++) row[r] = panel[r * width + c];
#pragma unroll
        for (int s = 0; s < PANEL; s++) {
            row[s] *= factor[s * SMALL + s];
#pragma unroll
            for (int r = s + 1; r < PANEL; r++) row[r] -= factor[r * SMALL + s] * row[s];
        }
#pragma unroll
        for (int r = 0; r < PANEL; r++) panel[r * width + c] = row[r];
    }
}

// Subtract the product of `along (rest, PANEL)` with a panel from the rows below it. Neighbours in a row of `along` are
// `next` apart, and its rows `below_next`.
__device__ void subtract_along(
    double* below, int rest, int columns, int width, const double* along, int below_next, int next, const double* panel) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // A warp takes four neighbouring tiles of 8 columns at once.
    int tiles = columns / 8, fours = (tiles + 3) / 4;
    for (int item = warp; item < rest / 8 * fours; item += WARPS) {
        int i = item / fours * 8 + lane / 4, first = item % fours * 4;
        double2* target = reinterpret_cast<double2*>(below + i * width + 2 * (lane % 4));
        double2 sum[4];
#pragma unroll
        for (int t = 0; t < 4; t++)
            if (first + t < tiles) sum[t] = target[4 * (first + t)];
#pragma unroll
        for (int s = 0; s < PANEL; s += 4) {
            double a = -along[i * below_next + (s + lane % 4) * next];
#pragma unroll
            for (int t = 0; t < 4; t++)
                if (first + t < tiles)
                    multiply_add(sum[t].x, sum[t].y, a, panel[(s + lane % 4) * width + 8 * (first + t) + lane / 4]);
        }
#pragma unroll
        for (int t = 0; t < 4; t++)
            if (first + t < tiles) target[4 * (first + t)] = sum[t];
    }
}

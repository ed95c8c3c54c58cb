// Rounds of an auction in which all rows without a column bid at once, each by its own list of columns.

// Compiled with THREADS defined.

#include "block.cuh"

// Unsigned integers in the order of the numbers; none is 0.
__device__ __forceinline__ u64 in_order(double value) {
    u64 bits = (u64)__double_as_longlong(value + 0.0);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

struct Auction {
    const double* near;   // (n, size): what the columns of the lists cost, without their prices
    const int* columns;   // (n, size)
    const double* bound;  // (n): no other column is cheaper, with its price
    double* price;        // (m)
    int* owner;           // (m): the row that has a column, or -1
    int* column;          // (n): the column that a row has, or -1
    u64* highest;         // (m): the highest bid, in order, 0 between rounds
    int* keenest;         // (m): the first row that made it, n between rounds
    double* bid;          // (n)
    int* wanted;          // (n): the column that a row bids for, or -1
    int* queue;           // (2, n): rows that bid in rounds of even and of odd number
    int* stale;           // (n): rows whose lists have to be made anew before they bid
    int* counts;          // rows in both queues, and stale rows
    double eps;
    int n, size;
};

__device__ __forceinline__ void make_bid(const Auction& a, int row) {
    const double* near = a.near + (long long)row * a.size;
    const int* columns = a.columns + (long long)row * a.size;
    const double bound = a.bound[row];
    double best = INFINITE, second = bound;
    int at = -1;
    for (int k = 0; k < a.size; k++) {
        double value = near[k] + a.price[columns[k]];
        if (value < best) {
            second = min(second, best);
            best = value;
            at = columns[k];
        } else if (value < second) {
            second = value;
        }
    }
    if (!(best <= bound)) {
        a.wanted[row] = -1;
        a.stale[atomicAdd(a.counts + 2, 1)] = row;
        return;
    }
    double offer = a.price[at] + (second - best) + a.eps;
    a.wanted[row] = at;
    a.bid[row] = offer;
    atomicMax(a.highest + at, in_order(offer));
}

__device__ __forceinline__ void claim(const Auction& a, int row) {
    int at = a.wanted[row];
    if (at >= 0 && a.highest[at] == in_order(a.bid[row])) atomicMin(a.keenest + at, row);
}

__device__ __forceinline__ void award(const Auction& a, int row, int turn) {
    int at = a.wanted[row], waits = row;
    if (at < 0) return;
    if (a.keenest[at] == row) {
        waits = a.owner[at];
        if (waits >= 0) a.column[waits] = -1;
        a.owner[at] = row;
        a.column[row] = at;
        a.price[at] = a.bid[row];
        a.highest[at] = 0;
        a.keenest[at] = a.n;
    }
    if (waits >= 0) a.queue[(long long)(1 - turn) * a.n + atomicAdd(a.counts + 1 - turn, 1)] = waits;
}

#define PARAMETERS                                                                                                   \
    const double *near, const int *columns, const double *bound, double *price, int *owner, int *column, u64 *highest, \
        int *keenest, double *bid, int *wanted, int *queue, int *stale, int *counts, const double *eps, int n, int size
#define AUCTION \
    { near, columns, bound, price, owner, column, highest, keenest, bid, wanted, queue, stale, counts, *eps, n, size }

// The three steps of a round, for as many blocks as there are. Rounds of even and of odd number take turns.
extern "C" __global__ void __launch_bounds__(THREADS) make_bids(PARAMETERS, int blocks, int turn) {
    Auction a = AUCTION;
    if (blockIdx.x == 0 && threadIdx.x == 0) counts[1 - turn] = 0;
    for (long long k = blockIdx.x * (long long)THREADS + threadIdx.x; k < counts[turn]; k += (long long)blocks * THREADS)
        make_bid(a, queue[(long long)turn * n + k]);
}

extern "C" __global__ void __launch_bounds__(THREADS) claim_columns(PARAMETERS, int blocks, int turn) {
    Auction a = AUCTION;
    for (long long k = blockIdx.x * (long long)THREADS + threadIdx.x; k < counts[turn]; k += (long long)blocks * THREADS)
        claim(a, queue[(long long)turn * n + k]);
}

extern "C" __global__ void __launch_bounds__(THREADS) award_columns(PARAMETERS, int blocks, int turn) {
    Auction a = AUCTION;
    for (long long k = blockIdx.x * (long long)THREADS + threadIdx.x; k < counts[turn]; k += (long long)blocks * THREADS)
        award(a, queue[(long long)turn * n + k], turn);
}

// Up to `rounds` rounds, an even number, of few rows by a single block: to start a kernel would take longer.
extern "C" __global__ void __launch_bounds__(THREADS) play_rounds(PARAMETERS, int rounds) {
    Auction a = AUCTION;
    for (int round = 0; round < rounds; round++) {
        const int turn = round % 2, count = counts[turn];
        const int* bidders = queue + (long long)turn * n;
        __syncthreads();
        if (turn == 0 && count == 0) break;
        if (threadIdx.x == 0) counts[1 - turn] = 0;
        for (int k = threadIdx.x; k < count; k += THREADS) make_bid(a, bidders[k]);
        __syncthreads();
        for (int k = threadIdx.x; k < count; k += THREADS) claim(a, bidders[k]);
        __syncthreads();
        for (int k = threadIdx.x; k < count; k += THREADS) award(a, bidders[k], turn);
        __syncthreads();
    }
}

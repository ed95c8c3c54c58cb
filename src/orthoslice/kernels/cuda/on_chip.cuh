// Sorting a row of float32 numbers on chip.
//
// Included with THREADS, ITEMS and PAIRS defined. A block of THREADS threads sorts up to THREADS * ITEMS numbers
// in shared memory; with places the numbers bring them along, and equal numbers stay in order of place. PAIRS says
// whether a program has to do with places at all.
//
// On chip the sort is by interpolation. Numbers are dealt to about twice as many cells, evenly spaced over the range
// of the row, so a cell gets none, one or a few; a running sum of the cells' counts says where a cell begins in the
// sorted row, and a few rounds of odd-even exchanges settle the order within the cells. Where some cell is crowded
// (far outliers, many equal numbers) or a number is not finite, a bitonic network sorts instead: slower, and blind to
// the data.

#pragma once
#include "block.cuh"

constexpr int CAPACITY = THREADS * ITEMS;
// Registers are shared out so that this many threads fit on a multiprocessor, which hides the waiting for memory.
__host__ __device__ constexpr int blocks_of(int threads) { return threads > THREADS ? threads / THREADS : 1; }
constexpr int RESIDENT = blocks_of(PAIRS ? (ITEMS > 16 ? 256 : 512) : 1024);
constexpr int WINDOW = 32;         // entries that one thread puts in order
constexpr int CROWD = WINDOW / 2;  // a cell of at most this many lies within some window
constexpr int PADDED = CAPACITY + CAPACITY / 32 + 1;

// Words of shared memory: keys, cells (later places), and a little room to talk.
constexpr int TALK = 2 * PADDED;  // even: sums of double precision are told there
static_assert(ITEMS <= WINDOW, "there must be a thread for every window");

// One word in 33 is skipped, so that threads that read runs of 32 words each meet no bank conflicts.
__device__ __forceinline__ int at(int k) { return k + (k >> 5); }

__device__ __forceinline__ void exchange(u32& a, u32& b) {
    u32 low = min(a, b);
    b = max(a, b);
    a = low;
}

__device__ __forceinline__ void exchange(u64& a, u64& b) {
    bool swap = b < a;
    u64 low = swap ? b : a;
    b = swap ? a : b;
    a = low;
}

// Numbers in shared memory, or in global memory without the padding; with places, which are kept apart. An entry then
// is an ordered number above its place: no two are equal, so every sort of them is stable.
struct Numbers {
    typedef u32 Entry;
    u32 *keys, *places;
    bool padded;

    __device__ __forceinline__ long long index(long long k) const { return padded ? at((int)k) : k; }
    __device__ __forceinline__ u32 get(long long k) const { return keys[index(k)]; }
    __device__ __forceinline__ void put(long long k, u32 entry) const { keys[index(k)] = entry; }
};

struct Placed : Numbers {
    typedef u64 Entry;

    __device__ __forceinline__ u64 get(long long k) const { return (u64)keys[index(k)] << 32 | places[index(k)]; }
    __device__ __forceinline__ void put(long long k, u64 entry) const {
        keys[index(k)] = (u32)(entry >> 32);
        places[index(k)] = (u32)entry;
    }
};

// Settle the order within cells of at most `crowd` entries, given that cells are in order.
template <class Entries>
__device__ __noinline__ void sort_windows(Entries entries, int n, int crowd) {
    typedef typename Entries::Entry Entry;
    for (int shift = 0; shift < WINDOW; shift += WINDOW / 2) {
        int first = threadIdx.x * WINDOW + shift;
        if (first < n) {
            Entry window[WINDOW];
#pragma unroll
            for (int j = 0; j < WINDOW; j++) window[j] = first + j < n ? entries.get(first + j) : ~(Entry)0;
            for (int round = 0; round < crowd; round += 2) {
#pragma unroll
                for (int j = 0; j + 1 < WINDOW; j += 2) exchange(window[j], window[j + 1]);
#pragma unroll
                for (int j = 1; j + 1 < WINDOW; j += 2) exchange(window[j], window[j + 1]);
            }
#pragma unroll
            for (int j = 0; j < WINDOW; j++)
                if (first + j < n) entries.put(first + j, window[j]);
        }
        __syncthreads();
    }
}

__device__ __forceinline__ u32 place_of(const u32* places, int k) { return places ? places[k] : k; }

// Sort n numbers: thread t holds numbers t, t + THREADS, ... in `values`; their places are given, or 0, 1, 2, ...
template <class Entries>
__device__ void sort_on_chip(const float (&values)[ITEMS], const u32* places, int n, u32* shared) {
    constexpr bool PLACED = sizeof(typename Entries::Entry) == sizeof(u64);
    u32 *keys = shared, *cells = shared + PADDED, *talk = shared + TALK;
    // Fewer numbers than a block can hold get fewer cells; two counts of 16 bits share a word.
    const int items = (n + THREADS - 1) / THREADS, words = items * THREADS, last_cell = 2 * words - 1;
    float low = INFINITE, high = -INFINITE;
    bool finite = true;
#pragma unroll
    for (int r = 0; r < ITEMS; r++)
        if (r * THREADS + threadIdx.x < n) {
            low = fminf(low, values[r]);
            high = fmaxf(high, values[r]);
            finite = finite && fabsf(values[r]) < INFINITE;
        }
    for (int c = threadIdx.x; c < at(words); c += THREADS) cells[c] = 0;
    block_range(low, high, finite, talk);
    // 0 if the range overflows, infinite if it is next to nothing.
    float scale = 2 * words / (high - low);
    u32 crowd = finite && scale > 0 && scale < INFINITE ? 0 : CROWD + 1;

    int cell[ITEMS];
    u32 rank[ITEMS];
    if (crowd == 0) {
#pragma unroll
        for (int r = 0; r < ITEMS; r++)
            if (r * THREADS + threadIdx.x < n) {
                cell[r] = min((int)((values[r] - low) * scale), last_cell);
                int half = 16 * (cell[r] & 1);
                rank[r] = atomicAdd(&cells[at(cell[r] >> 1)], 1u << half) >> half & 0xffffu;
                crowd = max(crowd, rank[r] + 1);
            }
        crowd = block_max(crowd, talk);
    }
    Entries entries;
    entries.keys = keys;
    entries.places = cells;
    entries.padded = true;
    if (crowd > CROWD) {
#pragma unroll
        for (int r = 0; r < ITEMS; r++) {
            int k = r * THREADS + threadIdx.x;
            if (k < n) {
                keys[at(k)] = ordered(values[r]);
                if (PLACED) cells[at(k)] = place_of(places, k);
            }
        }
        __syncthreads();
        bool in_order = finite && low == high && !(PLACED && places);
        if (!in_order) sort_by_network(entries, n);
        return;
    }

    u32 count = 0;
#pragma unroll
    for (int w = 0; w < ITEMS; w++) {
        if (w >= items) break;
        u32 both = cells[at(threadIdx.x * items + w)];
        count += (both & 0xffffu) + (both >> 16);
    }
    u32 start = block_scan(count, talk);
#pragma unroll
    for (int w = 0; w < ITEMS; w++) {
        if (w >= items) break;
        u32* word = &cells[at(threadIdx.x * items + w)];
        u32 first = *word & 0xffffu, second = *word >> 16;
        *word = start | (start + first) << 16;
        start += first + second;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ITEMS; r++)
        if (r * THREADS + threadIdx.x < n) {
            rank[r] += cells[at(cell[r] >> 1)] >> 16 * (cell[r] & 1) & 0xffffu;
            keys[at(rank[r])] = ordered(values[r]);
        }
    __syncthreads();
    if (PLACED) {
        // The cells have served; their room is for the places.
#pragma unroll
        for (int r = 0; r < ITEMS; r++) {
            int k = r * THREADS + threadIdx.x;
            if (k < n) cells[at(rank[r])] = place_of(places, k);
        }
        __syncthreads();
    }
    if (crowd > 1) sort_windows(entries, n, crowd);
}

__device__ void load_row(float (&values)[ITEMS], const float* row, int n) {
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = r * THREADS + threadIdx.x;
        values[r] = k < n ? row[k] : 0.0f;
    }
}

__device__ void write_sorted(const u32* shared, int n, float* keys, int* places) {
    for (int k = threadIdx.x; k < n; k += THREADS) {
        if (keys) keys[k] = number(shared[at(k)]);
        if (PAIRS) places[k] = shared[PADDED + at(k)];
    }
}

#if PAIRS
typedef Placed Row;
#else
typedef Numbers Row;
#endif

// Sorting a row of float32 numbers on chip.
//
// Included with THREADS, ITEMS and PAIRS defined. A block of THREADS threads sorts up to THREADS * ITEMS numbers
// in shared memory; with PAIRS the numbers bring their places along, and equal numbers stay in order of place.
//
// On chip the sort is by interpolation. Numbers are dealt to about twice as many cells, evenly spaced over the range
// of the row, so a cell gets none, one or a few; a running sum of the cells' counts says where a cell begins in the
// sorted row, and a number finds its place within the cell by comparing itself with the others there. Where some cell
// is crowded (far outliers, many equal numbers) or a number is not finite, a bitonic network sorts instead: slower,
// and blind to the data.

#pragma once
#include "block.cuh"

#if PAIRS
typedef u64 Entry;  // an ordered number above its place: no two are equal, so every sort of them is stable
#else
typedef u32 Entry;
#endif

constexpr int CAPACITY = THREADS * ITEMS;
constexpr int CROWD = 48;  // with more numbers in a cell, the network is as quick
constexpr int PADDED = CAPACITY + CAPACITY / 32 + 1;

// Words of shared memory: keys, cells (later places), slots that numbers came from, and a little room to talk.
constexpr int SLOTS = 2 * PADDED;
constexpr int TALK = SLOTS + (PAIRS ? CAPACITY / 2 : 0);  // even: sums of double precision are told there
static_assert(CAPACITY <= 1 << 14, "a position and three counts up to CROWD share a word");

// One word in 33 is skipped, so that threads that read runs of 32 words each meet no bank conflicts.
__device__ __forceinline__ int at(int k) { return k + (k >> 5); }

// Entries in shared memory, keys and places apart, or in global memory without the padding.
struct Entries {
    u32* keys;
    u32* places;
    bool padded;

    __device__ __forceinline__ long long index(long long k) const { return padded ? at((int)k) : k; }

    __device__ __forceinline__ Entry get(long long k) const {
#if PAIRS
        return (u64)keys[index(k)] << 32 | places[index(k)];
#else
        return keys[index(k)];
#endif
    }

    __device__ __forceinline__ void put(long long k, Entry entry) const {
#if PAIRS
        keys[index(k)] = (u32)(entry >> 32);
        places[index(k)] = (u32)entry;
#else
        keys[index(k)] = entry;
#endif
    }
};

// A bitonic network of the kind whose comparators all point the same way, so that any size will do.
__device__ __noinline__ void sort_by_network(Entries entries, int n) {
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

__device__ __forceinline__ u32 place_of(const u32* places, int k) { return places ? places[k] : k; }

// Sort n numbers: thread t holds numbers t, t + THREADS, ... in `values`; their places are given, or 0, 1, 2, ...
__device__ void sort_on_chip(const float (&values)[ITEMS], const u32* places, int n, u32* shared) {
    u32 *keys = shared, *cells = shared + PADDED, *talk = shared + TALK;
    unsigned short* slots = reinterpret_cast<unsigned short*>(shared + SLOTS);
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
    float scale = 2 * words / (high - low);
    u32 crowd = finite && scale < INFINITE ? 0 : CROWD + 1;

    u32 key[ITEMS], found[ITEMS];  // of a number: its key; its cell, and how many were there before it
    if (crowd == 0) {
#pragma unroll
        for (int r = 0; r < ITEMS; r++)
            if (r * THREADS + threadIdx.x < n) {
                int cell = min((int)((values[r] - low) * scale), last_cell), half = 16 * (cell & 1);
                u32 before = atomicAdd(&cells[at(cell >> 1)], 1u << half) >> half & 0xffffu;
                crowd = max(crowd, before + 1);
                found[r] = cell | before << 16;
            }
        crowd = block_max(crowd, talk);
    }
#pragma unroll
    for (int r = 0; r < ITEMS; r++) key[r] = ordered(values[r]);
    if (crowd > CROWD) {
#pragma unroll
        for (int r = 0; r < ITEMS; r++) {
            int k = r * THREADS + threadIdx.x;
            if (k < n) {
                keys[at(k)] = key[r];
                if (PAIRS) cells[at(k)] = place_of(places, k);
            }
        }
        __syncthreads();
        bool in_order = finite && low == high && !(PAIRS && places);
        if (!in_order) sort_by_network({keys, cells, true}, n);
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
    int most = 0;
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = r * THREADS + threadIdx.x, cell = found[r] & 0xffffu, before = found[r] >> 16;
        found[r] = 0;
        if (k < n) {
            u32 both = cells[at(cell >> 1)];
            int begin = cell & 1 ? both >> 16 : both & 0xffffu;
            int end = !(cell & 1) ? both >> 16 : cell < last_cell ? cells[at((cell + 1) >> 1)] & 0xffffu : n;
            keys[at(begin + before)] = key[r];
            if (PAIRS) slots[begin + before] = k;
            found[r] = begin | before << 14 | (end - begin) << 20;
            most = max(most, end - begin);
        }
    }
    most = __reduce_max_sync(EVERYONE, (u32)most);
    __syncthreads();
    if (crowd > 1) {
        // Numbers are compared side by side, so that they do not wait for memory one after the other.
        for (int j = 0; j < most; j++) {
#pragma unroll
            for (int r = 0; r < ITEMS; r++)
                if (j < (found[r] >> 20 & 63u)) {
                    int k = r * THREADS + threadIdx.x, other_at = (found[r] & 0x3fffu) + j, before = found[r] >> 14 & 63u;
                    u32 other = keys[at(other_at)];
                    bool less = other < key[r];
                    if (other == key[r] && j != before)
                        less = PAIRS ? place_of(places, slots[other_at]) < place_of(places, k) : j < before;
                    found[r] += (u32)less << 26;
                }
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = r * THREADS + threadIdx.x, rank = (found[r] & 0x3fffu) + (found[r] >> 26);
        if (k < n) {
            if (crowd > 1) keys[at(rank)] = key[r];
            // The cells have served; their room is for the places.
            if (PAIRS) cells[at(rank)] = place_of(places, k);
        }
    }
    __syncthreads();
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
        keys[k] = number(shared[at(k)]);
        if (PAIRS) places[k] = shared[PADDED + at(k)];
    }
}

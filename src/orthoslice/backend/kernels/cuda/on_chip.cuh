// Sorting a row of float32 numbers on chip.
//
// Included with THREADS, ITEMS and PAIRS defined. A block of THREADS threads sorts up to THREADS * ITEMS numbers
// in shared memory; with places the numbers bring them along, and equal numbers stay in order of place. PAIRS says
// whether a program has to do with places at all.
//
// On chip the sort is by interpolation. Numbers are dealt to about twice as many cells, evenly spaced over the range
// of the row, so a cell gets none, one or a few; a running sum of the cells' counts says where a cell begins in the
// sorted row, and a few rounds of odd-even exchanges settle the order within the cells. Where some cell is crowded
// (many equal numbers, far outliers, long tails) or a number is not finite, the row is sorted digit by digit instead:
// that takes somewhat longer, and equally long whatever the numbers are.

#pragma once
#include "block.cuh"

constexpr int CAPACITY = THREADS * ITEMS;
// Registers are shared out so that this many threads fit on a multiprocessor, which hides the waiting for memory.
__host__ __device__ constexpr int blocks_of(int threads) { return threads > THREADS ? threads / THREADS : 1; }
constexpr int RESIDENT = blocks_of(PAIRS ? (ITEMS > 16 ? 256 : 512) : 1024);
constexpr int WINDOW = 32;         // entries that one thread puts in order, at most
constexpr int CROWD = WINDOW / 2;  // a cell of at most this many lies within some window
constexpr int PADDED = CAPACITY + CAPACITY / 32 + 1;

constexpr int DIGIT_BITS = 8;
constexpr int DIGITS = 1 << DIGIT_BITS;

// Words of shared memory: keys, then cells (later places), then scratch for what the threads of a block do together, and
// counts of every digit for every warp.
constexpr int SCRATCH = 2 * PADDED;
constexpr int DIGIT_COUNTS = SCRATCH + SCRATCH_WORDS;
constexpr int DIGIT_COUNT_WORDS = WARPS * DIGITS / 2;
static_assert(SCRATCH % 2 == 0, "sums of double precision are kept there");
// A thread works on this many of its numbers at a time: what they read is under way together, which branches would undo.
constexpr int GROUP = 4;
static_assert(ITEMS % GROUP == 0, "a thread has whole groups");
static_assert(CAPACITY <= 1 << 14, "indices and counts have 16 bits");

// One word in 33 is skipped, so that threads that read runs of 32 words each meet no bank conflicts.
__device__ __forceinline__ int at(int k) { return k + (k >> 5); }

// Thread t has `own_count(n)` of n numbers: t, t + THREADS, ... Whether it has its r-th is then a comparison
// with a constant, and `at_own(r)` is at(r * THREADS + threadIdx.x) by one address and a constant. Registers
// are scarce.
__device__ __forceinline__ int own_count(int n) { return (n - (int)threadIdx.x + THREADS - 1) / THREADS; }
__device__ __forceinline__ int at_own(int r) { return at(threadIdx.x) + r * (THREADS + THREADS / 32); }
static_assert(THREADS % 32 == 0 && THREADS >= WINDOW, "threads come in warps");

__device__ __forceinline__ void sort_two(u32& a, u32& b) {
    u32 low = min(a, b);
    b = max(a, b);
    a = low;
}

__device__ __forceinline__ void sort_two(u64& a, u64& b) {
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
    __device__ __forceinline__ u32 at_word(int word) const { return keys[word]; }
    __device__ __forceinline__ void put_word(int word, u32 entry) const { keys[word] = entry; }
    __device__ __forceinline__ u32 get(long long k) const { return at_word(index(k)); }
    __device__ __forceinline__ void put(long long k, u32 entry) const { put_word(index(k), entry); }
};

struct Placed : Numbers {
    typedef u64 Entry;

    __device__ __forceinline__ u64 at_word(int word) const { return (u64)keys[word] << 32 | places[word]; }
    __device__ __forceinline__ void put_word(int word, u64 entry) const {
        keys[word] = (u32)(entry >> 32);
        places[word] = (u32)entry;
    }
    __device__ __forceinline__ u64 get(long long k) const { return at_word(index(k)); }
    __device__ __forceinline__ void put(long long k, u64 entry) const { put_word(index(k), entry); }
};

__device__ __forceinline__ int whole_windows(int n) { return (n + WINDOW - 1) / WINDOW * WINDOW; }

// Settle the order within windows of SIZE padded entries, the first of which begins at SHIFT; n is a multiple of WINDOW. What
// is left at the end of a row was in one window before.
template <int SIZE, int SHIFT, class Entries>
__device__ __forceinline__ void sort_each_window(Entries entries, int n, int crowd) {
    for (int first = threadIdx.x * SIZE + SHIFT; first + SIZE <= n; first += THREADS * SIZE) {
        // Either half lies within one line of 32 words.
        const int lower = at(first), upper = at(first + SIZE / 2) - SIZE / 2;
        auto word = [&](int j) { return (j < SIZE / 2 ? lower : upper) + j; };
        typename Entries::Entry window[SIZE];
#pragma unroll
        for (int j = 0; j < SIZE; j++) window[j] = entries.at_word(word(j));
        for (int round = 0; round < crowd; round += 2) {
#pragma unroll
            for (int j = 0; j + 1 < SIZE; j += 2) sort_two(window[j], window[j + 1]);
#pragma unroll
            for (int j = 1; j + 1 < SIZE; j += 2) sort_two(window[j], window[j + 1]);
        }
#pragma unroll
        for (int j = 0; j < SIZE; j++) entries.put_word(word(j), window[j]);
    }
    __syncthreads();
}

// Settle the order within cells of at most `crowd` padded entries, given that cells are in order: a cell lies within some
// window. Smaller windows keep more threads busy. After the n entries come such as are above all, up to a whole window.
template <class Entries>
__device__ __noinline__ void sort_windows(Entries entries, int n, int crowd) {
    n = whole_windows(n);
    if (crowd <= CROWD / 2) {
        sort_each_window<WINDOW / 2, 0>(entries, n, crowd);
        sort_each_window<WINDOW / 2, WINDOW / 4>(entries, n, crowd);
    } else {
        sort_each_window<WINDOW, 0>(entries, n, crowd);
        sort_each_window<WINDOW, WINDOW / 2>(entries, n, crowd);
    }
}

// Words to sort by, less a `base` that none is below; in shared memory, or in global memory without the padding.
struct Words {
    const u32* words;
    bool padded;
    u32 base;

    __device__ __forceinline__ u32 get(int k) const { return words[padded ? at(k) : k] - base; }
};

// An order of up to CAPACITY words, and room for the next one.
struct Order {
    u16 *now, *next;
};

// Sort n words, of which none exceeds `largest`, by putting an order of them into another that keeps equal words as they
// are: digit by digit from the lowest to the highest. What that costs does not depend on the words. The new order is
// returned.
__device__ __noinline__ Order sort_by_digits(Words words, u32 largest, Order order, int n, u32* shared) {
    // A warp has `items` lines of 32 words.
    const int items = (n + THREADS - 1) / THREADS, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first = warp * 32 * items + lane;
    u32* own_words = shared + warp * (DIGITS / 2);
    u16 *counts = reinterpret_cast<u16*>(shared), *own = reinterpret_cast<u16*>(own_words);
    u32* scratch = shared - SCRATCH_WORDS;
    for (int shift = 0; shift < 32 && largest >> shift; shift += DIGIT_BITS) {
        // What is not there counts as the last.
        auto digit_of = [&](int k) { return k < n ? words.get(order.now[k]) >> shift & (DIGITS - 1) : DIGITS - 1; };
        for (int c = lane; c < DIGITS / 2; c += 32) own_words[c] = 0;
        __syncwarp();
        // How many words of the warp with the same digit come before. In registers they would be quicker to reach, but all
        // loops here would have to be written out, which takes long to compile.
        u16 ranks[ITEMS];
#pragma unroll 4
        for (int r = 0; r < items; r++) {
            u32 digit = digit_of(first + 32 * r), alike = lanes_alike<DIGIT_BITS>(digit);
            u32 rank = own[digit] + __popc(alike & ((1u << lane) - 1));
            __syncwarp();
            if (alike >> lane == 1) own[digit] = (u16)(rank + 1);
            __syncwarp();
            ranks[r] = (u16)rank;
        }
        __syncthreads();
        // From counts to where the words of a digit and a warp begin: by digit, and for one digit by warp.
        constexpr int SHARE = DIGITS > THREADS ? DIGITS / THREADS : 1;
        int from = threadIdx.x * SHARE, to = from < DIGITS ? from + SHARE : from;
        u32 total = 0;
        for (int digit = from; digit < to; digit++)
            for (int w = 0; w < WARPS; w++) total += counts[w * DIGITS + digit];
        u32 start = block_scan(total, scratch);
        for (int digit = from; digit < to; digit++)
            for (int w = 0; w < WARPS; w++) {
                u32 count = counts[w * DIGITS + digit];
                counts[w * DIGITS + digit] = (u16)start;
                start += count;
            }
        __syncthreads();
#pragma unroll 4
        for (int r = 0; r < items; r++) {
            int k = first + 32 * r;
            if (k < n) order.next[own[digit_of(k)] + ranks[r]] = order.now[k];
        }
        __syncthreads();
        order = {order.next, order.now};
    }
    return order;
}

// Sort n keys in shared memory that lie between `base` and `base + width`, with the places they came from where they are `placed`,
// which take the room of the cells. They are as in `sort_on_chip`.
__device__ __noinline__ void sort_crowd(
    bool placed, const u32* places, u32 last_place, u32 base, u32 width, int n, u32* shared) {
    u32 *keys = shared, *cells = shared + PADDED, *counts = shared + DIGIT_COUNTS;
    Order order = {reinterpret_cast<u16*>(cells), reinterpret_cast<u16*>(cells) + CAPACITY};
    for (int k = threadIdx.x; k < n; k += THREADS) order.now[k] = k;
    __syncthreads();
    // Sorted by places first and by keys last: both sorts are stable, so keys decide.
    if (placed && last_place) order = sort_by_digits({places, false, 0}, last_place, order, n, counts);
    order = sort_by_digits({keys, true, base}, width, order, n, counts);
    const int own = own_count(n);
    u32 moved[ITEMS];
#pragma unroll
    for (int r = 0; r < ITEMS; r++)
        if (r < own) moved[r] = keys[at(order.now[r * THREADS + threadIdx.x])];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ITEMS; r++)
        if (r < own) keys[at_own(r)] = moved[r];
    if (placed) {
#pragma unroll
        for (int r = 0; r < ITEMS; r++)
            if (r < own) moved[r] = order.now[r * THREADS + threadIdx.x];
        __syncthreads();
#pragma unroll
        for (int r = 0; r < ITEMS; r++)
            if (r < own) cells[at_own(r)] = places ? places[moved[r]] : moved[r];
    }
    __syncthreads();
}

// The sum over all threads before this one; and `top` becomes the largest of all threads.
__device__ __forceinline__ u32 block_scan_and_max(u32 value, u32& top, u32* scratch) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 sum = value;
    for (int step = 1; step < 32; step *= 2) {
        u32 other = __shfl_up_sync(EVERYONE, sum, step);
        if (lane >= step) sum += other;
    }
    top = __reduce_max_sync(EVERYONE, top);
    if (lane == 31) {
        scratch[warp] = sum;
        scratch[WARPS + warp] = top;
    }
    __syncthreads();
    top = max_of_warps(scratch + WARPS, 1);
    return __reduce_add_sync(EVERYONE, lane < warp ? scratch[lane] : 0) + sum - value;
}

// Sort n numbers: thread t holds numbers t, t + THREADS, ... in `values`, and 0 where there is none. If they are `placed`,
// their places are given, or 0, 1, 2, ...; given ones ascend unless `last_place` is not 0, which none of them exceeds.
__device__ void sort_on_chip(
    const float (&values)[ITEMS], bool placed, const u32* places, int n, u32* shared, u32 last_place = 0) {
    // One copy of the code sorts with and without places; programs without PAIRS drop the code for places.
    placed = PAIRS && placed;
    const int own = own_count(n);
    u32 *keys = shared, *cells = shared + PADDED, *scratch = shared + SCRATCH;
    // Fewer numbers than a block can hold get fewer cells; two counts of 16 bits share a word.
    const int items = (n + THREADS - 1) / THREADS, words = items * THREADS, last_cell = 2 * words - 1;
    float low = INFINITE, high = -INFINITE;
    bool finite = true;
#pragma unroll
    for (int g = 0; g < ITEMS; g += GROUP) {
        if (g * THREADS >= n) break;
#pragma unroll
        for (int r = g; r < g + GROUP; r++) {
            low = fminf(low, r < own ? values[r] : INFINITE);
            high = fmaxf(high, r < own ? values[r] : -INFINITE);
            // What is not there is 0.
            finite = finite && fabsf(values[r]) < INFINITE;
        }
    }
    for (int c = threadIdx.x; c < at(words); c += THREADS) cells[c] = 0;
    block_range(low, high, finite, scratch);
    // 0 if the range overflows, infinite if it is next to nothing.
    float scale = 2 * words / (high - low);
    u32 crowd = finite && scale > 0 && scale < INFINITE ? 0 : CROWD + 1;

    // The cell of a number, and how many were there before it; then where it goes. Registers are scarce here.
    u32 dealt[ITEMS];
    if (crowd == 0) {
        // Lanes that count in one cell wait for each other: nothing is counted if over CROWD lanes share one.
        auto cell_of = [&](float value) { return min((int)((value - low) * scale), last_cell); };
        int first_cell = cell_of(values[0]);
        bool is_alike = first_cell == __shfl_sync(EVERYONE, first_cell, 0);
        if (__popc(__ballot_sync(EVERYONE, threadIdx.x < n && is_alike)) > CROWD) crowd = CROWD + 1;
        else {
            // What is not there counts nothing, in cells of which lanes do not wait for each other.
            const int idle = 2 * (threadIdx.x % 32);
#pragma unroll
            for (int g = 0; g < ITEMS; g += GROUP) {
                if (g * THREADS >= n) break;
                u32 counts[GROUP];
                int cell[GROUP];
#pragma unroll
                for (int j = 0; j < GROUP; j++) cell[j] = g + j < own ? cell_of(values[g + j]) : idle;
#pragma unroll
                for (int j = 0; j < GROUP; j++)
                    counts[j] = atomicAdd(&cells[at(cell[j] >> 1)], (u32)(g + j < own) << 16 * (cell[j] & 1));
#pragma unroll
                for (int j = 0; j < GROUP; j++) {
                    u32 before = counts[j] >> 16 * (cell[j] & 1) & 0xffffu;
                    dealt[g + j] = cell[j] << 16 | before;
                    crowd = max(crowd, before + (g + j < own));
                }
            }
        }
    }
    __syncthreads();
    // A thread has a run of words. Both halves are added up at once.
    const int run = threadIdx.x * items;
    u32 both = 0;
#pragma unroll
    for (int g = 0; g < ITEMS; g += GROUP) {
        if (g >= items) break;
#pragma unroll
        for (int w = g; w < g + GROUP; w++) both += w < items ? cells[at(run + w)] : 0;
    }
    u32 count = (both & 0xffffu) + (both >> 16);
    u32 start = block_scan_and_max(count, crowd, scratch);
    if (crowd > CROWD) {
#pragma unroll
        for (int r = 0; r < ITEMS; r++)
            if (r < own) keys[at_own(r)] = ordered(values[r]);
        u32 base = finite ? ordered(low) : 0, width = finite ? ordered(high) - base : ~0u;
        sort_crowd(placed, places, last_place, base, width, n, shared);
        return;
    }

#pragma unroll
    for (int g = 0; g < ITEMS; g += GROUP) {
        if (g >= items) break;
        u32 pair[GROUP];
#pragma unroll
        for (int j = 0; j < GROUP; j++) pair[j] = g + j < items ? cells[at(run + g + j)] : 0;
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            u32 second = start + (pair[j] & 0xffffu);
            if (g + j < items) cells[at(run + g + j)] = start | second << 16;
            start = second + (pair[j] >> 16);
        }
    }
    __syncthreads();
#pragma unroll
    for (int g = 0; g < ITEMS; g += GROUP) {
        if (g * THREADS >= n) break;
        u32 starts[GROUP];
#pragma unroll
        for (int j = 0; j < GROUP; j++) starts[j] = cells[at(dealt[g + j] >> 17)];
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            u32 cell = dealt[g + j] >> 16, before = dealt[g + j] & 0xffffu;
            dealt[g + j] = (starts[j] >> 16 * (cell & 1) & 0xffffu) + before;
            if (g + j < own) keys[at(dealt[g + j])] = ordered(values[g + j]);
        }
    }
    const int beyond = n + threadIdx.x;
    if (beyond < whole_windows(n)) keys[at(beyond)] = ~0u;
    __syncthreads();
    if (placed) {
        // The cells have served; their room is for the places.
#pragma unroll
        for (int g = 0; g < ITEMS; g += GROUP) {
            if (g * THREADS >= n) break;
            u32 own_places[GROUP];
#pragma unroll
            for (int j = 0; j < GROUP; j++) {
                int k = (g + j) * THREADS + threadIdx.x;
                own_places[j] = places && k < n ? places[k] : k;
            }
#pragma unroll
            for (int j = 0; j < GROUP; j++)
                if (g + j < own) cells[at(dealt[g + j])] = own_places[j];
        }
        if (beyond < whole_windows(n)) cells[at(beyond)] = ~0u;
        __syncthreads();
    }
    if (crowd > 1) {
        if (placed) sort_windows(Placed{{keys, cells, true}}, n, crowd);
        else sort_windows(Numbers{keys, cells, true}, n, crowd);
    }
}

__device__ void load_row(float (&values)[ITEMS], const float* row, int n) {
    const int own = own_count(n);
#pragma unroll
    for (int g = 0; g < ITEMS; g += GROUP) {
        if (g * THREADS >= n) break;
#pragma unroll
        for (int r = g; r < g + GROUP; r++) values[r] = r < own ? row[r * THREADS + threadIdx.x] : 0.0f;
    }
}

// A sample of `size` of the n numbers of a row: one from each of so many stretches, at a scrambled place, since data may
// have a regular pattern.
__device__ void load_sample(float (&values)[ITEMS], const float* row, int n, int size) {
    const double stretch = (double)n / size;
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = r * THREADS + threadIdx.x, from = (int)(k * stretch), to = (int)((k + 1) * stretch);
        u32 noise = (k + 1) * 2654435769u;
        values[r] = k < size ? row[from + (u32)((u64)noise * (u32)(to - from) >> 32)] : 0.0f;
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

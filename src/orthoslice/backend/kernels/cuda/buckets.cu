// Rows that do not fit on a chip: dealt to buckets that do, whose borders come from a sorted sample of the row.
//
// A row in which some border, or many a number, occurs often is called tied. What equals a border of such a row goes to a
// bucket of its own, which needs no sorting however full it is, so that the other buckets stay as small as they are in
// a row of distinct numbers. A row with `buckets - 1` borders thus has `2 * buckets` buckets: those between the borders
// have even numbers, and the one of border b is 2 b + 1. The last has no border, and nothing is ever in it.
//
// With places, numbers are dealt twice: first they are only counted, so that every bucket begins where the one before it
// ends. Without, every bucket between borders has a slot of a size that few buckets exceed, and numbers are dealt once; what
// does not fit a slot is fetched from the row again, and numbers that equal a border are only counted.
//
// Compiled with RULED defined too, the number of cells between the borders of a row, and with DEALING and SORTING, how many
// threads a multiprocessor should hold then.

#include "on_chip.cuh"

// Where a number lies between the borders of its row: monotone, so that borders in lower cells are reached and
// those in higher cells are not. NaN goes to the last cell.
struct Ruler {
    float low, high, scale;

    // Without borders nothing is ever looked up, and any cell will do.
    __device__ __forceinline__ Ruler(const u32* borders, int n_borders) {
        low = number(borders[0]);
        high = number(borders[max(n_borders, 1) - 1]);
        scale = RULED / (high - low);
    }

    __device__ __forceinline__ int cell(float value) const {
        return value < high ? min(max((int)((value - low) * scale), 0), RULED - 1) : RULED - 1;
    }
};

// Borders of the buckets of every row, from a sorted sample of CAPACITY numbers, and after them whether the row is tied,
// `(rows, buckets)`; and for every cell of the ruler how many borders are reached before it and within it,
// `(rows, RULED)`, two counts in a word. The counts `cursors (rows, 2 buckets)` start from 0.
extern "C" __global__ void __launch_bounds__(THREADS, blocks_of(DEALING)) pick_borders(
    const float* rows, u32* borders, u32* reached, u32* cursors, int n, int buckets) {
    SHARED(u32, shared);
    const float* row = rows + (long long)blockIdx.x * n;
    u32* out = borders + (long long)blockIdx.x * buckets;
    for (int b = threadIdx.x; b < 2 * buckets; b += THREADS) cursors[(long long)blockIdx.x * 2 * buckets + b] = 0;
    int size = min(n, CAPACITY), n_borders = buckets - 1;
    float values[ITEMS];
    load_sample(values, row, n, size);
    sort_on_chip(values, false, nullptr, size, shared);
    u32* picked = shared + PADDED;
    // A row is tied if a border equals the sample `near` places before or after it; rarer ties do no harm. But
    // where many numbers occur often, it is quicker to deal in order than to sort by place.
    int near = max(1, size / buckets / 4);
    u32 tied = 0, equal = 0;
    for (int b = threadIdx.x; b < n_borders; b += THREADS) {
        int from = (b + 1) * size / buckets;
        u32 border = shared[at(from)];
        tied |= from >= near && shared[at(from - near)] == border;
        tied |= from + near < size && shared[at(from + near)] == border;
        picked[b] = out[b] = border;
    }
    for (int k = threadIdx.x + 1; k < size; k += THREADS) equal += shared[at(k)] == shared[at(k - 1)];
    tied = block_max(tied, shared + SCRATCH);
    tied |= block_sum(equal, shared + SCRATCH) > size / 64;
    if (threadIdx.x == 0) out[n_borders] = tied;
    Ruler ruler(picked, n_borders);
    for (int c = threadIdx.x; c < RULED; c += THREADS) {
        u32 counts[2];
        for (int which = 0; which < 2; which++) {
            int low = 0, high = n_borders;
            while (low < high) {
                int middle = (low + high) / 2;
                if (ruler.cell(number(picked[middle])) < c + which) low = middle + 1;
                else high = middle;
            }
            counts[which] = low;
        }
        reached[(long long)blockIdx.x * RULED + c] = counts[0] | counts[1] << 16;
    }
}

// The buckets of a group of numbers, which are looked up together: branches would part them.
__device__ __forceinline__ void find_buckets(
    const float* values, const Ruler& ruler, const u32* borders, const u32* reached, bool tied, int* buckets) {
    u32 keys[GROUP];
    int low[GROUP], high[GROUP];
#pragma unroll
    for (int j = 0; j < GROUP; j++) {
        u32 counts = reached[ruler.cell(values[j])];
        keys[j] = ordered(values[j]);
        low[j] = counts & 0xffffu;
        high[j] = counts >> 16;
    }
    // Few cells have more than two borders.
    constexpr int STEPS = 2;
    u32 far = 0;
#pragma unroll
    for (int step = 0; step < STEPS; step++)
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            bool reaches = low[j] < high[j] && borders[low[j]] <= keys[j];
            low[j] += reaches;
            if (step == STEPS - 1) far |= (u32)(reaches && low[j] < high[j]) << j;
        }
    if (far) {
#pragma unroll
        for (int j = 0; j < GROUP; j++)
            while (far >> j & 1 && low[j] < high[j]) {
                int middle = (low[j] + high[j]) / 2;
                if (borders[middle] <= keys[j]) low[j] = middle + 1;
                else high[j] = middle;
            }
    }
    // Here `low` borders are reached, and only the last of them can be met.
#pragma unroll
    for (int j = 0; j < GROUP; j++) buckets[j] = 2 * low[j] - (tied && low[j] > 0 && borders[low[j] - 1] == keys[j]);
}

// Every lane adds 1 to its bucket, unless that is negative; returns how many were there before it. Lanes that count in one
// bucket wait for each other. Where most numbers are equal, the first lane's bucket is that of most others, and one lane
// counts for all of them.
__device__ __forceinline__ u32 count_tied(u32* counts, int bucket) {
    u32 lane = threadIdx.x % 32, before = 0;
    u32 alike = __ballot_sync(EVERYONE, bucket == __shfl_sync(EVERYONE, bucket, 0));
    bool is_alike = alike >> lane & 1;
    if (bucket >= 0 && (lane == 0 || !is_alike)) before = atomicAdd(&counts[bucket], lane ? 1u : __popc(alike));
    u32 before_first = __shfl_sync(EVERYONE, before, 0);
    return is_alike ? before_first + __popc(alike & ((1u << lane) - 1)) : before;
}

// Running sums of the counts of `size` buckets in place, by a block; gives `use(b, count, sum before b)` each of them.
template <class Use>
__device__ __forceinline__ void start_each(int size, u32* scratch, Use use) {
    u32 total = 0;
    for (int block = 0; block < size; block += THREADS) {
        int b = block + threadIdx.x;
        u32 count = b < size ? use.count(b) : 0;
        u32 before = total + block_scan(count, scratch);
        if (b < size) use.start(b, count, before);
        if (threadIdx.x == THREADS - 1) scratch[WARPS] = before + count;
        __syncthreads();
        total = scratch[WARPS];
        __syncthreads();
    }
}

// From the counts of a tile's buckets to where they begin in the tile; and to `shifts`, where they begin in the row, or each
// in its slot, less that. Of a row that is dealt in order: by `starts` and what earlier tiles have.
__device__ void start_tile(
    u32* counts, u32* shifts, int size, u32* cursor, const u32* starts, const u32* before_tile, u32* scratch) {
    // A thread has a run of buckets.
    const int share = (size + THREADS - 1) / THREADS, from = threadIdx.x * share, to = min(from + share, size);
    u32 total = 0;
    for (int b = from; b < to; b++) total += counts[b];
    u32 before = block_scan(total, scratch);
    for (int b = from; b < to; b++) {
        u32 count = counts[b];
        u32 first = before_tile ? starts[b] + before_tile[b] : count ? atomicAdd(&cursor[b], count) : 0;
        counts[b] = before;
        shifts[b] = first - before;
        before += count;
    }
    __syncthreads();
}

// Deal the numbers of a tile of CAPACITY to the buckets of its row: to `out (rows, n)` or, without places, to slots
// `(rows, buckets, slot)`. Without `out`: only count them.
//
// `cursors (rows, 2 buckets)` holds the counts to add to, or where the next number of a bucket goes. Blocks reach them in
// any order, which shows only in the order of a bucket, and that is sorted next. But the buckets of equal numbers are
// not: where places matter, a tied row is dealt in order. Its tiles have counts of their own, `(rows, tiles, 2 buckets)`,
// which then become how many numbers of a bucket earlier tiles have; and `starts` is where the buckets begin. Numbers bring
// `along (n,)` a word of their place instead of it, unless that is null.
extern "C" __global__ void __launch_bounds__(THREADS, blocks_of(DEALING)) deal_tiles(
    const float* rows, const u32* borders, const u32* reached, u32* cursors, u32* tile_counts, const u32* starts,
    const u32* along, float* out, u32* out_places, int n, int tiles, int buckets, int slot) {
    SHARED(u32, shared);
    // The borders and their table are done with when a tile is put in order in the same room.
    u32 *keys = shared, *owners = shared + PADDED, *table = shared, *edges = table + RULED;
    u32 *scratch = shared + max(2 * PADDED, RULED + buckets), *counts = scratch + SCRATCH_WORDS;
    // Counts of buckets are done with too when digits are counted there.
    int size_of_all = 2 * buckets;
    u32* shifts = counts + max(size_of_all, DIGIT_COUNT_WORDS);
    int row = blockIdx.x / tiles, first = (blockIdx.x % tiles) * CAPACITY;
    int size = min(CAPACITY, n - first);
    const float* tile = rows + (long long)row * n + first;
    for (int c = threadIdx.x; c < RULED; c += THREADS) table[c] = reached[(long long)row * RULED + c];
    for (int b = threadIdx.x; b < buckets; b += THREADS) edges[b] = borders[(long long)row * buckets + b];
    for (int b = threadIdx.x; b < size_of_all; b += THREADS) counts[b] = 0;
    float value[ITEMS];
    load_row(value, tile, size);
    __syncthreads();
    bool tied = edges[buckets - 1];
    Ruler ruler(edges, buckets - 1);
    const int own = own_count(size), idle = min((int)threadIdx.x % 32, size_of_all - 1);
    u32 dealt[ITEMS];  // the bucket of a number, and how many of the tile were there before it
#pragma unroll
    for (int g = 0; g < ITEMS; g += GROUP) {
        if (g * THREADS >= size) break;
        int bucket[GROUP];
        u32 before[GROUP];
        find_buckets(value + g, ruler, edges, table, tied, bucket);
        if (tied) {
#pragma unroll
            for (int j = 0; j < GROUP; j++) before[j] = count_tied(counts, g + j < own ? bucket[j] : -1);
        } else {
            // What is not there counts nothing.
#pragma unroll
            for (int j = 0; j < GROUP; j++)
                before[j] = atomicAdd(&counts[g + j < own ? bucket[j] : idle], (u32)(g + j < own));
        }
#pragma unroll
        for (int j = 0; j < GROUP; j++) dealt[g + j] = bucket[j] << 16 | before[j];
    }
    __syncthreads();
    bool in_order = PAIRS && tied;
    u32* cursor = cursors + (long long)row * size_of_all;
    u32* of_tile = in_order ? tile_counts + (long long)blockIdx.x * size_of_all : nullptr;
    if (!out) {
        for (int b = threadIdx.x; b < size_of_all; b += THREADS)
            if (in_order) of_tile[b] = counts[b];
            else if (counts[b]) atomicAdd(&cursor[b], counts[b]);
        return;
    }
    start_tile(counts, shifts, size_of_all, cursor, starts + (long long)row * size_of_all, of_tile, scratch);
    // Put the tile in order of buckets on chip, so that what goes to one bucket is written in one go.
#if PAIRS
    if (in_order) {
        Order order = {reinterpret_cast<u16*>(owners), reinterpret_cast<u16*>(owners) + CAPACITY};
#pragma unroll
        for (int r = 0; r < ITEMS; r++) {
            int k = r * THREADS + threadIdx.x;
            if (k < size) {
                keys[at(k)] = dealt[r] >> 16;
                order.now[k] = k;
            }
        }
        __syncthreads();
        order = sort_by_digits({keys, true, 0}, size_of_all - 1, order, size, counts);
        for (int k = threadIdx.x; k < size; k += THREADS) {
            u32 place = order.now[k];
            long long to = (long long)row * n + (u32)(shifts[keys[at(place)]] + k);
            out[to] = tile[place] + 0.0f;
            out_places[to] = along ? along[first + place] : first + place;
        }
        return;
    }
#endif
#pragma unroll
    for (int g = 0; g < ITEMS; g += GROUP) {
        if (g * THREADS >= size) break;
        u32 to[GROUP];
#pragma unroll
        for (int j = 0; j < GROUP; j++) to[j] = g + j < own ? counts[dealt[g + j] >> 16] + (dealt[g + j] & 0xffffu) : 0;
#pragma unroll
        for (int j = 0; j < GROUP; j++)
            if (g + j < own) {
                keys[at(to[j])] = __float_as_uint(value[g + j] + 0.0f);
                owners[at(to[j])] = (dealt[g + j] & 0xffff0000u) | ((g + j) * THREADS + threadIdx.x);
            }
    }
    __syncthreads();
#pragma unroll
    for (int g = 0; g < ITEMS; g += GROUP) {
        if (g * THREADS >= size) break;
        u32 key[GROUP], owner[GROUP], place[GROUP];
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            key[j] = keys[at_own(g + j)];
            owner[j] = g + j < own ? owners[at_own(g + j)] : 0;
        }
#pragma unroll
        for (int j = 0; j < GROUP; j++) place[j] = shifts[owner[j] >> 16] + (g + j) * THREADS + threadIdx.x;
#pragma unroll
        for (int j = 0; j < GROUP; j++) {
            if (g + j >= own) continue;
#if PAIRS
            long long at_place = (long long)row * n + place[j];
            out[at_place] = __uint_as_float(key[j]);
            u32 own_place = first + (owner[j] & 0xffffu);
            out_places[at_place] = along ? along[own_place] : own_place;
#else
            u32 bucket = owner[j] >> 16;
            float* own_slot = out + ((long long)row * buckets + bucket / 2) * slot;
            if (bucket % 2 == 0 && place[j] < slot) own_slot[place[j]] = __uint_as_float(key[j]);
#endif
        }
    }
}

// Of a row: its counts, of all tiles or of each, and where buckets begin, for the dealing and for the sorting.
struct RowStarts {
    u32 *cursor, *starts, *of_tiles;
    int tiles, size;

    __device__ u32 count(int b) const {
        if (!of_tiles) return cursor[b];
        u32 total = 0;
        // Several loads are in flight at a time.
        constexpr int AT_ONCE = 8;
        for (int t = 0; t < tiles; t += AT_ONCE) {
            u32 counts[AT_ONCE];
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) counts[j] = t + j < tiles ? of_tiles[(long long)(t + j) * size + b] : 0;
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                if (t + j < tiles) of_tiles[(long long)(t + j) * size + b] = total;
                total += counts[j];
            }
        }
        return total;
    }
    __device__ void start(int b, u32, u32 before) const { cursor[b] = starts[b] = before; }
};

// From counts of buckets to where each begins, in every row.
extern "C" __global__ void __launch_bounds__(THREADS, blocks_of(DEALING)) start_buckets(
    const u32* borders, u32* cursors, u32* tile_counts, u32* starts, int tiles, int buckets) {
    SHARED(u32, shared);
    long long row = blockIdx.x;
    int size = 2 * buckets;
    bool in_order = PAIRS && borders[row * buckets + buckets - 1];
    u32* of_tiles = in_order ? tile_counts + row * tiles * size : nullptr;
    start_each(size, shared, RowStarts{cursors + row * size, starts + row * size, of_tiles, tiles, size});
}

// Put the numbers of a bucket that does not fit its slot, those of a row from `low` to `high`, into `out`.
__device__ void fetch_bucket(const float* row, int n, u32 low, u32 high, float* out, u32* cursor) {
    if (threadIdx.x == 0) *cursor = 0;
    __syncthreads();
    for (int k = threadIdx.x; k < n; k += THREADS) {
        u32 key = ordered(row[k]);
        if (key >= low && key <= high) out[atomicAdd(cursor, 1u)] = number(key);
    }
    __syncthreads();
}

// Sort every bucket between borders: in place, or from its slot. Those of equal numbers are as they should be with places,
// and else written here. Numbers have places, or words of `along` where that is not null.
extern "C" __global__ void __launch_bounds__(THREADS, blocks_of(PAIRS ? DEALING : SORTING)) sort_buckets(
    float* keys, u32* places, const u32* borders, const u32* starts, const u32* along, const float* rows, const float* slots, int n,
    int buckets, int slot) {
    SHARED(u32, shared);
    const int bucket = blockIdx.x % buckets;
    const long long row = blockIdx.x / buckets;
    const u32 *start = starts + row * 2 * buckets + 2 * bucket, *edges = borders + row * buckets;
    int first = start[0], size = start[1] - first;
    float* own = keys + row * n + first;
    u32* own_places = PAIRS ? places + row * n + first : nullptr;
    // Only tied rows are dealt in order of place.
    bool tied = edges[buckets - 1], is_last = bucket + 1 == buckets;
#if !PAIRS
    if (tied && !is_last) {
        int equal = start[2] - start[1];
        float border = number(edges[bucket]);
        for (int k = threadIdx.x; k < equal; k += THREADS) own[size + k] = border;
    }
#endif
    if (size == 0) return;
    if (size <= (PAIRS ? CAPACITY : slot)) {
        float values[ITEMS];
        load_row(values, PAIRS ? own : slots + (row * buckets + bucket) * slot, size);
        sort_on_chip(values, PAIRS, own_places, size, shared, tied ? 0 : along ? ~0u : n - 1);
        write_sorted(shared, size, own, reinterpret_cast<int*>(own_places));
        return;
    }
    // An unlucky sample, which is next to impossible: slow, but right.
#if !PAIRS
    // Without ties no number is between borders that are equal, so what equals the lower one is in this bucket.
    u32 low = bucket ? edges[bucket - 1] + tied : 0, high = is_last ? ~0u : edges[bucket] - 1;
    fetch_bucket(rows + row * n, n, low, high, own, shared);
#endif
    Row entries;
    entries.keys = reinterpret_cast<u32*>(own);
    entries.places = own_places;
    entries.padded = false;
    for (int k = threadIdx.x; k < size; k += THREADS) entries.keys[k] = ordered(own[k]);
    __syncthreads();
    sort_by_network(entries, size);
    for (int k = threadIdx.x; k < size; k += THREADS) own[k] = number(entries.keys[k]);
}

// Rows that do not fit on a chip: dealt to buckets that do, whose borders come from a sorted sample of the row.
//
// Compiled with RULED defined too, the number of cells between the borders of a row.

#include "on_chip.cuh"

// Where a number lies between the borders of its row: monotone, so that borders in lower cells are reached and
// those in higher cells are not. Numbers that cannot be told go to the last cell.
struct Ruler {
    float low, high, scale;

    __device__ __forceinline__ Ruler(const u32* borders, int n_borders) {
        low = number(borders[0]);
        high = number(borders[n_borders - 1]);
        scale = RULED / (high - low);
    }

    __device__ __forceinline__ int cell(float value) const {
        return value < high ? min(max((int)((value - low) * scale), 0), RULED - 1) : RULED - 1;
    }
};

// Borders of the buckets of every row, `(rows, buckets - 1)`, from a sorted sample of CAPACITY numbers; and for every
// cell of the ruler how many borders are reached before it and within it, `(rows, RULED)`, two counts in a word.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) pick_borders(
    const float* rows, u32* borders, u32* reached, int n, int buckets) {
    SHARED(u32, shared);
    const float* row = rows + (long long)blockIdx.x * n;
    int size = min(n, CAPACITY), n_borders = buckets - 1;
    float values[ITEMS];
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = r * THREADS + threadIdx.x;
        // A number from each of `size` stretches, at a scrambled place: regular steps could fall in with the data.
        long long from = (long long)k * n / size, to = (long long)(k + 1) * n / size;
        u32 noise = (k + 1) * 2654435769u;
        values[r] = k < size ? row[from + (noise >> 8) % (u32)(to - from)] : 0.0f;
    }
    sort_on_chip<Numbers>(values, nullptr, size, shared);
    u32* picked = shared + PADDED;
    for (int b = threadIdx.x; b < n_borders; b += THREADS) picked[b] = shared[at((int)((long long)(b + 1) * size / buckets))];
    __syncthreads();
    for (int b = threadIdx.x; b < n_borders; b += THREADS) borders[(long long)blockIdx.x * n_borders + b] = picked[b];
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

// How many borders a number has reached: 0 .. buckets - 1.
__device__ __forceinline__ int bucket_of(float value, u32 key, const Ruler& ruler, const u32* borders, const u32* reached) {
    u32 counts = reached[ruler.cell(value)];
    int low = counts & 0xffffu, high = counts >> 16;
    while (low < high) {
        int middle = (low + high) / 2;
        if (borders[middle] <= key) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Deal the numbers of a tile of CAPACITY to the buckets of its row. Without `out_keys`: only count them.
//
// `cursors (rows, buckets)` holds the counts to add to, or where the next number of a bucket goes. Blocks reach them
// in any order, which shows only in the order of a bucket, and that is sorted next.
extern "C" __global__ void __launch_bounds__(THREADS, blocks_of(1024)) deal_tiles(
    const float* rows, const u32* borders, const u32* reached, u32* cursors, u32* out_keys, u32* out_places, int n,
    int tiles, int buckets) {
    SHARED(u32, shared);
    u32 *keys = shared, *owners = shared + PADDED, *talk = shared + TALK;
    u32 *table = talk + TALK_WORDS, *edges = table + RULED, *counts = edges + buckets, *shifts = counts + buckets;
    int row = blockIdx.x / tiles, first = (blockIdx.x % tiles) * CAPACITY;
    int size = min(CAPACITY, n - first);
    const float* tile = rows + (long long)row * n + first;
    for (int c = threadIdx.x; c < RULED; c += THREADS) table[c] = reached[(long long)row * RULED + c];
    for (int b = threadIdx.x; b < buckets; b += THREADS) {
        if (b < buckets - 1) edges[b] = borders[(long long)row * (buckets - 1) + b];
        counts[b] = 0;
    }
    float value[ITEMS];
    load_row(value, tile, size);
    __syncthreads();
    Ruler ruler(edges, buckets - 1);
    u32 dealt[ITEMS];  // the bucket of a number, and how many of the tile were there before it
#pragma unroll
    for (int r = 0; r < ITEMS; r++)
        if (r * THREADS + threadIdx.x < size) {
            int bucket = bucket_of(value[r], ordered(value[r]), ruler, edges, table);
            dealt[r] = bucket << 16 | atomicAdd(&counts[bucket], 1u);
        }
    __syncthreads();
    u32* cursor = cursors + (long long)row * buckets;
    if (!out_keys) {
        for (int b = threadIdx.x; b < buckets; b += THREADS)
            if (counts[b]) atomicAdd(&cursor[b], counts[b]);
        return;
    }
    // Put the tile in order of buckets on chip, so that what goes to one bucket is written in one go.
    u32 total = 0;
    for (int block = 0; block < buckets; block += THREADS) {
        int b = block + threadIdx.x;
        u32 count = b < buckets ? counts[b] : 0;
        u32 before = total + block_scan(count, talk);
        if (b < buckets) {
            counts[b] = before;
            shifts[b] = (count ? atomicAdd(&cursor[b], count) : 0) - before;
        }
        if (threadIdx.x == THREADS - 1) talk[WARPS] = before + count;
        __syncthreads();
        total = talk[WARPS];
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = r * THREADS + threadIdx.x;
        if (k < size) {
            u32 bucket = dealt[r] >> 16, to = counts[bucket] + (dealt[r] & 0xffffu);
            keys[at(to)] = ordered(value[r]);
            owners[at(to)] = bucket << 16 | k;
        }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = r * THREADS + threadIdx.x;
        if (k < size) {
            u32 owner = owners[at(k)];
            long long to = (long long)row * n + (u32)(shifts[owner >> 16] + k);
            out_keys[to] = keys[at(k)];
            if (PAIRS) out_places[to] = first + (owner & 0xffffu);
        }
    }
}

// From counts of buckets to where each begins, in every row, twice: for the dealing and for the sorting.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) start_buckets(u32* cursors, u32* starts, int buckets) {
    SHARED(u32, shared);
    u32* row = cursors + (long long)blockIdx.x * buckets;
    u32* copy = starts + (long long)blockIdx.x * buckets;
    u32 total = 0;
    for (int block = 0; block < buckets; block += THREADS) {
        int b = block + threadIdx.x;
        u32 count = b < buckets ? row[b] : 0;
        u32 before = total + block_scan(count, shared);
        if (b < buckets) row[b] = copy[b] = before;
        if (threadIdx.x == THREADS - 1) shared[WARPS] = before + count;
        __syncthreads();
        total = shared[WARPS];
        __syncthreads();
    }
}

// Sort every bucket in place; keys become numbers.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) sort_buckets(
    u32* keys, u32* places, const u32* starts, int n, int buckets) {
    SHARED(u32, shared);
    int row = blockIdx.x / buckets, bucket = blockIdx.x % buckets;
    const u32* start = starts + (long long)row * buckets;
    int first = start[bucket], size = (bucket + 1 < buckets ? start[bucket + 1] : n) - first;
    u32* own = keys + (long long)row * n + first;
    u32* own_places = PAIRS ? places + (long long)row * n + first : nullptr;
    float* out = reinterpret_cast<float*>(own);
    if (size <= CAPACITY) {
        float values[ITEMS];
#pragma unroll
        for (int r = 0; r < ITEMS; r++) {
            int k = r * THREADS + threadIdx.x;
            values[r] = k < size ? number(own[k]) : 0.0f;
        }
        sort_on_chip<Row>(values, own_places, size, shared);
        write_sorted(shared, size, out, reinterpret_cast<int*>(own_places));
        return;
    }
    // Too many equal numbers, or an unlucky sample: slow, but right.
    u32 low = 0, high = 0;
    for (int k = threadIdx.x; k < size; k += THREADS) {
        low = max(low, ~own[k]);
        high = max(high, own[k]);
    }
    bool all_equal = ~block_max(low, shared + TALK) == block_max(high, shared + TALK);
    Row entries;
    entries.keys = own;
    entries.places = own_places;
    entries.padded = false;
    if (PAIRS || !all_equal) sort_by_network(entries, size);
    __syncthreads();
    for (int k = threadIdx.x; k < size; k += THREADS) out[k] = number(own[k]);
}

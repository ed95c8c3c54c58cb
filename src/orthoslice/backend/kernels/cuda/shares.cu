// Rows of a few times what a chip holds, sorted in one launch: a block takes a share of its row, the numbers between two borders.
//
// All blocks of a row sort the same sample of it, which says where the borders are, and read the whole row. What is below
// a block's share is only counted: that is where the share begins in the sorted row, and no block waits for another. A
// share ends with the numbers that equal its upper border, which need no sorting however many they are, so the others are
// about as many as in a row of distinct numbers.
//
// Compiled with SAMPLE defined too, the size of the sample, which is at most CAPACITY, and with RESIDING, how many threads
// a multiprocessor should hold.

#include "on_chip.cuh"

static_assert(SAMPLE <= CAPACITY, "the sample is sorted on chip");

// Keys of a share: those from `base` on, fewer than `width` above it; the key `width` above it is the border.
struct Share {
    u32 base, width;

    __device__ __forceinline__ bool is_below(u32 key) const { return key < base; }
    __device__ __forceinline__ bool is_inside(u32 key) const { return key - base < width; }
    __device__ __forceinline__ bool is_border(u32 key) const { return key - base == width && !is_below(key); }
};

// Share number `share` of `shares`, by a sorted sample of `size` numbers. The first has every number below its border and the
// last every number above that; no number is the border of the last.
__device__ __forceinline__ Share share_of(const u32* sample, int size, int share, int shares) {
    auto border = [&](int k) { return sample[at(k * size / shares)]; };
    u32 base = share ? border(share) + 1 : 0;
    return {base, share + 1 < shares ? border(share + 1) - base : 0u - base};
}

// Gives `use` the numbers from, ..., to - 1 of a row, by one warp in their order: index, whether it is one of them, key.
template <class Use>
__device__ __forceinline__ void walk(const float* row, int from, int to, Use use) {
    constexpr int AT_ONCE = 8;  // loads in flight
    for (int first = from + threadIdx.x % 32; first - (int)(threadIdx.x % 32) < to; first += 32 * AT_ONCE) {
        float value[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) value[j] = first + 32 * j < to ? row[first + 32 * j] : 0.0f;
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) use(first + 32 * j, first + 32 * j < to, ordered(value[j]));
    }
}

// Of a block, or of the warps before one: how many numbers are below its share, inside it, and at its border.
struct Tally {
    u32 below, inside, equal;
};

// Counts of a part of a row for every warp: of all parts, and to `before` those of the warps before this one.
__device__ Tally count_share(const float* row, int from, int to, const Share& share, Tally& before, u32* scratch) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 counts[3] = {}, sums[3], sums_before[3];
    walk(row, from, to, [&](int, bool is_there, u32 key) {
        counts[0] += is_there && share.is_below(key);
        counts[1] += is_there && share.is_inside(key);
        counts[2] += is_there && share.is_border(key);
    });
    for (int c = 0; c < 3; c++) {
        u32 sum = __reduce_add_sync(EVERYONE, counts[c]);
        if (lane == 0) scratch[c * WARPS + warp] = sum;
    }
    __syncthreads();
    for (int c = 0; c < 3; c++) {
        u32 count = lane < WARPS ? scratch[c * WARPS + lane] : 0;
        sums[c] = __reduce_add_sync(EVERYONE, count);
        sums_before[c] = __reduce_add_sync(EVERYONE, lane < warp ? count : 0);
    }
    before = {sums_before[0], sums_before[1], sums_before[2]};
    return {sums[0], sums[1], sums[2]};
}

// Put the numbers inside the share into `taken` and, with places, where they are in the row into `places`, in their order;
// and after them the places of those at the border.
__device__ __forceinline__ void take_share(
    const float* row, int from, int to, const Share& share, u32 inside_before, u32 equal_before, float* taken,
    u32* places) {
    const u32 lanes_before = (1u << threadIdx.x % 32) - 1;
    walk(row, from, to, [&](int k, bool is_there, u32 key) {
        bool is_inside = is_there && share.is_inside(key);
        u32 inside = __ballot_sync(EVERYONE, is_inside);
        if (is_inside) {
            u32 target = inside_before + __popc(inside & lanes_before);
            taken[target] = number(key);
            if (PAIRS) places[target] = k;
        }
        inside_before += __popc(inside);
        if (PAIRS) {
            bool is_border = is_there && share.is_border(key);
            u32 equal = __ballot_sync(EVERYONE, is_border);
            if (is_border) places[equal_before + __popc(equal & lanes_before)] = k;
            equal_before += __popc(equal);
        }
    });
}

// Sort `rows (slices, n)`, `shares` blocks a row.
extern "C" __global__ void __launch_bounds__(THREADS, blocks_of(RESIDING)) sort_shares(
    const float* rows, float* keys, u32* places, int n, int shares) {
    SHARED(u32, shared);
    const int warp = threadIdx.x / 32, share = blockIdx.x % shares;
    const long long row = (long long)(blockIdx.x / shares) * n;
    rows += row;
    keys += row;
    if (PAIRS) places += row;
    // A warp has a part of the row, so that all can keep the order of places.
    const int part = (n + THREADS - 1) / THREADS * 32, from = min(warp * part, n), to = min(from + part, n);
    float values[ITEMS];
    int size = min(n, SAMPLE);
    load_sample(values, rows, n, size);
    // First the sample and then the share is sorted, by one copy of the code.
#pragma unroll 1
    for (bool is_sample = true;; is_sample = false) {
        sort_on_chip(values, !is_sample, places, size, shared);
        if (!is_sample) break;
        const Share own = share_of(shared, size, share, shares);
        // No key is above the largest there is; and a border that occurs twice is the end of the first share of the two.
        if (share && (own.base == 0 || own.width == ~0u)) return;
        Tally before, all = count_share(rows, from, to, own, before, shared + SCRATCH);
        size = all.inside;
        keys += all.below;
        if (PAIRS) places += all.below;
        float* taken = size <= CAPACITY ? reinterpret_cast<float*>(shared) : keys;
        take_share(rows, from, to, own, before.inside, size + before.equal, taken, places);
        float border = number(own.base + own.width);
        for (int k = threadIdx.x; k < all.equal; k += THREADS) keys[size + k] = border;
        __syncthreads();
        if (size == 0 || size > CAPACITY) break;
        load_row(values, taken, size);
        __syncthreads();
    }
    if (size <= CAPACITY) {
        write_sorted(shared, size, keys, reinterpret_cast<int*>(places));
        return;
    }
    // An unlucky sample, which is next to impossible: slow, but right.
    Row entries;
    entries.keys = reinterpret_cast<u32*>(keys);
    entries.places = places;
    entries.padded = false;
    for (int k = threadIdx.x; k < size; k += THREADS) entries.keys[k] = ordered(keys[k]);
    __syncthreads();
    sort_by_network(entries, size);
    for (int k = threadIdx.x; k < size; k += THREADS) keys[k] = number(entries.keys[k]);
}

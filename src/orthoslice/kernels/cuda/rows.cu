// Sorting rows of float32 numbers on chip, pricing the match of two of them, and sorting rows that do not fit.
//
// Compiled with THREADS, ITEMS and PAIRS defined. A block of THREADS threads sorts up to THREADS * ITEMS numbers
// in shared memory; with PAIRS the numbers bring their places along, and equal numbers stay in order of place.
//
// On chip the sort is by interpolation. Numbers are dealt to about twice as many cells, evenly
// spaced over the range of the row, so a cell gets none, one or a few; an exclusive sum of the cells' counts gives every
// number its place up to the order within its cell, and a few rounds of odd-even exchanges settle that. Where some
// cell is crowded (far outliers, many equal numbers) or a number is not finite, a bitonic network sorts instead:
// slower, and blind to the data.
//
// Longer rows are first dealt to buckets that fit on a chip: the borders come from a sorted sample of the row.

typedef unsigned int u32;
typedef unsigned long long u64;

#if PAIRS
typedef u64 Entry;  // an ordered number above its place: no two are equal, so every sort of them is stable
#else
typedef u32 Entry;
#endif

constexpr int CAPACITY = THREADS * ITEMS;
constexpr int WARPS = (THREADS + 31) / 32;
constexpr int WINDOW = 32;           // entries that one thread puts in order
constexpr int CROWD = WINDOW / 2;    // a cell of at most this many lies within some window
constexpr int PADDED = CAPACITY + CAPACITY / 32 + 1;
constexpr u32 EVERYONE = 0xffffffffu;
constexpr int POINTS = 8;  // that one block gathers slopes for

// Words of shared memory: entries, cells (later places), and a little room to talk.
constexpr int TALK = 2 * PADDED;  // even: sums of double precision are told there
constexpr int TALK_WORDS = 5 * WARPS + 1;
static_assert(ITEMS <= WINDOW, "there must be a thread for every window");

// One word in 33 is skipped, so that threads that read runs of 32 words each meet no bank conflicts.
__device__ __forceinline__ int at(int k) { return k + (k >> 5); }

// Unsigned integers in the order of the numbers; minus zero counts as zero.
__device__ __forceinline__ u32 ordered(float value) {
    u32 bits = __float_as_uint(value + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float number(u32 key) {
    return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key);
}

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

__device__ u32 block_max(u32 value, u32* talk) {
    u32 top = __reduce_max_sync(EVERYONE, value);
    if (threadIdx.x % 32 == 0) talk[threadIdx.x / 32] = top;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) top = max(top, talk[w]);
    __syncthreads();
    return top;
}

// The range of all threads' numbers, and whether all of them are finite.
__device__ void block_range(float& low, float& high, bool& finite, u32* talk) {
    // Apart from the room of the other talks: no wait is needed before those.
    u32* tops = talk + 2 * WARPS;
    u32 below = __reduce_max_sync(EVERYONE, ordered(-low));
    u32 above = __reduce_max_sync(EVERYONE, ordered(high));
    u32 broken = __reduce_max_sync(EVERYONE, !finite);
    if (threadIdx.x % 32 == 0) {
        tops[3 * (threadIdx.x / 32)] = below;
        tops[3 * (threadIdx.x / 32) + 1] = above;
        tops[3 * (threadIdx.x / 32) + 2] = broken;
    }
    __syncthreads();
    for (int w = 0; w < WARPS; w++) {
        below = max(below, tops[3 * w]);
        above = max(above, tops[3 * w + 1]);
        broken |= tops[3 * w + 2];
    }
    low = -number(below);
    high = number(above);
    finite = !broken;
}

__device__ double block_sum(double value, u32* talk) {
    double* sums = reinterpret_cast<double*>(talk);
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(EVERYONE, value, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    double total = 0;
    for (int w = 0; w < WARPS; w++) total += sums[w];
    return total;
}

// The sum over all threads before this one.
__device__ u32 block_scan(u32 value, u32* talk) {
    u32 sum = value;
    for (int step = 1; step < 32; step *= 2) {
        u32 other = __shfl_up_sync(EVERYONE, sum, step);
        if (threadIdx.x % 32 >= step) sum += other;
    }
    if (threadIdx.x % 32 == 31) talk[threadIdx.x / 32] = sum;
    __syncthreads();
    u32 before = 0;
    for (int w = 0; w < WARPS; w++) before += w < threadIdx.x / 32 ? talk[w] : 0;
    __syncthreads();
    return before + sum - value;
}

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

// Settle the order within cells of at most `crowd` entries, given that cells are in order.
__device__ __noinline__ void sort_windows(Entries entries, int n, int crowd) {
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

// Sort n numbers: thread t holds numbers t, t + THREADS, ... in `values`, whose places start at `places`.
__device__ void sort_on_chip(const float (&values)[ITEMS], const u32* places, int n, u32* shared) {
    u32 *keys = shared, *cells = shared + PADDED, *talk = shared + TALK;
    // Fewer numbers than a block can hold get fewer cells.
    const int items = (n + THREADS - 1) / THREADS, words = items * THREADS, last_cell = 2 * words - 1;
    float low = __uint_as_float(0x7f800000u), high = -low;
    bool finite = true;
#pragma unroll
    for (int r = 0; r < ITEMS; r++)
        if (r * THREADS + threadIdx.x < n) {
            low = fminf(low, values[r]);
            high = fmaxf(high, values[r]);
            finite = finite && fabsf(values[r]) < __uint_as_float(0x7f800000u);
        }
    for (int c = threadIdx.x; c < at(words); c += THREADS) cells[c] = 0;
    block_range(low, high, finite, talk);
    // 0 if the range overflows, infinite if it is next to nothing.
    float scale = 2 * words / (high - low);
    u32 crowd = finite && scale > 0 && scale < __uint_as_float(0x7f800000u) ? 0 : CROWD + 1;

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
    Entries entries = {keys, cells, true};
    if (crowd > CROWD) {
#pragma unroll
        for (int r = 0; r < ITEMS; r++) {
            int k = r * THREADS + threadIdx.x;
            if (k < n) {
                keys[at(k)] = ordered(values[r]);
                if (PAIRS) cells[at(k)] = places ? places[k] : k;
            }
        }
        __syncthreads();
        bool in_order = finite && low == high && !(PAIRS && places);
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
    if (PAIRS) {
        // The cells have served; their room is for the places.
#pragma unroll
        for (int r = 0; r < ITEMS; r++) {
            int k = r * THREADS + threadIdx.x;
            if (k < n) cells[at(rank[r])] = places ? places[k] : k;
        }
        __syncthreads();
    }
    if (crowd > 1) sort_windows(entries, n, crowd);
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

__device__ void load_row(float (&values)[ITEMS], const float* row, int n) {
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = r * THREADS + threadIdx.x;
        values[r] = k < n ? row[k] : 0.0f;
    }
}

// Project n points (n, dim) on one direction.
__device__ void project_row(float (&values)[ITEMS], const float* points, const float* theta, int n, int dim) {
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = r * THREADS + threadIdx.x;
        values[r] = 0.0f;
        if (k < n) {
            const float* point = points + (long long)k * dim;
            if (dim % 4 == 0) {
                for (int d = 0; d < dim; d += 4) {
                    float4 a = *reinterpret_cast<const float4*>(point + d);
                    values[r] = fmaf(a.x, theta[d], values[r]);
                    values[r] = fmaf(a.y, theta[d + 1], values[r]);
                    values[r] = fmaf(a.z, theta[d + 2], values[r]);
                    values[r] = fmaf(a.w, theta[d + 3], values[r]);
                }
            } else {
                for (int d = 0; d < dim; d++) values[r] = fmaf(point[d], theta[d], values[r]);
            }
        }
    }
}

// One row of one cloud, sorted on chip: from projections, or from points where directions are given.
__device__ void sort_cloud(const float* source, const float* theta, int n, int dim, u32* shared) {
    float values[ITEMS];
    if (theta)
        project_row(values, source, theta + (long long)blockIdx.x * dim, n, dim);
    else
        load_row(values, source + (long long)blockIdx.x * n, n);
    sort_on_chip(values, nullptr, n, shared);
}

// Match two rows of the same length by order: the cost, and its slopes where they are asked for (PAIRS).
extern "C" __global__ void __launch_bounds__(THREADS) match_rows(
    const float* x, const float* y, const float* theta, int n, int dim, float p, double factor, double* scores,
    float* x_slopes, float* y_slopes) {
    SHARED(u32, shared);
    sort_cloud(x, theta, n, dim, shared);
    float value[ITEMS];
    u32 place[ITEMS];
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = r * THREADS + threadIdx.x;
        value[r] = k < n ? number(shared[at(k)]) : 0.0f;
        if (PAIRS) place[r] = k < n ? shared[PADDED + at(k)] : 0;
    }
    __syncthreads();
    sort_cloud(y, theta, n, dim, shared);
    float total = 0.0f;
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = r * THREADS + threadIdx.x;
        if (k < n) {
            value[r] -= number(shared[at(k)]);
            total += cost(value[r], p);
        }
    }
    double sum = block_sum(total, shared + TALK);
    if (threadIdx.x == 0) scores[blockIdx.x] = factor * sum / n;
#if PAIRS
    // Slopes go to their places on chip, so that rows are written in order.
    float* staged = reinterpret_cast<float*>(shared);
    float unit = (float)(factor / n);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = r * THREADS + threadIdx.x;
        if (k < n) {
            value[r] = unit * slope(value[r], p);
            staged[at(place[r])] = value[r];
        }
    }
    __syncthreads();
    if (x_slopes)
        for (int k = threadIdx.x; k < n; k += THREADS) x_slopes[(long long)blockIdx.x * n + k] = staged[at(k)];
    if (!y_slopes) return;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = r * THREADS + threadIdx.x;
        if (k < n) staged[at(shared[PADDED + at(k)])] = -value[r];
    }
    __syncthreads();
    for (int k = threadIdx.x; k < n; k += THREADS) y_slopes[(long long)blockIdx.x * n + k] = staged[at(k)];
#endif
}

__device__ void write_sorted(const u32* shared, int n, float* keys, int* places) {
    for (int k = threadIdx.x; k < n; k += THREADS) {
        keys[k] = number(shared[at(k)]);
        if (PAIRS) places[k] = shared[PADDED + at(k)];
    }
}

// Sort rows that fit on a chip.
extern "C" __global__ void __launch_bounds__(THREADS) sort_rows(const float* rows, int n, float* keys, int* places) {
    SHARED(u32, shared);
    long long row = (long long)blockIdx.x * n;
    sort_cloud(rows, nullptr, n, 0, shared);
    write_sorted(shared, n, keys + row, PAIRS ? places + row : nullptr);
}

// Borders of the buckets of every row, `(rows, buckets - 1)`, from a sorted sample of CAPACITY numbers.
extern "C" __global__ void __launch_bounds__(THREADS) pick_borders(const float* rows, int n, int buckets, u32* borders) {
    SHARED(u32, shared);
    const float* row = rows + (long long)blockIdx.x * n;
    int size = min(n, CAPACITY);
    float values[ITEMS];
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = r * THREADS + threadIdx.x;
        // A number from each of `size` stretches, at a scrambled place: regular steps could fall in with the data.
        long long from = (long long)k * n / size, to = (long long)(k + 1) * n / size;
        u32 noise = (k + 1) * 2654435769u;
        values[r] = k < size ? row[from + (noise >> 8) % (u32)(to - from)] : 0.0f;
    }
    sort_on_chip(values, nullptr, size, shared);
    for (int b = threadIdx.x; b < buckets - 1; b += THREADS)
        borders[(long long)blockIdx.x * (buckets - 1) + b] = shared[at((int)((long long)(b + 1) * size / buckets))];
}

// How many borders a key has reached: 0 .. n_borders.
__device__ __forceinline__ int bucket_of(u32 key, const u32* borders, int n_borders) {
    int low = 0, high = n_borders;
    while (low < high) {
        int middle = (low + high) / 2;
        if (borders[middle] <= key) low = middle + 1;
        else high = middle;
    }
    return low;
}

__device__ void load_borders(const u32* borders, int row, int buckets, u32* out) {
    for (int b = threadIdx.x; b < buckets - 1; b += THREADS) out[b] = borders[(long long)row * (buckets - 1) + b];
}

// Deal the numbers of a tile of CAPACITY to the buckets of its row. Without `out_keys`: only count them.
//
// `cursors (rows, buckets)` holds the counts to add to, or where the next number of a bucket goes. Blocks reach them
// in any order, which shows only in the order of a bucket, and that is sorted next.
extern "C" __global__ void __launch_bounds__(THREADS) deal_tiles(
    const float* rows, int n, int tiles, int buckets, const u32* borders, u32* cursors, u32* out_keys, u32* out_places) {
    SHARED(u32, shared);
    u32 *keys = shared, *owners = shared + PADDED, *talk = shared + TALK;
    u32 *edges = talk + TALK_WORDS, *counts = edges + buckets, *starts = counts + buckets, *bases = starts + buckets;
    int row = blockIdx.x / tiles, first = (blockIdx.x % tiles) * CAPACITY;
    int size = min(CAPACITY, n - first);
    const float* tile = rows + (long long)row * n + first;
    load_borders(borders, row, buckets, edges);
    for (int b = threadIdx.x; b < buckets; b += THREADS) counts[b] = 0;
    __syncthreads();
    u32 key[ITEMS], rank[ITEMS];
    int bucket[ITEMS];
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = r * THREADS + threadIdx.x;
        if (k < size) {
            key[r] = ordered(tile[k]);
            bucket[r] = bucket_of(key[r], edges, buckets - 1);
            rank[r] = atomicAdd(&counts[bucket[r]], 1u);
        }
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
            starts[b] = before;
            bases[b] = count ? atomicAdd(&cursor[b], count) : 0;
        }
        if (threadIdx.x == THREADS - 1) talk[WARPS] = before + count;
        __syncthreads();
        total = talk[WARPS];
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < ITEMS; r++)
        if (r * THREADS + threadIdx.x < size) {
            rank[r] += starts[bucket[r]];
            keys[at(rank[r])] = key[r];
            owners[at(rank[r])] = bucket[r];
        }
    __syncthreads();
    u32 to[ITEMS];
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = r * THREADS + threadIdx.x;
        if (k < size) {
            u32 b = owners[at(k)];
            to[r] = bases[b] + k - starts[b];
            out_keys[(long long)row * n + to[r]] = keys[at(k)];
        }
    }
    if (PAIRS) {
        __syncthreads();
#pragma unroll
        for (int r = 0; r < ITEMS; r++) {
            int k = r * THREADS + threadIdx.x;
            if (k < size) keys[at(rank[r])] = first + k;
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < ITEMS; r++) {
            int k = r * THREADS + threadIdx.x;
            if (k < size) out_places[(long long)row * n + to[r]] = keys[at(k)];
        }
    }
}

// From counts of buckets to where each begins, in every row, twice: for the dealing and for the sorting.
extern "C" __global__ void __launch_bounds__(THREADS) start_buckets(u32* cursors, u32* starts, int buckets) {
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
extern "C" __global__ void __launch_bounds__(THREADS) sort_buckets(
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
        sort_on_chip(values, own_places, size, shared);
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
    if (PAIRS || !all_equal) sort_by_network({own, own_places, false}, size);
    __syncthreads();
    for (int k = threadIdx.x; k < size; k += THREADS) out[k] = number(own[k]);
}

// floor(i m / n), without the division of long integers.
__device__ __forceinline__ long long rank_at(long long i, long long n, long long m) {
    long long j = (long long)((double)i * (double)m / (double)n);
    while (j * n > i * m) j--;
    while ((j + 1) * n <= i * m) j++;
    return j;
}

// Costs of sorted rows `x (rows, n)` against sorted rows `y (rows, m)`, n >= m, summed over parts of the ranks of x:
// `(rows, parts)`. Each point of x weighs m and each of y weighs n, in units of 1 / (n m). With slopes where they are
// asked for, of either cloud; those go to the points' places, and `y_slopes` must start from 0 unless n = m.
extern "C" __global__ void __launch_bounds__(THREADS) match_sorted(
    const float* x, const float* y, const int* x_places, const int* y_places, long long n, long long m, int parts,
    float p, double factor, double* sums, float* x_slopes, float* y_slopes) {
    SHARED(u32, shared);
    long long row = blockIdx.x / parts, part = blockIdx.x % parts;
    long long first = part * n / parts, last = (part + 1) * n / parts;
    double unit = factor / ((double)n * (double)m);
    double total = 0.0;
    for (long long i = first + threadIdx.x; i < last; i += THREADS) {
        float value = x[row * n + i], pull = 0.0f;
        for (long long j = n == m ? i : rank_at(i, n, m); j < m && j * n < (i + 1) * m; j++) {
            long long mass = min((i + 1) * m, (j + 1) * n) - max(i * m, j * n);
            float difference = value - y[row * m + j];
            total += (double)mass * cost(difference, p);
            float step = (float)(unit * mass) * slope(difference, p);
            pull += step;
            if (y_slopes) {
                float* target = &y_slopes[row * m + y_places[row * m + j]];
                if (n == m) *target = -step;
                else atomicAdd(target, -step);
            }
        }
        if (x_slopes) x_slopes[row * n + x_places[row * n + i]] = pull;
    }
    double sum = block_sum(total, shared);
    if (threadIdx.x == 0) sums[row * parts + part] = unit * sum;
}

// The sum of `count` scores, always in the same order, in single precision; and one more step of a training run.
extern "C" __global__ void __launch_bounds__(THREADS) add_up(
    const double* scores, int count, float* out, long long* step) {
    SHARED(u32, shared);
    double total = 0.0;
    for (int k = threadIdx.x; k < count; k += THREADS) total += scores[k];
    double sum = block_sum(total, shared);
    if (threadIdx.x == 0) {
        *out = (float)sum;
        if (step) ++*step;
    }
}

// Gradients by points from slopes by projections: slopes^T theta, for both clouds in one go. A block takes a few
// points, its threads the coordinates. `x_gradient` or `y_gradient` may be missing.
extern "C" __global__ void __launch_bounds__(THREADS) gather_slopes(
    const float* x_slopes, const float* y_slopes, const float* theta, int rows, int n, int m, int dim, float* x_gradient,
    float* y_gradient) {
    int tile = blockIdx.x, x_tiles = x_gradient ? (n + POINTS - 1) / POINTS : 0;
    bool of_x = tile < x_tiles;
    const float* slopes = of_x ? x_slopes : y_slopes;
    float* gradient = of_x ? x_gradient : y_gradient;
    int size = of_x ? n : m, first = (of_x ? tile : tile - x_tiles) * POINTS;
    for (int d = threadIdx.x; d < dim; d += THREADS) {
        float sum[POINTS] = {};
        for (int r = 0; r < rows; r++) {
            float along = theta[(long long)r * dim + d];
#pragma unroll
            for (int i = 0; i < POINTS; i++)
                if (first + i < size) sum[i] = fmaf(slopes[(long long)r * size + first + i], along, sum[i]);
        }
#pragma unroll
        for (int i = 0; i < POINTS; i++)
            if (first + i < size) gradient[(long long)(first + i) * dim + d] = sum[i];
    }
}

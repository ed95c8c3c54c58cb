// The lexicographic order of points: tiles of them are sorted on chip, and sorted runs merged two by two. Points are
// compared by their first coordinates, and by the others where those tie.
//
// Compiled with THREADS and TILE, the points of a tile, defined.

#include "block.cuh"

// A point in an order: its first coordinate, and its place among all of its cloud.
__device__ __forceinline__ u64 pack(u32 key, u32 place) { return (u64)key << 32 | place; }

struct Points {
    const float* points;
    int dim;

    // Of `clouds (n, dim)`: `first` is one, and `rest` holds the others, one after the other.
    __device__ Points(const float* first, const float* rest, int cloud, int n, int dim)
        : points(cloud ? rest + (long long)(cloud - 1) * n * dim : first), dim(dim) {}

    __device__ u32 coordinate(u32 place, int d) const { return ordered(points[(long long)place * dim + d]); }

    // Points that are equal stay in order of place.
    __device__ bool is_before(u64 one, u64 other) const {
        u32 place = (u32)one, other_place = (u32)other;
        if (one >> 32 != other >> 32) return one < other;
        // Several coordinates are loaded at a time, since points that tie in one often tie in many.
        constexpr int AT_ONCE = 8;
        for (int first = 1; first < dim; first += AT_ONCE) {
            u32 a[AT_ONCE], b[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                int d = min(first + k, dim - 1);
                a[k] = coordinate(place, d);
                b[k] = coordinate(other_place, d);
            }
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                if (a[k] != b[k]) return a[k] < b[k];
        }
        return place < other_place;
    }
};

// A tile in shared memory.
struct Tile {
    const Points* of;
    u64* entries;

    struct Entry {
        const Points* of;
        u64 entry;

        __device__ bool operator<(const Entry& other) const { return of->is_before(entry, other.entry); }
    };

    __device__ Entry get(long long k) const { return {of, entries[k]}; }
    __device__ void put(long long k, const Entry& one) const { entries[k] = one.entry; }
};

// Every tile of every cloud in order, `out (clouds, n)`: places and keys, or places alone where there is but one tile.
extern "C" __global__ void __launch_bounds__(THREADS) sort_tiles(
    const float* first, const float* rest, u64* out, int n, int dim, int tiles) {
    SHARED(u64, entries);
    int cloud = blockIdx.x / tiles, start = blockIdx.x % tiles * TILE, size = min(TILE, n - start);
    Points points(first, rest, cloud, n, dim);
    for (int k = threadIdx.x; k < size; k += THREADS) entries[k] = pack(points.coordinate(start + k, 0), start + k);
    __syncthreads();
    sort_by_network(Tile{&points, entries}, size);
    for (int k = threadIdx.x; k < size; k += THREADS)
        out[(long long)cloud * n + start + k] = tiles > 1 ? entries[k] : (u32)entries[k];
}

// Sorted runs of `length` points merged two by two: a point goes behind those of the other run that are before it. Places
// alone are written if this is the `last` time.
extern "C" __global__ void __launch_bounds__(THREADS) merge_runs(
    const float* first, const float* rest, const u64* runs, u64* out, int n, int dim, int parts, int length, int last) {
    int cloud = blockIdx.x / parts, k = blockIdx.x % parts * THREADS + threadIdx.x;
    if (k >= n) return;
    Points points(first, rest, cloud, n, dim);
    runs += (long long)cloud * n;
    u64 own = runs[k];
    long long start = k / length / 2 * 2ll * length, middle = min(start + length, (long long)n);
    int low = k < middle ? middle : start, high = k < middle ? min(start + 2ll * length, (long long)n) : middle;
    while (low < high) {
        int half = low + (high - low) / 2;
        if (points.is_before(runs[half], own)) low = half + 1;
        else high = half;
    }
    out[(long long)cloud * n + k + low - middle] = last ? (u32)own : own;
}

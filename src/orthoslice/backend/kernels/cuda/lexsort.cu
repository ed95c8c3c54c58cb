// The lexicographic order of points: tiles of them are sorted on chip, and sorted runs merged two by two. Points are
// compared by their first three coordinates, which go with them, and by the others where those tie.
//
// Compiled with THREADS and TILE, the points of a tile, defined.

#include "block.cuh"

// A point in an order: three coordinates, and its place among all points of its cloud.
typedef uint4 Point;

struct Cloud {
    const float* points;
    int dim;
    bool in_fours;

    // Of `clouds (n, dim)`: `first` is one, and `rest` holds the others, one after the other.
    __device__ Cloud(const float* first, const float* rest, int cloud, int n, int dim)
        : points(cloud ? rest + (long long)(cloud - 1) * n * dim : first), dim(dim) {
        in_fours = dim % 4 == 0 && reinterpret_cast<u64>(points) % 16 == 0;
    }

    __device__ Point point(u32 place) const {
        const float* at = points + (long long)place * dim;
        return {ordered(at[0]), dim > 1 ? ordered(at[1]) : 0, dim > 2 ? ordered(at[2]) : 0, place};
    }

    // Eight coordinates from d on, or as many as there are. Points that tie in one often tie in many.
    __device__ void load(u32 place, int d, u32 (&to)[8]) const {
        const float* from = points + (long long)place * dim + d;
        if (in_fours)
#pragma unroll
            for (int half = 0; half < 8; half += 4) {
                float4 four = {0.0f, 0.0f, 0.0f, 0.0f};
                if (d + half < dim) four = *reinterpret_cast<const float4*>(from + half);
                to[half] = ordered(four.x);
                to[half + 1] = ordered(four.y);
                to[half + 2] = ordered(four.z);
                to[half + 3] = ordered(four.w);
            }
        else
#pragma unroll
            for (int k = 0; k < 8; k++) to[k] = d + k < dim ? ordered(from[k]) : 0;
    }

    // Points that are equal stay in order of place.
    __device__ bool is_before(const Point& one, const Point& other) const {
        if (one.x != other.x) return one.x < other.x;
        if (one.y != other.y) return one.y < other.y;
        if (one.z != other.z) return one.z < other.z;
        for (int d = in_fours ? 0 : 3; d < dim; d += 8) {
            u32 a[8], b[8];
            load(one.w, d, a);
            load(other.w, d, b);
#pragma unroll
            for (int k = 0; k < 8; k++)
                if (a[k] != b[k]) return a[k] < b[k];
        }
        return one.w < other.w;
    }
};

// A tile in shared memory.
struct Tile {
    const Cloud* of;
    Point* points;

    struct Entry {
        const Cloud* of;
        Point point;

        __device__ bool operator<(const Entry& other) const { return of->is_before(point, other.point); }
    };

    __device__ Entry get(long long k) const { return {of, points[k]}; }
    __device__ void put(long long k, const Entry& entry) const { points[k] = entry.point; }
};

// Every tile of every cloud in order, `out (clouds, n)`; the places alone go to `order`, if it is not null.
extern "C" __global__ void __launch_bounds__(THREADS) sort_tiles(
    const float* first, const float* rest, Point* out, long long* order, int n, int dim, int tiles) {
    SHARED(Point, points);
    int start = blockIdx.x % tiles * TILE, size = min(TILE, n - start);
    Cloud cloud(first, rest, blockIdx.x / tiles, n, dim);
    for (int k = threadIdx.x; k < size; k += THREADS) points[k] = cloud.point(start + k);
    __syncthreads();
    sort_by_network(Tile{&cloud, points}, size);
    long long at = (long long)(blockIdx.x / tiles) * n + start;
    for (int k = threadIdx.x; k < size; k += THREADS)
        if (order) order[at + k] = points[k].w;
        else out[at + k] = points[k];
}

// Sorted runs of `length` points merged two by two: a point goes behind those of the other run that are before it. The
// places alone go to `order`, if it is not null.
extern "C" __global__ void __launch_bounds__(THREADS) merge_runs(
    const float* first, const float* rest, const Point* runs, Point* out, long long* order, int n, int dim, int parts,
    int length) {
    int k = blockIdx.x % parts * THREADS + threadIdx.x;
    if (k >= n) return;
    Cloud cloud(first, rest, blockIdx.x / parts, n, dim);
    long long at = (long long)(blockIdx.x / parts) * n;
    runs += at;
    Point own = runs[k];
    long long start = k / length / 2 * 2ll * length, middle = min(start + length, (long long)n);
    int low = k < middle ? middle : start, high = k < middle ? min(start + 2ll * length, (long long)n) : middle;
    while (low < high) {
        int half = low + (high - low) / 2;
        if (cloud.is_before(runs[half], own)) low = half + 1;
        else high = half;
    }
    at += k + low - middle;
    if (order) order[at] = own.w;
    else out[at] = own;
}

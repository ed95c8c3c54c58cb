// The lexicographic order of points: a sort by the first coordinate, with the others for those that tie.

// Compiled with THREADS defined.

#include "block.cuh"

// The points of a cloud `(n, dim)` in the order so far: first coordinates and places, in shared memory.
struct Points {
    const float* cloud;
    int dim;
    u32 *keys, *places;

    struct Entry {
        const Points* of;
        u32 key, place;

        // Points that are equal stay in order of place.
        __device__ bool operator<(const Entry& other) const {
            if (key != other.key) return key < other.key;
            // Several coordinates are loaded at a time, since points that tie in one often tie in many.
            constexpr int AT_ONCE = 4;
            for (int first = 1; first < of->dim; first += AT_ONCE) {
                u32 a[AT_ONCE], b[AT_ONCE];
#pragma unroll
                for (int k = 0; k < AT_ONCE; k++) {
                    int d = min(first + k, of->dim - 1);
                    a[k] = of->coordinate(place, d);
                    b[k] = of->coordinate(other.place, d);
                }
#pragma unroll
                for (int k = 0; k < AT_ONCE; k++)
                    if (a[k] != b[k]) return a[k] < b[k];
            }
            return place < other.place;
        }
    };

    __device__ u32 coordinate(u32 place, int d) const { return ordered(cloud[(long long)place * dim + d]); }
    __device__ Entry get(long long k) const { return {this, keys[k], places[k]}; }
    __device__ void put(long long k, const Entry& entry) const {
        keys[k] = entry.key;
        places[k] = entry.place;
    }
};

// The order of the points of every cloud `(n, dim)`, by one block a cloud: `first` is a cloud, and `rest` holds
// the others, one after the other.
extern "C" __global__ void __launch_bounds__(THREADS) lexicographic_order(
    const float* first, const float* rest, long long* order, int n, int dim) {
    SHARED(u32, shared);
    const float* points = blockIdx.x ? rest + (long long)(blockIdx.x - 1) * n * dim : first;
    Points cloud = {points, dim, shared, shared + n};
    for (int k = threadIdx.x; k < n; k += THREADS) {
        cloud.keys[k] = cloud.coordinate(k, 0);
        cloud.places[k] = k;
    }
    __syncthreads();
    sort_by_network(cloud, n);
    for (int k = threadIdx.x; k < n; k += THREADS) order[(long long)blockIdx.x * n + k] = cloud.places[k];
}

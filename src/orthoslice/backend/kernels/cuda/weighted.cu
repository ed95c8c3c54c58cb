// Rows of weighted points that fit on a chip: sorted, with the mass up to every point.
//
// Compiled with PROJECTS defined too: whether the rows are made here, as projections of clouds.

#include "masses.cuh"
#include "projecting.cuh"

// The masses of the points from rank `first` on, 0 beyond the last. `weight_of` takes what is in the room of places.
template <class WeightOf>
__device__ __forceinline__ void own_masses(
    u64 (&masses)[ITEMS], const u32* shared, int first, int size, double scale, WeightOf weight_of) {
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        // Of the last point, if there are no more.
        u32 word = shared[PADDED + at(min(first + r, size - 1))];
        masses[r] = mass_of(first + r < size ? weight_of(word) : 0, scale);
    }
}

// Sort rows `x (slices, n)` and `y (slices, m)`, with their places where there is room for them; and add up the masses of
// their points in that order where there is room for those. A block sorts one row. Weights are `(batch, n)` and `(batch, m)`,
// and row k has those of cloud k % batch. With PROJECTS the rows are the projections of two clouds on `theta (slices, dim)`,
// moved to the origin where x is far from it. Bit 0 of `doubles` says whether those of x are of double precision, bit 1 those of y.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) sort_weighted(
    const float* x, const float* y, const float* theta, const void* x_weights, const void* y_weights, const Scale* scales,
    float* x_keys, float* y_keys, u64* x_ends, u64* y_ends, int* x_places, int* y_places, int slices, int n, int m, int dim,
    int doubles, int batch) {
    SHARED(u32, shared);
    // The last rows come first: what is written last, the first rows of x and of y, is merged first, and still in the cache.
    const bool of_y = blockIdx.x % 2;
    const int size = of_y ? m : n, row = slices - 1 - (int)(blockIdx.x / 2);
    long long start = (long long)row * size;
    u64* ends = of_y ? y_ends : x_ends;
    int* places = of_y ? y_places : x_places;
    Weights weights = {};
    if (ends) weights = weights_of(of_y ? y_weights : x_weights, doubles >> of_y & 1, scales, of_y, row, batch, size);
    // Weights that nobody looks up by place go along with their points in its stead: then none is looked up.
    const u32* along = ends && !places && !weights.is_double ? static_cast<const u32*>(weights.table) : nullptr;
    float values[ITEMS];
    if (PROJECTS) {
        // Few clouds are far from the origin: x is checked after a projection, which is made again if it is far.
        const float* centre = nullptr;
        for (bool again = true; again;) {
            project_row(values, of_y ? y : x, theta + (long long)row * dim, centre, size, dim);
            again = !centre && (centre = find_centre(x, n, dim, shared));
        }
    } else load_row(values, (of_y ? y : x) + start, size);
    sort_on_chip(values, ends || places, along, size, shared);
    float* keys = (of_y ? y_keys : x_keys) + start;
    for (int k = threadIdx.x; k < size; k += THREADS) {
        keys[k] = number(shared[at(k)]);
        if (places) places[start + k] = shared[PADDED + at(k)];
    }
    if (!ends) return;
    // A thread adds up a run of points. One kind of weights is asked for at a time: loops without branches are short.
    const int first = threadIdx.x * ITEMS;
    u64 upto[ITEMS];
    if (along) own_masses(upto, shared, first, size, weights.scale, [](u32 word) { return __uint_as_float(word); });
    else if (weights.is_double)
        own_masses(upto, shared, first, size, weights.scale, [&](u32 place) {
            return static_cast<const double*>(weights.table)[place];
        });
    else
        own_masses(upto, shared, first, size, weights.scale, [&](u32 place) {
            return static_cast<const float*>(weights.table)[place];
        });
    u64 sum = 0;
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        sum += upto[r];
        upto[r] = sum;
    }
    u64 before = block_scan(sum, reinterpret_cast<u64*>(shared + SCRATCH));
    // Keys and places are done with; masses take their room, to be written in order.
    u64* staged = reinterpret_cast<u64*>(shared);
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        int k = threadIdx.x * ITEMS + r;
        if (k < size) staged[at(k)] = before + upto[r];
    }
    __syncthreads();
    for (int k = threadIdx.x; k < size; k += THREADS) ends[start + k] = staged[at(k)];
}

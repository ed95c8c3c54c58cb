// Tables of the counter-based stream, `(keys, rows, columns)`: the numbers of `orthoslice.backend.arrays.stream`.
//
// Compiled with THREADS defined.

#include "threefry.cuh"

// A table of float32, or of float64 if it is wide.
struct Table {
    void* numbers;
    int wide;

    __device__ void put(long long k, double value) const {
        if (wide) static_cast<double*>(numbers)[k] = value;
        else static_cast<float*>(numbers)[k] = (float)value;
    }
};

// Entry k of a table: the key that it is drawn with, and its row and column.
struct Entry {
    Words key;
    int row, column;

    __device__ Entry(const u32* high, const u32* low, long long k, int rows, int columns) {
        long long of_key = k / columns / rows;
        key = {high[of_key], low[of_key]};
        row = (int)(k / columns % rows);
        column = (int)(k % columns);
    }
};

// Standard normals, two at a time; `count` is how many pairs there are.
extern "C" __global__ void __launch_bounds__(THREADS) draw_normals(
    const u32* high, const u32* low, void* out, long long count, int rows, int columns, int wide) {
    long long k = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (k >= count) return;
    int pairs = (columns + 1) / 2;
    Entry pair(high, low, k, rows, pairs);
    double first, second;
    two_normals(pair.key, pair.row, pair.column, &first, &second);
    long long at = k / pairs * columns + 2 * pair.column;
    Table table = {out, wide};
    table.put(at, first);
    if (2 * pair.column + 1 < columns) table.put(at + 1, second);
}

// Signs, by the lowest bit of the first word of each.
extern "C" __global__ void __launch_bounds__(THREADS) draw_signs(
    const u32* high, const u32* low, void* out, long long count, int rows, int columns, int wide) {
    long long k = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (k >= count) return;
    Entry entry(high, low, k, rows, columns);
    Words words = threefry(entry.key, entry.row, entry.column);
    Table{out, wide}.put(k, words.high & 1 ? -1.0 : 1.0);
}

// Keys `out (2, count)` encrypted from the counters `(a, b)`, under one key or as many. `table`, unless it is null, has
// an `a` for each of them.
extern "C" __global__ void __launch_bounds__(THREADS) fold_keys(
    const u32* high, const u32* low, const u32* table, u32* out, long long a, long long b, int count, int n_keys) {
    int k = blockIdx.x * THREADS + threadIdx.x;
    if (k >= count) return;
    int own = n_keys == 1 ? 0 : k;
    Words words = threefry({high[own], low[own]}, table ? table[k] : (u32)a, (u32)b);
    out[k] = words.high;
    out[count + k] = words.low;
}

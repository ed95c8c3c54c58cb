// Rows that fit on a chip, sorted.

#include "on_chip.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) sort_rows(const float* rows, float* keys, int* places, int n) {
    SHARED(u32, shared);
    long long row = (long long)blockIdx.x * n;
    float values[ITEMS];
    load_row(values, rows + row, n);
    sort_on_chip(values, PAIRS, nullptr, n, shared);
    write_sorted(shared, n, keys ? keys + row : nullptr, PAIRS ? places + row : nullptr);
}

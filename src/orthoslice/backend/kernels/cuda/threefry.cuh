// The counter-based generator of `orthoslice.backend.arrays.key`: the same key gives the same numbers everywhere.

#pragma once

typedef unsigned int u32;

struct Words {
    u32 high, low;
};

// Threefry-2x32 with 20 rounds.
__device__ Words threefry(Words key, u32 c0, u32 c1) {
    const u32 keys[3] = {key.high, key.low, key.high ^ key.low ^ 0x1BD11BDAu};
    const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    u32 x0 = c0 + keys[0], x1 = c1 + keys[1];
#pragma unroll
    for (int group = 0; group < 5; group++) {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            int by = rotations[group % 2][r];
            x0 += x1;
            x1 = (x1 << by | x1 >> (32 - by)) ^ x0;
        }
        x0 += keys[(group + 1) % 3];
        x1 += keys[(group + 2) % 3] + group + 1;
    }
    return {x0, x1};
}

// The key of a block: folded from the key of all blocks, or from that of a step of a training run.
__device__ Words block_key(const u32* high, const u32* low, bool is_step, u32 step, int steps, int block, int purpose) {
    Words key = {*high, *low};
    if (is_step) key = threefry(key, step, steps);
    return threefry(key, block, purpose);
}

// Cosine and sine of 2 pi times a word's place in (0, 1).
__device__ __forceinline__ void point_on_circle(u32 word, double* cosine, double* sine) {
    double turn = (word >> 16) * 0x1p-16 + ((word & 0xffffu) + 0.5) * 0x1p-32;
    sincospi(2.0 * turn, sine, cosine);
}

// Two independent standard normals by the Box-Muller transform.
__device__ void two_normals(Words key, int row, int pair, double* first, double* second) {
    Words words = threefry(key, row, pair);
    double high = words.high >> 16, low = words.high & 0xffffu;
    double below = high * 0x1p-16 + (low + 0.5) * 0x1p-32;
    double above = (65535.0 - high) * 0x1p-16 + (65535.5 - low) * 0x1p-32;
    double radius = sqrt(-2.0 * (below < 0.5 ? log(below) : log1p(-above)));
    double sine, cosine;
    point_on_circle(words.low, &cosine, &sine);
    *first = radius * cosine;
    *second = radius * sine;
}

// Factor k of a block of Walsh-Hadamard transforms, of 2^log_columns columns a round: a sign or, if `paired`, the cosine
// and the sine of an angle for two columns.
__device__ void draw_factor(Words key, int k, int log_columns, bool paired, float* factors) {
    int bits = paired ? log_columns - 1 : log_columns;
    Words words = threefry(key, k >> bits, k & ((1 << bits) - 1));
    if (!paired) {
        factors[k] = words.high & 1 ? -1.0f : 1.0f;
        return;
    }
    double cosine, sine;
    point_on_circle(words.low, &cosine, &sine);
    factors[2 * k] = (float)cosine;
    factors[2 * k + 1] = (float)sine;
}

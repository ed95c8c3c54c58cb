// The counter-based stream of `orthoslice.backend.arrays.stream`: the same key gives the same numbers everywhere.

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

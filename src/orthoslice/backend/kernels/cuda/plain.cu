// What needs no sort: matching rows that are sorted, projecting, and adding up.
//
// Compiled with the sizes of blocks and tiles defined: THREADS; DIRECTIONS, PROJECTED and DEPTH of projections, and
// CENTRED, up to how many coordinates they move clouds to the origin; SIDE and GATHERED of gradients.

#include "block.cuh"

// Whether rows of a table are made of whole fours that can be loaded at once.
__device__ __forceinline__ bool in_fours(const float* table, int width) {
    return width % 4 == 0 && (size_t)table % 16 == 0;
}

// Where a cloud `x (n, dim)` sits, in coordinates in which that is far from 0 for its range, and 0 in the others.
extern "C" __global__ void __launch_bounds__(THREADS) far_centre(const float* x, float* centre, int n, int dim) {
    SHARED(u32, shared);
    float *lows = reinterpret_cast<float*>(shared), *highs = lows + THREADS;
    int tiles = (dim + 31) / 32, cloud = blockIdx.x / tiles;
    int d = blockIdx.x % tiles * 32 + threadIdx.x % 32;
    x += (long long)cloud * n * dim;
    centre += (long long)cloud * dim;
    float low = INFINITE, high = -INFINITE;
    if (d < dim)
        for (int i = threadIdx.x / 32; i < n; i += WARPS) {
            float value = x[(long long)i * dim + d];
            low = fminf(low, value);
            high = fmaxf(high, value);
        }
    lows[threadIdx.x] = low;
    highs[threadIdx.x] = high;
    __syncthreads();
    if (threadIdx.x < 32 && d < dim) {
        for (int w = 1; w < WARPS; w++) {
            low = fminf(low, lows[w * 32 + threadIdx.x]);
            high = fmaxf(high, highs[w * 32 + threadIdx.x]);
        }
        float middle = low / 2 + high / 2;
        centre[d] = fabsf(middle) > 2 * (high - low) ? middle : 0.0f;
    }
}

// Rows of `theta (slices, dim)`: as they are if their length is 1 up to `rounding`, divided by it if it is up to `tolerance`,
// else NaN. A block takes a row.
extern "C" __global__ void __launch_bounds__(THREADS) check_rows(
    const float* theta, float* out, int dim, float tolerance, float rounding) {
    SHARED(u32, shared);
    double* sums = reinterpret_cast<double*>(shared);
    theta += (long long)blockIdx.x * dim;
    out += (long long)blockIdx.x * dim;
    double square = 0;
    for (int d = threadIdx.x; d < dim; d += THREADS) square += (double)theta[d] * (double)theta[d];
    sums[threadIdx.x] = square;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
    double length = sqrt(sums[0]), off = fabs(length - 1);
    // Written so that NaN counts as off.
    double factor = off <= rounding ? 1.0 : off <= tolerance ? 1 / length : (double)INFINITE - (double)INFINITE;
    for (int d = threadIdx.x; d < dim; d += THREADS) out[d] = (float)(theta[d] * factor);
}

// Copies of x `(n, dim)` and, after it, of y `(m, dim)`, moved to the origin where `like (size, dim)` is far from it. A block
// copies `lines` points of one of them.
extern "C" __global__ void __launch_bounds__(THREADS) move_clouds(
    const float* x, const float* y, const float* like, float* out, int n, int m, int size, int dim, int lines) {
    int x_blocks = (n + lines - 1) / lines;
    bool of_x = blockIdx.x < x_blocks;
    const float* points = of_x ? x : y;
    float* to = of_x ? out : out + (long long)n * dim;
    long long first = (long long)(of_x ? blockIdx.x : blockIdx.x - x_blocks) * lines;
    long long last = min(first + lines, (long long)(of_x ? n : m));
    // A thread copies one coordinate of a point, or four where rows are aligned: `at_once` points at a time.
    bool fours = in_fours(x, dim) && in_fours(y, dim) && in_fours(out, dim);
    int width = fours ? 4 : 1, across = min(dim / width, THREADS), at_once = THREADS / across;
    if (threadIdx.x >= across * at_once) return;
    long long start = first + threadIdx.x / across;
    for (int d = threadIdx.x % across * width; d < dim; d += across * width) {
        float off[4];
        for (int c = 0; c < width; c++) off[c] = far_coordinate(like, nullptr, size, dim, d + c);
        if (fours) {
#pragma unroll 4
            for (long long k = start; k < last; k += at_once) {
                const float4 a = *reinterpret_cast<const float4*>(points + k * dim + d);
                *reinterpret_cast<float4*>(to + k * dim + d) = {a.x - off[0], a.y - off[1], a.z - off[2], a.w - off[3]};
            }
        } else {
#pragma unroll 4
            for (long long k = start; k < last; k += at_once) to[k * dim + d] = points[k * dim + d] - off[0];
        }
    }
}

// Costs of sorted rows `x (rows, n)` against sorted rows `y (rows, n)`, summed over parts of the ranks: `(rows, parts)`.
// With slopes where they are asked for, of either cloud; those go to the points' places.
extern "C" __global__ void __launch_bounds__(THREADS) match_sorted(
    const float* x, const float* y, const int* x_places, const int* y_places, double* sums, float* x_slopes,
    float* y_slopes, long long n, int parts, float p, double factor) {
    SHARED(u32, shared);
    const int row = blockIdx.x / parts, part = blockIdx.x % parts, share = ((int)n + parts - 1) / parts;
    const int first = part * share, last = min(first + share, (int)n);
    const float mass = (float)(factor / (double)n);
    const float *own = x + row * n, *others = y + row * n;
    double total = 0.0;
    // Several pairs are loaded at a time.
    constexpr int AT_ONCE = 8;
    for (int start = first; start < last; start += AT_ONCE * THREADS) {
        float value[AT_ONCE], other[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            int i = start + j * THREADS + threadIdx.x;
            value[j] = i < last ? own[i] : 0.0f;
            other[j] = i < last ? others[i] : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            long long i = row * n + start + j * THREADS + threadIdx.x;
            if (i >= row * n + last) break;
            float difference = value[j] - other[j], pull = mass * slope(difference, p);
            total += cost(difference, p);
            if (x_slopes) x_slopes[row * n + x_places[i]] = pull;
            if (y_slopes) y_slopes[row * n + y_places[i]] = -pull;
        }
    }
    double sum = block_sum(total, shared);
    if (threadIdx.x == 0) sums[blockIdx.x] = factor / (double)n * sum;
}

// `share` times the sum of `count` scores of every cloud: one block a cloud, of scores `(count, clouds)`.
extern "C" __global__ void __launch_bounds__(THREADS) add_up(
    const double* scores, float* out, long long* step, int count, double share) {
    SHARED(u32, shared);
    add_up_scores(scores + blockIdx.x, count, out + blockIdx.x, step, shared, gridDim.x, share);
}

// Four consecutive numbers of a row of `table (rows, width)`, zeros beyond its ends; at once where `aligned` says that
// rows are made of whole fours.
__device__ __forceinline__ float4 load_four(
    const float* table, long long row, int rows, int column, int width, bool aligned) {
    const float* from = table + row * width + column;
    if (row >= rows || column >= width) return {0.0f, 0.0f, 0.0f, 0.0f};
    if (aligned) return *reinterpret_cast<const float4*>(from);
    return {from[0], column + 1 < width ? from[1] : 0.0f, column + 2 < width ? from[2] : 0.0f,
            column + 3 < width ? from[3] : 0.0f};
}

__device__ __forceinline__ void store_four(
    float* table, long long row, int rows, int column, int width, bool aligned, const float* four) {
    if (row >= rows) return;
    float* to = table + row * width + column;
    if (aligned && column < width) *reinterpret_cast<float4*>(to) = {four[0], four[1], four[2], four[3]};
    else
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (column + k < width) to[k] = four[k];
}

// Projections `px (slices, n)` and `py (slices, m)` of both clouds, in one launch to save time on small ones.
// Where `order (2, n)` is not null, it says which point is where, and clouds are of one size. Both are moved to
// the origin where x is far from it, unless they have more than CENTRED coordinates. Of several pairs of clouds the
// projections are `(slices, clouds)` rows.
extern "C" __global__ void __launch_bounds__(THREADS, 2) project(
    const float* x, const float* y, const float* theta, const long long* order, float* px, float* py, int slices, int n,
    int m, int dim, int clouds) {
    SHARED(u32, shared);
    float* staged = reinterpret_cast<float*>(shared);
    constexpr int ALONG = DIRECTIONS + 4, ACROSS = PROJECTED + 4, STAGE = DEPTH * (ALONG + ACROSS);
    int x_tiles = (n + PROJECTED - 1) / PROJECTED, tiles = x_tiles + (m + PROJECTED - 1) / PROJECTED;
    int tile = blockIdx.x % tiles, first_row = blockIdx.x / tiles / clouds * DIRECTIONS;
    long long pair = blockIdx.x / tiles % clouds;
    bool of_x = tile < x_tiles;
    x += pair * n * dim;
    const float* cloud = of_x ? x : y + pair * m * dim;
    float* out = of_x ? px : py;
    int size = of_x ? n : m, first_point = (of_x ? tile : tile - x_tiles) * PROJECTED;
    bool whole = in_fours(theta, dim) && in_fours(cloud, dim);
    // A thread loads runs of 4 coordinates, of one direction and two points; it holds 4 directions and two runs of 4
    // points, half a tile apart: reads and writes of a warp are runs.
    int line = threadIdx.x / 4, from = threadIdx.x % 4 * 4;
    int column = threadIdx.x % 16 * 4, row = threadIdx.x / 16 * 4;
    int point[2] = {first_point + line, first_point + line + 64};
    if (order)
        for (int& k : point)
            if (k < size) k = (int)order[of_x ? k : n + k];
    // Few clouds are far from the origin; the others need not be moved.
    float* centre = staged + 2 * STAGE;
    bool is_far = false;
    float4 next[3];
    float sum[4][8] = {};
    // The next coordinates are loaded while these are multiplied.
    for (int d = -DEPTH, stage = 0; d < dim; d += DEPTH, stage ^= 1) {
        float *along = staged + stage * STAGE, *points = along + DEPTH * ALONG;
        if (d >= 0) {
            if (is_far) {
                const float4 off = *reinterpret_cast<const float4*>(centre + d + from);
#pragma unroll
                for (int half = 1; half < 3; half++) {
                    const float4 a = next[half];
                    next[half] = {a.x - off.x, a.y - off.y, a.z - off.z, a.w - off.w};
                }
            }
#pragma unroll
            for (int half = 0; half < 3; half++) {
                float* to = half ? points + from * ACROSS + line + 64 * (half - 1) : along + from * ALONG + line;
                int stride = half ? ACROSS : ALONG;
                to[0] = next[half].x;
                to[stride] = next[half].y;
                to[2 * stride] = next[half].z;
                to[3 * stride] = next[half].w;
            }
            // Threads that are behind still read the other stage, which is written only after the next barrier.
            __syncthreads();
        }
        if (d + DEPTH < dim) {
            next[0] = load_four(theta, first_row + line, slices, d + DEPTH + from, dim, whole);
            next[1] = load_four(cloud, point[0], size, d + DEPTH + from, dim, whole);
            next[2] = load_four(cloud, point[1], size, d + DEPTH + from, dim, whole);
        }
        if (d < 0) {
            // While the first coordinates are loaded: the centre, filled up with zeros to a multiple of DEPTH.
            if (dim <= CENTRED)
                for (int c = threadIdx.x; c < (dim + DEPTH - 1) / DEPTH * DEPTH; c += THREADS) {
                    centre[c] = c < dim ? far_coordinate(x, order, n, dim, c) : 0.0f;
                    is_far |= centre[c] != 0.0f;
                }
            is_far = __syncthreads_or(is_far);
            continue;
        }
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            const float4 t = *reinterpret_cast<const float4*>(along + k * ALONG + row);
            const float4 a = *reinterpret_cast<const float4*>(points + k * ACROSS + column);
            const float4 b = *reinterpret_cast<const float4*>(points + k * ACROSS + column + 64);
            const float left[4] = {t.x, t.y, t.z, t.w}, right[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) sum[i][j] = fmaf(left[i], right[j], sum[i][j]);
        }
    }
    bool aligned = in_fours(out, size);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            store_four(out, (first_row + row + i) * (long long)clouds + pair, slices * clouds,
                       first_point + column + 64 * half, size, aligned, sum[i] + 4 * half);
}

// Projections `(slices, n)` of the points of one cloud, of at most WIDTH coordinates, four a thread.
template <int WIDTH>
__device__ __forceinline__ void project_points(
    const float* points, const float* theta, float* out, int slices, int n, int dim, int first_point, int first_row,
    float* along) {
    constexpr int POINTS = 4, ROWS = DIRECTIONS;
    int rows = min(ROWS, slices - first_row);
    for (int k = threadIdx.x; k < rows * WIDTH; k += THREADS) {
        int d = k % WIDTH;
        along[k] = d < dim ? theta[(long long)(first_row + k / WIDTH) * dim + d] : 0.0f;
    }
    float here[POINTS][WIDTH];
#pragma unroll
    for (int j = 0; j < POINTS; j++) {
        int i = first_point + j * THREADS + threadIdx.x;
#pragma unroll
        for (int d = 0; d < WIDTH; d++) here[j][d] = i < n && d < dim ? points[(long long)i * dim + d] : 0.0f;
    }
    __syncthreads();
    float* to = out + (long long)first_row * n + first_point + threadIdx.x;
    for (int row = 0; row < rows; row++, to += n) {
        float sum[POINTS] = {};
#pragma unroll
        for (int d = 0; d < WIDTH; d++)
#pragma unroll
            for (int j = 0; j < POINTS; j++) sum[j] = fmaf(along[row * WIDTH + d], here[j][d], sum[j]);
#pragma unroll
        for (int j = 0; j < POINTS; j++)
            if (first_point + j * THREADS + (int)threadIdx.x < n) to[j * THREADS] = sum[j];
    }
}

// The same as `project` for clouds of one pair, of at most 8 coordinates, that are not moved: points stay in registers, and
// products of the library take four times as long as it takes to write them.
extern "C" __global__ void __launch_bounds__(THREADS) project_few(
    const float* x, const float* y, const float* theta, float* px, float* py, int slices, int n, int m, int dim) {
    SHARED(u32, shared);
    constexpr int TILE = 4 * THREADS;
    int x_tiles = (n + TILE - 1) / TILE, tiles = x_tiles + (m + TILE - 1) / TILE;
    int tile = blockIdx.x % tiles, first_row = blockIdx.x / tiles * DIRECTIONS;
    bool of_x = tile < x_tiles;
    const float* cloud = of_x ? x : y;
    float *out = of_x ? px : py, *along = reinterpret_cast<float*>(shared);
    int size = of_x ? n : m, first_point = (of_x ? tile : tile - x_tiles) * TILE;
    if (dim <= 4) project_points<4>(cloud, theta, out, slices, size, dim, first_point, first_row, along);
    else project_points<8>(cloud, theta, out, slices, size, dim, first_point, first_row, along);
}

// Gradients `(n, dim)` by points from slopes by projections `(rows, n)`, for at most WIDTH coordinates: a thread has a point.
template <int WIDTH>
__device__ __forceinline__ void gather_points(
    const float* slopes, const float* theta, float* gradient, int rows, int n, int dim, bool is_first, float* along) {
    constexpr int AT_ONCE = 8;
    const int point = blockIdx.x * THREADS + threadIdx.x;
    float sum[WIDTH] = {};
    for (int first = 0; first < rows; first += DIRECTIONS) {
        const int count = min(DIRECTIONS, rows - first);
        __syncthreads();
        // Rows that are not there are zeros.
        for (int k = threadIdx.x; k < DIRECTIONS * WIDTH; k += THREADS) {
            int row = k / WIDTH, d = k % WIDTH;
            along[k] = row < count && d < dim ? theta[(long long)(first + row) * dim + d] : 0.0f;
        }
        __syncthreads();
        if (point >= n) continue;
        for (int row = 0; row < count; row += AT_ONCE) {
            float pull[AT_ONCE];
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++)
                pull[j] = row + j < count ? slopes[(long long)(first + row + j) * n + point] : 0.0f;
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++)
#pragma unroll
                for (int d = 0; d < WIDTH; d++) sum[d] = fmaf(pull[j], along[(row + j) * WIDTH + d], sum[d]);
        }
    }
    if (point >= n) return;
    float* own = gradient + (long long)point * dim;
#pragma unroll
    for (int d = 0; d < WIDTH; d++)
        if (d < dim) own[d] = is_first ? sum[d] : own[d] + sum[d];
}

// `slopes^T theta` for at most 8 coordinates, written to `gradient` if this `is_first`, else added to it.
extern "C" __global__ void __launch_bounds__(THREADS) gather_few(
    const float* slopes, const float* theta, float* gradient, int rows, int n, int dim, int is_first) {
    SHARED(u32, shared);
    float* along = reinterpret_cast<float*>(shared);
    if (dim <= 4) gather_points<4>(slopes, theta, gradient, rows, n, dim, is_first, along);
    else gather_points<8>(slopes, theta, gradient, rows, n, dim, is_first, along);
}

// Gradients by points from slopes by projections, `share` times `slopes^T theta`: of x in the first rows of `gradient`,
// then of y. Either may have no points. A launch is saved by adding up the scores on the way. Slopes and scores of several
// pairs of clouds are `(rows, clouds)` rows; every score may be in parts.
extern "C" __global__ void __launch_bounds__(THREADS, 3) finish_step(
    const float* x_slopes, const float* y_slopes, const float* theta, float* gradient, const double* scores, float* total,
    long long* step, int rows, int n, int m, int dim, int clouds, int parts, double share) {
    SHARED(u32, shared);
    float* staged = reinterpret_cast<float*>(shared);
    if (blockIdx.x < clouds) add_up_scores(scores + blockIdx.x, rows * parts, total + blockIdx.x, step, shared, clouds, share);
    __syncthreads();
    // Groups of threads share out the directions; a thread holds 4 points and 4 coordinates.
    constexpr int MEMBERS = SIDE * SIDE / 16, GROUPS = THREADS / MEMBERS, SHARE = GATHERED / GROUPS;
    constexpr int LOADS = GATHERED * SIDE / THREADS / 4, LINES = THREADS / (SIDE / 4), STAGE = 2 * GATHERED * SIDE;
    int x_tiles = (n + SIDE - 1) / SIDE, tiles = x_tiles + (m + SIDE - 1) / SIDE;
    int tile = blockIdx.x % tiles, first_column = blockIdx.x / tiles / clouds * SIDE;
    long long pair = blockIdx.x / tiles % clouds;
    bool of_x = tile < x_tiles;
    const float* source = of_x ? x_slopes : y_slopes;
    float* out = gradient + (of_x ? pair * n : (long long)clouds * n + pair * m) * dim;
    int size = of_x ? n : m, first_point = (of_x ? tile : tile - x_tiles) * SIDE;
    bool whole_slopes = in_fours(source, size), whole_rows = in_fours(theta, dim);
    int group = threadIdx.x / MEMBERS, member = threadIdx.x % MEMBERS;
    int column = member % (SIDE / 4) * 4, point = member / (SIDE / 4) * 4;
    int line = threadIdx.x / (SIDE / 4), across = threadIdx.x % (SIDE / 4) * 4;
    float4 next_slopes[LOADS], next_along[LOADS];
    float sum[4][4] = {};
    // The next tiles are loaded while these are multiplied.
    for (int first = -GATHERED, stage = 0; first < rows; first += GATHERED, stage ^= 1) {
        float *slopes = staged + stage * STAGE, *along = slopes + GATHERED * SIDE;
        if (first >= 0) {
#pragma unroll
            for (int k = 0; k < LOADS; k++) {
                int at = (line + k * LINES) * SIDE + across;
                *reinterpret_cast<float4*>(slopes + at) = next_slopes[k];
                *reinterpret_cast<float4*>(along + at) = next_along[k];
            }
            // Threads that are behind still read the other stage, which is written only after the next barrier.
            __syncthreads();
        }
#pragma unroll
        for (int k = 0; k < LOADS; k++) {
            int r = first + GATHERED + line + k * LINES;
            next_slopes[k] = load_four(source, r * (long long)clouds + pair, rows * clouds, first_point + across, size, whole_slopes);
            next_along[k] = load_four(theta, r, rows, first_column + across, dim, whole_rows);
        }
        if (first < 0) continue;
#pragma unroll
        for (int k = 0; k < SHARE; k++) {
            int r = group * SHARE + k;
            const float4 s = *reinterpret_cast<const float4*>(slopes + r * SIDE + point);
            const float4 t = *reinterpret_cast<const float4*>(along + r * SIDE + column);
            const float left[4] = {s.x, s.y, s.z, s.w}, right[4] = {t.x, t.y, t.z, t.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] = fmaf(left[i], right[j], sum[i][j]);
        }
    }
    // What the groups have is added up in their order.
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) staged[group * SIDE * SIDE + (point + i) * SIDE + column + j] = sum[i][j];
    __syncthreads();
    bool aligned = in_fours(out, dim);
    for (int k = 4 * threadIdx.x; k < SIDE * SIDE; k += 4 * THREADS) {
        float four[4] = {};
        for (int g = 0; g < GROUPS; g++)
#pragma unroll
            for (int j = 0; j < 4; j++) four[j] += staged[g * SIDE * SIDE + k + j];
#pragma unroll
        for (int j = 0; j < 4; j++) four[j] *= (float)share;
        store_four(out, first_point + k / SIDE, size, first_column + k % SIDE, dim, aligned, four);
    }
}

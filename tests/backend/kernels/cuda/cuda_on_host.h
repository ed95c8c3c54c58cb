// Runs CUDA kernels on the processor, one block after the other: every thread of a block is a fiber that gives way
// at barriers and warp collectives. Slow and faithful; for tests on machines without a GPU.
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <vector>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define SHARED(type, name) type* name = reinterpret_cast<type*>(cuda_on_host::shared)

namespace cuda_on_host {
bool misaligned;
}

struct alignas(16) float4 {
    float x, y, z, w;
    float4() = default;
    float4(float x, float y, float z, float w) : x(x), y(y), z(z), w(w) {}
    float4(const float4& other) { *this = other; }
    // A GPU stops at such a load or store.
    float4& operator=(const float4& other) {
        if ((reinterpret_cast<uintptr_t>(&other) | reinterpret_cast<uintptr_t>(this)) % 16)
            cuda_on_host::misaligned = true;
        x = other.x, y = other.y, z = other.z, w = other.w;
        return *this;
    }
};

struct alignas(16) double2 {
    double x, y;
};

struct alignas(8) float2 {
    float x, y;
};

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

namespace cuda_on_host {
struct Index {
    unsigned x, y, z;
};
struct Fiber {
    ucontext_t context;
    jmp_buf place;
    std::vector<char> stack;
    bool started, done;
};
Index thread, block, blocks;
char* shared;
int threads, arrived, generation;
struct Warp {
    int arrived, generation;
    double values[32];
} warps[32];
std::vector<Fiber> fibers;
jmp_buf scheduler;
void (*body)(char*);
char* parameters;

// Jumps, since `swapcontext` asks the kernel of the system for the signal mask every time: ten times as slow.
inline void yield() {
    if (!_setjmp(fibers[thread.x].place)) _longjmp(scheduler, 1);
}
__attribute__((noinline)) void resume(Fiber& fiber) {
    if (_setjmp(scheduler)) return;
    if (fiber.started) _longjmp(fiber.place, 1);
    fiber.started = true;
    setcontext(&fiber.context);
}
inline void meet(int& arrived, int& generation, int everyone) {
    int now = generation;
    if (++arrived == everyone) {
        arrived = 0;
        generation++;
    }
    while (generation == now) yield();
}
inline double* exchange(double value) {
    Warp& warp = warps[thread.x / 32];
    warp.values[thread.x % 32] = value;
    meet(warp.arrived, warp.generation, 32);
    return warp.values;
}
[[noreturn]] inline void stuck() {
    fputs("A thread block waits for something that comes after it.\n", stderr);
    abort();
}
inline void leave() {
    Warp& warp = warps[thread.x / 32];
    meet(warp.arrived, warp.generation, 32);
}
void enter() {
    body(parameters);
    fibers[thread.x].done = true;
    yield();
}
// Whether something was wrong.
bool run(void (*kernel)(char*), int grid, int size, long shared_bytes, char* arguments) {
    misaligned = false;
    body = kernel;
    parameters = arguments;
    threads = size;
    blocks = {(unsigned)grid, 1, 1};
    std::vector<char> memory(shared_bytes + 16);
    for (int b = 0; b < grid; b++) {
        // Shared memory starts with whatever was there: here with NaN, so that nothing relies on zeros.
        memset(memory.data(), 0xff, memory.size());
        shared = memory.data();
        block = {(unsigned)b, 0, 0};
        arrived = generation = 0;
        memset(warps, 0, sizeof warps);
        // Stacks are kept from block to block: to make them anew takes longer than most kernels.
        fibers.resize(size);
        for (Fiber& fiber : fibers) {
            fiber.started = fiber.done = false;
            fiber.stack.resize(1 << 16);
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.data();
            fiber.context.uc_stack.ss_size = fiber.stack.size();
            fiber.context.uc_link = nullptr;
            makecontext(&fiber.context, enter, 0);
        }
        for (bool busy = true; busy;) {
            busy = false;
            for (int k = 0; k < size; k++) {
                // Forwards in one block and backwards in the next: what lacks a barrier goes wrong in one of them.
                int t = b % 2 ? size - 1 - k : k;
                if (fibers[t].done) continue;
                busy = true;
                thread = {(unsigned)t, 0, 0};
                resume(fibers[t]);
            }
        }
    }
    return misaligned;
}
// The next argument of a packed list, which is laid out like a struct.
template <class A>
A next(char* packed, size_t& offset) {
    offset = (offset + alignof(A) - 1) / alignof(A) * alignof(A);
    A value;
    memcpy(&value, packed + offset, sizeof(A));
    offset += sizeof(A);
    return value;
}
template <class... A>
void call(void (*kernel)(A...), char* packed) {
    size_t offset = 0;
    // Braces fix the order of evaluation.
    std::tuple<A...> arguments{next<A>(packed, offset)...};
    std::apply(kernel, arguments);
}
}  // namespace cuda_on_host

#define threadIdx cuda_on_host::thread
#define blockIdx cuda_on_host::block
#define gridDim cuda_on_host::blocks

inline void __syncthreads() {
    cuda_on_host::meet(cuda_on_host::arrived, cuda_on_host::generation, cuda_on_host::threads);
}
inline bool __syncthreads_or(bool vote) {
    static bool any;
    __syncthreads();
    any = false;
    __syncthreads();
    any |= vote;
    __syncthreads();
    return any;
}
template <class T>
T __shfl_down_sync(unsigned, T value, int step) {
    unsigned lane = threadIdx.x % 32;
    T other = (T)cuda_on_host::exchange((double)value)[lane + step < 32 ? lane + step : lane];
    cuda_on_host::leave();
    return other;
}
template <class T>
T __shfl_up_sync(unsigned, T value, int step) {
    int lane = threadIdx.x % 32;
    T other = (T)cuda_on_host::exchange((double)value)[lane >= step ? lane - step : lane];
    cuda_on_host::leave();
    return other;
}
inline void __syncwarp() {
    cuda_on_host::leave();
}
// Nobody else runs while a thread block does: what it waits for is there, or never comes.
inline void __threadfence() {}
inline void __nanosleep(unsigned) { cuda_on_host::stuck(); }
template <class T>
T __shfl_sync(unsigned, T value, int lane, int width = 32) {
    unsigned first = threadIdx.x % 32 / width * width;
    T other = (T)cuda_on_host::exchange((double)value)[first + lane % width];
    cuda_on_host::leave();
    return other;
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int step) {
    T other = (T)cuda_on_host::exchange((double)value)[threadIdx.x % 32 ^ step];
    cuda_on_host::leave();
    return other;
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
    double* values = cuda_on_host::exchange(value);
    double top = 0;
    for (int lane = 0; lane < 32; lane++) top = values[lane] > top ? values[lane] : top;
    cuda_on_host::leave();
    return (unsigned)top;
}
inline unsigned __reduce_add_sync(unsigned, unsigned value) {
    double* values = cuda_on_host::exchange(value);
    unsigned sum = 0;
    for (int lane = 0; lane < 32; lane++) sum += (unsigned)values[lane];
    cuda_on_host::leave();
    return sum;
}
inline unsigned __ballot_sync(unsigned, bool vote) {
    double* votes = cuda_on_host::exchange(vote);
    unsigned lanes = 0;
    for (int lane = 0; lane < 32; lane++) lanes |= (unsigned)(votes[lane] != 0) << lane;
    cuda_on_host::leave();
    return lanes;
}
inline int __popc(unsigned word) { return __builtin_popcount(word); }
inline int __ffs(int word) { return __builtin_ffs(word); }
inline int __clz(int word) { return word ? __builtin_clz(word) : 32; }
// c (8, 8) += a (8, 4) b (4, 8), spread over the lanes of a warp as `mma.sync.m8n8k4` has it.
inline void multiply_add(double& c0, double& c1, double a, double b) {
    double row[4], left[4], right[4];
    int lane = threadIdx.x % 32;
    double* values = cuda_on_host::exchange(a);
    for (int k = 0; k < 4; k++) row[k] = values[lane / 4 * 4 + k];
    cuda_on_host::leave();
    values = cuda_on_host::exchange(b);
    for (int k = 0; k < 4; k++) {
        left[k] = values[2 * (lane % 4) * 4 + k];
        right[k] = values[(2 * (lane % 4) + 1) * 4 + k];
    }
    cuda_on_host::leave();
    for (int k = 0; k < 4; k++) {
        c0 += row[k] * left[k];
        c1 += row[k] * right[k];
    }
}
// c (16, 8) += a (16, 16) b (16, 8), as eight of the products above.
inline void multiply_add(double2& upper, double2& lower, const double (&a)[8], const double (&b)[4]) {
    for (int k = 0; k < 4; k++) {
        multiply_add(upper.x, upper.y, a[2 * k], b[k]);
        multiply_add(lower.x, lower.y, a[2 * k + 1], b[k]);
    }
}
inline void start_copy(double* to, const double* from) {
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16) cuda_on_host::misaligned = true;
    memcpy(to, from, 16);
}
inline void wait_for_copies() {}
inline double rough_inverse(double value) {
    // 20 bits, as on a GPU.
    int exponent;
    double mantissa = std::frexp(1.0 / value, &exponent);
    return std::ldexp(std::floor(std::ldexp(mantissa, 20)), exponent - 20);
}
inline double rsqrt(double value) { return 1.0 / std::sqrt(value); }
inline void sincospi(double value, double* sine, double* cosine) {
    *sine = std::sin(M_PI * value);
    *cosine = std::cos(M_PI * value);
}
template <class T>
T atomicAdd(T* target, T value) {
    T old = *target;
    *target = old + value;
    return old;
}
template <class T>
T atomicMax(T* target, T value) {
    T old = *target;
    *target = old < value ? value : old;
    return old;
}
template <class T>
T atomicMin(T* target, T value) {
    T old = *target;
    *target = value < old ? value : old;
    return old;
}
inline float __expf(float value) { return std::exp(value); }
inline long long __double_as_longlong(double value) {
    long long bits;
    memcpy(&bits, &value, 8);
    return bits;
}
template <class T>
T __ldcg(const T* source) {
    return *source;
}
// Products here are never fused with sums.
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline unsigned __float_as_uint(float value) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
template <class A, class B>
auto min(A a, B b) -> decltype(a + b) {
    return a < b ? a : b;
}
template <class A, class B>
auto max(A a, B b) -> decltype(a + b) {
    return a < b ? b : a;
}

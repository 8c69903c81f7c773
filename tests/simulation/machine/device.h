// What CUDA C++ gives to a kernel, for a host compiler. Included in front of the printed text.
#ifndef NAUTILUS_DEVICE_H
#define NAUTILUS_DEVICE_H
#include <math.h>
#include <stddef.h>
#include <string.h>

#define __device__
#define __host__
#define __constant__
#define __global__
#define __shared__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__ inline
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __cluster_dims__(...)

struct Index3 {
    unsigned x = 1, y = 1, z = 1;
};
extern Index3 threadIdx, blockIdx, blockDim, gridDim;

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
struct alignas(16) longlong2 {
    long long x, y;
};
struct alignas(16) double2 {
    double x, y;
};
inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

namespace host {

// One inline assembly statement: its text, and its constraints in order ("=f,r," ...).
struct Site {
    const char* text;
    const char* constraints;
    int line;
    struct Program* program;
};

// Operands: a pointer for each output; for each input the place of the register (null: a temporary), and its bits.
void execute(Site* site, ...);
[[noreturn]] void misaligned(const void* address, size_t size);
unsigned long long exchange(int kind, unsigned mask, unsigned long long value, int lane, int width);
void sync_threads();
void sync_warp(unsigned mask);
unsigned shared_window(const void* p);
// + the sum, > < the extremes with a sign, ) ( those without; returns the old value
unsigned long long atomic(char op, void* p, unsigned long long value, int bytes);
void check_register(const void* place, size_t bytes);

template <char KIND> constexpr size_t register_bytes() {
    return KIND == 'h' ? 2 : KIND == 'l' || KIND == 'd' ? 8 : 4;
}

template <char KIND, class T> inline unsigned long long bits(const T& x) {
    static_assert(sizeof(T) == register_bytes<KIND>(), "the operand does not fill a register of its constraint");
    unsigned long long out = 0;
    __builtin_memcpy(&out, &x, sizeof(T));
    return out;
}

template <char KIND, class T> inline void* place(T& x) {
    static_assert(sizeof(T) == register_bytes<KIND>(), "the operand does not fill a register of its constraint");
    return const_cast<void*>(static_cast<const volatile void*>(&x));
}

// The register of an input that an asynchronous instruction reads later.
template <class T> inline const void* kept(const T& x) { return &x; }
template <class T> inline const void* kept(const T&&) { return nullptr; }

template <long long VALUE> inline unsigned long long constant() { return (unsigned long long)VALUE; }

template <class T> struct Pointee {
    static constexpr size_t alignment = 1;
};
template <class T> struct Pointee<T*> {
    static constexpr size_t alignment = alignof(T);
};
template <> struct Pointee<void*> {
    static constexpr size_t alignment = 1;
};
template <> struct Pointee<const void*> {
    static constexpr size_t alignment = 1;
};
template <class R, class... A> struct Pointee<R (*)(A...)> {
    static constexpr size_t alignment = 1;
};

// A pointer to a vector type says how wide the access is: the GPU faults where the address is no multiple of it.
template <class T, class P> inline T checked_cast(P p) {
    if ((size_t)p % Pointee<T>::alignment != 0) misaligned((const void*)p, Pointee<T>::alignment);
    return (T)p;
}

template <class T> inline T shuffle(int kind, unsigned mask, T x, int lane, int width) {
    unsigned long long in = 0, out;
    __builtin_memcpy(&in, &x, sizeof x);
    out = exchange(kind, mask, in, lane, width);
    T y;
    __builtin_memcpy(&y, &out, sizeof y);
    return y;
}

template <class T, class U> inline T as(U x) {
    T y;
    static_assert(sizeof y == sizeof x, "");
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}

}  // namespace host

#define reinterpret_cast host::checked_cast

inline void __syncthreads() { host::sync_threads(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { host::sync_warp(mask); }
template <class T> inline T __shfl_sync(unsigned m, T x, int lane, int w = 32) { return host::shuffle(0, m, x, lane, w); }
template <class T> inline T __shfl_xor_sync(unsigned m, T x, int by, int w = 32) { return host::shuffle(1, m, x, by, w); }
template <class T> inline T __shfl_up_sync(unsigned m, T x, int by, int w = 32) { return host::shuffle(2, m, x, by, w); }
template <class T> inline T __shfl_down_sync(unsigned m, T x, int by, int w = 32) { return host::shuffle(3, m, x, by, w); }
inline int __any_sync(unsigned m, int x) { return (int)host::exchange(4, m, x != 0, 0, 32); }
inline int __all_sync(unsigned m, int x) { return (int)host::exchange(5, m, x != 0, 0, 32); }
inline unsigned __ballot_sync(unsigned m, int x) { return (unsigned)host::exchange(6, m, x != 0, 0, 32); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline size_t __cvta_generic_to_shared(const void* p) { return host::shared_window(p); }
template <class T> inline T atomicAdd(T* p, T x) { return (T)host::atomic('+', p, (unsigned long long)x, sizeof x); }
template <class T> inline T atomicMax(T* p, T x) {
    return (T)host::atomic((T)-1 < 0 ? '>' : ')', p, (unsigned long long)x, sizeof x);
}
template <class T> inline T atomicMin(T* p, T x) {
    return (T)host::atomic((T)-1 < 0 ? '<' : '(', p, (unsigned long long)x, sizeof x);
}

inline float __int_as_float(int x) { return host::as<float>(x); }
inline float __uint_as_float(unsigned x) { return host::as<float>(x); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {  // without the sign mode of a selector's bit 3
    const unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned out = 0;
    for (int i = 0; i < 4; ++i) out |= (unsigned)(both >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i);
    return out;
}
inline int __float_as_int(float x) { return host::as<int>(x); }
// A place stays a place, because an asynchronous instruction reads its register later.
inline const unsigned& __float_as_uint(const float& x) { return *(const unsigned*)&x; }
inline unsigned __float_as_uint(const float&& x) { return host::as<unsigned>(x); }
// To f32 towards 0.
template <class T> inline float cut_off(T x) {
    const float y = (float)x;
    return fabsl((long double)y) > fabsl((long double)x) ? nextafterf(y, 0.0f) : y;
}
inline float __double2float_rz(double x) { return cut_off(x); }
inline float __ll2float_rz(long long x) { return cut_off(x); }
inline float __int2float_rz(int x) { return cut_off(x); }
inline double __longlong_as_double(long long x) { return host::as<double>(x); }
inline long long __double_as_longlong(double x) { return host::as<long long>(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
template <class T> inline T __ldg(const T* p) { return *p; }
template <class T> inline T min(T a, T b) { return b < a ? b : a; }
template <class T> inline T max(T a, T b) { return a < b ? b : a; }
inline long long min(long long a, int b) { return b < a ? b : a; }
inline long long max(long long a, int b) { return a < b ? b : a; }
#endif

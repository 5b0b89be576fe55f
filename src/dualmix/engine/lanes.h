/* Vectors of W floats, and the one operation that C leaves to the machine: a fused multiply-add.
 *
 * Each number of a result is the outcome of one chain of correctly rounded operations, and no chain
 * depends on W. So a build for another width gives the same bytes. Sums across lanes are the only
 * exception: they run over LANES logical lanes, whatever W is, and end in one fixed tree.
 */
#ifndef DUALMIX_LANES_H
#define DUALMIX_LANES_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define W 16
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define W 8
#else
#if defined(__aarch64__)
#include <arm_neon.h>
#endif
#define W 4
#endif

#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "Floats must be rounded after every operation."
#endif
#if defined(__FAST_MATH__)
#error "Rounding is part of the result: build without -ffast-math."
#endif

#define LANES 16
#define UNROLL _Pragma("GCC unroll 16") /* small loops of fixed length become straight code */
#define INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
typedef float vh __attribute__((vector_size(2 * W)));  /* half a vector of floats, ... */
typedef double vd __attribute__((vector_size(4 * W))); /* ... which fills one of doubles */

INLINE vf load(const float *from) {
    vf v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE vi load_mask(const int32_t *from) {
    vi v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE void store(float *to, vf v) { memcpy(to, &v, sizeof v); }

INLINE vf spread(float x) { return x - (vf){0}; }

INLINE vf keep(vf x, vi mask) { return (vf)((vi)x & mask); }

INLINE vf pick(vi mask, vf yes, vf no) { return (vf)(((vi)yes & mask) | ((vi)no & ~mask)); }

/* Where a ReLU lets pass: above 0, and where x is no number at all, so that it is not hidden. */
INLINE vi alive(vf x) { return ~(x <= (vf){0}); }

INLINE vf positive(vf x) { return keep(x, alive(x)); }

#if W == 4
#define IOTA {0, 1, 2, 3}
#define EVENLY {0, 4, 1, 5}
#define ODDLY {2, 6, 3, 7}
#elif W == 8
#define IOTA {0, 1, 2, 3, 4, 5, 6, 7}
#define EVENLY {0, 8, 1, 9, 2, 10, 3, 11}
#define ODDLY {4, 12, 5, 13, 6, 14, 7, 15}
#else
#define IOTA {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
#define EVENLY {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23}
#define ODDLY {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31}
#endif

/* Which of the places at, at + 1, ... lie before the end. */
INLINE vi before(long at, long end) { return (vi)IOTA + (int32_t)at < (int32_t)end; }

#if W == 4 && !defined(__aarch64__)
/* a * b + c rounded once, without hardware for it. The product of two floats is exact in a double.
 * The sum is rounded to odd (Boldo and Melquiond 2008): cut off towards zero, and the last bit set
 * where anything was lost. Then the rounding to float cannot be led astray by the first one. */
INLINE vd fused_half(vd a, vd b, vd c) {
    typedef int64_t vl __attribute__((vector_size(4 * W)));
    const vd product = a * b, sum = product + c, part = sum - product;
    const vd lost = (product - (sum - part)) + (c - part);
    const vl inexact = (vl)((lost < 0) | (lost > 0));
    const vl beyond = (vl)((lost < 0) ^ (sum < 0)) & inexact; /* the sum was rounded away from 0 */
    return (vd)(((vl)sum + beyond) | (inexact & 1));
}

static __attribute__((noinline)) vf fused(vf a, vf b, vf c) { /* inlined it would bloat the library */
    vh half[3][2], out[2];
    const vf in[3] = {a, b, c};
    memcpy(half, in, sizeof half);
    for (int i = 0; i < 2; i++)
        out[i] = __builtin_convertvector(fused_half(__builtin_convertvector(half[0][i], vd),
                                                    __builtin_convertvector(half[1][i], vd),
                                                    __builtin_convertvector(half[2][i], vd)), vh);
    vf all;
    memcpy(&all, out, sizeof all);
    return all;
}
#else
INLINE vf fused(vf a, vf b, vf c) {
#if W == 16
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif W == 8
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#endif
}
#endif

INLINE vf scaled(float by, vf a, vf c) { return fused(spread(by), a, c); }

/* LANES sums of doubles; `terms` are W floats that belong to the lanes from `lane` on. */
typedef struct { vd sum[2 * LANES / W]; } Sums;

INLINE void halves(vf v, vd out[2]) {
    vh half[2];
    memcpy(half, &v, sizeof half);
    out[0] = __builtin_convertvector(half[0], vd);
    out[1] = __builtin_convertvector(half[1], vd);
}

INLINE double total(const Sums *sums) {
    double lane[LANES];
    memcpy(lane, sums, sizeof lane);
    for (int step = LANES / 2; step; step /= 2)
        for (int i = 0; i < step; i++) lane[i] += lane[i + step];
    return lane[0];
}

/* Turn a square of W x W floats over its diagonal: each of the log2(W) rounds shuffles the rows of
 * the upper half between those of the lower half. */
INLINE void turn(vf rows[W]) {
    UNROLL for (int round = 1; round < W; round *= 2) {
        vf next[W];
        UNROLL for (int i = 0; i < W / 2; i++) {
            next[2 * i] = __builtin_shuffle(rows[i], rows[i + W / 2], (vi)EVENLY);
            next[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + W / 2], (vi)ODDLY);
        }
        UNROLL for (int i = 0; i < W; i++) rows[i] = next[i];
    }
}

#endif

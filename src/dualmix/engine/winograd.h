/* Winograd's F(4, 3) in one dimension, each step on W tiles at once.
 *
 * Four outputs of a filter with three taps cost six products: outputs y, inputs d and taps g are
 * linked by y = At [(G g) * (Bt d)]. The rows of G and Bt belong to the points 0, a, -a, b, -b and
 * infinity. The usual points 1 and 2 lose three binary digits; a = 5/8 and b = 3/2 lose about one,
 * and all constants of Bt and At are exact in a float. docs/how-the-engine-works.md derives this.
 */
#ifndef DUALMIX_WINOGRAD_H
#define DUALMIX_WINOGRAD_H

#include "lanes.h"

#define POINTS 6
#define A1 0.625f
#define A2 0.390625f
#define A3 0.244140625f
#define B1 1.5f
#define B2 2.25f
#define B3 3.375f
#define AABB 0.87890625f /* a^2 b^2 */
#define AAPBB 2.640625f  /* a^2 + b^2 */
#define G0 (1.0 / 0.87890625)                       /* 1 / (a^2 b^2) */
#define GA (1.0 / (2 * 0.390625 * (0.390625 - 2.25))) /* 1 / (2 a^2 (a^2 - b^2)) */
#define GB (1.0 / (2 * 2.25 * (2.25 - 0.390625)))     /* 1 / (2 b^2 (b^2 - a^2)) */

/* Bt d. */
INLINE void enter(const vf d[6], vf v[6]) {
    const vf even_a = scaled(-B2, d[2], d[4]), odd_a = scaled(-B2, d[1], d[3]);
    const vf even_b = scaled(-A2, d[2], d[4]), odd_b = scaled(-A2, d[1], d[3]);
    v[0] = scaled(AABB, d[0], scaled(-AAPBB, d[2], d[4]));
    v[1] = scaled(A1, odd_a, even_a);
    v[2] = scaled(-A1, odd_a, even_a);
    v[3] = scaled(B1, odd_b, even_b);
    v[4] = scaled(-B1, odd_b, even_b);
    v[5] = scaled(AABB, d[1], scaled(-AAPBB, d[3], d[5]));
}

/* Bt d where d[0], d[2] and d[4] are 0 (a map with zeros between its pixels): v[0] is 0. */
INLINE void enter_spaced(vf d1, vf d3, vf d5, vf v[6]) {
    v[1] = A1 * scaled(-B2, d1, d3);
    v[2] = -v[1];
    v[3] = B1 * scaled(-A2, d1, d3);
    v[4] = -v[3];
    v[5] = scaled(AABB, d1, scaled(-AAPBB, d3, d5));
}

/* At m. */
INLINE void leave(const vf m[6], vf y[4]) {
    const vf sum_a = m[1] + m[2], dif_a = m[1] - m[2], sum_b = m[3] + m[4], dif_b = m[3] - m[4];
    y[0] = (m[0] + sum_a) + sum_b;
    y[1] = scaled(B1, dif_b, A1 * dif_a);
    y[2] = scaled(B2, sum_b, A2 * sum_a);
    y[3] = scaled(B3, dif_b, scaled(A3, dif_a, m[5]));
}

/* A y, the transpose of `leave`: how a gradient goes the way back. */
INLINE void back(const vf y[4], vf m[6]) {
    const vf even_a = scaled(A2, y[2], y[0]), odd_a = scaled(A3, y[3], A1 * y[1]);
    const vf even_b = scaled(B2, y[2], y[0]), odd_b = scaled(B3, y[3], B1 * y[1]);
    m[0] = y[0];
    m[1] = even_a + odd_a;
    m[2] = even_a - odd_a;
    m[3] = even_b + odd_b;
    m[4] = even_b - odd_b;
    m[5] = y[3];
}

/* A y where y[1] and y[3] are 0. */
INLINE void back_spaced(vf y0, vf y2, vf m[6]) {
    m[0] = y0;
    m[1] = m[2] = scaled(A2, y2, y0);
    m[3] = m[4] = scaled(B2, y2, y0);
}

/* G g. */
INLINE void taps(const vf g[3], vf u[6]) {
    const vf even_a = scaled((float)(GA * A2), g[2], (float)GA * g[0]), odd_a = (float)(GA * A1) * g[1];
    const vf even_b = scaled((float)(GB * B2), g[2], (float)GB * g[0]), odd_b = (float)(GB * B1) * g[1];
    u[0] = (float)G0 * g[0];
    u[1] = even_a + odd_a;
    u[2] = even_a - odd_a;
    u[3] = even_b + odd_b;
    u[4] = even_b - odd_b;
    u[5] = g[2];
}

/* Gt u, the transpose of `taps`. */
INLINE void taps_back(const vf u[6], vf g[3]) {
    const vf sum_a = u[1] + u[2], dif_a = u[1] - u[2], sum_b = u[3] + u[4], dif_b = u[3] - u[4];
    g[0] = scaled((float)GB, sum_b, scaled((float)GA, sum_a, (float)G0 * u[0]));
    g[1] = scaled((float)(GB * B1), dif_b, (float)(GA * A1) * dif_a);
    g[2] = scaled((float)(GB * B2), sum_b, scaled((float)(GA * A2), sum_a, u[5]));
}

#endif

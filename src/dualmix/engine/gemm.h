/* The one matrix product behind everything: out[m] = sum over r of a[m][r] * b[r], where out[m] and
 * b[r] are rows of vectors and a[m][r] is one number. Each number of the result is one chain of
 * fused multiply-adds over r = 0, 1, ..., so how rows and columns are blocked changes no bit.
 */
#ifndef DUALMIX_GEMM_H
#define DUALMIX_GEMM_H

#include "lanes.h"

#if W == 16 || defined(__aarch64__)
#define REGISTERS 24 /* for sums, of 32 in all */
#elif W == 8
#define REGISTERS 12 /* of 16 */
#else
#define REGISTERS 4 /* blocks do not help where a fused multiply-add is a call */
#endif
#define MOST_ROWS 12
#define PLACES (MOST_ROWS / 3)

typedef struct {
    const float *at;
    long row, depth; /* steps from one m and from one r to the next */
} Factor;

INLINE void product_block(const int rows, const int columns, long depth, Factor a, const float *b,
                          long b_row, float *out, long out_row, int more) {
    vf sum[MOST_ROWS][3];
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int j = 0; j < columns; j++)
            sum[i][j] = more ? load(out + i * out_row + j * W) : (vf){0};
    const float *at[PLACES]; /* of every third row: the machine adds one or two rows by itself */
    UNROLL for (int i = 0; i < rows; i += 3) at[i / 3] = a.at + i * a.row;
    for (long r = 0; r < depth; r++, b += b_row) {
        vf line[3];
        UNROLL for (int j = 0; j < columns; j++) line[j] = load(b + j * W);
        UNROLL for (int i = 0; i < rows; i++) {
            const vf by = spread(at[i / 3][i % 3 * a.row]);
            UNROLL for (int j = 0; j < columns; j++) sum[i][j] = fused(by, line[j], sum[i][j]);
        }
        UNROLL for (int i = 0; i < rows; i += 3) {
            at[i / 3] += a.depth;
            __asm__("" : "+r"(at[i / 3])); /* keeps the compiler from making all of them out of one */
        }
    }
    UNROLL for (int i = 0; i < rows; i++)
        UNROLL for (int j = 0; j < columns; j++) store(out + i * out_row + j * W, sum[i][j]);
}

#define CASE(rows) \
    case rows: \
        if (rows * columns <= REGISTERS && rows <= MOST_ROWS) \
            product_block(rows, columns, depth, a, b, b_row, out, out_row, more); \
        break;

INLINE void product_panel(long rows, const int columns, long depth, Factor a, const float *b,
                          long b_row, float *out, long out_row, int more) {
    switch (rows) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
        CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
    }
}

/* All rows against 1, 2 or 3 vectors of columns; rows in panels of nearly the same height. A division
 * by a variable takes as long as a small panel, so there is one, of 32 bits. */
INLINE void product_strip(long rows, const int columns, long depth, Factor a, const float *b,
                          long b_row, float *out, long out_row, int more) {
    const long most = REGISTERS / columns < MOST_ROWS ? REGISTERS / columns : MOST_ROWS;
    const uint32_t panels = (uint32_t)((rows + most - 1) / most), height = (uint32_t)rows / panels;
    long higher = rows - panels * height;
    for (long first = 0, some; first < rows; first += some, higher--) {
        some = height + (higher > 0);
        const Factor part = {a.at + first * a.row, a.row, a.depth};
        product_panel(some, columns, depth, part, b, b_row, out + first * out_row, out_row, more);
    }
}

/* With `more` the chains go on from what is in `out`. */
static void product(long rows, long vectors, long depth, Factor a, const float *b, long b_row,
                    float *out, long out_row, int more) {
    for (; vectors > 3 || vectors == 2; vectors -= 2, b += 2 * W, out += 2 * W)
        product_strip(rows, 2, depth, a, b, b_row, out, out_row, more);
    if (vectors == 3) product_strip(rows, 3, depth, a, b, b_row, out, out_row, more);
    if (vectors == 1) product_strip(rows, 1, depth, a, b, b_row, out, out_row, more);
}

#endif

/* What comes behind the features: a matrix product, softmax with cross-entropy, a step of SGD. */
#ifndef DUALMIX_HEAD_H
#define DUALMIX_HEAD_H

#include <math.h>

#include "gemm.h"
#include "maps.h"

/* A matrix of any layout. */
typedef struct {
    float *at;
    int64_t row, column;
} Matrix;

static long matmul_space(long rows, long columns, long depth) {
    return (rows + depth) * round_up(columns, LANES);
}

/* out = a b; b is laid out anew in whole vectors. */
static void matmul(Matrix a, Matrix b, long rows, long columns, long depth, Matrix out, float *work) {
    const long wide = round_up(columns, LANES);
    float *lines = work, *found = work + depth * wide;
    for (long r = 0; r < depth; r++)
        for (long c = 0; c < wide; c++)
            lines[r * wide + c] = c < columns ? b.at[r * b.row + c * b.column] : 0;
    product(rows, (columns + W - 1) / W, depth, (Factor){a.at, a.row, a.column}, lines, wide, found,
            wide, 0);
    for (long m = 0; m < rows; m++)
        for (long c = 0; c < columns; c++)
            out.at[m * out.row + c * out.column] = found[m * wide + c];
}

/* exp in float64 by additions and products alone, so that no library decides its last digits:
 * x = n ln 2 + r, and Taylor's series of r, which is below 0.35. For x <= 0. */
static double exponential(double x) {
    if (x < -708) return 0;
    const double n = (double)(int64_t)(x * 1.4426950408889634 - 0.5);
    const double r = (x - n * 0x1.62e42fefa3800p-1) - n * 0x1.ef35793c76730p-45;
    double sum = 1;
    for (int k = 14; k; k--) sum = 1 + sum * r / k;
    const int64_t bits = ((int64_t)n + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return sum * power;
}

/* log of a normal number: x = 2^n m with m near 1, and log m = 2 artanh((m - 1) / (m + 1)). */
static double logarithm(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t n = (bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffff) | ((int64_t)1023 << 52);
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m /= 2;
        n++;
    }
    const double f = (m - 1) / (m + 1);
    double sum = 0;
    for (int k = 23; k > 0; k -= 2) sum = sum * f * f + 1.0 / k;
    return (double)n * 0.6931471805599453 + 2 * f * sum;
}

/* One row: -sum q log p over its labels q, and the gradient of the logits, p * sum q - q. The labels
 * are either one column (`soft` is null) or a share of every column. */
static double row_loss(const float *z, long columns, long label, const float *soft, float *slope) {
    double top = -INFINITY, sum = 0, weight = 0, along = 0;
    for (long c = 0; c < columns; c++) top = z[c] > top || z[c] != z[c] ? z[c] : top;
    if (!(top - top == 0)) { /* no number, or none at all */
        for (long c = 0; c < columns; c++) slope[c] = NAN;
        return NAN;
    }
    for (long c = 0; c < columns; c++) sum += exponential(z[c] - top);
    for (long c = 0; c < columns; c++) {
        const double q = soft ? soft[c] : c == label;
        weight += q;
        if (q != 0) along += q * (z[c] - top);
    }
    for (long c = 0; c < columns; c++) {
        const double p = exponential(z[c] - top) / sum;
        slope[c] = (float)(p * weight - (soft ? soft[c] : c == label));
    }
    return weight * logarithm(sum) - along;
}

/* The sum of squares, in LANES lanes. */
static double squares(const float *x, long count) {
    Sums sums;
    memset(&sums, 0, sizeof sums);
    long i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int part = 0; part < LANES / W; part++) {
            vd half[2];
            halves(load(x + i + part * W), half);
            for (int k = 0; k < 2; k++) sums.sum[2 * part + k] += half[k] * half[k];
        }
    double sum = total(&sums);
    for (; i < count; i++) sum += (double)x[i] * x[i];
    return sum;
}

/* w -= lr * (slope + decay * w). */
static void descend(float *w, const float *slope, long count, float lr, float decay) {
    long i = 0;
    for (; i + W <= count; i += W) {
        const vf old = load(w + i), change = load(slope + i);
        store(w + i, old - lr * (decay != 0 ? change + decay * old : change));
    }
    for (; i < count; i++) w[i] = w[i] - lr * (decay != 0 ? slope[i] + decay * w[i] : slope[i]);
}

#endif

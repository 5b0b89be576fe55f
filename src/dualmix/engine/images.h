/* Augmentation of images with channels inside, (n, height, width, channels), in [0, 1]. */
#ifndef DUALMIX_IMAGES_H
#define DUALMIX_IMAGES_H

#include <math.h>
#include <stdint.h>

#include "lanes.h"

/* Where a pixel of the result lies between two of the source. */
typedef struct {
    long low, high;
    float share; /* of the second */
} Between;

static Between between(long at, long size, long start, long length) {
    double place = ((double)at + 0.5) * (double)length / (double)size - 0.5;
    const double end = (double)(length - 1);
    place = place < 0 ? 0 : place > end ? end : place;
    const long low = (long)place, high = low + 1 < length ? low + 1 : low;
    return (Between){start + low, start + high, (float)(place - (double)low)};
}

INLINE float blend(float a, float b, float share) { return a * (1 - share) + b * share; }

/* Resize a box (top, left, height, width) of an image to the whole image, first along the rows, then
 * along the columns. `work` is as large as the image. */
static void crop(const float *x, long height, long width, long channels, const int64_t box[4],
                 float *work, float *out) {
    const long line = width * channels;
    for (long j = 0; j < width; j++) {
        const Between b = between(j, width, box[1], box[3]);
        for (long y = box[0]; y < box[0] + box[2]; y++)
            for (long c = 0; c < channels; c++)
                work[y * line + j * channels + c] =
                    blend(x[y * line + b.low * channels + c], x[y * line + b.high * channels + c],
                          b.share);
    }
    for (long i = 0; i < height; i++) {
        const Between b = between(i, height, box[0], box[2]);
        for (long k = 0; k < line; k++)
            out[i * line + k] = blend(work[b.low * line + k], work[b.high * line + k], b.share);
    }
}

INLINE float within(float x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

INLINE float luma(const float *p, const float weight[3]) {
    return (p[0] * weight[0] + p[1] * weight[1]) + p[2] * weight[2];
}

static void brighten(float *x, long count, float much) {
    for (long i = 0; i < count; i++) x[i] = within(x[i] * much);
}

/* Scale the distance from the image's mean grey. */
static void contrast(float *x, long pixels, long channels, float much, const float weight[3]) {
    double sum = 0;
    for (long i = 0; i < pixels; i++)
        if (channels == 3)
            sum += luma(x + 3 * i, weight);
        else
            for (long c = 0; c < channels; c++) sum += x[i * channels + c];
    const float base = (float)(sum / (double)(channels == 3 ? pixels : pixels * channels));
    for (long i = 0; i < pixels * channels; i++) x[i] = within(base + (x[i] - base) * much);
}

/* Scale the distance of each pixel from its own grey. */
static void saturate(float *x, long pixels, float much, const float weight[3]) {
    for (long i = 0; i < pixels; i++) {
        const float base = luma(x + 3 * i, weight);
        for (long c = 3 * i; c < 3 * i + 3; c++) x[c] = within(base + (x[c] - base) * much);
    }
}

/* Turn each pixel around the colour circle of six sectors; value and saturation stay. */
static void turn_hue(float *x, long pixels, float much) {
    for (float *p = x; p < x + 3 * pixels; p += 3) {
        const float r = p[0], g = p[1], b = p[2];
        const float top = r > g ? (r > b ? r : b) : (g > b ? g : b);
        const float low = r < g ? (r < b ? r : b) : (g < b ? g : b);
        const float spread = top - low, safe = spread == 0 ? 1 : spread;
        const float hue = (top == r   ? (g - b) / safe
                           : top == g ? 2 + (b - r) / safe
                                      : 4 + (r - g) / safe) + 6 * much;
        for (int c = 0; c < 3; c++) {
            const float from = hue + (float)(5 - 2 * c), k = from - 6 * floorf(from / 6);
            p[c] = within(top - spread * within(k < 4 - k ? k : 4 - k));
        }
    }
}

/* Change brightness (0), contrast (1), saturation (2) and hue (3) of an image by its amounts, in its
 * order; -1 is no change. Only images of three channels have colours. */
static void jitter(float *x, long pixels, long channels, const float amount[4],
                   const int64_t order[4], const float weight[3]) {
    for (int place = 0; place < 4; place++) {
        if (order[place] == 0) brighten(x, pixels * channels, amount[0]);
        if (order[place] == 1) contrast(x, pixels, channels, amount[1], weight);
        if (order[place] == 2 && channels == 3) saturate(x, pixels, amount[2], weight);
        if (order[place] == 3 && channels == 3) turn_hue(x, pixels, amount[3]);
    }
}

#endif

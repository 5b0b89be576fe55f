/* Batch-norm on polyphase maps, with ReLU and the residual sum, each group of images by itself.
 *
 * All sums run in float64, where the product of two floats is exact: the mean and the variance of a
 * channel, and both sums of its gradient, have no rounding to speak of.
 */
#ifndef DUALMIX_NORM_H
#define DUALMIX_NORM_H

#include <math.h>

#include "maps.h"

/* A convolution without bias and the batch-norm behind it. */
typedef struct {
    float *taps, *taps_slope;
    int64_t stride[4], slope_stride[4]; /* output channel, input channel, row, column */
    float *scale, *shift, *mean, *var, *scale_slope, *shift_slope;
    double eps, momentum;
} Layer;

/* Batches in one call: group g is the images [first[g], first[g + 1]). */
typedef struct {
    long count;
    const int64_t *first;
} Groups;

/* Mean and 1 / deviation of a channel in a group. */
typedef struct {
    double mean, steep;
} Moments;

typedef struct {
    double one, two;
} Pair;

/* Visit the tiles [from, to) of a phase in vectors; lanes over either end are masked. */
#define EACH_VECTOR(t, from, to) for (long t = (from) / W * W; t < (to); t += W)

/* Sums of x and of x * y over the tiles [from, to) of a channel. With `live`, x counts only where
 * that map is above 0. Lane l adds up the tiles l, l + 16, ... of every phase, phase after phase. */
INLINE Pair sums_of(const float *x, const float *y, const float *live, const Shape *s, long from,
                    long to) {
    Sums one = {0}, two = {0};
    for (int phase = 0; phase < PHASES; phase++) {
        const long at = phase * s->row;
        for (long t = from / LANES * LANES; t < to; t += LANES)
            for (int part = 0; part < LANES / W; part++) {
                const long tile = t + part * W;
                vf a = load(x + at + tile), b = y == x ? a : load(y + at + tile);
                if (live) a = keep(a, alive(load(live + at + tile)));
                if (tile < from || tile + W > to) {
                    a = keep(a, within(tile, from, to));
                    b = keep(b, within(tile, from, to));
                }
                vd left[2], right[2];
                halves(a, left);
                halves(b, right);
                for (int i = 0; i < 2; i++) {
                    one.sum[2 * part + i] += left[i];
                    two.sum[2 * part + i] += left[i] * right[i];
                }
            }
    }
    return (Pair){total(&one), total(&two)};
}

/* y = x * scale + shift, plus `add`, cut off below 0, for the tiles [from, to) of a channel. */
static void normalise(const float *x, const float *add, int relu, float scale, float shift,
                      const Shape *s, long from, long to, float *y) {
    for (int phase = 0; phase < PHASES; phase++) {
        const long at = phase * s->row;
        EACH_VECTOR(t, from, to) {
            vf v = load(x + at + t) * scale + shift;
            if (add) v += load(add + at + t);
            if (relu) v = positive(v);
            if (s->ragged) v = keep(v, inside(s, phase, t));
            if (t < from || t + W > to) v = pick(within(t, from, to), v, load(y + at + t));
            store(y + at + t, v);
        }
    }
}

/* y = relu?(batch-norm(x) + add?), which may replace x. In training the statistics are those of each
 * group, and the running ones follow group after group; else they are the running ones. */
static void norm_forward(const float *x, const float *add, int relu, long channels, const Shape *s,
                         Groups groups, int training, const Layer *layer, Moments *moments,
                         float *y) {
    const long tiles = s->down * s->across, pixels = s->height * s->width;
    for (long c = 0; c < channels; c++)
        for (long g = 0; g < groups.count; g++) {
            const float *channel = x + c * plane(s);
            const long from = groups.first[g] * tiles, to = groups.first[g + 1] * tiles;
            Moments now = {layer->mean[c], layer->var[c]};
            if (training) {
                const double count = (double)((groups.first[g + 1] - groups.first[g]) * pixels);
                const Pair sums = sums_of(channel, channel, 0, s, from, to);
                const double mean = sums.one / count, var = sums.two / count - mean * mean;
                now = (Moments){mean, var > 0 ? var : 0};
                const double m = layer->momentum, fair = now.steep * count / (count - 1);
                layer->mean[c] = (float)((1 - m) * layer->mean[c] + m * now.mean);
                layer->var[c] = (float)((1 - m) * layer->var[c] + m * fair);
            }
            now.steep = 1 / sqrt(now.steep + layer->eps);
            const double scale = layer->scale[c] * now.steep;
            normalise(channel, add ? add + c * plane(s) : 0, relu, (float)scale,
                      (float)(layer->shift[c] - now.mean * scale), s, from, to, y + c * plane(s));
            moments[c * groups.count + g] = now;
        }
}

/* From the gradient of y to that of x, which may replace it; with `live` = y through the ReLU. The
 * slopes of scale and shift are summed over the groups, or written for each (`apart`), where groups
 * are single images and statistics are the running ones. */
static void norm_backward(const float *dy, const float *live, const float *x, long channels,
                          const Shape *s, Groups groups, int training, const Layer *layer,
                          long apart, const Moments *moments, float *dx) {
    const long tiles = s->down * s->across, pixels = s->height * s->width;
    for (long c = 0; c < channels; c++) {
        Pair slopes = {0, 0};
        for (long g = 0; g < groups.count; g++) {
            const long from = groups.first[g] * tiles, to = groups.first[g + 1] * tiles;
            const long at = c * plane(s);
            const double count = (double)((groups.first[g + 1] - groups.first[g]) * pixels);
            const Moments now = moments[c * groups.count + g];
            const Pair sums = sums_of(dy + at, x + at, live ? live + at : 0, s, from, to);
            const double across = (sums.two - now.mean * sums.one) * now.steep;
            if (apart) {
                layer->scale_slope[g * apart + c] = (float)across;
                layer->shift_slope[g * apart + c] = (float)sums.one;
            }
            slopes = (Pair){slopes.one + across, slopes.two + sums.one};
            const double scale = layer->scale[c] * now.steep;
            const double by_x = training ? -scale * across / count * now.steep : 0;
            const double rest = training ? -scale * sums.one / count - by_x * now.mean : 0;
            for (int phase = 0; phase < PHASES; phase++)
                EACH_VECTOR(t, from, to) {
                    const long place = at + phase * s->row + t;
                    vf v = load(dy + place);
                    if (live) v = keep(v, alive(load(live + place)));
                    v = v * (float)scale;
                    if (training) v += load(x + place) * (float)by_x + (float)rest;
                    if (s->ragged) v = keep(v, inside(s, phase, t));
                    if (t < from || t + W > to) v = pick(within(t, from, to), v, load(dx + place));
                    store(dx + place, v);
                }
        }
        if (!apart) {
            layer->scale_slope[c] = (float)slopes.one;
            layer->shift_slope[c] = (float)slopes.two;
        }
    }
}

/* The mean of every whole tile is one feature. */
static void pool(const float *map, long channels, const Shape *s, float *features) {
    const long down = s->height / SIDE, across = s->width / SIDE;
    for (long n = 0; n < s->images; n++)
        for (long c = 0; c < channels; c++)
            for (long y = 0; y < down; y++)
                for (long x = 0; x < across; x++) {
                    const long tile = (n * s->down + y) * s->across + x;
                    double sum = 0;
                    for (int phase = 0; phase < PHASES; phase++)
                        sum += map[c * plane(s) + phase * s->row + tile];
                    *features++ = (float)(sum / PHASES);
                }
}

/* The gradient of the map, only where `live` is above 0. */
static void pool_back(const float *slopes, const float *live, long channels, const Shape *s,
                      float *map) {
    const long down = s->height / SIDE, across = s->width / SIDE;
    for (long c = 0; c < channels; c++)
        for (long n = 0; n < s->images; n++)
            for (long y = 0; y < s->down; y++)
                for (long x = 0; x < s->across; x++) {
                    const long tile = (n * s->down + y) * s->across + x;
                    const int whole = y < down && x < across;
                    const long from = ((n * channels + c) * down + y) * across + x;
                    const float slope = whole ? slopes[from] / PHASES : 0;
                    for (int phase = 0; phase < PHASES; phase++) {
                        const long at = c * plane(s) + phase * s->row + tile;
                        map[at] = live[at] <= 0 ? 0 : slope;
                    }
                }
}

/* Leave a gradient only where `live` is above 0. */
static void gate(float *slopes, const float *live, long channels, const Shape *s) {
    for (long c = 0; c < channels; c++)
        for (int phase = 0; phase < PHASES; phase++) {
            const long at = c * plane(s) + phase * s->row;
            for (long t = at; t < at + s->tiles; t += W)
                store(slopes + t, keep(load(slopes + t), alive(load(live + t))));
        }
}

#endif

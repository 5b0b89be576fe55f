/* Batch-norm on polyphase maps, with ReLU and the residual sum, each group of images by itself. */
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

/* Two sums over a group's tiles in LANES logical lanes: lane l adds up its tiles l, l + 16, ... of
 * every phase, phase after phase, whatever the width of the hardware and wherever the group stands.
 * All is float64, where the product of two floats is exact: no digit is lost. */
typedef struct {
    Sums one, two;
} Tally;

/* Add W floats that belong to the lanes from W * part on, and their products with W others. */
INLINE void add_lanes(Tally *tally, const int part, vf a, vf b) {
    vd left[2], right[2];
    halves(a, left);
    halves(b, right);
    UNROLL for (int i = 0; i < 2; i++) {
        tally->one.sum[2 * part + i] += left[i];
        tally->two.sum[2 * part + i] += left[i] * right[i];
    }
}

INLINE Pair totals(const Tally *tally) { return (Pair){total(&tally->one), total(&tally->two)}; }

/* Sums of x and of its square over the tiles [from, to) of a channel. */
static Pair moments_of(const float *x, const Shape *s, long from, long to) {
    Tally tally = {0};
    for (int phase = 0; phase < PHASES; phase++)
        for (long t = from; t < to; t += LANES)
            UNROLL for (int part = 0; part < LANES / W; part++) {
                const long tile = t + part * W;
                vf a = load(x + phase * s->row + tile);
                if (tile + W > to) a = keep(a, before(tile, to));
                add_lanes(&tally, part, a, a);
            }
    return totals(&tally);
}

/* A batch-norm as a scale and a shift of x. */
typedef struct {
    float scale, shift;
} Line;

INLINE Line line_of(const Layer *layer, long c, Moments m) {
    const double scale = layer->scale[c] * m.steep;
    return (Line){(float)scale, (float)(layer->shift[c] - m.mean * scale)};
}

/* How a gradient dy reaches the result of a batch-norm, behind which there is a ReLU: with the
 * output `end` of the ReLU at hand (a residual sum came between), or from x itself. */
typedef struct {
    const float *end;
    int relu;
    Line line;
} Gate;

INLINE vf gated(vf dy, vf x, const float *end, const Gate *gate) {
    if (end) return keep(dy, alive(load(end)));
    return gate->relu ? keep(dy, alive(x * gate->line.scale + gate->line.shift)) : dy;
}

/* Sums of the gated dy and of dy * x. What `end` gates is also written back: the shortcut
 * has the same gradient. */
static Pair slopes_of(float *dy, const float *x, const Gate *gate, const Shape *s, long from,
                      long to) {
    Tally tally = {0};
    for (int phase = 0; phase < PHASES; phase++)
        for (long t = from; t < to; t += LANES)
            UNROLL for (int part = 0; part < LANES / W; part++) {
                const long tile = t + part * W, at = phase * s->row + tile;
                const vf up = load(dy + at);
                vf b = load(x + at), a = gated(up, b, gate->end ? gate->end + at : 0, gate);
                const vi own = before(tile, to);
                if (gate->end) store(dy + at, tile + W > to ? pick(own, a, up) : a);
                if (s->ragged) a = keep(a, inside(s, phase, tile));
                if (tile + W > to) {
                    a = keep(a, own);
                    b = keep(b, own);
                }
                add_lanes(&tally, part, a, b);
            }
    return totals(&tally);
}

/* y = x * scale + shift, plus `add`, cut off below 0, for the tiles [from, to) of a channel. */
static void normalise(const float *x, const float *add, int relu, Line line, const Shape *s,
                      long from, long to, float *y) {
    for (int phase = 0; phase < PHASES; phase++) {
        const long at = phase * s->row;
        for (long t = from; t < to; t += W) {
            vf v = load(x + at + t) * line.scale + line.shift;
            if (add) v += load(add + at + t);
            if (relu) v = positive(v);
            if (s->ragged) v = keep(v, inside(s, phase, t));
            if (t + W > to) v = pick(before(t, to), v, load(y + at + t));
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
                const Pair sums = moments_of(channel, s, from, to);
                const double mean = sums.one / count, var = sums.two / count - mean * mean;
                now = (Moments){mean, var > 0 ? var : 0};
                const double m = layer->momentum, fair = now.steep * count / (count - 1);
                layer->mean[c] = (float)((1 - m) * layer->mean[c] + m * now.mean);
                layer->var[c] = (float)((1 - m) * layer->var[c] + m * fair);
            }
            now.steep = 1 / sqrt(now.steep + layer->eps);
            normalise(channel, add ? add + c * plane(s) : 0, relu, line_of(layer, c, now), s, from,
                      to, y + c * plane(s));
            moments[c * groups.count + g] = now;
        }
}

/* The same result once more, from the moments of the first time: cheaper than keeping it. */
static void norm_again(const float *x, long channels, const Shape *s, Groups groups,
                       const Layer *layer, const Moments *moments, float *y) {
    const long tiles = s->down * s->across;
    for (long c = 0; c < channels; c++)
        for (long g = 0; g < groups.count; g++)
            normalise(x + c * plane(s), 0, 1, line_of(layer, c, moments[c * groups.count + g]), s,
                      groups.first[g] * tiles, groups.first[g + 1] * tiles, y + c * plane(s));
}

/* From the gradient of y to that of x, which may replace it. With `end` the ReLU is that of a block,
 * else `relu` says whether there is one. The slopes of scale and shift are summed over the groups,
 * or written for each (`apart` floats from one to the next). */
static void norm_backward(float *dy, const float *end, int relu, const float *x, long channels,
                          const Shape *s, Groups groups, int training, const Layer *layer,
                          long apart, const Moments *moments, float *dx) {
    const long tiles = s->down * s->across, pixels = s->height * s->width;
    for (long c = 0; c < channels; c++) {
        Pair slopes = {0, 0};
        const long at = c * plane(s);
        for (long g = 0; g < groups.count; g++) {
            const long from = groups.first[g] * tiles, to = groups.first[g + 1] * tiles;
            const double count = (double)((groups.first[g + 1] - groups.first[g]) * pixels);
            const Moments now = moments[c * groups.count + g];
            const Gate gate = {end ? end + at : 0, relu, line_of(layer, c, now)};
            const Pair sums = slopes_of(dy + at, x + at, &gate, s, from, to);
            const double across = (sums.two - now.mean * sums.one) * now.steep;
            if (apart) {
                layer->scale_slope[g * apart + c] = (float)across;
                layer->shift_slope[g * apart + c] = (float)sums.one;
            }
            slopes = (Pair){slopes.one + across, slopes.two + sums.one};
            /* The two corrections take out what a batch-norm cannot see, a shift and a scale of x, and
             * later sums over all pixels rely on that. So their factors are kept in two floats each:
             * the rounding of a single one would be the same in every pixel and add up. */
            const double by_x = training ? -gate.line.scale * across / count * now.steep : 0;
            const double rest = training ? -gate.line.scale * sums.one / count - by_x * now.mean : 0;
            const float x_high = (float)by_x, x_low = (float)(by_x - x_high);
            const float high = (float)rest, low = (float)(rest - high);
            const Gate left = {0, relu && !end, gate.line};
            for (int phase = 0; phase < PHASES; phase++)
                for (long t = from; t < to; t += W) {
                    const long place = at + phase * s->row + t;
                    const vf here = load(x + place);
                    vf v = gated(load(dy + place), here, 0, &left) * gate.line.scale;
                    if (training) v += (here * x_high + high) + (here * x_low + low);
                    if (s->ragged) v = keep(v, inside(s, phase, t));
                    if (t + W > to) v = pick(before(t, to), v, load(dx + place));
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

/* The way back: every pixel of a whole tile has the same gradient, others have none. */
static void pool_back(const float *slopes, long channels, const Shape *s, float *map) {
    const long down = s->height / SIDE, across = s->width / SIDE;
    for (long c = 0; c < channels; c++)
        for (long n = 0; n < s->images; n++)
            for (long y = 0; y < s->down; y++)
                for (long x = 0; x < s->across; x++) {
                    const long tile = (n * s->down + y) * s->across + x;
                    const long from = ((n * channels + c) * down + y) * across + x;
                    const float slope = y < down && x < across ? slopes[from] / PHASES : 0;
                    for (int phase = 0; phase < PHASES; phase++)
                        map[c * plane(s) + phase * s->row + tile] = slope;
                }
}

#endif

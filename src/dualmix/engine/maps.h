/* Maps in polyphase layout: [channel][16 phases][tiles].
 *
 * A map is cut into tiles of 4 x 4 pixels. Phase 4 i + j holds pixel (i, j) of every tile, and the
 * tiles of all images stand one after the other, row by row. So W neighbours in memory are the same
 * pixel of W tiles, and whatever is done to a tile is done to W of them by plain vector code.
 * What stands in a phase behind the last tile is never looked at: lanes do not mix.
 */
#ifndef DUALMIX_MAPS_H
#define DUALMIX_MAPS_H

#include "lanes.h"

#define SIDE 4
#define PHASES (SIDE * SIDE)

/* The shape that all maps of a stage share. */
typedef struct {
    long images, height, width;
    long down, across; /* tiles in a column and in a row of an image */
    long tiles, row;   /* tiles of all images, and from one phase to the next */
    int ragged;        /* some tiles reach over the edge of the image */
    /* For each tile, all bits set where it has this neighbour, or where its pixels 0 to 3 in this
     * direction lie in the image. */
    int32_t *left, *right, *above, *below, *inside_y[SIDE], *inside_x[SIDE];
    int32_t *into; /* where a tile's pixel (0, 0) goes in a map of half the size */
} Shape;

#define TABLES (5 + 2 * SIDE)

INLINE long round_up(long x, long unit) { return (x + unit - 1) / unit * unit; }

static Shape shape_of(long images, long height, long width) {
    Shape s = {.images = images, .height = height, .width = width};
    s.down = (height + SIDE - 1) / SIDE;
    s.across = (width + SIDE - 1) / SIDE;
    s.tiles = images * s.down * s.across;
    /* An odd number of cache lines: else the 16 phases of a tile compete for the same few sets. */
    s.row = round_up(s.tiles, LANES);
    s.row += s.row / LANES % 2 ? 0 : LANES;
    s.ragged = height % SIDE || width % SIDE;
    return s;
}

INLINE long plane(const Shape *s) { return PHASES * s->row; }

/* How far reads at a neighbour's place may reach over either end of a map. */
INLINE long margin(const Shape *s) { return round_up(s->across + 1 + LANES, LANES); }

static void fill_tables(Shape *s, const Shape *half, int32_t *at) {
    int32_t **all[] = {&s->left, &s->right, &s->above, &s->below, &s->into};
    for (int i = 0; i < 5; i++, at += s->row) *all[i] = at;
    for (int i = 0; i < SIDE; i++, at += s->row) s->inside_y[i] = at;
    for (int i = 0; i < SIDE; i++, at += s->row) s->inside_x[i] = at;
    for (long t = 0; t < s->row; t++) {
        const int there = t < s->tiles;
        const long n = t / (s->down * s->across), y = t / s->across % s->down, x = t % s->across;
        if (half)
            s->into[t] = (int32_t)((y % 2 * 2 * SIDE + x % 2 * 2) * half->row +
                                   (n * half->down + y / 2) * half->across + x / 2);
        s->left[t] = -(there && x > 0);
        s->right[t] = -(there && x + 1 < s->across);
        s->above[t] = -(there && y > 0);
        s->below[t] = -(there && y + 1 < s->down);
        for (int i = 0; i < SIDE; i++) {
            s->inside_y[i][t] = -(there && SIDE * y + i < s->height);
            s->inside_x[i][t] = -(there && SIDE * x + i < s->width);
        }
    }
}

INLINE vi inside(const Shape *s, int phase, long t) {
    return load_mask(s->inside_y[phase / SIDE] + t) & load_mask(s->inside_x[phase % SIDE] + t);
}

/* Images with strides (image, channel, row, column) into a map; pixels over the edge become 0. */
static void pack(const float *x, const int64_t stride[4], long channels, const Shape *s, float *map) {
    for (long c = 0; c < channels; c++)
        for (int phase = 0; phase < PHASES; phase++) {
            float *to = map + c * plane(s) + phase * s->row;
            for (long n = 0; n < s->images; n++)
                for (long ty = 0; ty < s->down; ty++) {
                    const long y = SIDE * ty + phase / SIDE;
                    const float *from = x + n * stride[0] + c * stride[1] + y * stride[2];
                    for (long tx = 0; tx < s->across; tx++) {
                        const long column = SIDE * tx + phase % SIDE;
                        *to++ = y < s->height && column < s->width ? from[column * stride[3]] : 0;
                    }
                }
        }
}

/* The way back. */
static void unpack(const float *map, long channels, const Shape *s, float *x, const int64_t stride[4]) {
    for (long c = 0; c < channels; c++)
        for (int phase = 0; phase < PHASES; phase++) {
            const float *from = map + c * plane(s) + phase * s->row;
            for (long n = 0; n < s->images; n++)
                for (long ty = 0; ty < s->down; ty++) {
                    const long y = SIDE * ty + phase / SIDE;
                    float *to = x + n * stride[0] + c * stride[1] + y * stride[2];
                    for (long tx = 0; tx < s->across; tx++, from++) {
                        const long column = SIDE * tx + phase % SIDE;
                        if (y < s->height && column < s->width) to[column * stride[3]] = *from;
                    }
                }
        }
}

/* Every second pixel of a map as four phases: pixel (2p, 2q) of a tile is phase 2p + q of these. */
#define SPACED 4

/* Where a map keeps its pixels (2p, 2q), and where a map of four phases does. */
static const int OF_MAP[SPACED] = {0, 2, 8, 10}, OF_SPACED[SPACED] = {0, 1, 2, 3};

/* Pixels (2y, 2x) of one channel become pixels (y, x) of a map of half the size. */
static void halve(const float *big, const int phases[SPACED], const Shape *b, float *small,
                  const Shape *s) {
    if (b->down % 2 || b->across % 2) memset(small, 0, (size_t)plane(s) * sizeof *small);
    for (int phase = 0; phase < SPACED; phase++) {
        const float *from = big + phases[phase] * b->row;
        float *to = small + (phase / 2 * SIDE + phase % 2) * s->row;
        for (long t = 0; t < b->tiles; t++) to[b->into[t]] = from[t];
    }
}

/* The way back for one channel: pixels (y, x) are set at, or added to, pixels (2y, 2x). */
static void widen(const float *small, const Shape *s, float *big, const int phases[SPACED],
                  const Shape *b, int add) {
    for (int phase = 0; phase < SPACED; phase++) {
        const float *from = small + (phase / 2 * SIDE + phase % 2) * s->row;
        float *to = big + phases[phase] * b->row;
        if (add)
            for (long t = 0; t < b->tiles; t++) to[t] += from[b->into[t]];
        else
            for (long t = 0; t < b->tiles; t++) to[t] = from[b->into[t]];
    }
}

/* A map with channels innermost, [16 phases][tiles][lanes]; lanes behind the last channel are 0. */
static void channels_inside(const float *map, long channels, const Shape *s, float *out, long lanes) {
    for (int phase = 0; phase < PHASES; phase++)
        for (long c = 0; c < lanes; c += W)
            for (long t = 0; t < s->tiles; t += W) {
                const float *from = map + phase * s->row + t;
                vf square[W];
                UNROLL for (long i = 0; i < W; i++)
                    square[i] = c + i < channels ? load(from + (c + i) * plane(s)) : (vf){0};
                turn(square);
                float *to = out + (phase * s->tiles + t) * lanes + c;
                UNROLL for (long i = 0; i < W; i++)
                    if (t + i < s->tiles) store(to + i * lanes, square[i]);
            }
}

#endif

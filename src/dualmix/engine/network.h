/* The reduced ResNet-18: stem, blocks of two convolutions, pooling; forward, backward, evaluation. */
#ifndef DUALMIX_NETWORK_H
#define DUALMIX_NETWORK_H

#include "conv.h"
#include "norm.h"

#define MOST_BLOCKS 32

typedef struct {
    int64_t inputs, outputs, stride, project; /* project: a 1 x 1 convolution on the shortcut */
} Block;

typedef struct {
    int64_t images, channels, height, width, stem, blocks;
    Block block[MOST_BLOCKS];
    int64_t groups;
    const int64_t *first;
    int64_t training; /* batch-norm uses the statistics of each group and updates the running ones */
    int64_t tape;     /* all maps are kept for a backward pass */
    int64_t apart;    /* the gradients of each image apart; groups are single images */
} Net;

/* Memory is handed out from one piece; without a piece only its size is counted. */
typedef struct {
    float *at;
    long used;
} Arena;

static float *take(Arena *arena, long floats) {
    float *part = arena->at ? arena->at + arena->used : 0;
    arena->used += round_up(floats, LANES);
    return part;
}

/* What a block writes in the forward pass. */
typedef struct {
    const Shape *in, *out;
    float *z1, *z2, *zs, *end; /* convolutions, that of the shortcut, the block's result */
    Moments *m1, *m2, *ms;
} Record;

typedef struct {
    Shape shape[MOST_BLOCKS + 1];
    float *x, *z, *a;
    Moments *m;
    Record record[MOST_BLOCKS];
} Plan;

INLINE long larger(long a, long b) { return a > b ? a : b; }

static Moments *take_moments(Arena *arena, const Net *net, long channels) {
    return (Moments *)take(arena, 4 * net->groups * channels);
}

/* Lay out all maps in the arena. Without a tape there are two results and two convolutions. */
static void lay_out(const Net *net, Arena *arena, Plan *plan) {
    long height = net->height, width = net->width, shapes = 1, largest = 0;
    plan->shape[0] = shape_of(net->images, height, width);
    for (long b = 0; b < net->blocks; b++) {
        if (net->block[b].stride == 2) {
            height = (height + 1) / 2;
            width = (width + 1) / 2;
            plan->shape[shapes] = shape_of(net->images, height, width);
            shapes++;
        }
        plan->record[b].out = &plan->shape[shapes - 1];
        plan->record[b].in = b ? plan->record[b - 1].out : &plan->shape[0];
        largest = larger(largest, net->block[b].outputs * plane(plan->record[b].out));
    }
    largest = larger(largest, net->stem * plane(&plan->shape[0]));
    for (long i = 0; i < shapes; i++) { /* vectors may begin anywhere and reach over the end */
        int32_t *tables = (int32_t *)take(arena, TABLES * plan->shape[i].row);
        if (tables)
            fill_tables(&plan->shape[i], i + 1 < shapes ? &plan->shape[i + 1] : 0, tables);
    }
    const long edge = margin(&plan->shape[0]);
    take(arena, edge);
    plan->x = take(arena, net->channels * plane(&plan->shape[0]));
    float *spare[4] = {0};
    if (!net->tape)
        for (int i = 0; i < 4; i++) spare[i] = take(arena, largest);
    const long first = net->stem * plane(&plan->shape[0]);
    plan->m = take_moments(arena, net, net->stem);
    plan->z = net->tape ? take(arena, first) : spare[0];
    plan->a = net->tape ? take(arena, first) : spare[2];
    for (long b = 0; b < net->blocks; b++) {
        Record *r = &plan->record[b];
        const Block *block = &net->block[b];
        const long size = block->outputs * plane(r->out);
        r->m1 = take_moments(arena, net, block->outputs);
        r->m2 = take_moments(arena, net, block->outputs);
        r->ms = block->project ? take_moments(arena, net, block->outputs) : 0;
        r->z1 = net->tape ? take(arena, size) : spare[0];
        r->z2 = net->tape ? take(arena, size) : spare[0];
        r->end = net->tape ? take(arena, size) : spare[2 + (b + 1) % 2];
        r->zs = !block->project ? 0 : net->tape ? take(arena, size) : spare[1];
    }
    take(arena, edge);
}

/* Scratch memory of both passes. No taps are transformed while gradients of taps are summed, so that
 * both have the same place. */
typedef struct {
    float *u, *conv, *sums, *spaced, *map[3], *inside;
} Scratch;

static void lay_out_scratch(const Net *net, const Plan *plan, int backward, Arena *arena,
                            Scratch *w) {
    const Shape *first = &plan->shape[0];
    long u = tap_plane(net->channels, net->stem);
    long conv = convolve_space(larger(net->channels, net->stem));
    long slope = taps_gradient_space(net->channels, net->stem, first->tiles);
    long map = larger(net->channels, net->stem) * plane(first);
    long inside = round_up(larger(net->channels, net->stem), LANES) * PHASES * first->tiles;
    long spaced = 0;
    for (long b = 0; b < net->blocks; b++) {
        const Block *block = &net->block[b];
        const Record *r = &plan->record[b];
        const long in = block->inputs, out = block->outputs;
        u = larger(u, larger(tap_plane(out, out), tap_plane(in, out)));
        conv = larger(conv, convolve_space(larger(in, out)));
        slope = larger(slope, taps_gradient_space(out, out, r->out->tiles));
        slope = larger(slope, taps_gradient_space(in, out, r->in->tiles));
        map = larger(map, larger(in * plane(r->in), out * plane(r->out)));
        map = larger(map, in * plane(r->out));
        inside = larger(inside, round_up(out, LANES) * PHASES * r->out->tiles);
        if (block->stride == 2) spaced = larger(spaced, out * SPACED * r->in->row);
    }
    conv = round_up(conv, LANES);
    w->conv = w->sums = take(arena, backward ? larger(conv + GRID * u, slope) : conv + GRID * u);
    w->u = w->conv + conv;
    take(arena, margin(first));
    w->spaced = take(arena, spaced);
    w->inside = take(arena, backward ? inside : 0);
    for (int i = 0; i < (backward ? 3 : 2); i++) w->map[i] = take(arena, map);
    take(arena, margin(first));
}

INLINE Taps taps_of(const Layer *l) {
    return (Taps){l->taps, l->stride[0], l->stride[1], l->stride[2], l->stride[3]};
}

INLINE Taps slope_of(const Layer *l, long offset) {
    const int64_t *s = l->slope_stride;
    return (Taps){l->taps_slope + offset, s[0], s[1], s[2], s[3]};
}

INLINE Groups groups_of(const Net *net) { return (Groups){net->groups, net->first}; }

static const Finish AS_IT_IS = {0, 0, 0};

/* A 3 x 3 convolution of either stride. */
static void step(const float *x, const Block *b, int second, const Source *u, const Record *r,
                 const Finish *f, Scratch *w, float *z) {
    const long inputs = second ? b->outputs : b->inputs;
    if (second || b->stride == 1) {
        convolve(x, inputs, u, b->outputs, z, r->out, PLAIN, f, w->conv);
        return;
    }
    convolve(x, inputs, u, b->outputs, w->spaced, r->in, PICK, f, w->conv);
    for (long k = 0; k < b->outputs; k++)
        halve(w->spaced + k * SPACED * r->in->row, OF_SPACED, r->in, z + k * plane(r->out), r->out);
}

/* What the 1 x 1 convolution of a shortcut looks at. */
static const float *shortcut(const float *x, const Block *b, const Record *r, float *space) {
    if (b->stride == 1) return x;
    for (long c = 0; c < b->inputs; c++)
        halve(x + c * plane(r->in), OF_MAP, r->in, space + c * plane(r->out), r->out);
    return space;
}

static void forward(const Net *net, const Layer *layer, const float *x, const int64_t stride[4],
                    const Plan *plan, Scratch *w, float *features) {
    const Groups groups = groups_of(net);
    const int training = (int)net->training;
    const Shape *s = &plan->shape[0];
    pack(x, stride, net->channels, s, plan->x);
    Source u = taps_for(taps_of(layer), net->channels, net->stem, 0, s, w->u);
    convolve(plan->x, net->channels, &u, net->stem, plan->z, s, PLAIN, &AS_IT_IS, w->conv);
    norm_forward(plan->z, 0, 1, net->stem, s, groups, training, layer++, plan->m, plan->a);
    const float *in = plan->a;
    for (long n = 0; n < net->blocks; n++) {
        const Block *b = &net->block[n];
        const Record *r = &plan->record[n];
        const float *add = in;
        u = taps_for(taps_of(layer), b->inputs, b->outputs, 0, r->in, w->u);
        step(in, b, 0, &u, r, &AS_IT_IS, w, r->z1);
        norm_forward(r->z1, 0, 1, b->outputs, r->out, groups, training, layer++, r->m1, w->map[0]);
        u = taps_for(taps_of(layer), b->outputs, b->outputs, 0, r->out, w->u);
        step(w->map[0], b, 1, &u, r, &AS_IT_IS, w, r->z2);
        const Layer *second = layer++;
        if (b->project) {
            const float *picked = shortcut(in, b, r, w->map[0]);
            mix_channels(picked, b->inputs, taps_of(layer), b->outputs, r->zs, r->out);
            norm_forward(r->zs, 0, 0, b->outputs, r->out, groups, training, layer++, r->ms,
                         w->map[1]);
            add = w->map[1];
        }
        norm_forward(r->z2, add, 1, b->outputs, r->out, groups, training, second, r->m2, r->end);
        in = r->end;
    }
    const Record *last = &plan->record[net->blocks - 1];
    pool(in, net->block[net->blocks - 1].outputs, last->out, features);
}

/* Slopes of taps over all tiles, or over those of each image apart. */
static void slopes(const Net *net, const float *x, long inputs, const float *dz, long outputs,
                   const Shape *s, Kind kind, int size, const Layer *layer, Scratch *w) {
    const long parts = net->apart ? net->images : 1, tiles = s->tiles / parts;
    channels_inside(x, inputs, s, w->inside, inside_lanes(inputs));
    for (long n = 0; n < parts; n++) {
        const Taps dw = slope_of(layer, n * inputs * outputs * size * size);
        if (size == 3)
            taps_gradient(w->inside, inputs, dz, outputs, s, n * tiles, (n + 1) * tiles, kind, dw,
                          w->sums);
        else
            mix_gradient(w->inside, inputs, dz, outputs, s, n * tiles, (n + 1) * tiles, dw, w->sums);
    }
}

static void norm_slopes(const Net *net, float *dy, const float *end, int relu, const float *x,
                        long channels, const Shape *s, const Layer *layer, const Moments *m,
                        float *dx) {
    norm_backward(dy, end, relu, x, channels, s, groups_of(net), (int)net->training, layer,
                  net->apart ? channels : 0, m, dx);
}

/* Back through a block: the gradient of its result in map[0] becomes that of its input in map[0].
 * `layer` is its first. */
static void block_back(const Net *net, const Block *b, const Record *r, const float *in,
                       const Layer *layer, Scratch *w) {
    float **map = w->map;
    const long out = b->outputs;
    const Shape *s = r->out;
    norm_slopes(net, map[0], r->end, 1, r->z2, out, s, layer + 1, r->m2, map[1]);
    norm_again(r->z1, out, s, groups_of(net), layer, r->m1, map[2]);
    slopes(net, map[2], out, map[1], out, s, PLAIN, 3, layer + 1, w);
    Source u = taps_for(turned(taps_of(layer + 1)), out, out, 1, s, w->u);
    convolve(map[1], out, &u, out, map[2], s, PLAIN, &AS_IT_IS, w->conv);
    norm_slopes(net, map[2], 0, 1, r->z1, out, s, layer, r->m1, map[2]);

    const Kind kind = b->stride == 2 ? SPREAD : PLAIN;
    const float *dz = map[2];
    if (kind == SPREAD) {
        for (long k = 0; k < out; k++)
            widen(map[2] + k * plane(s), s, w->spaced + k * SPACED * r->in->row, OF_SPACED, r->in, 0);
        dz = w->spaced;
    }
    slopes(net, in, b->inputs, dz, out, r->in, kind == SPREAD ? PICK : PLAIN, 3, layer, w);
    u = taps_for(turned(taps_of(layer)), b->inputs, out, 1, r->in, w->u);
    const Finish plus = {0, b->project ? 0 : map[0], 0};
    convolve(dz, out, &u, b->inputs, map[1], r->in, kind, &plus, w->conv);
    if (b->project) {
        norm_slopes(net, map[0], 0, 0, r->zs, out, s, layer + 2, r->ms, map[2]);
        slopes(net, shortcut(in, b, r, map[0]), b->inputs, map[2], out, s, PLAIN, 1, layer + 2, w);
        const Taps t = taps_of(layer + 2);
        mix_channels(map[2], out, (Taps){t.at, t.in, t.out, 0, 0}, b->inputs, map[0], s);
        for (long c = 0; c < b->inputs; c++)
            if (b->stride == 2)
                widen(map[0] + c * plane(s), s, map[1] + c * plane(r->in), OF_MAP, r->in, 1);
            else
                for (long i = c * plane(s); i < (c + 1) * plane(s); i += W)
                    store(map[1] + i, load(map[1] + i) + load(map[0] + i));
    }
    float *dx = map[1];
    map[1] = map[0];
    map[0] = dx;
}

static void backward(const Net *net, const Layer *layer, const Plan *plan, const float *features,
                     Scratch *w, float *dx, const int64_t stride[4]) {
    const Layer *at = layer + 1;
    for (long n = 0; n < net->blocks; n++) at += 2 + net->block[n].project;
    for (long n = net->blocks - 1; n >= 0; n--) {
        const Block *b = &net->block[n];
        const Record *r = &plan->record[n];
        at -= 2 + b->project;
        if (n == net->blocks - 1) pool_back(features, b->outputs, r->out, w->map[0]);
        block_back(net, b, r, n ? plan->record[n - 1].end : plan->a, at, w);
    }
    const Shape *s = &plan->shape[0];
    norm_slopes(net, w->map[0], 0, 1, plan->z, net->stem, s, layer, plan->m, w->map[0]);
    slopes(net, plan->x, net->channels, w->map[0], net->stem, s, PLAIN, 3, layer, w);
    if (!dx) return;
    const Source u = taps_for(turned(taps_of(layer)), net->channels, net->stem, 1, s, w->u);
    convolve(w->map[0], net->stem, &u, net->channels, w->map[1], s, PLAIN, &AS_IT_IS, w->conv);
    unpack(w->map[1], net->channels, s, dx, stride);
}

/* Evaluation: batch-norm with running statistics is a scale, which goes into the taps, and a shift. */
typedef struct {
    float *u, *shift;
    Source taps; /* in a 3 x 3 convolution */
} Folded;

static long widest(const Net *net) {
    long most = net->stem;
    for (long n = 0; n < net->blocks; n++) most = larger(most, net->block[n].outputs);
    return round_up(most, LANES);
}

static Folded take_folded(Arena *arena, long inputs, long outputs, int size) {
    Folded f;
    f.u = take(arena, size == 3 ? GRID * tap_plane(inputs, outputs) : inputs * outputs);
    f.shift = take(arena, outputs);
    f.taps = (Source){.whole = {f.u, tap_plane(inputs, outputs), tap_row(inputs), 1}};
    return f;
}

static void fold(const Layer *l, long inputs, long outputs, int size, Folded f, float *scale) {
    for (long k = 0; k < outputs; k++) {
        const double by = l->scale[k] / sqrt(l->var[k] + l->eps);
        scale[k] = (float)by;
        f.shift[k] = (float)(l->shift[k] - l->mean[k] * by);
    }
    const Taps t = taps_of(l);
    if (size == 3) {
        prepare(t, inputs, outputs, scale, f.u);
        return;
    }
    for (long k = 0; k < outputs; k++)
        for (long c = 0; c < inputs; c++)
            f.u[k * inputs + c] = t.at[k * t.out + c * t.in] * scale[k];
}

/* Visit the layers in their order and lay out, or with `layer` also fill, their folded form. */
static void fold_all(const Net *net, const Layer *layer, Arena *arena, float *scale, Folded *out) {
    *out = take_folded(arena, net->channels, net->stem, 3);
    if (layer) fold(layer++, net->channels, net->stem, 3, *out, scale);
    for (long n = 0; n < net->blocks; n++) {
        const Block *b = &net->block[n];
        for (int i = 0; i < 2 + b->project; i++) {
            const long inputs = i == 1 ? b->outputs : b->inputs;
            *++out = take_folded(arena, inputs, b->outputs, i < 2 ? 3 : 1);
            if (!layer) continue;
            fold(layer++, inputs, b->outputs, i < 2 ? 3 : 1, *out, scale);
            for (long k = 0; i == 2 && k < b->outputs; k++) out[-1].shift[k] += out->shift[k];
        }
    }
}

static void evaluate(const Net *net, const Folded *f, const float *x, const int64_t stride[4],
                     const Plan *plan, Scratch *w, float *features) {
    const Shape *s = &plan->shape[0];
    pack(x, stride, net->channels, s, plan->x);
    Finish finish = {f->shift, 0, 1};
    convolve(plan->x, net->channels, &f->taps, net->stem, plan->a, s, PLAIN, &finish, w->conv);
    const float *in = plan->a;
    for (long n = 0; n < net->blocks; n++) {
        const Block *b = &net->block[n];
        const Record *r = &plan->record[n];
        const Folded *one = ++f, *two = ++f;
        finish = (Finish){one->shift, 0, 1};
        step(in, b, 0, &one->taps, r, &finish, w, w->map[1]);
        finish = (Finish){two->shift, in, 1};
        if (b->project) {
            const Folded *three = ++f;
            const Taps t = {three->u, b->inputs, 1, 0, 0};
            mix_channels(shortcut(in, b, r, w->map[0]), b->inputs, t, b->outputs, r->zs, r->out);
            finish.add = r->zs;
        }
        step(w->map[1], b, 1, &two->taps, r, &finish, w, r->end);
        in = r->end;
    }
    pool(in, net->block[net->blocks - 1].outputs, plan->record[net->blocks - 1].out, features);
}

#endif

/* Single layers of the engine for the tests: a convolution and a batch-norm, forward and backward.
 * With -DMAIN it is a program that runs both on many shapes, for valgrind and sanitizers. */
#include <stdio.h>
#include <stdlib.h>

#include "network.h"

/* Convolution of images (n, c, h, w) with taps (k, c, size, size): y, and from dy both gradients. */
__attribute__((visibility("default"))) void probe_convolution(
    int64_t n, int64_t c, int64_t h, int64_t w, int64_t k, int64_t size, int64_t stride, const float *x,
    float *taps, const float *dy, float *y, float *dx, float *dtaps) {
    Net net = {.images = n, .channels = c, .height = h, .width = w, .stem = c, .blocks = 1, .groups = 1};
    net.block[0] = (Block){c, k, stride, size == 1};
    Arena count = {0, 0}, other = {0, 0};
    static Plan plan;
    Scratch s;
    lay_out(&net, &count, &plan);
    lay_out_scratch(&net, &plan, 1, &other, &s);
    Arena maps = {aligned_alloc(64, (size_t)count.used * 4), 0};
    Arena scratch = {aligned_alloc(64, (size_t)other.used * 4), 0};
    lay_out(&net, &maps, &plan);
    lay_out_scratch(&net, &plan, 1, &scratch, &s);
    const Record *r = &plan.record[0];
    const Block *b = &net.block[0];
    const int64_t in[4] = {c * h * w, h * w, w, 1};
    const long H = r->out->height, V = r->out->width;
    const int64_t out[4] = {k * H * V, H * V, V, 1};
    const Taps t = {taps, c * size * size, size * size, size, 1};
    Layer layer = {.taps_slope = dtaps, .slope_stride = {c * size * size, size * size, size, 1}};
    pack(x, in, c, r->in, plan.x);
    if (size == 3) {
        Source u = taps_for(t, c, k, 0, r->in, s.u);
        step(plan.x, b, 0, &u, r, &AS_IT_IS, &s, r->z1);
        unpack(r->z1, k, r->out, y, out);
        pack(dy, out, k, r->out, s.map[2]);
        const float *dz = s.map[2];
        const Kind kind = stride == 2 ? SPREAD : PLAIN;
        for (long i = 0; kind == SPREAD && i < k; i++)
            widen(s.map[2] + i * plane(r->out), r->out, s.spaced + i * SPACED * r->in->row, OF_SPACED,
                  r->in, 0);
        dz = kind == SPREAD ? s.spaced : dz;
        slopes(&net, plan.x, c, dz, k, r->in, kind == SPREAD ? PICK : PLAIN, 3, &layer, &s);
        u = taps_for(turned(t), c, k, 1, r->in, s.u);
        convolve(dz, k, &u, c, s.map[1], r->in, kind, &AS_IT_IS, s.conv);
        unpack(s.map[1], c, r->in, dx, in);
    } else {
        const float *picked = shortcut(plan.x, b, r, s.map[0]);
        mix_channels(picked, c, t, k, r->z1, r->out);
        unpack(r->z1, k, r->out, y, out);
        pack(dy, out, k, r->out, s.map[2]);
        slopes(&net, picked, c, s.map[2], k, r->out, PLAIN, 1, &layer, &s);
        mix_channels(s.map[2], k, (Taps){t.at, t.in, t.out, 0, 0}, c, s.map[0], r->out);
        if (stride == 2) {
            memset(s.map[1], 0, (size_t)(c * plane(r->in)) * 4);
            for (long i = 0; i < c; i++)
                widen(s.map[0] + i * plane(r->out), r->out, s.map[1] + i * plane(r->in), OF_MAP, r->in, 1);
        }
        unpack(stride == 2 ? s.map[1] : s.map[0], c, r->in, dx, in);
    }
    free(maps.at);
    free(scratch.at);
}

/* relu?(batch-norm(x) + add?) in groups, and from dy the gradients of x, scale and shift. The gradient
 * of `add`, if there is one, is left in dy. */
__attribute__((visibility("default"))) void probe_norm(
    int64_t n, int64_t c, int64_t h, int64_t w, int64_t groups, const int64_t *first, int64_t training,
    int64_t relu, const float *x, const float *add, float *dy, const float *scale, const float *shift,
    float *mean, float *var, float *y, float *dx, float *dscale, float *dshift) {
    Shape s = shape_of(n, h, w);
    fill_tables(&s, 0, malloc((size_t)(TABLES * s.row + LANES) * 4));
    const int64_t stride[4] = {c * h * w, h * w, w, 1};
    float *map[4];
    for (int i = 0; i < 4; i++) map[i] = aligned_alloc(64, (size_t)(c * plane(&s) + LANES) * 4);
    Moments *m = malloc((size_t)(groups * c) * sizeof *m);
    Layer layer = {.scale = (float *)scale, .shift = (float *)shift, .mean = mean, .var = var,
                   .scale_slope = dscale, .shift_slope = dshift, .eps = 1e-5, .momentum = 0.1};
    const Groups g = {groups, first};
    pack(x, stride, c, &s, map[0]);
    if (add) pack(add, stride, c, &s, map[1]);
    norm_forward(map[0], add ? map[1] : 0, (int)relu, c, &s, g, (int)training, &layer, m, map[2]);
    unpack(map[2], c, &s, y, stride);
    pack(dy, stride, c, &s, map[3]);
    norm_backward(map[3], add ? map[2] : 0, (int)relu, map[0], c, &s, g, (int)training, &layer, 0, m,
                  map[1]);
    unpack(map[3], c, &s, dy, stride);
    unpack(map[1], c, &s, dx, stride);
    for (int i = 0; i < 4; i++) free(map[i]);
    free(m);
    free(s.left);
}

#ifdef MAIN
#include "head.h"
#include "images.h"

static float *noise(long count) {
    float *x = malloc((size_t)count * 4);
    for (long i = 0; i < count; i++) x[i] = (float)(i * 7919 % 1000) / 500 - 1;
    return x;
}

/* What comes before and behind the network, in memory that ends where it must. */
static double around(long n, long c, long h, long w) {
    const long size = h * w * c, there = c < 4 ? c : 3;
    float *x = noise(size), *work = noise(size), *out = noise(size), weight[3] = {0.3f, 0.6f, 0.1f};
    const int64_t box[4] = {h / 3, w / 4, h - h / 3 - n % 3, w - w / 4}, order[4] = {n % 4, 3, 1, 2};
    const float amount[4] = {1.1f, 0.8f, 1.3f, 0.1f};
    crop(x, h, w, c, box, work, out);
    jitter(out, h * w, c, amount, order, weight);
    descend(x, out, size, 0.1f, n % 2 ? 0.01f : 0);
    double sum = squares(x, size);
    float *product_ = noise(h * there), *space = noise(matmul_space(h, there, w));
    matmul((Matrix){x, w, 1}, (Matrix){out, 1, w}, h, there, w, (Matrix){product_, there, 1}, space);
    for (long i = 0; i < h; i++)
        sum += row_loss(product_ + i * there, there, i % there, n % 2 ? out : 0, work);
    float *all[] = {x, work, out, product_, space};
    for (int i = 0; i < 5; i++) free(all[i]);
    return sum;
}

int main(void) {
    double sum = 0;
    for (long turn = 0; turn < 60; turn++) {
        const long n = 1 + turn % 5, c = 1 + turn * 7 % 21, k = 1 + turn * 5 % 23, h = 8 + turn % 13;
        const long w = 8 + turn * 3 % 17, size = turn % 3 ? 3 : 1, stride = 1 + turn % 2;
        const long H = (h + stride - 1) / stride, V = (w + stride - 1) / stride;
        float *x = noise(n * c * h * w), *taps = noise(k * c * size * size), *dy = noise(n * k * H * V);
        float *y = noise(n * k * H * V), *dx = noise(n * c * h * w), *dtaps = noise(k * c * size * size);
        probe_convolution(n, c, h, w, k, size, stride, x, taps, dy, y, dx, dtaps);
        const int64_t first[3] = {0, n - n / 2, n};
        float *v[6];
        for (int i = 0; i < 6; i++) v[i] = noise(c);
        for (long i = 0; i < c; i++) v[3][i] = 1;
        float *add = turn % 2 ? noise(n * c * h * w) : 0, *up = noise(n * c * h * w);
        float *out = noise(n * c * h * w);
        probe_norm(n, c, h, w, n > 1 ? 2 : 1, first, turn % 3 > 0, turn % 2, x, add, up, v[0], v[1], v[2],
                   v[3], out, dx, v[4], v[5]);
        for (long i = 0; i < n * c * h * w; i++) sum += dx[i] + out[i];
        for (long i = 0; i < n * k * H * V; i++) sum += y[i];
        for (long i = 0; i < k * c * size * size; i++) sum += dtaps[i];
        sum += around(n, c, h, w);
        for (int i = 0; i < 6; i++) free(v[i]);
        float *all[] = {x, taps, dy, y, dx, dtaps, add, up, out};
        for (int i = 0; i < 9; i++) free(all[i]);
    }
    printf("%.9g\n", sum);
    return sum != sum;
}
#endif

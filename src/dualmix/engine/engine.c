/* The library's doors. All memory is given by the caller, nothing is shared between calls. */
#include "head.h"
#include "images.h"
#include "network.h"

#define DOOR __attribute__((visibility("default")))

/* The best build for this CPU: 2 with AVX-512, 1 with AVX2 and FMA, else 0. */
DOOR int dm_cpu(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}

/* Floats that the maps of a forward pass need. */
DOOR int64_t dm_maps_space(const Net *net) {
    Arena arena = {0, 0};
    Plan plan;
    lay_out(net, &arena, &plan);
    return arena.used;
}

/* Floats of scratch memory for a forward or a backward pass. */
DOOR int64_t dm_scratch_space(const Net *net, int64_t backward) {
    Arena maps = {0, 0}, arena = {0, 0};
    Plan plan;
    Scratch scratch;
    lay_out(net, &maps, &plan);
    lay_out_scratch(net, &plan, (int)backward, &arena, &scratch);
    return arena.used;
}

static void ready(const Net *net, float *maps, float *scratch, int backward, Plan *plan,
                  Scratch *w) {
    Arena arena = {maps, 0}, other = {scratch, 0};
    lay_out(net, &arena, plan);
    lay_out_scratch(net, plan, backward, &other, w);
}

DOOR void dm_forward(const Net *net, const Layer *layers, const float *x, const int64_t *stride,
                     float *maps, float *scratch, float *features) {
    Plan plan;
    Scratch w;
    ready(net, maps, scratch, 0, &plan, &w);
    forward(net, layers, x, stride, &plan, &w, features);
}

/* After dm_forward with a tape, on the same maps. Without dx the stem's input gradient is skipped. */
DOOR void dm_backward(const Net *net, const Layer *layers, const float *slopes, float *maps,
                      float *scratch, float *dx, const int64_t *stride) {
    Plan plan;
    Scratch w;
    ready(net, maps, scratch, 1, &plan, &w);
    backward(net, layers, &plan, slopes, &w, dx, stride);
}

DOOR int64_t dm_folded_space(const Net *net) {
    Arena arena = {0, 0};
    Folded folded[3 * MOST_BLOCKS + 1];
    fold_all(net, 0, &arena, 0, folded);
    return arena.used + widest(net);
}

/* Prepare evaluation: taps with batch-norm folded in. Ends with room for one scale a channel. */
DOOR void dm_fold(const Net *net, const Layer *layers, float *space) {
    Arena arena = {space, 0};
    Folded folded[3 * MOST_BLOCKS + 1];
    fold_all(net, layers, &arena, space + dm_folded_space(net) - widest(net), folded);
}

DOOR void dm_evaluate(const Net *net, float *space, const float *x, const int64_t *stride,
                      float *maps, float *scratch, float *features) {
    Arena arena = {space, 0};
    Folded folded[3 * MOST_BLOCKS + 1];
    Plan plan;
    Scratch w;
    fold_all(net, 0, &arena, 0, folded);
    ready(net, maps, scratch, 0, &plan, &w);
    evaluate(net, folded, x, stride, &plan, &w, features);
}

DOOR int64_t dm_matmul_space(int64_t rows, int64_t columns, int64_t depth) {
    return matmul_space(rows, columns, depth);
}

DOOR void dm_matmul(const Matrix *a, const Matrix *b, int64_t rows, int64_t columns, int64_t depth,
                    const Matrix *out, float *work) {
    matmul(*a, *b, rows, columns, depth, *out, work);
}

/* Losses and logit gradients of rows; `labels` or else `soft` says what is right. */
DOOR void dm_cross_entropy(const float *logits, int64_t rows, int64_t columns,
                           const int64_t *labels, const float *soft, double *losses, float *slopes) {
    for (long n = 0; n < rows; n++)
        losses[n] = row_loss(logits + n * columns, columns, labels ? labels[n] : -1,
                             soft ? soft + n * columns : 0, slopes + n * columns);
}

DOOR void dm_crop(const float *x, int64_t images, int64_t height, int64_t width, int64_t channels,
                  const int64_t *boxes, float *work, float *out) {
    const long size = height * width * channels;
    for (long n = 0; n < images; n++)
        crop(x + n * size, height, width, channels, boxes + 4 * n, work, out + n * size);
}

DOOR void dm_jitter(float *x, int64_t images, int64_t pixels, int64_t channels, const float *amounts,
                    const int64_t *orders, const float *weight) {
    for (long n = 0; n < images; n++)
        jitter(x + n * pixels * channels, pixels, channels, amounts + 4 * n, orders + 4 * n, weight);
}

/* The length of a gradient that comes in pieces: finite only if all of it is. */
DOOR double dm_length(const float *const *slopes, const int64_t *counts, int64_t pieces) {
    double sum = 0;
    for (long i = 0; i < pieces; i++) sum += squares(slopes[i], counts[i]);
    return sqrt(sum);
}

DOOR void dm_descend(float *const *weights, const float *const *slopes, const int64_t *counts,
                     int64_t pieces, float lr, float decay) {
    for (long i = 0; i < pieces; i++) descend(weights[i], slopes[i], counts[i], lr, decay);
}

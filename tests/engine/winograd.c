/* The six transforms of winograd.h in one dimension, on numbers instead of vectors of them. */
#include "winograd.h"

#define WRAP(name, inputs, outputs) \
    void probe_##name(const float *from, float *to) { \
        vf in[inputs], out[outputs] = {0}; \
        for (int i = 0; i < inputs; i++) in[i] = spread(from[i]); \
        name(in, out); \
        for (int i = 0; i < outputs; i++) to[i] = out[i][0]; \
    }

static void spaced_in(const vf d[3], vf v[6]) { enter_spaced(d[0], d[1], d[2], v); }
static void spaced_back(const vf y[2], vf m[6]) { back_spaced(y[0], y[1], m); }

WRAP(enter, 6, 6)
WRAP(spaced_in, 3, 6)
WRAP(leave, 6, 4)
WRAP(back, 4, 6)
WRAP(spaced_back, 2, 6)
WRAP(taps, 3, 6)
WRAP(taps_back, 6, 3)

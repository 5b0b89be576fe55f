/* Convolutions on polyphase maps: 3 x 3 by Winograd's F(4 x 4, 3 x 3), and 1 x 1.
 *
 * Stride 2 keeps every second output of the same computation. Outputs 0 and 2 of a tile do not need
 * the point at infinity, so 25 of the 36 products are left. The gradient of the input is the same
 * convolution with turned taps; at stride 2 its input has zeros between the pixels, for which the
 * point 0 drops out: 25 products again.
 */
#ifndef DUALMIX_CONV_H
#define DUALMIX_CONV_H

#include "gemm.h"
#include "maps.h"
#include "winograd.h"

#define GRID (POINTS * POINTS)
#define RUN 48  /* tiles of a weight gradient that are transformed at a time */
#define CHAIN 4 /* runs that are summed in float; then float64 goes on */
#define GAP 16  /* keeps the planes of the 36 points out of each other's cache sets */

/* Which outputs are wanted, or which inputs are there. */
typedef enum { PLAIN, PICK, SPREAD } Kind;

INLINE int first_point(Kind kind) { return kind == SPREAD; }
INLINE int last_point(Kind kind) { return kind == PICK ? POINTS - 2 : POINTS - 1; }

/* Taps with the steps from one output channel, input channel, row and column to the next. */
typedef struct {
    float *at;
    long out, in, y, x;
} Taps;

/* Transformed taps, with the steps between points, output channels and input channels. */
typedef struct {
    const float *at;
    long point, out, in;
} Prepared;

INLINE long tap_row(long inputs) { return round_up(inputs, LANES); }
INLINE long tap_plane(long inputs, long outputs) { return outputs * tap_row(inputs) + GAP; }

/* For the gradient of the input: taps turned by half a circle, ... */
static Taps turned(Taps w) {
    return (Taps){w.at + 2 * w.y + 2 * w.x, w.out, w.in, -w.y, -w.x};
}

/* ... and both ends exchanged. */
static Prepared reversed(Prepared u) { return (Prepared){u.at, u.point, u.in, u.out}; }

/* One tap of W input channels, of which the first `there` exist. */
INLINE vf lane_taps(const float *from, long step, long there) {
    if (step == 1 && there >= W) return load(from);
    vf v = {0};
    for (long i = 0; i < there && i < W; i++) v[i] = from[i * step];
    return v;
}

/* U = G g Gt as [36 points][outputs][inputs], an output's taps times its scale if there is one. */
static Prepared prepare(Taps w, long inputs, long outputs, const float *scale, float *u) {
    const Prepared made = {u, tap_plane(inputs, outputs), tap_row(inputs), 1};
    for (long k = 0; k < outputs; k++)
        for (long c = 0; c < inputs; c += W) {
            vf half[3][POINTS], column[POINTS];
            UNROLL for (int y = 0; y < 3; y++) {
                vf g[3];
                UNROLL for (int x = 0; x < 3; x++) {
                    g[x] = lane_taps(w.at + k * w.out + c * w.in + y * w.y + x * w.x, w.in,
                                     inputs - c);
                    if (scale) g[x] *= scale[k];
                }
                taps(g, half[y]);
            }
            UNROLL for (int j = 0; j < POINTS; j++) {
                taps((vf[3]){half[0][j], half[1][j], half[2][j]}, column);
                UNROLL for (int i = 0; i < POINTS; i++)
                    store(u + (i * POINTS + j) * made.point + k * made.out + c, column[i]);
            }
        }
    return made;
}

/* One row of the 6 x 6 pixels that four outputs in a row look at, for the W tiles from t on. The
 * first and the last row belong to the tiles above and below, the first and last column to those on
 * the left and right; what is over the edge of the image counts as 0. */
INLINE void gather(const float *x, const Shape *s, long t, const int row, vf d[6]) {
    const long shift = row == 0 ? -s->across : row == 5 ? s->across : 0;
    const float *at = x + (row + 3) % SIDE * SIDE * s->row + t + shift;
    vi left = load_mask(s->left + t), right = load_mask(s->right + t);
    UNROLL for (int j = 0; j < SIDE; j++) d[j + 1] = load(at + j * s->row);
    if (row == 0 || row == 5) {
        const vi there = load_mask((row ? s->below : s->above) + t);
        UNROLL for (int j = 0; j < SIDE; j++) d[j + 1] = keep(d[j + 1], there);
        left &= there;
        right &= there;
    }
    d[0] = keep(load(at + 3 * s->row - 1), left);
    d[5] = keep(load(at + 1), right);
}

/* Bt d B of W tiles, one point every `step` floats of v. */
INLINE void tiles_enter(const float *x, const Shape *s, long t, const Kind kind, float *v, long step) {
    vf half[6][POINTS], column[POINTS];
    if (kind == SPREAD) {
        UNROLL for (int row = 1; row < 6; row += 2) {
            const float *at = x + (row == 3 ? 2 : 0) * s->row + t + (row == 5 ? s->across : 0);
            vf d[3] = {load(at), load(at + s->row), keep(load(at + 1), load_mask(s->right + t))};
            if (row == 5)
                UNROLL for (int j = 0; j < 3; j++) d[j] = keep(d[j], load_mask(s->below + t));
            enter_spaced(d[0], d[1], d[2], half[row]);
        }
        UNROLL for (int j = 1; j < POINTS; j++) {
            enter_spaced(half[1][j], half[3][j], half[5][j], column);
            UNROLL for (int i = 1; i < POINTS; i++) store(v + (i * POINTS + j) * step, column[i]);
        }
        return;
    }
    UNROLL for (int row = 0; row < 6; row++) {
        vf d[6];
        gather(x, s, t, row, d);
        enter(d, half[row]);
    }
    UNROLL for (int j = 0; j <= last_point(kind); j++) {
        enter((vf[6]){half[0][j], half[1][j], half[2][j], half[3][j], half[4][j], half[5][j]},
              column);
        UNROLL for (int i = 0; i <= last_point(kind); i++) store(v + (i * POINTS + j) * step, column[i]);
    }
}

/* What is done to an output before it is written: plus shift, plus another map, cut off below 0. */
typedef struct {
    const float *shift, *add;
    int relu;
} Finish;

INLINE vf finished(vf y, const Finish *f, long channel, const float *add, vi there) {
    if (f->shift) y += spread(f->shift[channel]);
    if (add) y += load(add);
    if (f->relu) y = positive(y);
    return keep(y, there);
}

/* At m A of W tiles; one point every `step` floats of m. */
INLINE void tiles_leave(const float *m, long step, const Shape *s, long t, const Kind kind,
                        const int bare, long channel, const Finish *f, float *out) {
    vf half[POINTS][SIDE], row[POINTS], y[SIDE];
    UNROLL for (int i = 0; i < POINTS; i++) {
        UNROLL for (int j = 0; j < POINTS; j++) {
            const int there = i >= first_point(kind) && j >= first_point(kind) &&
                              i <= last_point(kind) && j <= last_point(kind);
            row[j] = there ? load(m + (i * POINTS + j) * step) : (vf){0};
        }
        leave(row, half[i]);
    }
    const int every = kind == PICK ? 2 : 1;
    UNROLL for (int j = 0; j < SIDE; j += every) {
        leave((vf[6]){half[0][j], half[1][j], half[2][j], half[3][j], half[4][j], half[5][j]}, y);
        UNROLL for (int i = 0; i < SIDE; i += every) {
            const long at = (kind == PICK ? i + j / 2 : i * SIDE + j) * s->row + t;
            if (!bare) {
                const vi there = s->ragged ? inside(s, i * SIDE + j, t) : ~(vi){0};
                y[i] = finished(y[i], f, channel, f->add ? f->add + at : 0, there);
            }
            store(out + at, y[i]);
        }
    }
}

/* A piece of memory that will be wanted soon: `rows` rows of `length` floats, `step` apart. The products
 * touch no map: while they run, memory brings what the transforms need before and after them. */
typedef struct {
    const float *at;
    long rows, step, length, each;
} Wish;

INLINE Wish wish(const float *at, long rows, long step, long length, long calls) {
    return (Wish){at, rows, step, length, (rows + calls - 1) / calls};
}

/* Ask for the next share of it. */
INLINE void ask(Wish *w) {
    for (long i = 0; i < w->each && w->rows > 0; i++, w->rows--, w->at += w->step)
        for (long t = 0; t < w->length; t += LANES) __builtin_prefetch(w->at + t);
}

/* Ask for the taps of `rows` output channels at a point, which are many and read only once or twice. */
INLINE void ask_taps(const Prepared *u, long p, long rows, long inputs) {
    for (long k = 0; k < rows; k++)
        for (long c = 0; c < inputs; c += LANES) __builtin_prefetch(u->at + p * u->point + k * u->out + c);
}

/* Tiles in a block, and output channels in a piece: few enough for the transformed block and the taps
 * and products of a piece to stay in the second cache. */
#define BLOCK 32
#define PIECE 20

/* Channels are cut into pieces of nearly the same size. */
INLINE long pieces(long outputs) { return (outputs + PIECE - 1) / PIECE; }
INLINE long piece_start(long outputs, long n) { return outputs * n / pieces(outputs); }

/* Where a convolution finds its taps: all of them transformed in `whole`, or as they are in `raw`, from
 * which each piece is transformed into `space` just before its products. The gradient of the input goes
 * from the outputs of the taps to their inputs. */
typedef struct {
    Prepared whole;
    Taps raw;
    float *space;
    int back;
} Source;

INLINE Prepared taps_of_piece(const Source *from, long first, long rows, long inputs) {
    Prepared u = from->whole;
    Taps w = from->raw;
    if (!w.at) {
        u.at += first * u.out;
        return u;
    }
    w.at += first * (from->back ? w.in : w.out);
    if (from->back) return reversed(prepare(w, rows, inputs, 0, from->space));
    return prepare(w, inputs, rows, 0, from->space);
}

INLINE void convolve_kind(const float *x, long inputs, const Source *taps, long outputs, float *out,
                          const Shape *s, const Kind kind, const Finish *f, float *work) {
    const long v_plane = inputs * BLOCK + GAP, m_plane = PIECE * BLOCK + GAP, parts = pieces(outputs);
    const long x_rows = kind == SPREAD ? SPACED : PHASES, x_plane = x_rows * s->row;
    const long out_rows = kind == PICK ? SPACED : PHASES, out_plane = out_rows * s->row;
    const int first = first_point(kind), side = last_point(kind) - first + 1, points = side * side;
    const int bare = !f->shift && !f->add && !s->ragged;
    float *v = work, *m = work + GRID * v_plane;
    for (long t = 0; t < s->tiles; t += BLOCK) {
        const long some = s->tiles - t < BLOCK ? s->tiles - t : BLOCK;
        for (long c = 0; c < inputs; c++)
            for (long i = 0; i < some; i += W)
                tiles_enter(x + c * x_plane, s, t + i, kind, v + c * BLOCK + i, v_plane);
        Wish next = wish(x + t + BLOCK, inputs * x_rows, s->row, BLOCK, parts * points);
        for (long part = 0; part < parts; part++) {
            const long from = piece_start(outputs, part), to = piece_start(outputs, part + 1);
            const long rows = (to - from) * out_rows;
            const Prepared u = taps_of_piece(taps, from, to - from, inputs);
            Wish there = wish(out + from * out_plane + t, rows, s->row, BLOCK, points);
            Wish add = f->add ? wish(f->add + from * out_plane + t, rows, s->row, BLOCK, points) : (Wish){0};
            for (int n = 0; n < points; n++) {
                const long p = (first + n / side) * POINTS + first + n % side;
                const long then = n % side < side - 1 ? p + 1 : p + 1 + POINTS - side;
                const Factor a = {u.at + p * u.point, u.out, u.in};
                ask(&next);
                ask(&there);
                ask(&add);
                if (!taps->raw.at && n + 1 < points) ask_taps(&u, then, to - from, inputs);
                product(to - from, (some + W - 1) / W, inputs, a, v + p * v_plane, BLOCK,
                        m + p * m_plane, BLOCK, 0);
            }
            for (long k = from; k < to; k++) {
                const Finish at = {f->shift, f->add ? f->add + k * out_plane : 0, f->relu};
                for (long i = 0; i < some; i += W) {
                    const float *point = m + (k - from) * BLOCK + i;
                    if (bare)
                        tiles_leave(point, m_plane, s, t + i, kind, 1, k, &at, out + k * out_plane);
                    else
                        tiles_leave(point, m_plane, s, t + i, kind, 0, k, &at, out + k * out_plane);
                }
            }
        }
    }
}

static long convolve_space(long inputs) { return GRID * ((inputs + PIECE) * BLOCK + 2 * GAP); }

/* A 3 x 3 convolution. PICK writes, and SPREAD reads, maps of four phases. */
static void convolve(const float *x, long inputs, const Source *taps, long outputs, float *out,
                     const Shape *s, Kind kind, const Finish *f, float *work) {
    if (kind == PLAIN) convolve_kind(x, inputs, taps, outputs, out, s, PLAIN, f, work);
    if (kind == PICK) convolve_kind(x, inputs, taps, outputs, out, s, PICK, f, work);
    if (kind == SPREAD) convolve_kind(x, inputs, taps, outputs, out, s, SPREAD, f, work);
}

/* Taps for a convolution over the tiles of s: transformed at once, unless so few tiles look at them
 * that writing them down and reading them again would cost more. */
static Source taps_for(Taps w, long inputs, long outputs, int back, const Shape *s, float *space) {
    Source from = {.raw = w, .space = space, .back = back};
    if (s->tiles > 2 * BLOCK) {
        from.whole = prepare(w, inputs, outputs, 0, space);
        if (back) from.whole = reversed(from.whole);
        from.raw.at = 0;
    }
    return from;
}

/* A 1 x 1 convolution: the taps as they are. */
static void mix_channels(const float *x, long inputs, Taps w, long outputs, float *out,
                         const Shape *s) {
    const Factor a = {w.at, w.out, w.in};
    for (int phase = 0; phase < PHASES; phase++)
        product(outputs, (s->tiles + W - 1) / W, inputs, a, x + phase * s->row, plane(s),
                out + phase * s->row, plane(s), 0);
}

/* The points of tile t, lanes over channels: x is a map with channels inside. */
INLINE void channels_enter(const float *x, const Shape *s, long lanes, long t, const Kind kind,
                           float *v, long step) {
    static const float nothing[W];
    vf half[6][POINTS], column[POINTS];
    UNROLL for (int row = 0; row < 6; row++) {
        vf d[6];
        const int y_there = row == 0 ? s->above[t] : row == 5 ? s->below[t] : 1;
        const long y_tile = t + (row == 0 ? -s->across : row == 5 ? s->across : 0);
        UNROLL for (int j = 0; j < 6; j++) {
            const int there = y_there && (j == 0 ? s->left[t] : j == 5 ? s->right[t] : 1);
            const long tile = y_tile + (j == 0 ? -1 : j == 5);
            const long phase = (row + 3) % SIDE * SIDE + (j + 3) % SIDE;
            d[j] = load(there ? x + (phase * s->tiles + tile) * lanes : nothing);
        }
        enter(d, half[row]);
    }
    UNROLL for (int j = 0; j <= last_point(kind); j++) {
        enter((vf[6]){half[0][j], half[1][j], half[2][j], half[3][j], half[4][j], half[5][j]},
              column);
        UNROLL for (int i = 0; i <= last_point(kind); i++) store(v + (i * POINTS + j) * step, column[i]);
    }
}

/* A dy At of W tiles: how the gradient of the outputs reaches the points. */
INLINE void tiles_back(const float *dy, const Shape *s, const Kind kind, float *m, long step) {
    vf half[SIDE][POINTS], column[POINTS];
    if (kind == PICK) {
        UNROLL for (int i = 0; i < 2; i++)
            back_spaced(load(dy + 2 * i * s->row), load(dy + (2 * i + 1) * s->row), half[i]);
        UNROLL for (int j = 0; j < POINTS - 1; j++) {
            back_spaced(half[0][j], half[1][j], column);
            UNROLL for (int i = 0; i < POINTS - 1; i++) store(m + (i * POINTS + j) * step, column[i]);
        }
        return;
    }
    UNROLL for (int i = 0; i < SIDE; i++) {
        vf y[SIDE];
        UNROLL for (int j = 0; j < SIDE; j++) y[j] = load(dy + (i * SIDE + j) * s->row);
        back(y, half[i]);
    }
    UNROLL for (int j = 0; j < POINTS; j++) {
        back((vf[4]){half[0][j], half[1][j], half[2][j], half[3][j]}, column);
        UNROLL for (int i = 0; i < POINTS; i++) store(m + (i * POINTS + j) * step, column[i]);
    }
}

/* Which run of tiles this is: sums over CHAIN runs are float, and from chain to chain they are
 * carried on in float64, so that no digit is lost however many there are. */
typedef struct {
    long number, last;
} Turn;

INLINE int goes_on(Turn turn) { return turn.number % CHAIN != 0; }

/* After a run: end a chain. The last one leaves the result in its own place. */
static void carry(float *chain, double *sums, long count, Turn turn) {
    const int first = turn.number < CHAIN, last = turn.number == turn.last;
    if ((turn.number % CHAIN != CHAIN - 1 && !last) || (first && last)) return;
    if (first)
        for (long i = 0; i < count; i++) sums[i] = chain[i];
    else if (last)
        for (long i = 0; i < count; i++) chain[i] = (float)(sums[i] + chain[i]);
    else
        for (long i = 0; i < count; i++) sums[i] += chain[i];
}

/* Gt dU G for W input channels; with PICK the products with the point at infinity are 0. */
INLINE void lanes_leave(const float *sums, long step, const Kind kind, vf g[3][3]) {
    vf half[POINTS][3], row[POINTS], column[3];
    UNROLL for (int i = 0; i < POINTS; i++) {
        UNROLL for (int j = 0; j < POINTS; j++) {
            const int there = i <= last_point(kind) && j <= last_point(kind);
            row[j] = there ? load(sums + (i * POINTS + j) * step) : (vf){0};
        }
        taps_back(row, half[i]);
    }
    UNROLL for (int x = 0; x < 3; x++) {
        taps_back((vf[6]){half[0][x], half[1][x], half[2][x], half[3][x], half[4][x], half[5][x]},
                  column);
        UNROLL for (int y = 0; y < 3; y++) g[y][x] = column[y];
    }
}

INLINE void store_taps(float *to, long step, vf g, long there) {
    if (step == 1 && there >= W)
        store(to, g);
    else
        for (long i = 0; i < there && i < W; i++) to[i * step] = g[i];
}

/* Gradients of the taps of the output channels [first, next), from their sums at the points. */
INLINE void taps_leave(const float *sums, long inputs, long lanes, long step, long first, long next,
                       const Kind kind, Taps dw) {
    for (long k = first; k < next; k++)
        for (long c = 0; c < lanes; c += W) {
            vf g[3][3];
            lanes_leave(sums + k * lanes + c, step, kind, g);
            for (int y = 0; y < 3; y++)
                for (int x = 0; x < 3; x++)
                    store_taps(dw.at + k * dw.out + c * dw.in + y * dw.y + x * dw.x, dw.in, g[y][x],
                               inputs - c);
        }
}

INLINE long inside_lanes(long inputs) { return round_up(inputs, W); }

/* The sums in float64 come last: a single chain has none. */
static long taps_gradient_space(long inputs, long outputs, long tiles) {
    const long lanes = round_up(inputs, LANES), sums = tiles > CHAIN * RUN ? 2 : 0;
    return GRID * (RUN * (lanes + outputs) + (1 + sums) * outputs * lanes + 4 * GAP);
}

INLINE void taps_gradient_kind(const float *x, long inputs, const float *dy, long outputs,
                               const Shape *s, long from, long to, const Kind kind, Taps dw,
                               float *work) {
    const long lanes = inside_lanes(inputs), size = outputs * lanes;
    const long v_plane = RUN * lanes + GAP, m_plane = outputs * RUN + GAP;
    const long rows = kind == PICK ? SPACED : PHASES, dy_plane = rows * s->row;
    float *chains = work, *v = chains + GRID * size, *m = v + GRID * v_plane;
    double *sums = (double *)(m + GRID * m_plane);
    const int side = last_point(kind) + 1;
    for (long t = from; t < to; t += RUN) {
        const long some = to - t < RUN ? to - t : RUN;
        const Turn turn = {(t - from) / RUN, (to - from - 1) / RUN};
        for (long i = 0; i < some; i++)
            for (long c = 0; c < lanes; c += W)
                channels_enter(x + c, s, lanes, t + i, kind, v + i * lanes + c, v_plane);
        for (long k = 0; k < outputs; k++)
            for (long i = 0; i < some; i += W)
                tiles_back(dy + k * dy_plane + t + i, s, kind, m + k * RUN + i, m_plane);
        const long calls = pieces(outputs) * side * side;
        Wish inside = wish(x + (t + some) * lanes, PHASES, s->tiles * lanes, RUN * lanes, calls);
        Wish slope = wish(dy + t + some, outputs * rows, s->row, RUN, calls);
        for (long part = 0; part < pieces(outputs); part++) {
            const long first = piece_start(outputs, part), next = piece_start(outputs, part + 1);
            for (int n = 0; n < side * side; n++) {
                const long p = n / side * POINTS + n % side, at = p * size + first * lanes;
                const Factor a = {m + p * m_plane + first * RUN, RUN, 1};
                ask(&inside);
                ask(&slope);
                product(next - first, lanes / W, some, a, v + p * v_plane, lanes, chains + at, lanes,
                        goes_on(turn));
                carry(chains + at, sums + at, (next - first) * lanes, turn);
            }
            if (turn.number == turn.last)
                taps_leave(chains, inputs, lanes, size, first, next, kind, dw);
        }
    }
}

/* The gradient of 3 x 3 taps over the tiles [from, to); x has its channels inside. */
static void taps_gradient(const float *x, long inputs, const float *dy, long outputs, const Shape *s,
                          long from, long to, Kind kind, Taps dw, float *work) {
    if (kind == PICK)
        taps_gradient_kind(x, inputs, dy, outputs, s, from, to, PICK, dw, work);
    else
        taps_gradient_kind(x, inputs, dy, outputs, s, from, to, PLAIN, dw, work);
}

/* The gradient of 1 x 1 taps over the tiles [from, to); x has its channels inside. */
static void mix_gradient(const float *x, long inputs, const float *dy, long outputs, const Shape *s,
                         long from, long to, Taps dw, float *work) {
    const long lanes = inside_lanes(inputs), size = outputs * lanes;
    const long runs = (to - from + RUN - 1) / RUN;
    double *sums = (double *)work;
    float *chain = work + 2 * size;
    for (long n = 0; n < PHASES * runs; n++) {
        const long phase = n / runs, t = from + n % runs * RUN, some = to - t < RUN ? to - t : RUN;
        const Factor a = {dy + phase * s->row + t, plane(s), 1};
        const Turn turn = {n, PHASES * runs - 1};
        product(outputs, lanes / W, some, a, x + (phase * s->tiles + t) * lanes, lanes, chain, lanes,
                goes_on(turn));
        carry(chain, sums, size, turn);
    }
    for (long k = 0; k < outputs; k++)
        for (long c = 0; c < lanes; c += W)
            store_taps(dw.at + k * dw.out + c * dw.in, dw.in, load(chain + k * lanes + c),
                       inputs - c);
}

#endif

/* The kernels for one vector unit and one type (REAL, INTEGER, TARGET, VECTOR_BYTES, MOST_SUMS). */
#define LANES ((int64_t)(VECTOR_BYTES / sizeof(REAL)))
#define WIDE_LANES ((int64_t)(VECTOR_BYTES / sizeof(double)))
#define Vector FOR_TARGET(Vector)
#define Wide FOR_TARGET(Wide)
#define Block FOR_TARGET(Block)

typedef REAL Vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef double Wide __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));

/* ---- Sums of outer products ------------------------------------------------------------------
 *
 * out[i][o] (+)= sum over positions of x[i] * g[o] for a few i next to each other and a few vectors
 * of o: as many sums as fit into registers. x steps from position to position of a padded image, so
 * no patch is ever written down.
 */
typedef struct {
    int64_t positions;
    const int64_t *offsets; /* of x, for each position */
    int64_t outputs;        /* the step of g and of out */
    int adds;
} Block;

#define OUTER(name, NUM_OUTPUTS, NUM_INPUTS)                                                   \
    static void FOR_TARGET(name)(const Block *b, const REAL *x_start, const REAL *g, REAL *out) { \
        Vector sums[NUM_INPUTS][NUM_OUTPUTS];                                                  \
        _Pragma("GCC unroll 32") for (int i = 0; i < NUM_INPUTS; i++)                          \
            _Pragma("GCC unroll 4") for (int o = 0; o < NUM_OUTPUTS; o++)                      \
                sums[i][o] = (Vector){0};                                                      \
        for (int64_t t = 0; t < b->positions; t++) {                                           \
            const REAL *x = x_start + b->offsets[t];                                           \
            Vector seen[NUM_OUTPUTS];                                                          \
            _Pragma("GCC unroll 4") for (int o = 0; o < NUM_OUTPUTS; o++)                      \
                seen[o] = *(const Vector *)(g + o * LANES);                                    \
            _Pragma("GCC unroll 32") for (int i = 0; i < NUM_INPUTS; i++)                      \
                _Pragma("GCC unroll 4") for (int o = 0; o < NUM_OUTPUTS; o++)                  \
                    sums[i][o] += seen[o] * x[i];                                              \
            g += b->outputs;                                                                   \
        }                                                                                      \
        _Pragma("GCC unroll 32") for (int i = 0; i < NUM_INPUTS; i++)                          \
            _Pragma("GCC unroll 4") for (int o = 0; o < NUM_OUTPUTS; o++) {                    \
                Vector *place = (Vector *)(out + i * b->outputs + o * LANES);                  \
                if (b->adds) sums[i][o] += *place;                                             \
                *place = sums[i][o];                                                           \
            }                                                                                  \
    }

OUTER(outer_1_1, 1, 1)
OUTER(outer_1_2, 1, 2)
OUTER(outer_1_4, 1, 4)
OUTER(outer_1_6, 1, 6)
OUTER(outer_1_8, 1, 8)
OUTER(outer_1_12, 1, 12)
OUTER(outer_2_1, 2, 1)
OUTER(outer_2_2, 2, 2)
OUTER(outer_2_4, 2, 4)
OUTER(outer_2_6, 2, 6)
#if MOST_SUMS >= 24
OUTER(outer_1_16, 1, 16)
OUTER(outer_2_8, 2, 8)
OUTER(outer_2_12, 2, 12)
OUTER(outer_4_1, 4, 1)
OUTER(outer_4_2, 4, 2)
OUTER(outer_4_4, 4, 4)
OUTER(outer_4_6, 4, 6)
#endif
#undef OUTER

typedef struct {
    int64_t inputs;
    void (*sum)(const Block *, const REAL *, const REAL *, REAL *);
} FOR_TARGET(Way);

#define WAY(vectors, inputs) {inputs, FOR_TARGET(outer_##vectors##_##inputs)}
static const FOR_TARGET(Way) FOR_TARGET(one_vector)[] = {
#if MOST_SUMS >= 24
    WAY(1, 16),
#endif
    WAY(1, 12), WAY(1, 8), WAY(1, 6), WAY(1, 4), WAY(1, 2), WAY(1, 1)};
static const FOR_TARGET(Way) FOR_TARGET(two_vectors)[] = {
#if MOST_SUMS >= 24
    WAY(2, 12), WAY(2, 8),
#endif
    WAY(2, 6), WAY(2, 4), WAY(2, 2), WAY(2, 1)};
#if MOST_SUMS >= 24
static const FOR_TARGET(Way) FOR_TARGET(four_vectors)[] = {
    WAY(4, 6), WAY(4, 4), WAY(4, 2), WAY(4, 1)};
#endif
#undef WAY

/* The way to go on when `left` inputs of a run are left: the largest that divides them evenly if it
 * is not much smaller than the largest that fits. */
static const FOR_TARGET(Way) *FOR_TARGET(way)(const FOR_TARGET(Way) *ways, int64_t left) {
    while (ways->inputs > left) ways++;
    for (const FOR_TARGET(Way) *other = ways; 2 * other->inputs > ways->inputs; other++)
        if (left % other->inputs == 0) return other;
    return ways;
}

/* Adds the outer products of one block of positions of one view into rows [I, O]. */
static void FOR_TARGET(add_positions)(const Shape *s, Block block, const REAL *x, const REAL *g,
                                      REAL *rows) {
    int64_t columns = padded_columns(s), outputs = block.outputs;
    /* Inputs that lie next to each other: a row of the kernel, or a pixel where it is dilated. */
    int is_dense = s->dilation_columns == 1;
    int64_t runs = is_dense ? 1 : s->kernel_columns;
    int64_t length = is_dense ? s->kernel_columns * s->channels : s->channels;
    for (int64_t o = 0; o < outputs;) {
        int64_t left = (outputs - o) / LANES, vectors;
        const FOR_TARGET(Way) *ways;
#if MOST_SUMS >= 24
        if (left >= 4) vectors = 4, ways = FOR_TARGET(four_vectors);
        else
#endif
        if (left >= 2) vectors = 2, ways = FOR_TARGET(two_vectors);
        else vectors = 1, ways = FOR_TARGET(one_vector);
        REAL *out = rows + o;
        for (int64_t row = 0; row < s->kernel_rows; row++)
            for (int64_t run = 0; run < runs; run++) {
                const REAL *seen = x + row * s->dilation_rows * columns * s->channels
                                   + run * s->dilation_columns * s->channels;
                for (int64_t i = 0; i < length;) {
                    const FOR_TARGET(Way) *way = FOR_TARGET(way)(ways, length - i);
                    way->sum(&block, seen + i, g + o, out);
                    out += way->inputs * outputs;
                    i += way->inputs;
                }
            }
        o += vectors * LANES;
    }
}

/* sum[o] += the sum over positions of g; the few positions of a block, so in REAL. */
static void FOR_TARGET(add_rows)(int64_t positions, int64_t outputs, const REAL *g, REAL *sum) {
    for (int64_t o = 0; o < outputs; o += LANES) {
        Vector total = *(const Vector *)(sum + o);
        for (int64_t t = 0; t < positions; t++) total += *(const Vector *)(g + t * outputs + o);
        *(Vector *)(sum + o) = total;
    }
}

/* One view with its border of zeros; the border is written once and stays. */
static void FOR_TARGET(place)(const Shape *s, const REAL *view, REAL *padded) {
    int64_t columns = padded_columns(s);
    for (int64_t row = 0; row < s->height; row++)
        memcpy(padded + ((row + s->pad_rows) * columns + s->pad_columns) * s->channels,
               view + row * s->width * s->channels, sizeof(REAL) * s->width * s->channels);
}

#define Narrow FOR_TARGET(Narrow)
typedef REAL Narrow __attribute__((vector_size(VECTOR_BYTES / sizeof(double) * sizeof(REAL)),
                                   aligned(sizeof(REAL)), may_alias));

static double FOR_TARGET(squares)(const REAL *x, int64_t size) {
    Wide sums[4] = {{0}, {0}, {0}, {0}};
    int64_t k = 0;
    for (; k + 4 * WIDE_LANES <= size; k += 4 * WIDE_LANES)
        _Pragma("GCC unroll 4") for (int part = 0; part < 4; part++) {
            Wide value = __builtin_convertvector(*(const Narrow *)(x + k + part * WIDE_LANES), Wide);
            sums[part] += value * value;
        }
    for (; k + WIDE_LANES <= size; k += WIDE_LANES) {
        Wide value = __builtin_convertvector(*(const Narrow *)(x + k), Wide);
        sums[0] += value * value;
    }
    Wide sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    double total = 0;
    for (int lane = 0; lane < WIDE_LANES; lane++) total += sum[lane];
    for (; k < size; k++) total += (double)x[k] * x[k];
    return total;
}
#undef Narrow

static int FOR_TARGET(squared_norms)(int64_t rows, int64_t size, const REAL *x, double *squared) {
    for (int64_t row = 0; row < rows; row++) squared[row] = FOR_TARGET(squares)(x + row * size, size);
    return 0;
}

/* Of g x' for each pair of rows; the ones stand beside x, for a bias. */
static int FOR_TARGET(outer_norms)(int64_t rows, int64_t inputs, int64_t outputs, int64_t ones,
                                   const REAL *x, const REAL *g, double *squared) {
    for (int64_t row = 0; row < rows; row++)
        squared[row] = (FOR_TARGET(squares)(x + row * inputs, inputs) + (double)ones)
                       * FOR_TARGET(squares)(g + row * outputs, outputs);
    return 0;
}

/* From the gradient of a standardised weight u = r (w - mean w) to that of w, for each output:
 * factor * (G - mean G - u (G u)), the last part where the rate r follows the weight. Subtracting
 * before anything is summed or squared keeps every digit. */
static void FOR_TARGET(project)(const Standardised *s, int64_t inputs, int64_t outputs, REAL *rows,
                                REAL *along, REAL *mean) {
    const REAL *unit = s->unit, *factor = s->factor, *is_free = s->is_free;
    memset(mean, 0, sizeof(REAL) * outputs), memset(along, 0, sizeof(REAL) * outputs);
    for (int64_t i = 0; i < inputs; i++)
        for (int64_t o = 0; o < outputs; o += LANES) {
            Vector value = *(const Vector *)(rows + i * outputs + o);
            *(Vector *)(mean + o) += value;
            *(Vector *)(along + o) += value * *(const Vector *)(unit + i * outputs + o);
        }
    for (int64_t o = 0; o < outputs; o += LANES) *(Vector *)(mean + o) /= (REAL)inputs;
    for (int64_t i = 0; i < inputs; i++)
        for (int64_t o = 0; o < outputs; o += LANES) {
            Vector *place = (Vector *)(rows + i * outputs + o);
            Vector taken = *(const Vector *)(along + o) * *(const Vector *)(is_free + o);
            Vector left = *place - *(const Vector *)(mean + o) - taken * *(const Vector *)(unit + i * outputs + o);
            *place = left * *(const Vector *)(factor + o);
        }
}

/* ---- Examples, read as they lie ----------------------------------------------------------------- */
/* A half float has 5 bits of exponent and 10 of mantissa; a small one is a whole number of 2^-24. */
#define WIDTH ((int64_t)(VECTOR_BYTES / sizeof(float)))
#define Halves FOR_TARGET(Halves)
#define Bits FOR_TARGET(Bits)
#define Floats FOR_TARGET(Floats)
typedef uint16_t Halves __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));
typedef int32_t Bits __attribute__((vector_size(VECTOR_BYTES)));
typedef float Floats __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

static inline void FOR_TARGET(widen_halves)(const uint16_t *x, float *out) {
    Bits bits = __builtin_convertvector(*(const Halves *)x, Bits), size = bits & 0x7fff;
    Bits is_small = (Bits)(size < (Bits){0} + 0x400);
    Bits is_special = (Bits)(size >= (Bits){0} + 0x7c00); /* infinite, or not a number */
    Bits small = (Bits)(__builtin_convertvector(size, Floats) * 0x1p-24f);
    Bits whole = (size << 13) + 0x38000000 + (is_special & 0x38000000);
    *(Floats *)out = (Floats)((small & is_small) | (whole & ~is_small) | ((bits & 0x8000) << 16));
}

static void FOR_TARGET(from_halves)(int64_t size, const uint16_t *x, REAL *out) {
    float wide[WIDTH];
    for (int64_t k = 0; k < size; k += WIDTH) {
        int64_t left = size - k < WIDTH ? size - k : WIDTH;
        uint16_t rest[WIDTH] = {0};
        if (left < WIDTH) memcpy(rest, x + k, sizeof(uint16_t) * left);
        FOR_TARGET(widen_halves)(left < WIDTH ? rest : x + k, wide);
        if (left == WIDTH) for (int64_t lane = 0; lane < WIDTH; lane++) out[k + lane] = (REAL)wide[lane];
        else for (int64_t lane = 0; lane < left; lane++) out[k + lane] = (REAL)wide[lane];
    }
}
#undef WIDTH
#undef Halves
#undef Bits
#undef Floats

/* In [-1, 1], as tan_core.engine.inputs has it. */
static void FOR_TARGET(from_pixels)(int64_t size, const uint8_t *x, REAL *out) {
    for (int64_t k = 0; k < size; k++) out[k] = (REAL)x[k] * (REAL)(1 / 127.5) - 1;
}

static REAL FOR_TARGET(summed)(int64_t size, const REAL *x) {
    Vector sums = {0};
    int64_t k = 0;
    for (; k + LANES <= size; k += LANES) sums += *(const Vector *)(x + k);
    REAL total = 0;
    for (int64_t lane = 0; lane < LANES; lane++) total += sums[lane];
    for (; k < size; k++) total += x[k];
    return total;
}

/* To mean 0 and variance 1; the squares are of what is left without the mean. */
static void FOR_TARGET(normalise)(int64_t size, double epsilon, REAL *x) {
    REAL mean = FOR_TARGET(summed)(size, x) / (REAL)size;
    for (int64_t k = 0; k < size; k++) x[k] -= mean;
    REAL rate = (REAL)(1 / sqrt(FOR_TARGET(squares)(x, size) / (double)size + epsilon));
    for (int64_t k = 0; k < size; k++) x[k] *= rate;
}

/* One example: where it lies if the kernel can read it there, else what is made of it in `room`. */
static const REAL *FOR_TARGET(example)(const Examples *all, int64_t number, int64_t size, REAL *room) {
    int64_t first = (all->rows ? all->rows[number] : number) * size;
    if (all->kind == HALF_FLOATS) FOR_TARGET(from_halves)(size, (const uint16_t *)all->values + first, room);
    else if (all->kind == PIXELS) FOR_TARGET(from_pixels)(size, (const uint8_t *)all->values + first, room);
    else if (all->groups == 0) return (const REAL *)all->values + first;
    else memcpy(room, (const REAL *)all->values + first, sizeof(REAL) * size);
    for (int64_t group = 0; group < all->groups; group++)
        FOR_TARGET(normalise)(size / all->groups, all->epsilon, room + group * (size / all->groups));
    return room;
}

/* ---- Linear layers of few outputs -------------------------------------------------------------
 *
 * y = x w' + bias, and the squared norm of each row of x while it is in the cache: with few outputs the
 * time is that of reading x, so it is read once.
 */
#define AT_ONCE (MOST_SUMS >= 24 ? 5 : 3)

static void FOR_TARGET(dots)(const REAL *const *x, const REAL *const *w, int64_t size, REAL *out) {
    Vector sums[AT_ONCE][AT_ONCE];
    _Pragma("GCC unroll 8") for (int i = 0; i < AT_ONCE; i++)
        _Pragma("GCC unroll 8") for (int o = 0; o < AT_ONCE; o++) sums[i][o] = (Vector){0};
    int64_t k = 0;
    for (; k + LANES <= size; k += LANES) {
        Vector of_x[AT_ONCE];
        _Pragma("GCC unroll 8") for (int i = 0; i < AT_ONCE; i++) of_x[i] = *(const Vector *)(x[i] + k);
        _Pragma("GCC unroll 8") for (int o = 0; o < AT_ONCE; o++) {
            Vector of_w = *(const Vector *)(w[o] + k);
            _Pragma("GCC unroll 8") for (int i = 0; i < AT_ONCE; i++) sums[i][o] += of_x[i] * of_w;
        }
    }
    for (int i = 0; i < AT_ONCE; i++)
        for (int o = 0; o < AT_ONCE; o++) {
            REAL total = 0;
            for (int64_t lane = 0; lane < LANES; lane++) total += sums[i][o][lane];
            for (int64_t rest = k; rest < size; rest++) total += x[i][rest] * w[o][rest];
            out[AT_ONCE * i + o] = total;
        }
}

static void FOR_TARGET(scores)(int64_t rows, int64_t inputs, int64_t outputs, const REAL *const *x,
                               const REAL *w, const REAL *bias, REAL *y, double *squared) {
    REAL block[AT_ONCE * AT_ONCE];
    for (int64_t row = 0; row < rows; row += AT_ONCE) {
        const REAL *of_x[AT_ONCE], *of_w[AT_ONCE];
        for (int64_t i = 0; i < AT_ONCE; i++) {
            of_x[i] = x[row + i < rows ? row + i : rows - 1];
            if (row + i < rows) squared[row + i] = FOR_TARGET(squares)(of_x[i], inputs);
        }
        for (int64_t first = 0; first < outputs; first += AT_ONCE) {
            for (int64_t o = 0; o < AT_ONCE; o++)
                of_w[o] = w + (first + o < outputs ? first + o : outputs - 1) * inputs;
            FOR_TARGET(dots)(of_x, of_w, inputs, block);
            for (int64_t i = 0; i < AT_ONCE && row + i < rows; i++)
                for (int64_t o = 0; o < AT_ONCE && first + o < outputs; o++)
                    y[(row + i) * outputs + first + o] = block[AT_ONCE * i + o] + (bias ? bias[first + o] : 0);
        }
    }
}

static int FOR_TARGET(linear)(int64_t rows, int64_t inputs, int64_t outputs, const Examples *x,
                              const REAL *w, const REAL *bias, REAL *y, double *squared) {
    REAL *room = malloc(sizeof(REAL) * AT_ONCE * inputs);
    if (!room) return 1;
    for (int64_t row = 0; row < rows; row += AT_ONCE) {
        int64_t size = rows - row < AT_ONCE ? rows - row : AT_ONCE;
        const REAL *read[AT_ONCE];
        for (int64_t i = 0; i < size; i++)
            read[i] = FOR_TARGET(example)(x, row + i, inputs, room + i * inputs);
        FOR_TARGET(scores)(size, inputs, outputs, read, w, bias, y + row * outputs, squared + row);
    }
    free(room);
    return 0;
}

/* ---- The clipped sum of a linear classifier ----------------------------------------------------
 *
 * The gradient of an example is g (x, 1)' with g = softmax(y) - one-hot, and its norm is known as soon as
 * y is: a block of examples is weighted and summed while it is in the cache, so x, which autograd reads
 * from memory there and back, is read once.
 */
#define BLOCK 32
#define ACROSS (MOST_SUMS >= 24 ? 4 : 2) /* vectors of columns at once */

/* sum[o][k] += scales[r][o] x[r][k] over the rows, of some outputs, in as many columns as are whole vectors: so many. Rows
 * of the scales are `outputs` apart, those of the sum `step`. */
#define ADD_SCALED(name, SUMMED)                                                                       \
    static int64_t FOR_TARGET(name)(int64_t rows, const REAL *const *x, const REAL *scales,            \
                                    int64_t inputs, int64_t outputs, REAL *sum, int64_t step) {        \
        int64_t k = 0;                                                                                 \
        for (; k + ACROSS * LANES <= inputs; k += ACROSS * LANES) {                                    \
            Vector sums[SUMMED][ACROSS];                                                               \
            _Pragma("GCC unroll 8") for (int o = 0; o < SUMMED; o++)                                   \
                _Pragma("GCC unroll 8") for (int part = 0; part < ACROSS; part++)                      \
                    sums[o][part] = *(const Vector *)(sum + o * step + k + part * LANES);              \
            for (int64_t r = 0; r < rows; r++) {                                                       \
                const REAL *scale = scales + r * outputs;                                              \
                Vector seen[ACROSS];                                                                   \
                _Pragma("GCC unroll 8") for (int part = 0; part < ACROSS; part++)                      \
                    seen[part] = *(const Vector *)(x[r] + k + part * LANES);                           \
                _Pragma("GCC unroll 8") for (int o = 0; o < SUMMED; o++)                               \
                    _Pragma("GCC unroll 8") for (int part = 0; part < ACROSS; part++)                  \
                        sums[o][part] += seen[part] * scale[o];                                        \
            }                                                                                          \
            _Pragma("GCC unroll 8") for (int o = 0; o < SUMMED; o++)                                   \
                _Pragma("GCC unroll 8") for (int part = 0; part < ACROSS; part++)                      \
                    *(Vector *)(sum + o * step + k + part * LANES) = sums[o][part];                    \
        }                                                                                              \
        return k;                                                                                      \
    }

ADD_SCALED(add_scaled_3, 3)
ADD_SCALED(add_scaled_5, 5)
ADD_SCALED(add_scaled_6, 6)
#undef ADD_SCALED

/* The same of all outputs and columns: what is left of them one at a time, and nothing of a number of outputs that is
 * divided by three or by five. */
static void FOR_TARGET(add_scaled)(int64_t rows, const REAL *const *x, const REAL *scales, int64_t inputs,
                                   int64_t outputs, REAL *sum, int64_t step) {
    for (int64_t first = 0, count; first < outputs; first += count, scales += count, sum += count * step) {
        int64_t left = outputs - first, k = 0;
        count = left % 5 == 0 ? 5 : left >= 6 ? 6 : left >= 3 ? 3 : left;
        if (count == 6) k = FOR_TARGET(add_scaled_6)(rows, x, scales, inputs, outputs, sum, step);
        else if (count == 5) k = FOR_TARGET(add_scaled_5)(rows, x, scales, inputs, outputs, sum, step);
        else if (count == 3) k = FOR_TARGET(add_scaled_3)(rows, x, scales, inputs, outputs, sum, step);
        for (int64_t o = 0; o < count; o++)
            for (int64_t r = 0; r < rows; r++)
                for (int64_t rest = k; rest < inputs; rest++)
                    sum[o * step + rest] += scales[r * outputs + o] * x[r][rest];
    }
}

/* The loss, and its gradient in the place of the scores. */
static REAL FOR_TARGET(cross_entropy)(REAL *scores, int64_t outputs, int64_t label) {
    REAL highest = scores[0], own = scores[label], total = 0;
    for (int64_t o = 1; o < outputs; o++) highest = scores[o] > highest ? scores[o] : highest;
    for (int64_t o = 0; o < outputs; o++) total += scores[o] = EXP(scores[o] - highest);
    for (int64_t o = 0; o < outputs; o++) scores[o] /= total;
    scores[label] -= 1;
    return LOG(total) - (own - highest);
}

/* Of each row; 1 where a label is none. */
static int FOR_TARGET(cross_entropies)(int64_t rows, int64_t outputs, const REAL *y, const int64_t *labels,
                                       REAL *losses, REAL *g) {
    memcpy(g, y, sizeof(REAL) * rows * outputs);
    for (int64_t row = 0; row < rows; row++) {
        if (labels[row] < 0 || labels[row] >= outputs) return 1;
        losses[row] = FOR_TARGET(cross_entropy)(g + row * outputs, outputs, labels[row]);
    }
    return 0;
}

/* Adds the clipped gradients to the sums of the weight, [O, I], and of the bias, [O]. An example whose
 * norm or loss is not finite adds nothing. */
static int FOR_TARGET(linear_classifier)(int64_t rows, int64_t inputs, int64_t outputs, double clip_norm,
                                         const Examples *x, const int64_t *labels, const REAL *w,
                                         const REAL *bias, REAL *weight_sum, REAL *bias_sum,
                                         double *norms, REAL *losses) {
    REAL *g = malloc(sizeof(REAL) * BLOCK * outputs), *scales = malloc(sizeof(REAL) * BLOCK * outputs);
    REAL *room = malloc(sizeof(REAL) * BLOCK * inputs);
    if (!g || !scales || !room) return free(g), free(scales), free(room), 1;
    for (int64_t start = 0; start < rows; start += BLOCK) {
        const REAL *read[BLOCK], *seen[BLOCK];
        int64_t size = rows - start < BLOCK ? rows - start : BLOCK, kept = 0;
        for (int64_t row = 0; row < size; row++)
            read[row] = FOR_TARGET(example)(x, start + row, inputs, room + row * inputs);
        FOR_TARGET(scores)(size, inputs, outputs, read, w, bias, g, norms + start);
        for (int64_t row = 0; row < size; row++) {
            REAL *own = g + row * outputs, *scale = scales + kept * outputs;
            REAL loss = losses[start + row] = FOR_TARGET(cross_entropy)(own, outputs, labels[start + row]);
            double squared = FOR_TARGET(squares)(own, outputs);
            double norm = sqrt((norms[start + row] + (bias != NULL)) * squared);
            norms[start + row] = norm;
            if (!isfinite((REAL)norm) || !isfinite(loss)) continue;
            REAL weight = norm > clip_norm ? (REAL)(clip_norm / norm) : 1;
            /* A weight below the normal numbers has lost digits, and with them the bound, as have the tiny products
             * that huge inputs are multiplied with: nothing. */
            if (weight < SMALLEST || weight * sqrt(squared) < SMALLEST) weight = 0;
            for (int64_t o = 0; o < outputs; o++) scale[o] = weight * own[o];
            for (int64_t o = 0; bias && o < outputs; o++) bias_sum[o] += scale[o];
            seen[kept++] = read[row];
        }
        FOR_TARGET(add_scaled)(kept, seen, scales, inputs, outputs, weight_sum, inputs);
    }
    free(g), free(scales), free(room);
    return 0;
}
/* ---- Many linear classifiers on the same examples ------------------------------------------------
 *
 * Two products of a few examples, [B, F], and many outputs: both go as fast as the processor multiplies, for
 * what they read over and over stays near it: a part of the weights there, some columns of x back. Examples
 * are read where they lie among all records, the next ones while those before are multiplied.
 */
#define LINE ((int64_t)(64 / sizeof(REAL)))
static inline const REAL *FOR_TARGET(picked)(const REAL *x, const int64_t *which, int64_t row, int64_t inputs) {
    return x + (which ? which[row] : row) * inputs;
}

#define PART 512
#define READ (4 * LINE)
#define COLUMNS 128
#define ROWS 64
#define MOST 5 /* vectors of outputs, and rows, at once */

#define SCORE(name, NUM_VECTORS)                                                               \
    static void FOR_TARGET(name)(int64_t size, const REAL *const *x, const REAL *w,            \
                                 REAL *const *y) {                                             \
        Vector sums[MOST][NUM_VECTORS];                                                        \
        _Pragma("GCC unroll 8") for (int i = 0; i < MOST; i++)                                 \
            _Pragma("GCC unroll 8") for (int o = 0; o < NUM_VECTORS; o++)                      \
                sums[i][o] = (Vector){0};                                                      \
        for (int64_t k = 0; k < size; k++, w += NUM_VECTORS * LANES) {                         \
            Vector seen[NUM_VECTORS];                                                          \
            _Pragma("GCC unroll 8") for (int o = 0; o < NUM_VECTORS; o++)                      \
                seen[o] = *(const Vector *)(w + o * LANES);                                    \
            _Pragma("GCC unroll 8") for (int i = 0; i < MOST; i++)                             \
                _Pragma("GCC unroll 8") for (int o = 0; o < NUM_VECTORS; o++)                  \
                    sums[i][o] += seen[o] * x[i][k];                                           \
        }                                                                                      \
        _Pragma("GCC unroll 8") for (int i = 0; i < MOST; i++)                                 \
            _Pragma("GCC unroll 8") for (int o = 0; o < NUM_VECTORS; o++)                      \
                *(Vector *)(y[i] + o * LANES) += sums[i][o];                                   \
    }

SCORE(score_1, 1)
SCORE(score_2, 2)
#if MOST_SUMS >= 24
SCORE(score_3, 3)
SCORE(score_4, 4)
SCORE(score_5, 5)
#define WIDEST 5
#else
#define WIDEST 2
#endif
#undef SCORE

/* How many outputs are scored at once, of so many that are left: as even as can be, as few vectors wait for each other. */
static inline int64_t FOR_TARGET(scored_at_once)(int64_t left) {
    int64_t vectors = left / LANES, blocks = (vectors + WIDEST - 1) / WIDEST;
    return (vectors + blocks - 1) / blocks * LANES;
}

/* The weights as ensemble_scores reads them, some of the F rows: of [T, D + 1, F] those of the first D of each trial less
 * those of its last, and zeros up to N outputs; as many of these as are scored at once lie together, [., F, .]. */
static int FOR_TARGET(ensemble_weights)(int64_t first, int64_t rows, int64_t inputs, int64_t trials,
                                        int64_t differences, int64_t outputs, const REAL *w, REAL *packed) {
    for (int64_t o = 0, width; o < outputs; o += width, packed += width * inputs) {
        width = FOR_TARGET(scored_at_once)(outputs - o);
        for (int64_t start = first; start < first + rows; start += READ) {
            int64_t size = first + rows - start < READ ? first + rows - start : READ;
            for (int64_t i = 0; i < width; i++) {
                REAL *place = packed + start * width + i;
                int64_t trial = (o + i) / differences;
                const REAL *own = w + (o + i + trial) * inputs + start;
                const REAL *last = w + (trial * (differences + 1) + differences) * inputs + start;
                for (int64_t k = 0; k < size; k++) place[k * width] = trial < trials ? own[k] - last[k] : 0;
            }
        }
    }
    return 0;
}

/* y += x w, of some rows of x or, where which is NULL, the first ones; w is of ensemble_weights. */
static int FOR_TARGET(ensemble_scores)(int64_t rows, int64_t inputs, int64_t outputs, const REAL *x,
                                       const int64_t *which, const REAL *w, REAL *y) {
    REAL *nothing = calloc(outputs, sizeof(REAL));
    for (int64_t start = 0; start < inputs && nothing; start += PART) {
        int64_t size = inputs - start < PART ? inputs - start : PART;
        for (int64_t row = 0; row < rows; row += MOST) {
            const REAL *of_x[MOST];
            for (int64_t i = 0; i < MOST; i++)
                of_x[i] = FOR_TARGET(picked)(x, which, row + i < rows ? row + i : row, inputs) + start;
            for (int64_t next = row + MOST; next < row + 2 * MOST && next < rows; next++) {
                const REAL *of_next = FOR_TARGET(picked)(x, which, next, inputs) + start;
                for (int64_t k = 0; k < size; k += LINE) __builtin_prefetch(of_next + k, 0, 2);
            }
            for (int64_t o = 0; o < outputs;) {
                int64_t width = FOR_TARGET(scored_at_once)(outputs - o);
                REAL *of_y[MOST];
                for (int64_t i = 0; i < MOST; i++)
                    of_y[i] = (row + i < rows ? y + (row + i) * outputs : nothing) + o;
                const REAL *of_w = w + o * inputs + start * width;
                switch (width / LANES) {
#if MOST_SUMS >= 24
                case 5: FOR_TARGET(score_5)(size, of_x, of_w, of_y); break;
                case 4: FOR_TARGET(score_4)(size, of_x, of_w, of_y); break;
                case 3: FOR_TARGET(score_3)(size, of_x, of_w, of_y); break;
#endif
                case 2: FOR_TARGET(score_2)(size, of_x, of_w, of_y); break;
                default: FOR_TARGET(score_1)(size, of_x, of_w, of_y);
                }
                o += width;
            }
        }
    }
    free(nothing);
    return !nothing;
}

/* Losses, [B, T], the gradients of each by its own logits y + bias, [B, T * D], and the squared norms of all of its
 * gradients, [B, T]. The logits are D, those of all classes but the last, less that of the last, which therefore is 0; its
 * gradient is minus the sum of the others. Rows of y are `step` apart. */
static int FOR_TARGET(ensemble_gradients)(int64_t rows, int64_t trials, int64_t differences, int64_t step,
                                          const REAL *y, const REAL *bias, const int64_t *labels, REAL *g,
                                          REAL *losses, double *squared) {
    int64_t outputs = trials * differences;
    REAL *lasts = malloc(sizeof(REAL) * trials);
    for (int64_t row = 0; row < rows && lasts; row++, y += step, g += outputs) {
        int64_t label = labels[row], is_last = label == differences;
        for (int64_t o = 0; o < outputs; o++) g[o] = y[o] + bias[o];
        for (int64_t trial = 0; trial < trials; trial++) {
            REAL *own = g + trial * differences, highest = 0;
            for (int64_t o = 0; o < differences; o++) highest = own[o] > highest ? own[o] : highest;
            for (int64_t o = 0; o < differences; o++) own[o] -= highest;
            lasts[trial] = -highest;
            losses[row * trials + trial] = is_last ? highest : -own[label];
        }
        FOR_TARGET(exponentials)(outputs, g);
        FOR_TARGET(exponentials)(trials, lasts);
        for (int64_t trial = 0; trial < trials; trial++) {
            REAL *own = g + trial * differences, total = lasts[trial];
            for (int64_t o = 0; o < differences; o++) total += own[o];
            REAL factor = 1 / total, last = lasts[trial] * factor;
            for (int64_t o = 0; o < differences; o++) own[o] *= factor;
            if (is_last) last -= 1;
            else own[label] -= 1;
            losses[row * trials + trial] += LOG(total);
            squared[row * trials + trial] = FOR_TARGET(squares)(own, differences) + (double)last * last;
        }
    }
    free(lasts);
    return !lasts;
}

/* Adds g' x to sum, [T * (D + 1), F], in some of its columns; g is [B, T * D], x as in ensemble_scores, and the last of
 * each D + 1 rows is less the sum of the others. Sums are made side by side: where rows of the sum are a power of two
 * apart, a cache has room for few of them. */
static int FOR_TARGET(ensemble_sums)(int64_t columns, int64_t rows, int64_t inputs, int64_t trials,
                                     int64_t differences, const REAL *x, const int64_t *which, const REAL *g,
                                     REAL *sum) {
    int64_t outputs = trials * differences;
    REAL near[ROWS * COLUMNS], *sums = malloc(sizeof(REAL) * outputs * COLUMNS);
    const REAL *of_row[ROWS];
    for (int64_t row = 0; row < ROWS; row++) of_row[row] = near + row * COLUMNS;
    for (int64_t k = 0; k < columns && sums; k += COLUMNS) {
        int64_t size = columns - k < COLUMNS ? columns - k : COLUMNS;
        memset(sums, 0, sizeof(REAL) * outputs * COLUMNS);
        for (int64_t start = 0; start < rows; start += ROWS) {
            int64_t count = rows - start < ROWS ? rows - start : ROWS;
            for (int64_t row = 0; row < count; row++) {
                memcpy(near + row * COLUMNS, FOR_TARGET(picked)(x, which, start + row, inputs) + k,
                       sizeof(REAL) * size);
                /* What is read next: as many rows further on, or their next columns. */
                int64_t next = start + ROWS + row, on = next < rows ? 0 : COLUMNS;
                const REAL *from = FOR_TARGET(picked)(x, which, next < rows ? next : row, inputs) + k;
                for (int64_t i = on; i < on + COLUMNS && k + i < columns; i += LINE)
                    __builtin_prefetch(from + i, 0, 2);
            }
            FOR_TARGET(add_scaled)(count, of_row, g + start * outputs, size, outputs, sums, COLUMNS);
        }
        const REAL *own = sums;
        for (int64_t trial = 0; trial < trials; trial++) {
            REAL last[COLUMNS] = {0}, *place = sum + trial * (differences + 1) * inputs + k;
            for (int64_t o = 0; o < differences; o++, own += COLUMNS, place += inputs)
                for (int64_t i = 0; i < size; i++) place[i] += own[i], last[i] -= own[i];
            for (int64_t i = 0; i < size; i++) place[i] += last[i];
        }
    }
    free(sums);
    return !sums;
}
#undef WIDEST
#undef LINE
#undef PART
#undef READ
#undef COLUMNS
#undef ROWS
#undef MOST

#undef BLOCK
#undef ACROSS
#undef AT_ONCE

/* Gradients of each example, rows of O rounded up: I of the weight, then one of the bias and one of
 * the gain where there are such, and the squared norm of them all. Where the weight is a standardised
 * one, its gradient is that of the weight before. */
static int FOR_TARGET(weight_rows)(const Shape *s, int64_t examples, const REAL *x, const REAL *g,
                                   const Standardised *standardised, int64_t has_bias,
                                   int64_t has_gain, REAL *rows, double *squared) {
    int64_t height = padded_rows(s), width = padded_columns(s);
    int64_t inputs = s->kernel_rows * s->kernel_columns * s->channels;
    int64_t outputs = rounded_up(s->outputs, OUTPUTS_MULTIPLE);
    int64_t positions = s->rows * s->columns;
    int is_padded = height > s->height || width > s->width, is_whole = outputs == s->outputs;
    REAL *padded = calloc(is_padded ? height * width * s->channels : 1, sizeof(REAL));
    REAL *whole = calloc(is_whole ? 1 : positions * outputs, sizeof(REAL));
    int64_t *offsets = malloc(sizeof(int64_t) * positions);
    REAL *mean = malloc(sizeof(REAL) * 2 * outputs);
    int failed = !padded || !whole || !offsets || !mean;
    int64_t size = (inputs + has_bias + has_gain) * outputs;
    for (int64_t t = 0; t < positions && !failed; t++)
        offsets[t] = (t / s->columns * s->stride_rows * width + t % s->columns * s->stride_columns)
                     * s->channels;
    /* So many positions at once that their output gradients stay in the nearest cache. */
    int64_t at_once = larger(16, 16384 / (int64_t)sizeof(REAL) / (outputs < 64 ? outputs : 64));
    for (int64_t example = 0; example < examples && !failed; example++) {
        REAL *own = rows + example * size, *shift = own + inputs * outputs;
        REAL *along = has_gain ? shift + has_bias * outputs : mean + outputs;
        if (has_bias) memset(shift, 0, sizeof(REAL) * outputs);
        for (int64_t view = 0; view < s->views; view++) {
            const REAL *image = x + (example * s->views + view) * s->height * s->width * s->channels;
            const REAL *gradient = g + (example * s->views + view) * positions * s->outputs;
            if (is_padded) FOR_TARGET(place)(s, image, padded), image = padded;
            if (!is_whole) {
                for (int64_t t = 0; t < positions; t++)
                    memcpy(whole + t * outputs, gradient + t * s->outputs, sizeof(REAL) * s->outputs);
                gradient = whole;
            }
            for (int64_t t = 0; t < positions; t += at_once) {
                Block block = {
                    .positions = t + at_once > positions ? positions - t : at_once,
                    .offsets = offsets + t,
                    .outputs = outputs,
                    .adds = view > 0 || t > 0,
                };
                const REAL *part = gradient + t * outputs;
                if (has_bias) FOR_TARGET(add_rows)(block.positions, outputs, part, shift);
                FOR_TARGET(add_positions)(s, block, image, part, own);
            }
        }
        if (standardised)
            FOR_TARGET(project)(standardised, inputs, outputs, own, along, mean);
        squared[example] = FOR_TARGET(squares)(own, size);
    }
    free(padded), free(whole), free(offsets), free(mean);
    return failed;
}

/* ---- Convolutions of few channels ---------------------------------------------------------------
 *
 * A kernel sees runs of numbers that lie next to each other in a padded image: its rows, or its pixels
 * where it is dilated. A few positions and a few vectors are summed at once, in registers. What others do
 * for large layers, blocks and changes of layout, takes longer than these sums.
 */
#define AT_ONCE (MOST_SUMS >= 24 ? 8 : 4)

typedef struct {
    int64_t height, width;         /* of the padded image */
    int64_t runs, length, outputs; /* of the kernel */
    int64_t *of_run, *of_position; /* where they begin in the image */
} FOR_TARGET(Window);

static int FOR_TARGET(look)(const Shape *s, FOR_TARGET(Window) *k) {
    int is_dense = s->dilation_columns == 1;
    int64_t across = is_dense ? 1 : s->kernel_columns, positions = s->rows * s->columns;
    k->height = padded_rows(s), k->width = padded_columns(s), k->outputs = s->outputs;
    k->runs = s->kernel_rows * across;
    k->length = is_dense ? s->kernel_columns * s->channels : s->channels;
    k->of_run = malloc(sizeof(int64_t) * (k->runs + positions));
    if (!k->of_run) return 1;
    k->of_position = k->of_run + k->runs;
    for (int64_t run = 0; run < k->runs; run++)
        k->of_run[run] = (run / across * s->dilation_rows * k->width
                          + run % across * s->dilation_columns) * s->channels;
    for (int64_t t = 0; t < positions; t++)
        k->of_position[t] = (t / s->columns * s->stride_rows * k->width
                             + t % s->columns * s->stride_columns) * s->channels;
    return 0;
}

/* Outputs of some positions: NUM_VECTORS vectors of them. w is [I, O]. */
#define CONVOLVE(name, NUM_POSITIONS, NUM_VECTORS)                                             \
    static void FOR_TARGET(name)(const FOR_TARGET(Window) *k, const REAL *image,               \
                                 const int64_t *of_position, const REAL *w, const REAL *bias,  \
                                 REAL *y) {                                                    \
        Vector sums[NUM_POSITIONS][NUM_VECTORS];                                               \
        _Pragma("GCC unroll 4") for (int o = 0; o < NUM_VECTORS; o++) {                        \
            Vector first = {0};                                                                \
            if (bias) first = *(const Vector *)(bias + o * LANES);                             \
            _Pragma("GCC unroll 8") for (int t = 0; t < NUM_POSITIONS; t++) sums[t][o] = first; \
        }                                                                                      \
        for (int64_t run = 0; run < k->runs; run++) {                                          \
            const REAL *x[NUM_POSITIONS];                                                      \
            _Pragma("GCC unroll 8") for (int t = 0; t < NUM_POSITIONS; t++)                    \
                x[t] = image + of_position[t] + k->of_run[run];                                \
            for (int64_t i = 0; i < k->length; i++, w += k->outputs) {                         \
                Vector seen[NUM_VECTORS];                                                      \
                _Pragma("GCC unroll 4") for (int o = 0; o < NUM_VECTORS; o++)                  \
                    seen[o] = *(const Vector *)(w + o * LANES);                                \
                _Pragma("GCC unroll 8") for (int t = 0; t < NUM_POSITIONS; t++)                \
                    _Pragma("GCC unroll 4") for (int o = 0; o < NUM_VECTORS; o++)              \
                        sums[t][o] += seen[o] * x[t][i];                                       \
            }                                                                                  \
        }                                                                                      \
        _Pragma("GCC unroll 8") for (int t = 0; t < NUM_POSITIONS; t++)                        \
            _Pragma("GCC unroll 4") for (int o = 0; o < NUM_VECTORS; o++)                      \
                *(Vector *)(y + t * k->outputs + o * LANES) = sums[t][o];                      \
    }

CONVOLVE(convolve_1_1, 1, 1)
CONVOLVE(convolve_1_2, 1, 2)
CONVOLVE(convolve_all_1, AT_ONCE, 1)
CONVOLVE(convolve_all_2, AT_ONCE, 2)
#undef CONVOLVE

/* Of weights [I, O] in channels-last order; O is a whole number of vectors. */
static int FOR_TARGET(convolution)(const Shape *s, int64_t images, const REAL *x, const REAL *w,
                                   const REAL *bias, REAL *y) {
    FOR_TARGET(Window) k;
    if (FOR_TARGET(look)(s, &k)) return 1;
    int64_t positions = s->rows * s->columns;
    int is_padded = k.height > s->height || k.width > s->width;
    REAL *padded = calloc(is_padded ? k.height * k.width * s->channels : 1, sizeof(REAL));
    for (int64_t image = 0; image < images && padded; image++) {
        const REAL *own = x + image * s->height * s->width * s->channels;
        REAL *out = y + image * positions * k.outputs;
        if (is_padded) FOR_TARGET(place)(s, own, padded), own = padded;
        for (int64_t o = 0; o < k.outputs;) {
            int is_pair = o + 2 * LANES <= k.outputs;
            const REAL *of_bias = bias ? bias + o : NULL;
            for (int64_t t = 0; t < positions;) {
                int are_all = t + AT_ONCE <= positions;
                (is_pair ? are_all ? FOR_TARGET(convolve_all_2) : FOR_TARGET(convolve_1_2)
                 : are_all ? FOR_TARGET(convolve_all_1)
                           : FOR_TARGET(convolve_1_1))(&k, own, k.of_position + t, w + o, of_bias,
                                                       out + t * k.outputs + o);
                t += are_all ? AT_ONCE : 1;
            }
            o += (is_pair ? 2 : 1) * LANES;
        }
    }
    free(k.of_run), free(padded);
    return !padded;
}

/* Adds to a run of the image what the outputs of some positions weigh there. w is [O, I]. */
#define SPREAD(name, NUM_POSITIONS, NUM_VECTORS)                                               \
    static void FOR_TARGET(name)(int64_t outputs, int64_t inputs, const REAL *g, const REAL *w, \
                                 REAL *image, const int64_t *of_position) {                    \
        Vector sums[NUM_POSITIONS][NUM_VECTORS];                                               \
        _Pragma("GCC unroll 4") for (int t = 0; t < NUM_POSITIONS; t++)                        \
            _Pragma("GCC unroll 4") for (int i = 0; i < NUM_VECTORS; i++) sums[t][i] = (Vector){0}; \
        for (int64_t o = 0; o < outputs; o++, w += inputs) {                                   \
            Vector seen[NUM_VECTORS];                                                          \
            _Pragma("GCC unroll 4") for (int i = 0; i < NUM_VECTORS; i++)                      \
                seen[i] = *(const Vector *)(w + i * LANES);                                    \
            _Pragma("GCC unroll 4") for (int t = 0; t < NUM_POSITIONS; t++)                    \
                _Pragma("GCC unroll 4") for (int i = 0; i < NUM_VECTORS; i++)                  \
                    sums[t][i] += seen[i] * g[t * outputs + o];                                \
        }                                                                                      \
        _Pragma("GCC unroll 4") for (int t = 0; t < NUM_POSITIONS; t++)                        \
            _Pragma("GCC unroll 4") for (int i = 0; i < NUM_VECTORS; i++)                      \
                *(Vector *)(image + of_position[t] + i * LANES) += sums[t][i];                 \
    }

#define FEW (MOST_SUMS >= 24 ? 4 : 2)
SPREAD(spread_1_1, 1, 1)
SPREAD(spread_1_2, 1, 2)
SPREAD(spread_1_4, 1, 4)
SPREAD(spread_few_1, FEW, 1)
SPREAD(spread_few_2, FEW, 2)
SPREAD(spread_few_4, FEW, 4)
#undef SPREAD

/* The gradient of the input; runs of the kernel are whole numbers of vectors. */
static int FOR_TARGET(convolution_backward)(const Shape *s, int64_t images, const REAL *g,
                                            const REAL *w, REAL *dx) {
    FOR_TARGET(Window) k;
    if (FOR_TARGET(look)(s, &k)) return 1;
    int64_t positions = s->rows * s->columns, inputs = k.runs * k.length;
    int64_t row = s->width * s->channels, padded_row = k.width * s->channels;
    int is_padded = k.height > s->height || k.width > s->width;
    REAL *padded = malloc(is_padded ? sizeof(REAL) * k.height * padded_row : 1);
    for (int64_t image = 0; image < images && padded; image++) {
        const REAL *own = g + image * positions * k.outputs;
        REAL *out = dx + image * s->height * row, *whole = is_padded ? padded : out;
        memset(whole, 0, sizeof(REAL) * k.height * padded_row);
        for (int64_t run = 0; run < k.runs; run++)
            for (int64_t i = 0; i < k.length;) {
                int64_t left = (k.length - i) / LANES, vectors = left >= 4 ? 4 : left >= 2 ? 2 : 1;
                const REAL *of_w = w + run * k.length + i;
                REAL *to = whole + k.of_run[run] + i;
                for (int64_t t = 0; t < positions;) {
                    int are_few = t + FEW <= positions;
                    (vectors == 4   ? are_few ? FOR_TARGET(spread_few_4) : FOR_TARGET(spread_1_4)
                     : vectors == 2 ? are_few ? FOR_TARGET(spread_few_2) : FOR_TARGET(spread_1_2)
                     : are_few      ? FOR_TARGET(spread_few_1)
                                    : FOR_TARGET(spread_1_1))(k.outputs, inputs, own + t * k.outputs,
                                                              of_w, to, k.of_position + t);
                    t += are_few ? FEW : 1;
                }
                i += vectors * LANES;
            }
        for (int64_t h = 0; h < s->height && is_padded; h++)
            memcpy(out + h * row, padded + (h + s->pad_rows) * padded_row + s->pad_columns * s->channels,
                   sizeof(REAL) * row);
    }
    free(k.of_run), free(padded);
    return !padded;
}
#undef AT_ONCE
#undef FEW

/* ---- Norms of sums of outer products, without the products ------------------------------------
 *
 * |sum_t g_t a_t'|^2 = sum_st (a_s a_t) (g_s g_t). Positions may cancel each other, so the tables are
 * made in double: in float the whole norm could get lost.
 */
#define SIDE 4
#define OTHER (VECTOR_BYTES == 64 ? 4 : 2)

static void FOR_TARGET(products)(const double *a, const double *b, int64_t size, double *out) {
    Wide sums[SIDE][OTHER];
    _Pragma("GCC unroll 4") for (int s = 0; s < SIDE; s++)
        _Pragma("GCC unroll 4") for (int t = 0; t < OTHER; t++) sums[s][t] = (Wide){0};
    for (int64_t k = 0; k < size; k += WIDE_LANES) {
        Wide left[SIDE];
        _Pragma("GCC unroll 4") for (int s = 0; s < SIDE; s++) left[s] = *(const Wide *)(a + s * size + k);
        _Pragma("GCC unroll 4") for (int t = 0; t < OTHER; t++) {
            Wide right = *(const Wide *)(b + t * size + k);
            _Pragma("GCC unroll 4") for (int s = 0; s < SIDE; s++) sums[s][t] += left[s] * right;
        }
    }
    for (int s = 0; s < SIDE; s++)
        for (int t = 0; t < OTHER; t++) {
            double total = 0;
            for (int lane = 0; lane < WIDE_LANES; lane++) total += sums[s][t][lane];
            out[s * OTHER + t] = total;
        }
}

/* Inner products of all pairs of rows, [n, n]; n and size are whole blocks. */
static void FOR_TARGET(gram)(const double *x, int64_t n, int64_t size, double *table) {
    double block[SIDE * OTHER];
    for (int64_t s = 0; s < n; s += SIDE)
        for (int64_t t = s; t < n; t += OTHER) {
            FOR_TARGET(products)(x + s * size, x + t * size, size, block);
            for (int i = 0; i < SIDE; i++)
                for (int j = 0; j < OTHER; j++)
                    table[(s + i) * n + t + j] = table[(t + j) * n + s + i] = block[i * OTHER + j];
        }
}

/* Copies [rows, width] into doubles whose rows have `size` places. */
static void FOR_TARGET(widen)(const REAL *x, int64_t rows, int64_t width, double *out, int64_t size) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < width; k++) out[row * size + k] = x[row * width + k];
}

/* A patch is a sum over the pixels it covers, so the inner products of patches are sums of those of
 * pixels: for a kernel of 3x3 a ninth of the multiplications, where the stride is 1. */
static int FOR_TARGET(weight_norms)(const Shape *s, int64_t examples, const REAL *x, const REAL *g,
                                    double *squared) {
    int64_t pixels = s->views * s->height * s->width, positions = s->views * s->rows * s->columns;
    /* One more pixel, of zeros, for what is outside. */
    int64_t a_rows = rounded_up(pixels + 1, SIDE), g_rows = rounded_up(positions, SIDE);
    int64_t a_size = rounded_up(s->channels, 8), g_size = rounded_up(s->outputs, 8);
    double *a = calloc(a_rows * a_size, sizeof(double)), *b = calloc(g_rows * g_size, sizeof(double));
    double *of_pixels = malloc(sizeof(double) * a_rows * a_rows);
    double *of_g = malloc(sizeof(double) * g_rows * g_rows);
    int64_t *seen = malloc(sizeof(int64_t) * positions);
    int failed = !a || !b || !of_pixels || !of_g || !seen;
    for (int64_t example = 0; example < examples && !failed; example++) {
        FOR_TARGET(widen)(x + example * pixels * s->channels, pixels, s->channels, a, a_size);
        FOR_TARGET(widen)(g + example * positions * s->outputs, positions, s->outputs, b, g_size);
        FOR_TARGET(gram)(a, a_rows, a_size, of_pixels);
        FOR_TARGET(gram)(b, g_rows, g_size, of_g);
        double total = 0;
        for (int64_t i = 0; i < s->kernel_rows; i++)
            for (int64_t j = 0; j < s->kernel_columns; j++) {
                for (int64_t t = 0; t < positions; t++) {
                    int64_t place = t % (s->rows * s->columns), view = t / (s->rows * s->columns);
                    int64_t h = place / s->columns * s->stride_rows + i * s->dilation_rows - s->pad_rows;
                    int64_t w = place % s->columns * s->stride_columns + j * s->dilation_columns
                                - s->pad_columns;
                    int is_inside = h >= 0 && h < s->height && w >= 0 && w < s->width;
                    seen[t] = is_inside ? (view * s->height + h) * s->width + w : pixels;
                }
                for (int64_t t = 0; t < positions; t++) {
                    const double *row = of_pixels + seen[t] * a_rows, *other = of_g + t * g_rows;
                    double sum = 0;
                    for (int64_t u = t + 1; u < positions; u++) sum += row[seen[u]] * other[u];
                    total += row[seen[t]] * other[t] + 2 * sum;
                }
            }
        squared[example] = total > 0 ? total : 0;
    }
    free(a), free(b), free(of_pixels), free(of_g), free(seen);
    return failed;
}
#undef SIDE
#undef OTHER

/* ---- Group normalisation ----------------------------------------------------------------------
 *
 * Sums over positions are taken channel by channel, a few positions at a time in REAL and the rest in
 * double, and the variance around the mean: a mean far from zero costs no digits.
 */
#define AT_ONCE 16

/* sums[c] += sum over positions of (x - m[c]) * y, where y is x - m[c] itself if it is NULL. */
static void FOR_TARGET(channel_sums)(int64_t positions, int64_t channels, const REAL *x,
                                     const REAL *m, const REAL *y, double *sums, double *plain) {
    for (int64_t c = 0; c < channels; c += LANES) {
        int64_t width = channels - c < LANES ? channels - c : LANES;
        for (int64_t t = 0; t < positions; t += AT_ONCE) {
            int64_t end = t + AT_ONCE < positions ? t + AT_ONCE : positions;
            if (width == LANES) {
                Vector sum = {0}, other = {0}, mean = {0};
                if (m) mean = *(const Vector *)(m + c);
                for (int64_t k = t; k < end; k++) {
                    Vector value = *(const Vector *)(x + k * channels + c) - mean;
                    if (y) {
                        Vector weight = *(const Vector *)(y + k * channels + c);
                        sum += value * weight, other += weight;
                    } else if (m) sum += value * value;
                    else sum += value;
                }
                for (int64_t lane = 0; lane < LANES; lane++) {
                    sums[c + lane] += sum[lane];
                    if (plain) plain[c + lane] += other[lane];
                }
                continue;
            }
            for (int64_t k = t; k < end; k++)
                for (int64_t lane = c; lane < channels; lane++) {
                    REAL value = x[k * channels + lane] - (m ? m[lane] : 0);
                    REAL weight = y ? y[k * channels + lane] : m ? value : 1;
                    sums[lane] += (double)value * weight;
                    if (plain) plain[lane] += weight;
                }
        }
    }
}

static int FOR_TARGET(group_norm)(int64_t examples, int64_t positions, int64_t channels,
                                  int64_t groups, double epsilon, const REAL *x, const REAL *scale,
                                  const REAL *shift, REAL *y, REAL *mean, REAL *deviation) {
    int64_t width = channels / groups;
    double *sums = malloc(sizeof(double) * channels);
    REAL *of_channel = malloc(sizeof(REAL) * 3 * channels);
    if (!sums || !of_channel) {
        free(sums), free(of_channel);
        return 1;
    }
    REAL *centre = of_channel, *factor = of_channel + channels, *offset = factor + channels;
    for (int64_t example = 0; example < examples; example++) {
        const REAL *own = x + example * positions * channels;
        REAL *out = y + example * positions * channels;
        for (int step = 0; step < 2; step++) {
            memset(sums, 0, sizeof(double) * channels);
            FOR_TARGET(channel_sums)(positions, channels, own, step ? centre : NULL, NULL, sums, NULL);
            for (int64_t group = 0; group < groups; group++) {
                double sum = 0;
                for (int64_t c = 0; c < width; c++) sum += sums[group * width + c];
                sum /= (double)(positions * width);
                REAL result = step ? (REAL)(1 / sqrt(sum + epsilon)) : (REAL)sum;
                (step ? deviation : mean)[example * groups + group] = result;
                for (int64_t c = group * width; c < (group + 1) * width; c++) {
                    if (step) factor[c] = result * (scale ? scale[c] : 1), offset[c] = shift ? shift[c] : 0;
                    else centre[c] = result;
                }
            }
        }
        for (int64_t t = 0; t < positions; t++)
            for (int64_t c = 0; c < channels; c++)
                out[t * channels + c] = (own[t * channels + c] - centre[c]) * factor[c] + offset[c];
    }
    free(sums), free(of_channel);
    return 0;
}

/* dx is not written where it is NULL. */
static int FOR_TARGET(group_norm_backward)(int64_t examples, int64_t positions, int64_t channels,
                                           int64_t groups, const REAL *x, const REAL *g,
                                           const REAL *mean, const REAL *deviation,
                                           const REAL *scale, REAL *dx, REAL *dscale, REAL *dshift) {
    int64_t width = channels / groups;
    double *sums = malloc(sizeof(double) * 2 * channels);
    REAL *of_channel = malloc(sizeof(REAL) * 4 * channels);
    if (!sums || !of_channel) {
        free(sums), free(of_channel);
        return 1;
    }
    double *plain = sums + channels;
    REAL *centre = of_channel, *of_g = centre + channels, *of_x = of_g + channels, *rest = of_x + channels;
    for (int64_t example = 0; example < examples; example++) {
        const REAL *own = x + example * positions * channels, *gradient = g + example * positions * channels;
        for (int64_t c = 0; c < channels; c++) centre[c] = mean[example * groups + c / width];
        memset(sums, 0, sizeof(double) * 2 * channels);
        FOR_TARGET(channel_sums)(positions, channels, own, centre, gradient, sums, plain);
        for (int64_t group = 0; group < groups; group++) {
            double r = deviation[example * groups + group], of_scaled = 0, of_product = 0;
            for (int64_t c = group * width; c < (group + 1) * width; c++) {
                double factor = scale ? scale[c] : 1;
                dscale[example * channels + c] = (REAL)(sums[c] * r);
                dshift[example * channels + c] = (REAL)plain[c];
                of_scaled += factor * plain[c];
                of_product += factor * sums[c] * r;
            }
            of_scaled /= (double)(positions * width), of_product /= (double)(positions * width);
            for (int64_t c = group * width; c < (group + 1) * width; c++) {
                of_g[c] = (REAL)(r * (scale ? scale[c] : 1));
                of_x[c] = (REAL)(r * r * of_product);
                rest[c] = (REAL)(r * of_scaled);
            }
        }
        if (!dx) continue;
        REAL *out = dx + example * positions * channels;
        for (int64_t t = 0; t < positions; t++)
            for (int64_t c = 0; c < channels; c++) {
                int64_t k = t * channels + c;
                out[k] = gradient[k] * of_g[c] - (own[k] - centre[c]) * of_x[c] - rest[c];
            }
    }
    free(sums), free(of_channel);
    return 0;
}
#undef AT_ONCE

/* ---- Largest of a window ----------------------------------------------------------------------
 *
 * `place` says which pixel of the window it was, the first one where several are as large. What is
 * not a number is larger than anything.
 */
#define Mask FOR_TARGET(Mask)
#define Bytes FOR_TARGET(Bytes)
typedef INTEGER Mask __attribute__((vector_size(VECTOR_BYTES)));
typedef uint8_t Bytes __attribute__((vector_size(VECTOR_BYTES / sizeof(REAL)), aligned(1), may_alias));

typedef struct {
    int64_t pixel;
    INTEGER k; /* in the window; -1 outside of the image, where `pixel` is the first one inside */
} FOR_TARGET(Seen);

/* What each window sees, position by position; NULL without memory. A window has a pixel inside. */
static FOR_TARGET(Seen) *FOR_TARGET(windows)(const Shape *s) {
    int64_t all = s->kernel_rows * s->kernel_columns;
    FOR_TARGET(Seen) *table = malloc(sizeof(FOR_TARGET(Seen)) * all * s->rows * s->columns);
    FOR_TARGET(Seen) *window = table;
    for (int64_t row = 0; row < s->rows && table; row++)
        for (int64_t column = 0; column < s->columns; column++, window += all) {
            int64_t first = -1, k = 0;
            for (int64_t i = 0; i < s->kernel_rows; i++)
                for (int64_t j = 0; j < s->kernel_columns; j++, k++) {
                    int64_t h = row * s->stride_rows + i * s->dilation_rows - s->pad_rows;
                    int64_t w = column * s->stride_columns + j * s->dilation_columns - s->pad_columns;
                    int is_inside = h >= 0 && h < s->height && w >= 0 && w < s->width;
                    window[k].pixel = (h * s->width + w) * s->channels;
                    window[k].k = is_inside ? (INTEGER)k : -1;
                    if (is_inside && first < 0) first = window[k].pixel;
                }
            for (k = 0; k < all; k++)
                if (window[k].k < 0) window[k].pixel = first;
        }
    return table;
}

static int FOR_TARGET(max_pool)(const Shape *s, int64_t images, const REAL *x, REAL *y, uint8_t *place) {
    int64_t all = s->kernel_rows * s->kernel_columns;
    FOR_TARGET(Seen) *table = FOR_TARGET(windows)(s);
    if (!table) return 1;
    for (int64_t image = 0; image < images; image++, x += s->height * s->width * s->channels)
        for (int64_t t = 0; t < s->rows * s->columns; t++, y += s->channels, place += s->channels) {
            const FOR_TARGET(Seen) *window = table + t * all;
            for (int64_t c = 0; c < s->channels; c += LANES) {
                int64_t width = s->channels - c < LANES ? s->channels - c : LANES;
                /* What is outside has the pixel of the first one inside, and is never larger. */
                Vector best = {0}, value = {0};
                if (width == LANES) best = *(const Vector *)(x + window[0].pixel + c);
                else memcpy(&best, x + window[0].pixel + c, sizeof(REAL) * width);
                int64_t first = 0;
                while (window[first].k < 0) first++;
                Mask where = (Mask){0} + window[first].k;
                for (int64_t k = first + 1; k < all; k++) {
                    if (width == LANES) value = *(const Vector *)(x + window[k].pixel + c);
                    else memcpy(&value, x + window[k].pixel + c, sizeof(REAL) * width);
                    Mask here = (Mask){0} + window[k].k;
                    Mask is_larger = ~(Mask)(value <= best) & (Mask)(best == best);
                    best = (Vector)(((Mask)value & is_larger) | ((Mask)best & ~is_larger));
                    where = (here & is_larger) | (where & ~is_larger);
                }
                Bytes bytes = __builtin_convertvector(where, Bytes);
                if (width == LANES) *(Vector *)(y + c) = best, *(Bytes *)(place + c) = bytes;
                else memcpy(y + c, &best, sizeof(REAL) * width), memcpy(place + c, &bytes, width);
            }
        }
    free(table);
    return 0;
}

static int FOR_TARGET(max_pool_backward)(const Shape *s, int64_t images, const REAL *g,
                                         const uint8_t *place, REAL *dx) {
    int64_t all = s->kernel_rows * s->kernel_columns, size = s->height * s->width * s->channels;
    FOR_TARGET(Seen) *table = FOR_TARGET(windows)(s);
    if (!table) return 1;
    for (int64_t image = 0; image < images; image++, dx += size) {
        memset(dx, 0, sizeof(REAL) * size);
        for (int64_t t = 0; t < s->rows * s->columns; t++, g += s->channels, place += s->channels) {
            const FOR_TARGET(Seen) *window = table + t * all;
            for (int64_t c = 0; c < s->channels; c += LANES) {
                int64_t width = s->channels - c < LANES ? s->channels - c : LANES;
                Vector gradient = {0};
                Bytes bytes = {0};
                if (width == LANES) gradient = *(const Vector *)(g + c), bytes = *(const Bytes *)(place + c);
                else memcpy(&gradient, g + c, sizeof(REAL) * width), memcpy(&bytes, place + c, width);
                Mask where = __builtin_convertvector(bytes, Mask);
                for (int64_t k = 0; k < all; k++) {
                    REAL *to = dx + window[k].pixel + c;
                    Vector part = (Vector)((Mask)gradient & (Mask)(where == (Mask){0} + window[k].k));
                    if (width == LANES) *(Vector *)to += part;
                    else for (int64_t lane = 0; lane < width; lane++) to[lane] += part[lane];
                }
            }
        }
    }
    free(table);
    return 0;
}
#undef Mask
#undef Bytes

#undef LANES
#undef WIDE_LANES
#undef Vector
#undef Wide
#undef Block

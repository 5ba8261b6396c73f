/* What torch has no fast way to do for each example of a batch by itself.
 *
 * Single-threaded, over whatever examples it is given; tensors are dense and channels-last. Every
 * kernel is compiled for float and double and for the vector units that a processor may have; the
 * widest that is there is taken when a kernel is called. Each returns 0, or 1 where memory ran out.
 */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A convolution as the gradient of its weight sees it. The positions of an example are those of all
 * its views. A linear layer over positions is a convolution with a kernel of one pixel. */
typedef struct {
    int64_t views; /* K, of each example */
    int64_t height, width, channels;
    int64_t rows, columns, outputs;
    int64_t kernel_rows, kernel_columns;
    int64_t stride_rows, stride_columns;
    int64_t pad_rows, pad_columns;
    int64_t dilation_rows, dilation_columns;
} Shape;

/* A weight that is standardised before use, in the order of the rows; NULL for any other. */
typedef struct {
    const void *unit;    /* [I, O], mean 0 and sum of squares 1 for each output */
    const void *factor;  /* [O], the rate times the gain */
    const void *is_free; /* [O], 1 where the rate follows the weight, else 0 */
} Standardised;

/* Examples to be read as they lie: numbers of the kernel's own type, half floats or pixels. */
typedef struct {
    const void *values;
    const int64_t *rows; /* which of them; NULL: the first ones */
    int64_t kind;
    int64_t groups; /* of an example, each normalised by itself; 0: none is */
    double epsilon;
} Examples;

enum { OWN_TYPE, HALF_FLOATS, PIXELS };

/* Outputs are rounded up to this, so that a row ends with a whole vector. */
#define OUTPUTS_MULTIPLE 16

static inline int64_t rounded_up(int64_t size, int64_t multiple) {
    return (size + multiple - 1) / multiple * multiple;
}

static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int64_t padded_rows(const Shape *s) {
    return larger(s->height + s->pad_rows,
                  (s->rows - 1) * s->stride_rows + (s->kernel_rows - 1) * s->dilation_rows + 1);
}

static inline int64_t padded_columns(const Shape *s) {
    return larger(s->width + s->pad_columns,
                  (s->columns - 1) * s->stride_columns
                      + (s->kernel_columns - 1) * s->dilation_columns + 1);
}

#define JOINED(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOINED(a, b, c)
#define FOR_TARGET(name) JOIN(name, REAL, TARGET)

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,prefer-vector-width=512")
#define TARGET avx512
#define VECTOR_BYTES 64
#define MOST_SUMS 24
#include "kernels_for_target.h"
#undef TARGET
#undef VECTOR_BYTES
#undef MOST_SUMS
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define TARGET avx2
#define VECTOR_BYTES 32
#define MOST_SUMS 12
#include "kernels_for_target.h"
#undef TARGET
#undef VECTOR_BYTES
#undef MOST_SUMS
#pragma GCC pop_options
#endif

#define TARGET plain
#define VECTOR_BYTES 16
#define MOST_SUMS 12
#include "kernels_for_target.h"
#undef TARGET
#undef VECTOR_BYTES
#undef MOST_SUMS

#if defined(__x86_64__)
#define CHOSEN(name, real)                                                                     \
    (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")                   \
             && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")       \
         ? name##_##real##_avx512                                                              \
     : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? name##_##real##_avx2  \
                                                                       : name##_##real##_plain)
#else
#define CHOSEN(name, real) name##_##real##_plain
#endif

#define EXPORTED(real)                                                                         \
    int weight_rows_##real(const Shape *shape, int64_t examples, const real *x, const real *g, \
                           const Standardised *standardised, int64_t has_bias,                 \
                           int64_t has_gain, real *rows, double *squared) {                    \
        return CHOSEN(weight_rows, real)(shape, examples, x, g, standardised, has_bias,        \
                                         has_gain, rows, squared);                             \
    }                                                                                          \
    int weight_norms_##real(const Shape *shape, int64_t examples, const real *x,               \
                            const real *g, double *squared) {                                  \
        return CHOSEN(weight_norms, real)(shape, examples, x, g, squared);                     \
    }                                                                                          \
    int convolution_##real(const Shape *shape, int64_t images, const real *x, const real *w,   \
                           const real *bias, real *y) {                                        \
        return CHOSEN(convolution, real)(shape, images, x, w, bias, y);                        \
    }                                                                                          \
    int convolution_backward_##real(const Shape *shape, int64_t images, const real *g,         \
                                    const real *w, real *dx) {                                 \
        return CHOSEN(convolution_backward, real)(shape, images, g, w, dx);                    \
    }                                                                                          \
    int group_norm_##real(int64_t examples, int64_t positions, int64_t channels,               \
                          int64_t groups, double epsilon, const real *x, const real *scale,    \
                          const real *shift, real *y, real *mean, real *deviation) {           \
        return CHOSEN(group_norm, real)(examples, positions, channels, groups, epsilon, x,     \
                                        scale, shift, y, mean, deviation);                     \
    }                                                                                          \
    int group_norm_backward_##real(int64_t examples, int64_t positions, int64_t channels,      \
                                   int64_t groups, const real *x, const real *g,               \
                                   const real *mean, const real *deviation, const real *scale, \
                                   real *dx, real *dscale, real *dshift) {                     \
        return CHOSEN(group_norm_backward, real)(examples, positions, channels, groups, x, g,  \
                                                 mean, deviation, scale, dx, dscale, dshift);  \
    }                                                                                          \
    int squared_norms_##real(int64_t rows, int64_t size, const real *x, double *squared) {     \
        return CHOSEN(squared_norms, real)(rows, size, x, squared);                            \
    }                                                                                          \
    int outer_norms_##real(int64_t rows, int64_t inputs, int64_t outputs, int64_t ones,        \
                           const real *x, const real *g, double *squared) {                    \
        return CHOSEN(outer_norms, real)(rows, inputs, outputs, ones, x, g, squared);          \
    }                                                                                          \
    int linear_##real(int64_t rows, int64_t inputs, int64_t outputs, const Examples *x,        \
                      const real *w, const real *bias, real *y, double *squared) {             \
        return CHOSEN(linear, real)(rows, inputs, outputs, x, w, bias, y, squared);            \
    }                                                                                          \
    int linear_classifier_##real(int64_t rows, int64_t inputs, int64_t outputs,                \
                                 double clip_norm, const Examples *x, const int64_t *labels,   \
                                 const real *w, const real *bias, real *weight_sum,            \
                                 real *bias_sum, double *norms, real *losses) {                \
        return CHOSEN(linear_classifier, real)(rows, inputs, outputs, clip_norm, x, labels, w, \
                                               bias, weight_sum, bias_sum, norms, losses);     \
    }                                                                                          \
    int cross_entropies_##real(int64_t rows, int64_t outputs, const real *y,                   \
                               const int64_t *labels, real *losses, real *g) {                 \
        return CHOSEN(cross_entropies, real)(rows, outputs, y, labels, losses, g);             \
    }                                                                                          \
    int ensemble_weights_##real(int64_t first, int64_t rows, int64_t inputs, int64_t trials,   \
                                int64_t differences, int64_t outputs, const real *w,           \
                                real *packed) {                                                \
        return CHOSEN(ensemble_weights, real)(first, rows, inputs, trials, differences,        \
                                              outputs, w, packed);                             \
    }                                                                                          \
    int ensemble_scores_##real(int64_t rows, int64_t inputs, int64_t outputs, const real *x,   \
                               const int64_t *which, const real *w, real *y) {                 \
        return CHOSEN(ensemble_scores, real)(rows, inputs, outputs, x, which, w, y);           \
    }                                                                                          \
    int ensemble_gradients_##real(int64_t rows, int64_t trials, int64_t differences,           \
                                  int64_t step, const real *y, const real *bias,               \
                                  const int64_t *labels, real *g, real *losses,                \
                                  double *squared) {                                           \
        return CHOSEN(ensemble_gradients, real)(rows, trials, differences, step, y, bias,      \
                                                labels, g, losses, squared);                   \
    }                                                                                          \
    int ensemble_sums_##real(int64_t columns, int64_t rows, int64_t inputs, int64_t trials,    \
                             int64_t differences, const real *x, const int64_t *which,         \
                             const real *g, real *sum) {                                       \
        return CHOSEN(ensemble_sums, real)(columns, rows, inputs, trials, differences, x,      \
                                           which, g, sum);                                     \
    }                                                                                          \
    int max_pool_##real(const Shape *shape, int64_t images, const real *x, real *y,            \
                        uint8_t *place) {                                                      \
        return CHOSEN(max_pool, real)(shape, images, x, y, place);                             \
    }                                                                                          \
    int max_pool_backward_##real(const Shape *shape, int64_t images, const real *g,            \
                                 const uint8_t *place, real *dx) {                             \
        return CHOSEN(max_pool_backward, real)(shape, images, g, place, dx);                   \
    }

EXPORTED(float)
EXPORTED(double)

int hyperbolic_tangent_float(int64_t size, const float *x, float *y) {
    return CHOSEN(hyperbolic_tangent, float)(size, x, y);
}

/* Raised whenever what is exported here, or a structure that it takes, changes: a library of another day
 * would read its arguments as what they are not. As in tan_core/kernels_version.py, and held by a test. */
int64_t kernels_version(void) { return 10; }

/* Adds normal numbers for simulations: xoshiro128++ in 16 lanes, Box and Muller. Not for secrets.
 *
 * Multiplications and additions are not fused, so that every processor gives the same numbers.
 * References: Blackman and Vigna (2021), arXiv:1805.01407; logarithm and sine after Moshier's Cephes.
 */
#define GENERATORS 16

static inline uint64_t splitmix(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#define BATCH 1024

/* The generators take turns by as many as a vector of the processor holds. */
#define NORMAL(target, bytes)                                                                  \
    typedef uint32_t Words_##target __attribute__((vector_size(bytes), aligned(4), may_alias)); \
    static void add_normal_##target(uint64_t seed, int64_t size, float deviation, float *out) { \
        uint32_t state[4][GENERATORS], words[BATCH];                                           \
        float numbers[BATCH];                                                                  \
        for (int k = 0; k < 4 * GENERATORS; k++)                                               \
            state[k / GENERATORS][k % GENERATORS] = (uint32_t)(splitmix(&seed) >> 32);         \
        for (int64_t done = 0; done < size; done += BATCH) {                                   \
            for (int first = 0; first < GENERATORS; first += bytes / 4) {                      \
                Words_##target a = *(Words_##target *)(state[0] + first);                      \
                Words_##target b = *(Words_##target *)(state[1] + first);                      \
                Words_##target c = *(Words_##target *)(state[2] + first);                      \
                Words_##target d = *(Words_##target *)(state[3] + first);                      \
                for (int k = first; k < BATCH; k += GENERATORS) {                              \
                    Words_##target sum = a + d, shifted = b << 9;                              \
                    *(Words_##target *)(words + k) = ((sum << 7) | (sum >> 25)) + a;           \
                    c ^= a, d ^= b, b ^= c, a ^= d, c ^= shifted;                              \
                    d = (d << 11) | (d >> 21);                                                 \
                }                                                                              \
                *(Words_##target *)(state[0] + first) = a;                                     \
                *(Words_##target *)(state[1] + first) = b;                                     \
                *(Words_##target *)(state[2] + first) = c;                                     \
                *(Words_##target *)(state[3] + first) = d;                                     \
            }                                                                                  \
            for (int k = 0; k < BATCH / 2; k++) box_muller(words, numbers, k);                 \
            int64_t left = size - done < BATCH ? size - done : BATCH;                          \
            for (int64_t k = 0; k < left; k++) out[done + k] += deviation * numbers[k];        \
        }                                                                                      \
    }

#if defined(__clang__) /* what GCC is told below, to the end of this file */
#pragma STDC FP_CONTRACT OFF
#endif

/* Two numbers from two words: the radius from the upper 31 bits of one, the angle from the other.
 *
 * Arms of a choice are numbers at hand: one that must be computed, or a root that is taken of a choice, is a branch
 * where vectors have no masks, and the loop over it is not made of vectors then (AVX2: 12.6 ns a number, and 1.3). */
__attribute__((always_inline)) static inline void box_muller(const uint32_t *words, float *out, int k) {
    float uniform = ((float)(int32_t)(words[k] >> 1) + 0.5f) * (1.0f / 2147483648.0f);
    union { float value; int32_t bits; } parts = {uniform};
    int32_t exponent = ((parts.bits >> 23) & 255) - 126;
    parts.bits = (parts.bits & 0x007fffff) | 0x3f000000;
    float m = parts.value;
    int32_t is_small = m < 0.707106781186547524f;
    exponent -= is_small;
    m = m + (is_small ? m : 0.0f) - 1.0f;
    float y = m * m, e = (float)exponent;
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    float logarithm = m * y * p - 2.12194440e-4f * e - 0.5f * y + m + 0.693359375f * e;
    parts.value = -2.0f * logarithm;
    parts.bits &= ~(parts.bits >> 31);
    float radius = sqrtf(parts.value);
    uint32_t word = words[BATCH / 2 + k];
    int32_t quadrant = (int32_t)((word + 0x20000000u) >> 30);
    int32_t rest = (int32_t)(word - ((uint32_t)quadrant << 30));
    float x = (float)rest * (6.28318530717958647692f / 4294967296.0f), x2 = x * x;
    float sine = x + x * x2 * (-1.6666654611e-1f + x2 * (8.3321608736e-3f + x2 * -1.9515295891e-4f));
    float cosine = 1.0f - 0.5f * x2
                   + x2 * x2 * (4.166664568298827e-2f
                                + x2 * (-1.388731625493765e-3f + x2 * 2.443315711809948e-5f));
    float first = (quadrant & 1) ? sine : cosine, second = (quadrant & 1) ? cosine : sine;
    out[k] = (quadrant == 1 || quadrant == 2 ? -radius : radius) * first;
    out[BATCH / 2 + k] = (quadrant >= 2 ? -radius : radius) * second;
}

/* The same of words of a cipher, for private runs, in double: the radius from all bits of one, the angle from the upper 54
 * of the other, a turn counted from -pi/4. Within four units in the last place; no branch and no table follows a word.
 *
 * Reference: logarithm, sine and cosine of Sun's fdlibm (1993), between the square roots of 1/2 and 2, and within pi/4. */
typedef union { double value; uint64_t bits; } Double;

/* A whole number below 2^52. */
__attribute__((always_inline)) static inline double counted(uint64_t number) {
    Double parts = {.bits = number | 0x4330000000000000u};
    return parts.value - 0x1p52;
}

__attribute__((always_inline)) static inline double radius_of(uint64_t radius_word) {
    /* The word as a double, rounded once: both halves of it are exact. One more: there is no logarithm of 0. */
    Double high = {.bits = (radius_word >> 32) | 0x4530000000000000u};
    Double parts = {.value = (high.value - 0x1p84) + counted(radius_word & 0xffffffffu) + 1.0};
    uint64_t exponent = (parts.bits >> 52) + 1;
    parts.bits = (parts.bits & 0x000fffffffffffffu) | 0x3fe0000000000000u;
    double m = parts.value;
    uint64_t is_small = m < 0.70710678118654752440;
    double e = counted(exponent - is_small) - (1023.0 + 64.0);
    double f = m + (is_small ? m : 0.0) - 1.0, s = f / (2.0 + f), z = s * s;
    double r = 1.479819860511658591e-01;
    r = r * z + 1.531383769920937332e-01;
    r = r * z + 1.818357216161805012e-01;
    r = r * z + 2.222219843214978396e-01;
    r = r * z + 2.857142874366239149e-01;
    r = r * z + 3.999999999940941908e-01;
    r = r * z + 6.666666666666735130e-01;
    double half = 0.5 * f * f, small = s * (half + r * z) + e * 1.90821492927058770002e-10;
    parts.value = -2.0 * (e * 6.93147180369123816490e-01 - ((half - small) - f));
    parts.bits &= 0x7fffffffffffffffu; /* -0 */
    return sqrt(parts.value);
}

__attribute__((always_inline)) static inline void turn(double radius, uint64_t angle_word, double *first,
                                                       double *second) {
    Double turned = {.bits = ((angle_word << 2) >> 12) | 0x3ff0000000000000u};
    double x = (turned.value - 1.5) * 1.57079632679489661923, x2 = x * x;
    double p = 1.58969099521155010221e-10;
    p = p * x2 - 2.50507602534068634195e-08;
    p = p * x2 + 2.75573137070700676789e-06;
    p = p * x2 - 1.98412698298579493134e-04;
    p = p * x2 + 8.33333333332248946124e-03;
    p = p * x2 - 1.66666666666666324348e-01;
    double sine = x + x2 * x * p;
    double q = -1.13596475577881948265e-11;
    q = q * x2 + 2.08757232129817482790e-09;
    q = q * x2 - 2.75573143513906633035e-07;
    q = q * x2 + 2.48015872894767294178e-05;
    q = q * x2 - 1.38888888888741095749e-03;
    q = q * x2 + 4.16666666666666019037e-02;
    double halved = 0.5 * x2, rest = 1.0 - halved;
    double cosine = rest + ((1.0 - rest - halved) + x2 * x2 * q);
    /* Quarters of a turn exchange the two, and change their signs. */
    uint64_t is_odd = 0 - ((angle_word >> 62) & 1), is_late = angle_word >> 63;
    Double of_sine = {.value = sine}, of_cosine = {.value = cosine}, along, across;
    along.bits = (of_sine.bits & is_odd) | (of_cosine.bits & ~is_odd);
    across.bits = (of_cosine.bits & is_odd) | (of_sine.bits & ~is_odd);
    along.bits ^= ((is_odd & 1) ^ is_late) << 63;
    across.bits ^= is_late << 63;
    *first = radius * along.value;
    *second = radius * across.value;
}

/* Pairs at a time, in three loops: of each, several turns fit into what a processor looks ahead. */
#define NORMALS_AT_ONCE 512

#define NORMALS(real, target)                                                                        \
    static void add_normals_##real##_##target(int64_t size, const uint64_t *restrict radii,          \
                                              const uint64_t *restrict angles, double deviation,     \
                                              real *restrict first, int64_t second_size,             \
                                              real *restrict second) {                               \
        double radius[NORMALS_AT_ONCE], along[NORMALS_AT_ONCE], across[NORMALS_AT_ONCE];             \
        for (int64_t start = 0; start < size; start += NORMALS_AT_ONCE) {                            \
            int64_t count = size - start < NORMALS_AT_ONCE ? size - start : NORMALS_AT_ONCE;         \
            int64_t of_second = second_size - start < count ? second_size - start : count;           \
            for (int64_t k = 0; k < count; k++) radius[k] = radius_of(radii[start + k]);             \
            for (int64_t k = 0; k < count; k++) turn(radius[k], angles[start + k], along + k, across + k); \
            for (int64_t k = 0; k < count; k++)                                                      \
                first[start + k] = (real)((double)first[start + k] + deviation * along[k]);          \
            for (int64_t k = 0; k < of_second; k++)                                                  \
                second[start + k] = (real)((double)second[start + k] + deviation * across[k]);       \
        }                                                                                            \
    }

#pragma GCC push_options
#pragma GCC optimize("fp-contract=off,no-math-errno")
#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512")
NORMAL(avx512, 64)
NORMALS(float, avx512)
NORMALS(double, avx512)
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2")
NORMAL(avx2, 32)
NORMALS(float, avx2)
NORMALS(double, avx2)
#pragma GCC pop_options
#endif
NORMAL(plain, 16)
NORMALS(float, plain)
NORMALS(double, plain)
#pragma GCC pop_options

void add_normal_float(uint64_t seed, int64_t size, float deviation, float *out) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) {
        add_normal_avx512(seed, size, deviation, out);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        add_normal_avx2(seed, size, deviation, out);
        return;
    }
#endif
    add_normal_plain(seed, size, deviation, out);
}

#if defined(__x86_64__)
#define WIDE_NORMALS(real)                                                                        \
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {                \
        add_normals_##real##_avx512(size, radii, angles, deviation, first, second_size, second);  \
        return 0;                                                                                 \
    }                                                                                             \
    if (__builtin_cpu_supports("avx2")) {                                                         \
        add_normals_##real##_avx2(size, radii, angles, deviation, first, second_size, second);    \
        return 0;                                                                                 \
    }
#else
#define WIDE_NORMALS(real)
#endif

/* Adds both numbers of each pair, times `deviation`, in double and rounded once. An odd vector lacks the second of the last. */
#define ADD_NORMALS_OF_WORDS(real)                                                                         \
    int add_normals_of_words_##real(int64_t size, const uint64_t *radii, const uint64_t *angles,           \
                                    double deviation, real *first, int64_t second_size, real *second) {    \
        WIDE_NORMALS(real)                                                                                 \
        add_normals_##real##_plain(size, radii, angles, deviation, first, second_size, second);            \
        return 0;                                                                                          \
    }
ADD_NORMALS_OF_WORDS(float)
ADD_NORMALS_OF_WORDS(double)

/* Rising indices below `size`, each there with the same probability by itself, for simulations: how
 * many are left out before the next one is geometric. Returns how many there are; only the first
 * `room` are written. */
int64_t poisson_sample(uint64_t seed, int64_t size, double probability, int64_t room, int64_t *out) {
    double rate = 1 / log1p(-probability);
    int64_t count = 0;
    for (int64_t next = 0; next < size; next++, count++) {
        if (probability < 1) {
            double uniform = (double)((splitmix(&seed) >> 11) + 1) * 0x1p-53; /* in (0, 1] */
            double skipped = log(uniform) * rate;
            if (!(skipped < (double)(size - next))) break;
            next += (int64_t)skipped;
        }
        if (count < room) out[count] = next;
    }
    return count;
}

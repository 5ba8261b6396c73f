/* The kernels for one vector unit (TARGET, VECTOR_BYTES, MOST_SUMS), for float and for double. */
#define REAL float
#define LANES ((int64_t)(VECTOR_BYTES / sizeof(float)))
#define Vector FOR_TARGET(FloatVector)
#define Mask FOR_TARGET(FloatMask)
typedef float Vector __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef int32_t Mask __attribute__((vector_size(VECTOR_BYTES)));

/* e^x for -87 <= x <= 87, by the polynomial of Moshier's Cephes; what is not a number stays so. */
static inline Vector FOR_TARGET(exponential)(Vector x) {
    /* 1.5 * 2^23 rounds to whole numbers, which then are the last bits. */
    Vector shifted = x * 1.442695040888965f + 12582912.0f, e = shifted - 12582912.0f;
    Vector r = x - e * 0.693359375f + e * 2.12194440e-4f;
    Vector power = (Vector)(((Mask)shifted + 127) << 23);
    Vector p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * r * r + r + 1.0f) * power;
}

/* The exponentials of numbers that are not above 0, in their place; nothing below e^-87, so that none is subnormal. */
static void FOR_TARGET(exponentials)(int64_t size, float *x) {
    const Vector least = (Vector){0} - 87.0f;
    for (int64_t k = 0; k < size; k += LANES) {
        int64_t left = size - k;
        Vector of_x = {0};
        if (left >= LANES) of_x = *(const Vector *)(x + k);
        else memcpy(&of_x, x + k, sizeof(float) * left);
        Mask is_less = (Mask)(of_x < least);
        of_x = FOR_TARGET(exponential)((Vector)(((Mask)least & is_less) | ((Mask)of_x & ~is_less)));
        of_x = (Vector)((Mask)of_x & ~is_less);
        if (left >= LANES) *(Vector *)(x + k) = of_x;
        else memcpy(x + k, &of_x, sizeof(float) * left);
    }
}
#undef LANES
#undef Vector
#undef Mask
#define INTEGER int32_t
#define EXP expf
#define LOG logf
#define SMALLEST FLT_MIN
#include "kernels_for_type.h"
#undef REAL
#undef INTEGER
#undef EXP
#undef LOG
#undef SMALLEST
#define REAL double
static void FOR_TARGET(exponentials)(int64_t size, double *x) {
    for (int64_t k = 0; k < size; k++) x[k] = exp(x[k]);
}
#define INTEGER int64_t
#define EXP exp
#define LOG log
#define SMALLEST DBL_MIN
#include "kernels_for_type.h"
#undef REAL
#undef INTEGER
#undef EXP
#undef LOG
#undef SMALLEST

/* ---- Hyperbolic tangent, of floats alone ------------------------------------------------------
 *
 * Within 1.4 units in the last place; what is not a number stays so. Reference: tanhf and expf of
 * Moshier's Cephes, the polynomial below 0.625, else 1 - 2 / (exp(2 a) + 1).
 */
#define REAL float
#define LANES ((int64_t)(VECTOR_BYTES / sizeof(float)))
#define Vector FOR_TARGET(FloatVector)
#define Mask FOR_TARGET(FloatMask)

static inline Vector FOR_TARGET(tanh_of)(Vector x) {
    const Mask sign = (Mask){0} + INT32_MIN;
    Vector a = (Vector)((Mask)x & ~sign), z = x * x;
    Vector small = z * -5.70498872745e-3f + 2.06390887954e-2f;
    small = small * z - 5.37397155531e-2f;
    small = small * z + 1.33314422036e-1f;
    small = small * z - 3.33332819422e-1f;
    small = small * z * a + a;
    /* From here on it is 1; a comparison with what is not a number is false. */
    const Vector most = (Vector){0} + 9.02f;
    Mask is_most = (Mask)(a > most);
    Vector b = (Vector)(((Mask)most & is_most) | ((Mask)a & ~is_most));
    Vector large = 1.0f - 2.0f / (FOR_TARGET(exponential)(b + b) + 1.0f);
    Mask is_small = (Mask)(a < (Vector){0} + 0.625f);
    Mask y = ((Mask)small & is_small) | ((Mask)large & ~is_small);
    return (Vector)((y & ~sign) | ((Mask)x & sign));
}

static int FOR_TARGET(hyperbolic_tangent)(int64_t size, const float *x, float *y) {
    int64_t k = 0;
    for (; k + LANES <= size; k += LANES)
        *(Vector *)(y + k) = FOR_TARGET(tanh_of)(*(const Vector *)(x + k));
    Vector rest = {0};
    memcpy(&rest, x + k, sizeof(float) * (size - k));
    rest = FOR_TARGET(tanh_of)(rest);
    memcpy(y + k, &rest, sizeof(float) * (size - k));
    return 0;
}
#undef REAL
#undef LANES
#undef Vector
#undef Mask

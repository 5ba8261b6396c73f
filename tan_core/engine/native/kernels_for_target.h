/* The kernels for one vector unit (TARGET, VECTOR_BYTES, MOST_SUMS), for float and for double. */
#define REAL float
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

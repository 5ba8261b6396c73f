/* The kernels for one vector unit (TARGET, VECTOR_BYTES, MOST_SUMS), for float and for double. */
#define REAL float
#define INTEGER int32_t
#include "kernels_for_type.h"
#undef REAL
#undef INTEGER
#define REAL double
#define INTEGER int64_t
#include "kernels_for_type.h"
#undef REAL
#undef INTEGER

/* The kernels for one vector unit (TARGET, VECTOR_BYTES, MOST_SUMS), for float and for double. */
#define REAL float
#include "kernels_for_type.h"
#undef REAL
#define REAL double
#include "kernels_for_type.h"
#undef REAL

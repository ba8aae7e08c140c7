//! Converts a strided tensor of rank 4 to another element kind, contiguously, as `torch.Tensor.to` does.
//!
//! Floats become integers by truncation; `round_mode` makes the value one that the target dtype can hold.
//! axis source = f32 f16 i32
//! axis dtype = f32 f16 i32
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! local local_x
//! needs source=f16 : storage_16bit
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"

#if defined(SOURCE_F16)
#define S float16_t
#elif defined(SOURCE_I32)
#define S int
#else
#define S float
#endif

READS(0, x, S)
WRITES(1, y, T)
PUSH(BASE(x) BASE(y) uint n_elems; uint sizes[4]; uint x_strides[4];)

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    uint rest = i;
    uint from = 0u;
    for (int d = 3; d >= 0; d--) {
        uint outer = rest / sizes[d];
        from += (rest - outer * sizes[d]) * x_strides[d];
        rest = outer;
    }
#if defined(SOURCE_I32) && defined(DTYPE_I32)
    STOREI(y, i, LOADI(x, from));
#elif defined(SOURCE_I32)
    STOREF(y, i, float(LOADI(x, from)));
#elif defined(DTYPE_I32)
    // A truth value asks whether the float is zero, before any truncation.
    float v = LOADF(x, from);
    STOREI(y, i, round_mode == ROUND_BOOL ? int(magnitude_bits(v) != 0u) : int_of_float(v));
#else
    STOREF(y, i, LOADF(x, from));
#endif
}

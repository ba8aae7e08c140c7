//! Quantises: y = clamp(round(x / scale) + zero, low, high), element by element, rounding halves to even.
//!
//! `scale` and `zero` are strided tensors over the sizes of x where `tensors` says so, else parameters, and their
//! operand slots are not read. `op` quantize_sum adds the zero point before it rounds; in_range tells whether the
//! clamp would leave the value alone. NaN gives 0.
//! axis dtype = f32 f16
//! axis zero = i32 f32
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 op = 0
//! spec 3 scale_is_tensor = 0
//! spec 4 zero_is_tensor = 0
//! values op = quantize quantize_sum in_range
//! local local_x
//! needs dtype=f16 : storage_16bit
#include "lib/access.glsl"
#include "lib/strided.glsl"

#ifdef ZERO_F32
#define Z float
#else
#define Z int
#endif

READS(0, x, T)
READS(1, scale, float)
READS(2, zero, Z)
WRITES(3, y, int)
PUSH(BASE(x) BASE(scale) BASE(zero) BASE(y)
     uint n_elems; float inverse_scale; float zero_point; float low; float high;
     uint sizes[4]; uint x_strides[4]; uint scale_strides[4]; uint zero_strides[4];)

void main() {
    uint i = flat_invocation_id();
    if (i >= n_elems) return;
    float v = LOADF(x, strided_offset(i, sizes, x_strides));
    precise float inverse = inverse_scale;
    if (scale_is_tensor != 0u) inverse = 1.0 / LOADF(scale, strided_offset(i, sizes, scale_strides));
    float z = zero_is_tensor != 0u ? LOADF(zero, strided_offset(i, sizes, zero_strides)) : zero_point;
    // Not one multiply-add: the product has a rounding of its own.
    precise float scaled = v * inverse;
    precise float sum = scaled + z;
    precise float q = op == OP_QUANTIZE_SUM ? roundEven(sum) : roundEven(scaled) + z;
    bool inside = q >= low && q <= high;
    if (op == OP_IN_RANGE) {
        STOREI(y, i, inside ? 1 : 0);
    } else if (is_nan(q)) {
        STOREI(y, i, 0);
    } else {
        STOREI(y, i, int_of_float(q < low ? low : q > high ? high : q));
    }
}

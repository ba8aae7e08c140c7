//! What follows `matmul_parts`: y = f(alpha s + beta bias), s[i] being the sum of the `parts` partial sums of y[i].
//!
//! An invocation adds up the parts of 4 columns, in order. n is a multiple of 4. Work groups: x and y count groups of
//! `local_x` panels of 4 columns.
//! axis access = ssbo bda
//! spec 0 round_mode = 0
//! spec 1 local_x = 64
//! spec 2 has_bias = 0
//! spec 3 adds_y = 0
//! spec 4 activation = 0
//! values activation = none relu clamp gelu_erf gelu_tanh silu sigmoid tanh hardswish hardsigmoid leaky_relu scale
//! local local_x
#include "lib/access.glsl"

READS(0, sums, float)
READS(1, bias, float)
UPDATES(2, y, float)
PUSH(BASE(sums) BASE(bias) BASE(y)
    uint parts; uint n; uint bias_stride; float alpha; float beta; float act_a; float act_b;
)

#include "lib/epilogue.glsl"

void main() {
    uint first = 4u * flat_invocation_id();
    if (first >= n) return;
    vec4 total = vec4(0.0);
    for (uint part = 0u; part < parts; part++) total += LOAD4F(sums, part * n + first);
    for (uint c = 0u; c < 4u; c++) {
        uint column = first + c;
        float value = alpha * total[c];
        if (has_bias != 0u) value += beta * LOADF(bias, column * bias_stride);
        if (adds_y != 0u) value += LOADF(y, column);
        STOREF(y, column, activate(value));
    }
}

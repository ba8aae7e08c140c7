// Element-wise kernels: one contiguous result of up to rank 4 and strided operands, one element an invocation, or
// four where `quads` is 1. Lowering then proved that the innermost size is a multiple of 4, that the result starts
// at a multiple of 4, and that each operand is constant along the innermost dim, or contiguous and aligned.
#ifndef POINTWISE_GLSL
#define POINTWISE_GLSL

// Parameters of every such kernel, for PUSH; strides of the operands follow. Dim 0 is outermost, unused leading dims
// have size 1 and stride 0.
#define POINTWISE_PARAMS uint n_elems; uint quads; uint sizes[4];

// Which side of a function of two is a number instead of a tensor (`number_side`).
const uint NUMBER_NONE = 0u;
const uint NUMBER_LEFT = 1u;
const uint NUMBER_RIGHT = 2u;

// The first element that this invocation computes.
#define FIRST_ELEMENT() (flat_invocation_id() * (quads != 0u ? 4u : 1u))

// Elements of an operand, as vec4 or ivec4: one and three repeats, or four.
#define GATHERF(name, at, inner_stride) \
    (quads != 0u && inner_stride == 1u ? LOAD4F(name, at) : vec4(LOADF(name, at)))
#define GATHERI(name, at, inner_stride) \
    (quads != 0u && inner_stride == 1u ? LOAD4(name, at) : ivec4(LOADI(name, at)))

// Stores what FOUR computed.
#define SCATTERF(name, i, v) \
    if (quads != 0u) { STORE4F(name, i, v); } else { STOREF(name, i, (v).x); }
#define SCATTERI(name, i, v) \
    if (quads != 0u) { \
        STORE4(name, i, ivec4(round_int((v).x), round_int((v).y), round_int((v).z), round_int((v).w))); \
    } else { STOREI(name, i, (v).x); }

// result[k] = expression of k, for four elements or for one.
#define FOUR(result, expression) \
    for (int k = 0; k < 4; k++) { result[k] = expression; if (quads == 0u) break; }

// Offsets of the element that is number `i` in row-major order, in up to three operands.
uint pointwise_offset(uint i, uint sizes[4], uint strides[4]) {
    uint offset = 0u;
    for (int d = 3; d >= 0 && i > 0u; d--) {
        uint outer = i / sizes[d];
        offset += (i - outer * sizes[d]) * strides[d];
        i = outer;
    }
    return offset;
}

uvec2 pointwise_offsets(uint i, uint sizes[4], uint a_strides[4], uint b_strides[4]) {
    uvec2 offsets = uvec2(0u);
    for (int d = 3; d >= 0 && i > 0u; d--) {
        uint outer = i / sizes[d];
        offsets += (i - outer * sizes[d]) * uvec2(a_strides[d], b_strides[d]);
        i = outer;
    }
    return offsets;
}

uvec3 pointwise_offsets(uint i, uint sizes[4], uint a_strides[4], uint b_strides[4], uint c_strides[4]) {
    uvec3 offsets = uvec3(0u);
    for (int d = 3; d >= 0 && i > 0u; d--) {
        uint outer = i / sizes[d];
        offsets += (i - outer * sizes[d]) * uvec3(a_strides[d], b_strides[d], c_strides[d]);
        i = outer;
    }
    return offsets;
}

#endif

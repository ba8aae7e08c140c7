//! Partial sums of one row of a matrix product with packed columns, for Vulkan on the CPU: y[i] = a[K i..] b[K i.., :].
//!
//! There a load in a loop, or at an address that differs among lanes, is gathered lane by lane. Loads outside of control
//! flow at addresses made of push constants alone are plain, and those of neighbours become one of a whole vector; so
//! this kernel has no loop at run time, and work group ids go through a table in the push constants. A work group, which
//! is one full subgroup of 8 invocations, takes K = 128 k and 4 panels of 4 columns. Of each panel lanes 0 to 3 sum the even k in
//! order and lanes 4 to 7 the odd ones. k is a multiple of 128 and at most 128 * 256, n a multiple of 16 and at most
//! 16 * 4096. Work groups: x counts parts of k, y groups of 16 columns. Only device addresses are worth
//! it; the variant with descriptors names the operands.
//! axis access = ssbo bda
//! spec 1 local_x = 8
//! local local_x
//! needs : subgroup
//! needs access=bda : shader_int64
#extension GL_EXT_control_flow_attributes : require
#include "lib/access.glsl"

READS(0, a, float)
READS(1, b, float)
WRITES(2, y, float)
PUSH(BASE(a) BASE(b) BASE(y)
    uint k; uint n;
    uint digits[16]; // 0 to 15
)

const uint DEPTH = 128u;
const uint PANELS = 4u;

// FROM: where operand `name` has element `i`. VECTOR: its 4 elements at a constant vector. ELEMENT: one element.
#ifdef ACCESS_SSBO
#define UNROLL
#define PLACE uint
#define FROM(name, i) (name##_base + (i))
#define VECTOR(name, from, v) name##_data4[((from) >> 2) + (v)]
#define ELEMENT(name, from, i) name##_data[(from) + (i)]
#else
#define UNROLL [[unroll]]
#define PLACE uint64_t
#define FROM(name, i) (packUint2x32(name##_base) + 4ul * uint64_t(i))
#define VECTOR(name, from, v) name##_buffer4(from).data[v]
#define ELEMENT(name, from, i) name##_buffer(from).data[i]
#endif

// The same number; the driver knows that what push constants hold is the same for all lanes.
uint uniform_of(uint i) { return digits[i & 15u] + 16u * digits[i >> 4 & 15u] + 256u * digits[i >> 8 & 15u]; }

// One of 8 values to each lane.
float of_lanes(vec4 low, vec4 high) {
    bvec3 bits = notEqual(gl_SubgroupInvocationID & uvec3(1u, 2u, 4u), uvec3(0u));
    vec2 a = mix(low.xz, low.yw, bvec2(bits.x));
    vec2 b = mix(high.xz, high.yw, bvec2(bits.x));
    vec2 halves = mix(vec2(a.x, b.x), vec2(a.y, b.y), bvec2(bits.y));
    return mix(halves.x, halves.y, bits.z);
}

void main() {
    uint part = uniform_of(gl_WorkGroupID.x);
    uint panel = PANELS * uniform_of(gl_WorkGroupID.y);
    // All of the push constants is read here: a read ends a block of the driver's, and sums move to the last one.
    PLACE y_at = FROM(y, part * n + 4u * panel);
    PLACE a_at = FROM(a, part * DEPTH);
    PLACE b_at = FROM(b, 4u * (panel * k + part * DEPTH));
    PLACE b_step = PLACE(FROM(b, 4u * k)) - PLACE(FROM(b, 0u));
    bool is_odd = gl_SubgroupInvocationID >= 4u;
    float sums[PANELS];
    UNROLL for (uint p = 0u; p < PANELS; p++) sums[p] = 0.0;
    UNROLL for (uint step = 0u; step < DEPTH / 4u; step++) {
        vec4 x = VECTOR(a, a_at, step);
        float x_first = mix(x.x, x.y, is_odd);
        float x_second = mix(x.z, x.w, is_odd);
        UNROLL for (uint p = 0u; p < PANELS; p++) {
            PLACE at = b_at + p * b_step;
            sums[p] += x_first * of_lanes(VECTOR(b, at, 4u * step), VECTOR(b, at, 4u * step + 1u));
            sums[p] += x_second * of_lanes(VECTOR(b, at, 4u * step + 2u), VECTOR(b, at, 4u * step + 3u));
        }
    }
    UNROLL for (uint p = 0u; p < PANELS; p++) sums[p] += subgroupShuffleXor(sums[p], 4u);
    UNROLL for (uint p = 0u; p < PANELS; p += 2u) {
        ELEMENT(y, y_at, 4u * p + gl_SubgroupInvocationID) = mix(sums[p], sums[p + 1u], is_odd);
    }
}

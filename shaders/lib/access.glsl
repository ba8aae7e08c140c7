// How a kernel reaches its operands: the same text for descriptors (ACCESS_SSBO) and device addresses
// (ACCESS_BDA). A template includes this first, declares its operands in slot order, then PUSH.
//
//   READS(slot, name, type)  WRITES(slot, name, type)  UPDATES(slot, name, type)
//   PUSH(BASE(x) BASE(y) uint rows; uint cols;)        bases first, in slot order, for every operand
//   LOAD STORE       raw elements          LOAD4 STORE4     raw vectors of 4
//   LOADF STOREF     as float              LOADI STOREI     as int
//   LOAD4F STORE4F   vec4 at element i; i and the base are multiples of 4 elements, which lowering proves
//   AT(name, i)      the element as an l-value, for atomics
//
// `T` is the type that the dtype axis stores. Stores through STOREF, STOREI and STORE4F apply `round_mode`.
#ifndef ACCESS_GLSL
#define ACCESS_GLSL

#ifdef NEEDS_STORAGE_16BIT
#extension GL_EXT_shader_16bit_storage : require
#endif
#ifdef NEEDS_STORAGE_8BIT
#extension GL_EXT_shader_8bit_storage : require
#endif
#ifdef NEEDS_SHADER_FLOAT16
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif
#ifdef NEEDS_SHADER_INT8
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#endif
#ifdef NEEDS_SHADER_INT16
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#endif
#ifdef NEEDS_SHADER_INT64
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#endif
#ifdef NEEDS_INTEGER_DOT
#extension GL_EXT_integer_dot_product : require
#endif
#ifdef NEEDS_SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_KHR_shader_subgroup_ballot : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
#ifdef ACCESS_BDA
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#endif

// The header's spec constants and work-group size; `make shaders` defines this.
SPEC_CONSTANTS

#if defined(DTYPE_F16)
#define T float16_t
#elif defined(DTYPE_I32)
#define T int
#elif defined(DTYPE_F32)
#define T float
#endif

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)

#define VEC4_float vec4
#define VEC4_float16_t f16vec4
#define VEC4_int ivec4
#define VEC4_uint uvec4
#define VEC4_int8_t i8vec4
#define VEC4_uint8_t u8vec4
#define BYTES_float 4
#define BYTES_float16_t 2
#define BYTES_int 4
#define BYTES_uint 4
#define BYTES_int8_t 1
#define BYTES_uint8_t 1
#define BYTES4_float 16
#define BYTES4_float16_t 8
#define BYTES4_int 16
#define BYTES4_uint 16
#define BYTES4_int8_t 4
#define BYTES4_uint8_t 4

// Element to float and int, and back. Narrow elements go by way of their 32-bit kind, which is all that the
// storage features allow.
#define FLOAT_OF_float(v) (v)
#define FLOAT_OF_float16_t(v) float(v)
#define FLOAT_OF_int(v) float(v)
#define FLOAT_OF_uint(v) float(v)
#define FLOAT_OF_int8_t(v) float(int(v))
#define FLOAT_OF_uint8_t(v) float(uint(v))
#define INT_OF_float(v) int_of_float(v)
#define INT_OF_float16_t(v) int_of_float(float(v))
#define INT_OF_int(v) (v)
#define INT_OF_uint(v) int(v)
#define INT_OF_int8_t(v) int(v)
#define INT_OF_uint8_t(v) int(uint(v))
#define OF_FLOAT_float(v) round_float(v)
#define OF_FLOAT_float16_t(v) float16_t(round_float(v))
#define OF_FLOAT_int(v) int_of_rounded(v)
#define OF_FLOAT_uint(v) uint(int_of_rounded(v))
#define OF_FLOAT_int8_t(v) int8_t(int_of_rounded(v))
#define OF_FLOAT_uint8_t(v) uint8_t(uint(int_of_rounded(v)))
#define OF_INT_float(v) round_float(float(v))
#define OF_INT_float16_t(v) float16_t(round_float(float(v)))
#define OF_INT_int(v) round_int(v)
#define OF_INT_uint(v) uint(round_int(v))
#define OF_INT_int8_t(v) int8_t(round_int(v))
#define OF_INT_uint8_t(v) uint8_t(uint(round_int(v)))
#define VEC4F_OF_float(v) (v)
#define VEC4F_OF_float16_t(v) vec4(v)
#define VEC4F_OF_int(v) vec4(v)
#define VEC4F_OF_uint(v) vec4(v)
#define VEC4F_OF_int8_t(v) vec4(ivec4(v))
#define VEC4F_OF_uint8_t(v) vec4(uvec4(v))
#define OF_VEC4F_float(v) round_vec4(v)
#define OF_VEC4F_float16_t(v) f16vec4(round_vec4(v))
#define OF_VEC4F_int(v) ivec4_of_rounded(v)
#define OF_VEC4F_uint(v) uvec4(ivec4_of_rounded(v))
#define OF_VEC4F_int8_t(v) i8vec4(ivec4_of_rounded(v))
#define OF_VEC4F_uint8_t(v) u8vec4(uvec4(ivec4_of_rounded(v)))

#include "lib/round.glsl"

#ifdef ACCESS_SSBO

#define BASE_TYPE uint
#define DECLARE_(slot, name, type, use) \
    layout(set = 0, binding = slot, std430) use buffer PASTE_(name, _buffer) { type PASTE_(name, _data)[]; }; \
    layout(set = 0, binding = slot, std430) use buffer PASTE_(name, _buffer4) { PASTE_(VEC4_, type) PASTE_(name, _data4)[]; };
#define AT_BASE_(name, base, i) PASTE_(name, _data)[(base) + (i)]
#define AT4_BASE_(name, base, i) PASTE_(name, _data4)[((base) + (i)) >> 2]

#else

#define BASE_TYPE uvec2
#define DECLARE_(slot, name, type, use) \
    layout(buffer_reference, std430, buffer_reference_align = PASTE_(BYTES_, type)) use buffer PASTE_(name, _buffer) { type data[]; }; \
    layout(buffer_reference, std430, buffer_reference_align = PASTE_(BYTES4_, type)) use buffer PASTE_(name, _buffer4) { PASTE_(VEC4_, type) data[]; };
#define AT_BASE_(name, base, i) PASTE_(name, _buffer)(base).data[i]
#define AT4_BASE_(name, base, i) PASTE_(name, _buffer4)(base).data[(i) >> 2]

#endif

#define LOADERS_(name, type) \
    float PASTE_(name, _load_float)(BASE_TYPE base, uint i) { return PASTE_(FLOAT_OF_, type)(AT_BASE_(name, base, i)); } \
    int PASTE_(name, _load_int)(BASE_TYPE base, uint i) { return PASTE_(INT_OF_, type)(AT_BASE_(name, base, i)); } \
    vec4 PASTE_(name, _load_vec4)(BASE_TYPE base, uint i) { return PASTE_(VEC4F_OF_, type)(AT4_BASE_(name, base, i)); }
#define STORERS_(name, type) \
    void PASTE_(name, _store_float)(BASE_TYPE base, uint i, float v) { AT_BASE_(name, base, i) = PASTE_(OF_FLOAT_, type)(v); } \
    void PASTE_(name, _store_int)(BASE_TYPE base, uint i, int v) { AT_BASE_(name, base, i) = PASTE_(OF_INT_, type)(v); } \
    void PASTE_(name, _store_vec4)(BASE_TYPE base, uint i, vec4 v) { AT4_BASE_(name, base, i) = PASTE_(OF_VEC4F_, type)(v); }

#define READS_(slot, name, type) DECLARE_(slot, name, type, readonly) LOADERS_(name, type)
#define WRITES_(slot, name, type) DECLARE_(slot, name, type, writeonly) STORERS_(name, type)
#define UPDATES_(slot, name, type) DECLARE_(slot, name, type, ) LOADERS_(name, type) STORERS_(name, type)
#define READS(slot, name, type) READS_(slot, name, type)
#define WRITES(slot, name, type) WRITES_(slot, name, type)
#define UPDATES(slot, name, type) UPDATES_(slot, name, type)

#define BASE(name) BASE_TYPE name##_base;
#define PUSH(members) layout(push_constant, std430) uniform Push { members };

#define AT(name, i) AT_BASE_(name, name##_base, uint(i))
#define AT4(name, i) AT4_BASE_(name, name##_base, uint(i))
#define LOAD(name, i) AT(name, i)
#define STORE(name, i, v) AT(name, i) = (v)
#define LOAD4(name, i) AT4(name, i)
#define STORE4(name, i, v) AT4(name, i) = (v)
#define LOADF(name, i) name##_load_float(name##_base, uint(i))
#define LOADI(name, i) name##_load_int(name##_base, uint(i))
#define LOAD4F(name, i) name##_load_vec4(name##_base, uint(i))
#define STOREF(name, i, v) name##_store_float(name##_base, uint(i), float(v))
#define STOREI(name, i, v) name##_store_int(name##_base, uint(i), int(v))
#define STORE4F(name, i, v) name##_store_vec4(name##_base, uint(i), v)

// The status word of index kernels: STATUS(slot) declares the operand, BASE(status) goes into PUSH, and
// REPORT(node, kind, value) records the first fault as [node id + 1, kind, value, sign of value].
#define STATUS(slot) UPDATES(slot, status, uint)
#define REPORT(node, kind, value) \
    if (atomicCompSwap(AT(status, 0), 0u, uint(node) + 1u) == 0u) { \
        AT(status, 1) = kind; \
        AT(status, 2) = uint(value); \
        AT(status, 3) = uint(int(value) >> 31); \
    }
const uint STATUS_INDEX = 1u;    // an index outside its range
const uint STATUS_OVERFLOW = 2u; // a result outside 32 bits
const uint STATUS_DOMAIN = 3u;   // an integer operation without a result, as a division by zero

// One-dimensional work is spread over x and y, as group counts stop at 65535 per axis.
uint flat_group_id() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
uint flat_invocation_id() { return flat_group_id() * gl_WorkGroupSize.x + gl_LocalInvocationID.x; }

#endif

// Loads by words, for Vulkan on the CPU: there each lane's load costs the same whatever its width, and half loads are
// made one by one. After this file, LOADF and LOAD4F of what READS declares go by words of 64 bits, and of 32 bits for a
// single half, for which it takes no 16-bit storage. Include it right after `lib/access.glsl`; the template needs
// `shader_int64`.
#ifndef WORDS_GLSL
#define WORDS_GLSL

// WORD64_: the 64-bit word `word` from element `i` on. FLOAT_ and HALF_: the element `i`. HALVES_: those of a 32-bit word.
#ifdef ACCESS_SSBO

#define DECLARE_WORDS_(slot, name) \
    layout(set = 0, binding = slot, std430) readonly buffer PASTE_(name, _buffer32) { uint PASTE_(name, _data32)[]; }; \
    layout(set = 0, binding = slot, std430) readonly buffer PASTE_(name, _buffer64) { uint64_t PASTE_(name, _data64)[]; };
#define WORD64_(name, per_word, base, i, word) PASTE_(name, _data64)[((base) + (i)) / per_word + word]
#define FLOAT_(name, base, i) uintBitsToFloat(PASTE_(name, _data32)[(base) + (i)])
#define HALF_(name, base, i) half_of(PASTE_(name, _data32)[((base) + (i)) >> 1], (base) + (i))
#define HALVES_(name, base, i) unpackHalf2x16(PASTE_(name, _data32)[((base) + (i)) >> 1])

#else

#define DECLARE_WORDS_(slot, name) \
    layout(buffer_reference, std430, buffer_reference_align = 4) readonly buffer PASTE_(name, _buffer32) { uint data[]; }; \
    layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer PASTE_(name, _buffer64) { uint64_t data[]; };
#define WORD64_(name, per_word, base, i, word) PASTE_(name, _buffer64)(base).data[(i) / per_word + word]
#define FLOAT_(name, base, i) uintBitsToFloat(PASTE_(name, _buffer32)(base).data[i])
// An address of a half may lie in the middle of a word.
#define HALF_(name, base, i) half_of( \
    PASTE_(name, _buffer32)(uvec2((base).x & ~2u, (base).y)).data[((i) + ((base).x >> 1 & 1u)) >> 1], \
    (i) + ((base).x >> 1 & 1u))
#define HALVES_(name, base, i) unpackHalf2x16(PASTE_(name, _buffer32)(base).data[(i) >> 1])

#endif

float half_of(uint word, uint i) { return unpackHalf2x16(word >> (16u * (i & 1u))).x; }
vec2 floats_of(uint64_t word) { return uintBitsToFloat(unpackUint2x32(word)); }
vec4 halves_of(uint64_t word) {
    uvec2 words = unpackUint2x32(word);
    return vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y));
}

#define WORD_LOAD_float(name, base, i) FLOAT_(name, base, i)
#define WORD_LOAD_float16_t(name, base, i) HALF_(name, base, i)
#define WORD_LOAD4_float(name, base, i) vec4(floats_of(WORD64_(name, 2, base, i, 0)), floats_of(WORD64_(name, 2, base, i, 1)))
#define WORD_LOAD4_float16_t(name, base, i) halves_of(WORD64_(name, 4, base, i, 0))

// Two elements at `i`; the base and i are multiples of 2 elements, which lowering proves.
#define WORD_LOAD2_float(name, base, i) floats_of(WORD64_(name, 2, base, i, 0))
#define WORD_LOAD2_float16_t(name, base, i) HALVES_(name, base, i)
#define LOAD2F(name, i) name##_load_vec2(name##_base, uint(i))

#undef READS_
#define READS_(slot, name, type) \
    DECLARE_WORDS_(slot, name) \
    float PASTE_(name, _load_float)(BASE_TYPE base, uint i) { return PASTE_(WORD_LOAD_, type)(name, base, i); } \
    vec2 PASTE_(name, _load_vec2)(BASE_TYPE base, uint i) { return PASTE_(WORD_LOAD2_, type)(name, base, i); } \
    vec4 PASTE_(name, _load_vec4)(BASE_TYPE base, uint i) { return PASTE_(WORD_LOAD4_, type)(name, base, i); }

#endif

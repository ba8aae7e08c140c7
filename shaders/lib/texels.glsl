// Operands that a kernel reads as texel views: 4 elements of f32 or f16 at a time, always as floats. A template includes
// this after `lib/access.glsl`, and has `access = ssbo` alone.
//
//   TEXELS(slot, name)    declares the operand; BASE(name) goes into PUSH as for others, and is a multiple of 4
//   TEXEL_AT(name, i)     the number of the texel that begins with element i, a multiple of 4
//   TEXEL(name, t)        texel t, a vec4
#ifndef TEXELS_GLSL
#define TEXELS_GLSL

#define TEXELS(slot, name) layout(set = 0, binding = slot) uniform textureBuffer name##_texels;
#define TEXEL_AT(name, i) ((name##_base + (i)) >> 2)
#define TEXEL(name, t) texelFetch(name##_texels, int(t))

#endif

// What the kernels of products in integers share: 8-bit activations packed by pack_codes, and packed codes of a
// weight, both made unsigned. The formula and its bounds are in runtime/ops/linear_a8/mod.rs.
//
// `x` holds rows of `row_words` words of 4 unsigned bytes, those past K being 0; at `sums_at` the sums of each row and
// group; with `has_factors` at `factors_at` the bits of each row's scale, and its zero point plus the offset.
// Codes lie as lib/codes.glsl says. `side` holds, for each panel, for each group the bits of 4 scales, 4 sums of signed
// codes and, with `has_zeros`, the bits of 4 zero points; then, with `has_bias`, the bits of 4 biases.
#ifndef DOTS_GLSL
#define DOTS_GLSL

#include "lib/access.glsl"

// Float results in 32 bits and codes go through one type, as bits.
#ifdef DTYPE_F16
#define Y float16_t
#else
#define Y int
#endif

READS(0, x, int)
READS(1, codes, int)
READS(2, side, int)
UPDATES(3, y, Y)
PUSH(BASE(x) BASE(codes) BASE(side) BASE(y)
    uint m; uint n;
    uint first_row;     // of x
    uint row_words;     // of x, a multiple of 4
    uint sums_at;
    uint factors_at;
    uint factor_stride; // 2, or 0 where all rows have the same
    float x_scale;      // of all rows, without has_factors
    int x_zero;
    uint blocks;        // of a panel
    uint groups;        // of a panel
    uint group_blocks;
    uint group_columns;
    uint side_stride;   // words of a panel
    uint y_row_stride;
    float inverse_scale; float zero_point; float low; float high; // of the result, where it is quantised
    float act_a; float act_b; // where it is not
)

#include "lib/epilogue.glsl"

const uint BLOCK = 32u / BITS;       // codes of a block's row
const uint BLOCK_WORDS = BLOCK / 4u; // words of x that meet a block
const uint CODE_OFFSET = 1u << (BITS - 1u);

// sum + a b, bytes of one word.
#ifdef DOT_PACKED
uint dot4(uint a, uint b, uint sum) { return dotPacked4x8EXT(a, b) + sum; }
#else
uint dot4(uint a, uint b, uint sum) {
    sum += (a & 0xffu) * (b & 0xffu);
    sum += ((a >> 8) & 0xffu) * ((b >> 8) & 0xffu);
    sum += ((a >> 16) & 0xffu) * ((b >> 16) & 0xffu);
    return sum + (a >> 24) * (b >> 24);
}
#endif

uvec4 dots(uint a, uvec4 b, uvec4 sums) {
    return uvec4(dot4(a, b.x, sums.x), dot4(a, b.y, sums.y), dot4(a, b.z, sums.z), dot4(a, b.w, sums.w));
}

#if BITS == 4
// The low 4 nibbles as bytes.
uvec4 spread(uvec4 nibbles) {
    nibbles = (nibbles | (nibbles << 8)) & 0x00ff00ffu;
    return (nibbles | (nibbles << 4)) & 0x0f0f0f0fu;
}
#endif

// The unsigned codes of a block's 4 rows as bytes that meet word `i` of x.
uvec4 load_codes(uint at, uint i) {
#if BITS == 8
    return uvec4(LOAD4(codes, at)) ^ 0x80808080u;
#else
    uvec4 words = uvec4(LOAD4(codes, at)) ^ 0x88888888u;
    return spread(i == 0u ? words & 0xffffu : words >> 16);
#endif
}

uint group_words() { return has_zeros != 0u ? 12u : 8u; }
uint side_at(uint panel, uint group) { return panel * side_stride + group * group_words(); }

float row_scale(uint row) {
    return has_factors != 0u ? intBitsToFloat(LOAD(x, factors_at + row * factor_stride)) : x_scale;
}

int row_zero(uint row) { return has_factors != 0u ? LOAD(x, factors_at + row * factor_stride + 1u) : x_zero; }

// (high, low) -= a b, in 64 bits.
void subtract_product(inout uint low_word, inout uint high_word, int a, int b) {
    int high_product, low_product;
    imulExtended(a, b, high_product, low_product);
    uint borrow;
    low_word = usubBorrow(low_word, uint(low_product), borrow);
    high_word -= uint(high_product) + borrow;
}

float float_of(uint low_word, uint high_word) {
    if (int(high_word) == int(low_word) >> 31) return float(int(low_word));
    return float(int(high_word)) * 4294967296.0 + float(low_word);
}

// Sums of products of a row and group, without what offsets and zero points have added: modulo 2^32.
ivec4 corrected(uvec4 sums, uint x_sum, int zero, ivec4 code_sums, ivec4 zeros) {
    int rest = int(x_sum - group_columns * uint(zero));
    return ivec4(sums) - int(CODE_OFFSET * x_sum) - zero * code_sums - zeros * rest;
}

// The same with sums of 64 bits, as floats.
vec4 corrected_wide(uvec4 sums, uvec4 highs, uint x_sum, int zero, ivec4 code_sums, ivec4 zeros) {
    vec4 values;
    for (uint c = 0u; c < 4u; c++) {
        uint low_word = sums[c], high_word = highs[c];
        subtract_product(low_word, high_word, int(CODE_OFFSET) + zeros[c], int(x_sum));
        subtract_product(low_word, high_word, code_sums[c] - int(group_columns) * zeros[c], zero);
        values[c] = float_of(low_word, high_word);
    }
    return values;
}

// What a group of a row adds to 4 results, but for the row's scale. `highs` counts for 64-bit sums.
vec4 scaled(uvec4 sums, uvec4 highs, uint row, uint panel, uint group) {
    uint at = side_at(panel, group);
    uint x_sum = uint(LOAD(x, sums_at + row * groups + group));
    int zero = row_zero(row);
    ivec4 code_sums = LOAD4(side, at + 4u);
    vec4 zeros = has_zeros != 0u ? intBitsToFloat(LOAD4(side, at + 8u)) : vec4(0.0);
    vec4 whole = roundEven(zeros);
    precise vec4 values;
    if (wide != 0u || uint(zero) > 255u) {
        values = corrected_wide(sums, highs, x_sum, zero, code_sums, ivec4(whole));
    } else {
        values = vec4(corrected(sums, x_sum, zero, code_sums, ivec4(whole)));
    }
    if (has_zeros != 0u) {
        precise vec4 lost = (zeros - whole) * float(int(x_sum - group_columns * uint(zero)));
        values -= lost;
    }
    precise vec4 product = values * intBitsToFloat(LOAD4(side, at));
    return product;
}

// The integers themselves: one group, and no zero points of the weight.
ivec4 exact(uvec4 sums, uint row, uint panel) {
    uint x_sum = uint(LOAD(x, sums_at + row));
    return corrected(sums, x_sum, row_zero(row), LOAD4(side, side_at(panel, 0u) + 4u), ivec4(0));
}

vec4 biases(uint panel) {
    return has_bias != 0u ? intBitsToFloat(LOAD4(side, side_at(panel, groups))) : vec4(0.0);
}

// As the kernel `quantize` does.
int quantised(float v) {
    precise float product = v * inverse_scale;
    precise float q = roundEven(product) + zero_point;
    if (is_nan(q)) return 0;
    return int_of_float(q < low ? low : q > high ? high : q);
}

void store_result(uint at, float total, float scale, float bias) {
    precise float product = total * scale;
    precise float v = product + bias;
#ifdef DTYPE_F16
    if (adds_y != 0u) v += LOADF(y, at);
    STOREF(y, at, activate(v));
#else
    if (adds_y != 0u) v += intBitsToFloat(LOAD(y, at));
    v = round_float(activate(v));
    STORE(y, at, outcome == OUTCOME_CODES ? quantised(v) : floatBitsToInt(v));
#endif
}

#endif

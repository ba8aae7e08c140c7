// Element offsets of strided tensors of rank 4.
#ifndef STRIDED_GLSL
#define STRIDED_GLSL

// Offset of the element that is number `i` in row-major order; sizes and strides in elements, dim 0 outermost.
uint strided_offset(uint i, uint sizes[4], uint strides[4]) {
    uint offset = 0u;
    for (int d = 3; d >= 0; d--) {
        uint outer = i / sizes[d];
        offset += (i - outer * sizes[d]) * strides[d];
        i = outer;
    }
    return offset;
}

#endif

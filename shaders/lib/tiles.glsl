// Which tile of rows an invocation has, in kernels whose work groups count panels of columns in x and tiles of rows in y.
#ifndef TILES_GLSL
#define TILES_GLSL

// Groups of one tile keep ids of invocations out of it, so that compilers see that all of them read the same rows.
uint tile_of_rows() {
    return gl_WorkGroupSize.y == 1u ? gl_WorkGroupID.x : gl_WorkGroupID.x * gl_WorkGroupSize.y + gl_LocalInvocationID.y;
}

#endif

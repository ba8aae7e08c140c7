// What kernels whose lanes share loads need: the value of one lane, which only a constant can name.
#ifndef LANES_GLSL
#define LANES_GLSL

vec4 of_lane(vec4 value, uint lane) {
    switch (lane) {
        case 0u: return subgroupBroadcast(value, 0u);
        case 1u: return subgroupBroadcast(value, 1u);
        case 2u: return subgroupBroadcast(value, 2u);
        case 3u: return subgroupBroadcast(value, 3u);
        case 4u: return subgroupBroadcast(value, 4u);
        case 5u: return subgroupBroadcast(value, 5u);
        case 6u: return subgroupBroadcast(value, 6u);
        default: return subgroupBroadcast(value, 7u);
    }
}

#endif

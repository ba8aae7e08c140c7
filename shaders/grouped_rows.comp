//! Finds the group of each of `rows` rows: y[r] = the first g with r < offs[g], or -1 for rows behind the last group.
//!
//! `offs` says where each group of rows ends. One that is less than the one before it, or more than `rows`, is reported;
//! the search stays among the groups whatever they hold.
//! axis access = ssbo bda
//! spec 1 local_x = 64
//! local local_x
#include "lib/access.glsl"

READS(0, offs, int)
WRITES(1, y, int)
STATUS(2)
PUSH(BASE(offs) BASE(y) BASE(status) uint rows; uint groups; uint offs_stride; uint node;)

void main() {
    uint i = flat_invocation_id();
    if (i < groups) {
        int end = LOADI(offs, i * offs_stride);
        int start = i > 0u ? LOADI(offs, (i - 1u) * offs_stride) : 0;
        if (end < start || uint(end) > rows) {
            REPORT(node, STATUS_INDEX, end)
        }
    }
    if (i >= rows) return;
    uint first = 0u;
    uint past = groups;
    while (first < past) {
        uint middle = (first + past) / 2u;
        if (LOADI(offs, middle * offs_stride) > int(i)) {
            past = middle;
        } else {
            first = middle + 1u;
        }
    }
    STORE(y, i, first < groups ? int(first) : -1);
}

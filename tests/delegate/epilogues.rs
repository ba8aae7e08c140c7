//! Epilogues of convolutions by other names and through views: as many dispatches as products, with the host's values.

use vkdelegate::passes::{Options, optimise};

use crate::support::*;

/// Programs of one product each, what follows it, and the sizes of the inputs.
const PROGRAMS: &[(&str, &[&[usize]])] = &[
    (
        "input %x: float32[1, 4, 6]
         input %w: float32[4, 4, 3]
         %c: float32[1, 4, 6] = aten.conv1d.padding(input=%x, weight=%w, stride=[1], padding=\"same\")
         %r: float32[1, 4, 6] = aten.relu.default(self=%c)",
        &[&[1, 4, 6], &[4, 4, 3]],
    ),
    (
        "input %x: float32[1, 4, 5, 5]
         input %w: float32[4, 4, 2, 2]
         %c: float32[1, 4, 5, 5] = aten.conv2d.padding(input=%x, weight=%w, stride=[1, 1], padding=\"same\")
         %a: float32[1, 4, 5, 5] = aten.add.Tensor(self=%c, other=%x)
         %r: float32[1, 4, 5, 5] = aten.tanh.default(self=%a)",
        &[&[1, 4, 5, 5], &[4, 4, 2, 2]],
    ),
    (
        "input %x: float32[1, 4, 6]
         input %w: float32[4, 3, 3]
         %c: float32[1, 3, 13] = aten.conv_transpose1d.default(input=%x, weight=%w, stride=[2])
         %r: float32[1, 3, 13] = aten.gelu.default(self=%c)",
        &[&[1, 4, 6], &[4, 3, 3]],
    ),
    (
        "input %x: float32[1, 4, 3, 4]
         input %w: float32[4, 5, 2, 3]
         input %z: float32[1, 5, 4, 6]
         %c: float32[1, 5, 4, 6] = aten.conv_transpose2d.input(input=%x, weight=%w)
         %r: float32[1, 5, 4, 6] = aten.add.Tensor(self=%c, other=%z)",
        &[&[1, 4, 3, 4], &[4, 5, 2, 3], &[1, 5, 4, 6]],
    ),
    (
        "input %x: float32[6, 2, 3]
         input %w: float32[6, 3, 4]
         input %z: float32[2, 3, 2, 4]
         %c: float32[6, 2, 4] = aten.bmm.default(self=%x, mat2=%w)
         %v: float32[2, 3, 2, 4] = aten.view.default(self=%c, size=[2, 3, 2, 4])
         %a: float32[2, 3, 2, 4] = aten.add.Tensor(self=%v, other=%z)
         %r: float32[2, 3, 2, 4] = aten.sigmoid.default(self=%a)",
        &[&[6, 2, 3], &[6, 3, 4], &[2, 3, 2, 4]],
    ),
    (
        "input %x: float32[6, 2, 3]
         input %w: float32[6, 3, 4]
         %c: float32[6, 2, 4] = aten.matmul.default(self=%x, other=%w)
         %f: float32[12, 4] = aten.flatten.using_ints(self=%c, start_dim=0, end_dim=1)
         %u: float32[12, 4, 1] = aten.unsqueeze.default(self=%f, dim=2)
         %r: float32[12, 4, 1] = aten.mul.Tensor(self=%u, other=0.5)",
        &[&[6, 2, 3], &[6, 3, 4]],
    ),
];

#[test]
fn what_follows_a_product_is_part_of_it() {
    on_each_access(|context| {
        for (text, sizes) in PROGRAMS {
            let lines = text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
            let method = program(&format!("graph g\n{lines}\noutput %r\n"));
            let inputs: Vec<_> = sizes.iter().enumerate().map(|(seed, sizes)| floats(sizes, seed)).collect();
            let [fused, alone] = [false, true].map(|unfused| {
                let method = optimise(&method, &Options { unfused, ..Options::default() }).unwrap();
                let mut session = build(context, &method.method);
                let results = assert_matches_host(&mut session, &inputs);
                (session.plan().unwrap().dispatches.len(), results)
            });
            assert!(fused.0 < alone.0, "{} dispatches for {}:\n{text}", fused.0, alone.0);
            assert_close(&fused.1, &alone.1);
        }
    });
}

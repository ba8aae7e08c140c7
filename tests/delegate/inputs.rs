//! Wrong inputs: an error that says which and what was expected, and a session that works afterwards.

use vkdelegate::base::{DType, ErrorKind, HostTensor, Value};

use crate::support::*;

const TEXT: &str = "graph takes_two
input %left: float32[2, 3]
input %index: int64[2]
%s: float32[2, 3] = aten._softmax.default(self=%left, dim=1, half_to_float=false)
%t: float32[3] = aten.sum.dim_IntList(self=%s, dim=[0], keepdim=false)
output %s
output %t
output %index
";

#[test]
fn wrong_inputs_are_named_and_leave_the_session_usable() {
    let method = program(TEXT);
    on_each_route(|context| {
        let mut session = build(context, &method);
        let good = [floats(&[2, 3], 0), ints(&[4, -5])];
        let cases: &[(&[Value], &[&str])] = &[
            (&[floats(&[3, 3], 0), ints(&[0, 1])], &["input 0 `left`", "[3, 3]", "float32[2, 3]"]),
            (&[floats(&[2, 3, 1], 0), ints(&[0, 1])], &["input 0 `left`", "[2, 3, 1]", "float32[2, 3]"]),
            (
                &[Value::Tensor(ramp(DType::F16, &[2, 3], 0)), ints(&[0, 1])],
                &["input 0 `left`", "float16", "float32[2, 3]"],
            ),
            (&[floats(&[2, 3], 0), floats(&[2], 0)], &["input 1 `index`", "float32", "int64[2]"]),
            (&[floats(&[2, 3], 0), Value::None], &["input 1 `index`", "None", "int64[2]"]),
            (&[floats(&[2, 3], 0), Value::Int(3)], &["input 1 `index`", "the int 3", "int64[2]"]),
            (&[floats(&[2, 3], 0)], &["takes 2 inputs", "left, index", "1 were given"]),
            (&[floats(&[2, 3], 0), ints(&[0, 1]), Value::None], &["takes 2 inputs", "3 were given"]),
            (&[], &["takes 2 inputs", "0 were given"]),
            (&[floats(&[2, 3], 0), ints(&[1, (1 << 31) + 5])], &["input 1", "2147483653", "32 bits"]),
        ];
        for (inputs, texts) in cases {
            let error = session.run(inputs).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            for text in *texts {
                assert!(error.to_string().contains(text), "`{text}` is not in: {error}");
            }
            let outputs = assert_matches_host(&mut session, &good);
            assert_eq!(outputs[2].to_i64s(), [4, -5]);
        }
    });
}

#[test]
fn a_buffer_that_is_too_short_is_refused() {
    let error = HostTensor::new(DType::F32, vec![2, 3], vec![0; 20]).unwrap_err();
    assert!(error.to_string().contains("20"), "{error}");
}

#[test]
fn sizes_that_two_inputs_share_must_agree() {
    let text = "graph pair
input %a: float32[s0, 4]
input %b: float32[2*s0]
%s: float32[s0, 4] = aten._softmax.default(self=%a, dim=1, half_to_float=false)
output %s
";
    let method = dynamic_program(text, &[("s0", 2, 8)]);
    on_each_route(|context| {
        let mut session = build(context, &method);
        let error = session.run(&[floats(&[3, 4], 0), floats(&[8], 0)]).unwrap_err();
        assert!(error.to_string().contains("`b`"), "{error}");
        let error = session.run(&[floats(&[9, 4], 0), floats(&[18], 0)]).unwrap_err();
        assert!(error.to_string().contains("`s0` is 9; the program takes 2 to 8"), "{error}");
        assert_matches_host(&mut session, &[floats(&[4, 4], 0), floats(&[8], 0)]);
    });
}

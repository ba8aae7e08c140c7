//! Quantised calls that do not fit together are refused before anything is allocated: by node, operand, what was found and
//! what is supported; never computed in another way.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod common;

use common::one_op::static_method;
use vkdelegate::{base::SymEnv, ir, passes, plan};

/// Why the graph with these lines is refused: `node: operand: reason` for each, or the error of a pass.
fn refusal(lines: &str) -> String {
    let graph = ir::parse_graph(&format!("graph g\n{lines}")).unwrap();
    let method = static_method(graph);
    let optimised = match passes::optimise(&method, &passes::Options::default()) {
        Ok(optimised) => optimised,
        Err(error) => return error.to_string(),
    };
    let refusals = plan::check_all(&optimised.method, &[SymEnv::new()]).unwrap();
    let lines =
        refusals.iter().map(|r| format!("{}: {}: {}", r.node, r.operand.as_deref().unwrap_or(""), r.reason));
    lines.collect::<Vec<_>>().join("\n")
}

/// The graph of a dequantised weight of 5 rows and 12 columns, and its product.
fn weight(constants: &str, dequantise: &str) -> String {
    format!(
        "input %w: int8[5, 12] = parameter \"w\"\n{constants}\ninput %x: float32[2, 12]\n\
         %dq: float32[5, 12] = {dequantise}\n\
         %y: float32[2, 5] = aten.linear.default(input=%x, weight=%dq)\noutput %y\n"
    )
    .replace("\n\n", "\n")
}

/// The graph of activations of 2 rows and 12 columns, given as codes, and their product with a good weight.
fn activations(inputs: &str, dequantise: &str) -> String {
    format!(
        "input %w: int8[5, 12] = parameter \"w\"\n{inputs}\n%dq: float32[2, 12] = {dequantise}\n\
         %dw: float32[5, 12] = quantized_decomposed.dequantize_per_tensor.default(input=%w, scale=0.5, zero_point=0, \
         quant_min=-128, quant_max=127, dtype=int8)\n\
         %y: float32[2, 5] = aten.linear.default(input=%dq, weight=%dw)\noutput %y\n"
    )
}

fn check(graph: &str, wanted: &[&str]) {
    let text = refusal(graph);
    for word in wanted {
        assert!(text.contains(word), "`{word}` is not in the refusal of\n{graph}\n{text}");
    }
}

fn per_channel(args: &str) -> String {
    format!(
        "quantized_decomposed.dequantize_per_channel.default(input=%w, {args}, quant_min=-128, quant_max=127, dtype=int8)"
    )
}

fn group(size: i64) -> String {
    format!(
        "quantized_decomposed.dequantize_per_channel_group.default(w_int8=%w, scales=%s, zero_points=none, quant_min=-8, \
         quant_max=7, dtype=int8, group_size={size}, output_dtype=float32)"
    )
}

fn affine(args: &str) -> String {
    format!(
        "torchao.dequantize_affine.default(input=%w, {args}, input_dtype=int8, quant_min=-128, quant_max=127)"
    )
}

const GROUP_SCALES: &str = "input %s: float32[5, 3] = parameter \"s\"";

/// (F09) A group size that does not divide the columns is no shorter last group.
#[test]
fn group_sizes() {
    for size in [5, 7, 8, 24] {
        let text = format!("is {size}, which does not divide the 12 columns");
        check(&weight(GROUP_SCALES, &group(size)), &["dq: group_size", &text]);
    }
    for size in [1, 0, -4] {
        check(&weight(GROUP_SCALES, &group(size)), &["dq: group_size", &format!("is {size}; a group has 2")]);
    }
    check(&weight(GROUP_SCALES, &group(6)), &["dq: scale", "15 elements in sizes [5, 3]", "takes 10"]);
}

/// (F10) Axes count from either end, and no further.
#[test]
fn axes() {
    let scales = "input %s: float32[5] = parameter \"s\"";
    for axis in [2, -3] {
        let call = per_channel(&format!("scales=%s, zero_points=none, axis={axis}"));
        check(&weight(scales, &call), &["dq: axis", &axis.to_string()]);
    }
    for axis in [1, -1] {
        let call = per_channel(&format!("scales=%s, zero_points=none, axis={axis}"));
        check(&weight(scales, &call), &["dq: scales", "5 elements", "takes 12"]);
    }
}

#[test]
fn scales_and_zero_points() {
    let short = "input %s: float32[4] = parameter \"s\"";
    check(
        &weight(short, &per_channel("scales=%s, zero_points=none, axis=0")),
        &["dq: scales", "4 elements", "takes 5"],
    );
    let zeros =
        |ty: &str| format!("input %s: float32[5] = parameter \"s\"\ninput %z: {ty} = parameter \"z\"");
    let call = per_channel("scales=%s, zero_points=%z, axis=0");
    check(&weight(&zeros("int32[4]"), &call), &["dq: zero_points", "4 elements", "takes 5"]);
    check(&weight(&zeros("int8[5]"), &call), &["dq: zero_points", "int8", "wrap", "int32"]);
    check(&weight(&zeros("bool[5]"), &call), &["dq: zero_points", "bool"]);
    let ints = "input %s: int32[5] = parameter \"s\"";
    check(
        &weight(ints, &per_channel("scales=%s, zero_points=none, axis=0")),
        &["dq: scales", "int32", "float"],
    );
}

#[test]
fn blocks() {
    for (block, words) in [
        ("[1, 5]", ["blocks of 5", "do not divide the size 12"]),
        ("[2, 12]", ["blocks of 2", "do not divide the size 5"]),
        ("[1, 0]", ["blocks of 0", "size 12"]),
        ("[1, -4]", ["blocks of -4", "size 12"]),
        ("[4]", ["[4]", "one size a dim"]),
        ("[1, 1, 4]", ["[1, 1, 4]", "one size a dim"]),
    ] {
        let call = affine(&format!("block_size={block}, scale=%s, zero_point=none"));
        check(&weight(GROUP_SCALES, &call), &["dq: block_size", words[0], words[1]]);
    }
    let call = affine("block_size=[1, 6], scale=%s, zero_point=none");
    check(&weight(GROUP_SCALES, &call), &["dq: scale", "15 elements", "takes 10"]);
}

#[test]
fn dtypes_of_codes() {
    let call = "quantized_decomposed.dequantize_per_tensor.default(input=%w, scale=0.5, zero_point=0, quant_min=0, \
                quant_max=255, dtype=uint8)";
    check(&weight("", call), &["dq: input", "int8", "the op says uint8"]);
    let graph = weight("", &call.replace("uint8", "int64")).replace("%w: int8", "%w: int64");
    check(&graph, &["dq: input", "int64", "uint8, int8, int16 and int32"]);
    let graph = weight("", &call.replace("dtype=uint8", "dtype=float32")).replace("%w: int8", "%w: float32");
    check(&graph, &["dq: input", "float32", "uint8, int8, int16 and int32"]);
}

/// What dequantises activations and does not fit is refused, not lost with the dequantise that fusing removes.
#[test]
fn activations_that_do_not_fit() {
    let call = "quantized_decomposed.dequantize_per_tensor.default(input=%a, scale=0.5, zero_point=0, quant_min=0, \
                quant_max=255, dtype=uint8)";
    check(&activations("input %a: int8[2, 12]", call), &["dq: input", "int8", "the op says uint8"]);
    let call = "quantized_decomposed.dequantize_per_token.default(input=%a, scales=%s, zero_points=%z, quant_min=-128, \
                quant_max=127, dtype=int8, output_dtype=float32)";
    let inputs =
        |sizes: &str| format!("input %a: int8[2, 12]\ninput %s: float32{sizes}\ninput %z: int32{sizes}");
    for sizes in ["[2]", "[1, 12]", "[3, 1]"] {
        check(&activations(&inputs(sizes), call), &["dq: scales", sizes, "take [2, 1]"]);
    }
    let int8 = inputs("[2, 1]").replace("int32", "int8");
    check(&activations(&int8, call), &["dq: zero_points", "int8", "wrap"]);
    let call = "torchao.dequantize_affine.default(input=%a, block_size=[1, 8], scale=%s, zero_point=none, \
                input_dtype=int8, quant_min=-128, quant_max=127)";
    check(&activations(&inputs("[2, 1]"), call), &["dq: block_size", "blocks of 8", "size 12"]);
    let short = activations("input %a: int8[2, 10]", "").replace("float32[2, 12] = \n", "");
    let call = "float32[2, 10] = quantized_decomposed.dequantize_per_tensor.default(input=%a, scale=0.5, zero_point=0, \
                quant_min=-128, quant_max=127, dtype=int8)\n";
    check(
        &short.replacen("%dq: ", &format!("%dq: {call}"), 1),
        &["y: input", "[2, 10]", "takes 12 features"],
    );
}

#[test]
fn ranges() {
    let quantise = |low: i64, high: i64| {
        format!(
            "input %x: float32[2, 12]\n%q: int8[2, 12] = quantized_decomposed.quantize_per_tensor.default(input=%x, \
             scale=0.5, zero_point=0, quant_min={low}, quant_max={high}, dtype=int8)\noutput %q\n"
        )
    };
    check(&quantise(-200, 127), &["q: quant_min", "-200", "does not fit int8"]);
    check(&quantise(-128, 200), &["q: quant_max", "200", "does not fit int8"]);
    let choose = "input %x: float32[2, 12]\n%s: float64[1], %z: int64[1] = \
                  quantized_decomposed.choose_qparams.tensor(input=%x, quant_min=5, quant_max=5, eps=1e-7, \
                  dtype=int8)\noutput %s\noutput %z\n";
    check(choose, &["s: quant_min", "5 is not below quant_max, 5"]);
}

#[test]
fn packed_products() {
    let int8pack = |codes: &str, scales: &str| {
        format!(
            "input %w: {codes} = parameter \"w\"\ninput %s: float32[{scales}] = parameter \"s\"\n\
             input %x: float32[2, 12]\n%y: float32[2, 5] = aten._weight_int8pack_mm.default(self=%x, mat2=%w, \
             scales=%s)\noutput %y\n"
        )
    };
    check(&int8pack("int8[5, 12]", "4"), &["y: scales", "[4]"]);
    check(&int8pack("uint8[5, 12]", "5"), &["y: mat2", "uint8", "int8"]);
    check(&int8pack("int8[5, 10]", "5"), &["y: mat2", "has 10 columns; `self` has 12"]);
    let int_mm = |codes: &str| {
        format!(
            "input %w: {codes} = parameter \"w\"\ninput %s: float32[2, 1]\ninput %a: int8[2, 12]\n\
             %y: int32[2, 5] = aten._int_mm.default(self=%a, mat2=%w)\n\
             %f: float32[2, 5] = aten._to_copy.default(self=%y, dtype=float32)\n\
             %m: float32[2, 5] = aten.mul.Tensor(self=%f, other=%s)\noutput %m\n"
        )
    };
    check(&int_mm("int8[10, 5]"), &["y: ", "10"]);
    check(&int_mm("float32[12, 5]"), &["y: mat2", "float32"]);
    let bias = weight(
        "input %b: float32[4] = parameter \"b\"",
        &affine("block_size=[5, 12], scale=%b, zero_point=none"),
    );
    check(&bias, &["dq: scale", "4 elements", "takes 1"]);
    let call = "quantized_decomposed.dequantize_per_tensor.default(input=%w, scale=0.5, zero_point=0, quant_min=-128, \
                quant_max=127, dtype=int8)";
    let bias =
        weight("input %b: float32[4] = parameter \"b\"", call).replace("weight=%dq", "weight=%dq, bias=%b");
    check(&bias, &["y: bias", "[4]"]);
}

#[test]
fn int4pack_operands() {
    let graph = |codes: &str, or: i64, group: i64, scales: &str, x: &str| {
        let [n, k] = [16, 32];
        format!(
            "input %w: {codes} = parameter \"w\"\ninput %s: {scales} = parameter \"s\"\ninput %x: {x}\n\
             %a: {codes} = aten.bitwise_and.Scalar(self=%w, other=15)\n\
             %c: {codes} = aten.bitwise_or.Scalar(self=%a, other={or})\n\
             %p: uint8[{n}, {}] = aten._convert_weight_to_int4pack_for_cpu.default(self=%c, innerKTiles=2)\n\
             %y: float32[2, {n}] = aten._weight_int4pack_mm_for_cpu.default(self=%x, mat2=%p, qGroupSize={group}, \
             qScaleAndZeros=%s)\noutput %y\n",
            k / 2
        )
    };
    let (codes, scales, x) = ("int32[16, 32]", "float32[1, 16, 2]", "float32[2, 32]");
    assert_eq!(refusal(&graph(codes, 0, 32, scales, x)), "");
    check(&graph(codes, 0, 16, scales, x), &["y", "qGroupSize", "is 16; takes 32, 64, 128 and 256"]);
    check(
        &graph(codes, 0, 64, scales, x),
        &["y", "qGroupSize", "is 64, which does not divide the 32 columns"],
    );
    check(&graph(codes, 0, 32, "float32[1, 15, 2]", x), &["y", "qScaleAndZeros", "[1, 15, 2]", "[1, 16, 2]"]);
    check(&graph(codes, 0, 32, "float16[1, 16, 2]", x), &["y", "qScaleAndZeros", "float16", "float32"]);
    check(&graph(codes, 16, 32, scales, x), &["y", "mat2", "codes other than 0 to 15"]);
    check(&graph("int32[15, 32]", 0, 32, scales, x), &["y", "mat2", "15 rows", "multiples of 16"]);
    check(&graph("int64[16, 32]", 0, 32, scales, x), &["y", "mat2", "int64", "int32"]);
    check(&graph(codes, 0, 32, scales, "float32[2, 30]"), &["y", "self", "[2, 30]", "[M, 32]"]);
    let live = graph(codes, 0, 32, scales, x)
        .replace("%s: float32[1, 16, 2] = parameter \"s\"", "%s: float32[1, 16, 2]");
    check(&live, &["y", "qScaleAndZeros", "run-time data"]);
}

//! The text, the words and the constants of steps.
use super::*;

fn parse(text: &str) -> Result<Steps, String> {
    Steps::parse(text, 2)
}

#[test]
fn every_function_of_the_kernel_is_one_of_the_single_kernels() {
    for &op in Op::ALL {
        assert!(functions::function(op).is_some(), "{}", op.name());
    }
    assert!(Op::ALL.len() <= 96, "three words hold a bit for each");
}

#[test]
fn text_round_trips() {
    for text in [
        "silu x",
        "add x z a=0.5; mul last 2.5 -> slot_0; pow 2.0 last",
        "clamp x a=-inf b=6.0; elu last a=1.5 b=1.0 c=0.25 -> slot_3; maximum slot_3 NaN",
        "exp x -> slot_0; neg last; mul slot_0 last",
        "gt x 0.5 -> slot_0; choose slot_0 z 2.0; choose slot_0 -inf last; choose slot_0 1.0 0.0; round_f16 last",
        "int_le x z; choose last 3.0 z c=4.0",
    ] {
        assert_eq!(parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn what_is_no_chain_is_refused() {
    let fault = |text: &str| parse(text).unwrap_err();
    for text in [
        "",
        "silu",
        "silu x z",
        "add x",
        "sqrts x",
        "choose x z",
        "choose 1.0 2.0 3.0",
        "add x number_c",
        "add x z -> slot_4",
        "add x number",
        "add x z d=1",
    ] {
        assert!(fault(text).contains("no step"), "{text}");
    }
    assert!(fault("add x slot_0").contains("slot_0"));
    assert!(Steps::parse("add x z", 1).unwrap_err().contains("reads z"));
    let long = vec!["neg last"; MAX_STEPS + 1].join("; ");
    assert!(fault(&long).contains("257 steps"));
}

#[test]
fn words_say_where_operands_are() {
    let steps = parse("add x z; mul last 0.5 -> slot_1").unwrap();
    let (add, mul) = (Op::Add as u32, Op::Mul as u32);
    let words = steps.words();
    assert_eq!(words[..4], [add | 3 << 12, 1f32.to_bits(), 0, 0]);
    assert_eq!(words[4..], [mul | 1 << 12 | 2 << 16, 1f32.to_bits(), 0.5f32.to_bits(), 0]);
    let spec = steps.spec();
    assert_eq!((spec.lefts, spec.rights, spec.slots), (1, 1 << 3 | 1 << 1, 2));
    let bits = spec.functions_0.count_ones() + spec.functions_1.count_ones() + spec.functions_2.count_ones();
    assert_eq!(bits, 2);
}

#[test]
fn a_pipeline_holds_few_steps_and_numbers() {
    let steps = parse("add x z; mul last 0.5 -> slot_1; clamp last a=0.5 b=2.0; neg last").unwrap();
    let (heads, numbers) = steps.fixed().unwrap();
    let places: Vec<u32> = heads[..5].iter().map(|head| head >> 20).collect();
    let one = 1f32.to_bits();
    let wanted = [one, 0, 0, one, 0.5f32.to_bits(), 0, 0.5f32.to_bits(), 2f32.to_bits(), 0];
    assert_eq!(numbers[..wanted.len()], wanted);
    assert_eq!(places, [0, 3, 6, 8, 0], "the last zero is the first of three");
    let spec = steps.spec();
    assert_eq!((spec.n_fixed, spec.step_1, spec.number_4), (4, heads[1], 0.5f32.to_bits()));
    let times = |n: usize| vec!["add last z"; n].join("; ");
    assert!(parse(&times(16)).unwrap().are_fixed() && !parse(&times(17)).unwrap().are_fixed());
    assert!(Steps::parse(&times(16), 3).is_ok());
    assert!(Steps::parse(&times(17), 3).unwrap_err().contains("17 steps of 3 tensors"));
    let numbers: Vec<String> = (0..9).map(|n| format!("mul last {n}.5")).collect();
    assert!(!parse(&numbers.join("; ")).unwrap().are_fixed(), "too many numbers");
}

fn call(name: &str, operands: &[u32], result: u32) -> (Call<u32>, u32) {
    let op = Op::named(name).unwrap();
    let operands = operands.iter().map(|&value| Term::Value(value)).collect();
    (Call { op: Some(op), numbers: default_numbers(op), operands }, result)
}

#[test]
fn calls_become_steps_with_slots_for_what_is_read_later() {
    let text =
        |calls: &[(Call<u32>, u32)]| Steps::of(calls).map(|(inputs, steps)| format!("{inputs:?} {steps}"));
    let chain = [call("add", &[1, 2], 3), call("neg", &[3], 4), call("mul", &[4, 4], 5)];
    assert_eq!(text(&chain).unwrap(), "[1, 2] add x z; neg last; mul last last");
    let tree = [call("exp", &[1], 3), call("neg", &[2], 4), call("mul", &[3, 4], 5), call("add", &[3, 5], 6)];
    assert_eq!(text(&tree).unwrap(), "[1, 2] exp x -> slot_0; neg z; mul slot_0 last; add slot_0 last");
    let same = [call("exp", &[1], 3), (Call::same(3), 4), call("neg", &[4], 5)];
    assert_eq!(text(&same).unwrap(), "[1] exp x; neg last");
    let three_inputs = [call("add", &[1, 2], 3), call("mul", &[3, 9], 4)];
    assert_eq!(text(&three_inputs).unwrap(), "[1, 2, 9] add x z; mul last w");
    let four_inputs = [call("add", &[1, 2], 3), call("add", &[3, 9], 4), call("add", &[4, 10], 5)];
    assert_eq!(text(&four_inputs), None);
}

#[test]
fn slots_run_out_and_are_freed() {
    // Values 10.. each wait for the sum at the end.
    let waiting = |n: u32| {
        let mut calls: Vec<_> = (0..n).map(|i| call("exp", &[1], 10 + i)).collect();
        calls.extend((1..n).map(|i| call("add", &[if i == 1 { 10 } else { 100 + i - 1 }, 10 + i], 100 + i)));
        Steps::of(&calls).is_some()
    };
    assert!(waiting(4) && !waiting(5));
    let mut calls = Vec::new();
    for i in 0..50 {
        let x = if i == 0 { 1 } else { 1000 + i - 1 };
        calls.extend([
            call("exp", &[x], 10 + i),
            call("neg", &[10 + i], 100 + i),
            call("add", &[10 + i, 100 + i], 1000 + i),
        ]);
    }
    assert!(Steps::of(&calls).is_some());
    let long: Vec<_> = (0..MAX_STEPS as u32 + 1).map(|i| call("neg", &[i], i + 1)).collect();
    assert!(Steps::of(&long[..MAX_STEPS]).is_some() && Steps::of(&long).is_none());
}

fn eval(text: &str, operands: [f64; MAX_INPUTS]) -> f64 {
    parse(text).unwrap().eval(operands.map(Element::from))
}

#[test]
fn steps_round_to_float32() {
    assert_eq!(eval("add x 1.0; add last -1.0", [1e-9, 0.0, 0.0]), 0.0);
    assert_eq!(eval("add x z a=2.0; mul last x", [3.0, 4.0, 0.0]), 33.0);
    assert!(eval("relu x", [f64::NAN, 0.0, 0.0]).is_nan());
    assert_eq!(eval("round_f16 x", [2049.0, 0.0, 0.0]), 2048.0);
    assert_eq!(eval("round_bf16 x", [257.0, 0.0, 0.0]), 256.0);
}

#[test]
fn truth_values_choose() {
    let capped = "gt x 2.0; choose last 2.0 x";
    assert_eq!([1.0, 3.0].map(|x| eval(capped, [x, 0.0, 0.0])), [1.0, 2.0]);
    assert!(eval(capped, [f64::NAN, 0.0, 0.0]).is_nan());
    assert_eq!(eval("is_nan x; logical_or last z; choose last 1.0 0.0", [f64::NAN, 0.0, 0.0]), 1.0);
    // Floats hold no integer beyond 2^24.
    let large = |int: i64| Element { float: int as f32 as f64, int };
    let [x, z] = [1 << 24, (1 << 24) + 1].map(large);
    let less = |text: &str| parse(text).unwrap().eval([x, z, x]);
    assert_eq!((less("int_lt x z"), less("lt x z")), (1.0, 0.0));
}

#[test]
fn comparisons_of_ints_read_inputs() {
    let compare = call("int_lt", &[1, 2], 3);
    let chosen = call("choose", &[3, 4, 1], 5);
    let (inputs, steps) = Steps::of(&[compare.clone(), chosen]).unwrap();
    assert_eq!((inputs, &*steps.to_string()), (vec![1, 2, 4], "int_lt x z; choose last w x"));
    assert_eq!(steps.int_inputs(), [true, true, false]);
    assert_eq!(steps.spec().thirds, 1 << Source::X as u32);
    assert!(Steps::of(&[call("neg", &[1], 2), call("int_eq", &[2, 3], 4)]).is_none());
}

#[test]
fn the_last_result_is_rounded_when_it_is_stored() {
    let text = |calls: &[(Call<u32>, u32)]| Steps::of(calls).unwrap().1.to_string();
    let (neg, round) = (call("neg", &[1], 2), call("round_f16", &[2], 3));
    assert_eq!(text(&[neg.clone(), round.clone()]), "neg x");
    assert_eq!(text(&[neg, round, call("exp", &[3], 4)]), "neg x; round_f16 last; exp last");
    assert_eq!(text(&[call("round_f16", &[1], 3)]), "round_f16 x");
}

//! What counts as constant, and the chains that say why not.

use super::super::parse_graph;
use super::*;
use crate::base::HostTensor;

fn chain(text: &str, value: &str) -> String {
    let graph = parse_graph(text).unwrap();
    let constness = Constness::analyse(&graph).unwrap();
    constness.chain(&graph, graph.value_named(value).unwrap())
}

#[test]
fn the_chain_leads_to_the_user_input() {
    let text = r#"graph g
input %p_w: float32[4, 4] = parameter "w"
input %style: float32[1, 4]
%addmm: float32[1, 16] = aten.addmm.default(self=%p_w, mat1=%style, mat2=%p_w)
%view: float32[4, 4] = aten.view.default(self=%addmm, size=[4, 4])
%permute: float32[4, 4] = aten.permute.default(self=%view, dims=[1, 0])
%wt: float32[4, 4] = aten.permute.default(self=%p_w, dims=[1, 0])
"#;
    assert_eq!(chain(text, "permute"), "permute <- view <- addmm <- user input \"style\"");
    assert_eq!(chain(text, "wt"), "wt <- parameter \"w\"");
}

#[test]
fn of_a_long_chain_the_middle_is_left_out() {
    let chain_of = |len: usize| {
        let mut text = "graph g\ninput %x: float32[2]\n".to_string();
        for index in 0..len {
            let operand = if index == 0 { "x".to_string() } else { format!("n{}", index - 1) };
            text += &format!("%n{index}: float32[2] = aten.neg.default(self=%{operand})\n");
        }
        chain(&text, &format!("n{}", len - 1))
    };
    assert_eq!(chain_of(9), "n8 <- n7 <- n6 <- n5 <- n4 <- n3 <- n2 <- n1 <- n0 <- user input \"x\"");
    assert_eq!(chain_of(10), "n9 <- n8 <- n7 <- n6 <- n5 <- n4 <- (2 more) <- n1 <- n0 <- user input \"x\"");
}

#[test]
fn a_buffer_written_back_is_not_constant() {
    let text = r#"graph g
input %b_w: float32[4, 4] = buffer "w"
%neg: float32[4, 4] = aten.neg.default(self=%b_w)
output %neg -> %b_w
"#;
    assert_eq!(chain(text, "neg"), "neg <- buffer \"w\", written by output `neg`");
}

#[test]
fn a_write_through_a_view_reaches_the_base_and_every_other_view() {
    let text = r#"graph g
input %c: float32[4, 4] = lifted "c"
%row: float32[4] = aten.select.int(self=%c, dim=0, index=0)
%other: float32[4, 4] = aten.permute.default(self=%c, dims=[1, 0])
%add_: float32[4] = aten.add_.Tensor(self=%row, other=1)
"#;
    assert_eq!(chain(text, "other"), "other <- constant \"c\", written by node `add_` (aten.add_.Tensor)");
}

#[test]
fn a_written_intermediate_is_not_constant_even_before_the_write() {
    let text = r#"graph g
input %c: float32[4] = lifted "c"
%copy: float32[4] = aten.clone.default(self=%c)
%alias: float32[4] = aten.alias.default(self=%copy)
%add_: float32[4] = aten.add_.Tensor(self=%alias, other=1)
"#;
    let graph = parse_graph(text).unwrap();
    let constness = Constness::analyse(&graph).unwrap();
    assert!(constness.is_constant(graph.value_named("c").unwrap()));
    assert!(!constness.is_constant(graph.value_named("copy").unwrap()));
    assert!(!constness.is_constant(graph.value_named("alias").unwrap()));
}

#[test]
fn a_constant_that_shares_memory_with_a_written_buffer_is_not_constant() {
    let mut graph = Graph::new("g");
    let whole = Constant::from_tensor("cache", HostTensor::from_f32(&[4], &[0.0; 4]).unwrap());
    let first = whole.restrided("first", vec![2], vec![1], 0).unwrap();
    let overlapping = whole.restrided("overlapping", vec![2], vec![1], 1).unwrap();
    let apart = whole.restrided("apart", vec![2], vec![1], 2).unwrap();
    let mut add = |name, constant| graph.add_constant_input(name, constant, InputKind::Buffer).unwrap();
    let (first, overlapping, apart) = (add("a", first), add("b", overlapping), add("c", apart));
    graph.add_output(OutputSource::Value(apart), OutputKind::BufferMutation(first));
    let constness = Constness::analyse(&graph).unwrap();
    assert!(!constness.is_constant(first));
    assert_eq!(
        constness.chain(&graph, overlapping),
        "buffer \"overlapping\", written by output `c` through `a`, which shares its memory"
    );
    // `overlapping` reaches into `apart`, which may therefore not be told from it.
    assert!(!constness.is_constant(apart));
}

#[test]
fn constants_of_one_payload_that_do_not_overlap_are_apart() {
    let mut graph = Graph::new("g");
    let whole = Constant::from_tensor("cache", HostTensor::from_f32(&[4], &[0.0; 4]).unwrap());
    let first = whole.restrided("first", vec![2], vec![1], 0).unwrap();
    let apart = whole.restrided("apart", vec![2], vec![1], 2).unwrap();
    let mut add = |name, constant| graph.add_constant_input(name, constant, InputKind::Buffer).unwrap();
    let (first, apart) = (add("a", first), add("c", apart));
    graph.add_output(OutputSource::Value(apart), OutputKind::BufferMutation(first));
    let constness = Constness::analyse(&graph).unwrap();
    assert!(!constness.is_constant(first) && constness.is_constant(apart));
}

#[test]
fn without_a_signature_nothing_is_constant() {
    let text = "graph g without signature\ninput %w: float32[4, 4] = parameter \"w\"\n";
    assert_eq!(chain(text, "w"), "input \"w\" of a program without signature");
    let text = format!("{text}%neg: float32[4, 4] = aten.neg.default(self=%w)\noutput %neg -> %w\n");
    assert_eq!(chain(&text, "w"), "parameter \"w\", written by output `neg`");
}

#[test]
fn a_tensor_ref_is_given_for_constants_only() {
    let graph =
        parse_graph("graph g\ninput %w: float32[2] = parameter \"w\"\ninput %x: float32[2]\n").unwrap();
    let constness = Constness::analyse(&graph).unwrap();
    assert_eq!(constness.tensor_ref(&graph, graph.value_named("w").unwrap()).unwrap().sizes(), [2]);
    let error = constness.tensor_ref(&graph, graph.value_named("x").unwrap()).unwrap_err();
    assert!(error.to_string().contains("user input \"x\""), "{error}");
}

//! The table of op families: one line each.

use super::{
    Op, arg_reduce, attention, batch_norm, binary, cast, chain, choose, compare, conv, create, embedding_q,
    epilogue, grid_sample, grouped, histogram, index, int8pack, join, linear, linear_a8, linear_q, matmul,
    norm, pool, quantize, rearrange, reduce, resize, scan, softmax, sort, ternary, triangle, unary, view,
};

/// Every op family.
#[rustfmt::skip]
pub static OPS: &[&dyn Op] = &[
    &arg_reduce::ArgReduce,
    &attention::Attention,
    &batch_norm::BatchNorm,
    &binary::Binary,
    &binary::Gates,
    &binary::TensorClamp,
    &cast::Cast,
    &chain::Chain,
    &choose::Choose,
    &compare::Compare,
    &conv::Conv,
    &create::Create,
    &embedding_q::EmbeddingQ,
    &embedding_q::PackedEmbedding,
    &epilogue::Fused,
    &grid_sample::GridSample,
    &grouped::GroupedMm,
    &histogram::Histogram,
    &index::IndexRead,
    &index::IndexWrite,
    &index::MaskedScatter,
    &index::OneHot,
    &int8pack::Int8Pack,
    &join::Join,
    &linear::Linear,
    &linear_a8::LinearA8,
    &linear_a8::PackCodes,
    &linear_q::IntMm,
    &linear_q::LinearQ,
    &matmul::Matmul,
    &norm::Norm,
    &pool::AvgPool,
    &pool::MaxPool,
    &quantize::ChooseQparams,
    &quantize::Dequantize,
    &quantize::FakeQuantize,
    &quantize::Quantize,
    &rearrange::Rearrange,
    &reduce::Reduce,
    &resize::Resize,
    &scan::Scan,
    &softmax::Softmax,
    &sort::Sort,
    &ternary::Ternary,
    &triangle::Triangle,
    &unary::Unary,
    &view::Copy,
    &view::Overwrite,
    &view::Views,
];

/// Ops that passes make and no program holds.
const OWN_LIBRARY: &str = "vkdelegate.";

/// The family that takes `target`.
pub fn find(target: &str) -> Option<&'static dyn Op> {
    OPS.iter().copied().find(|op| op.targets().contains(&target))
}

/// Every target that a program may call and some family takes, sorted.
pub fn supported_targets() -> Vec<&'static str> {
    let targets = OPS.iter().flat_map(|op| op.targets().iter().copied());
    let mut targets: Vec<&str> = targets.filter(|target| !target.starts_with(OWN_LIBRARY)).collect();
    targets.sort_unstable();
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_target_is_taken_twice() {
        let targets = supported_targets();
        assert!(targets.windows(2).all(|pair| pair[0] != pair[1]), "{targets:?}");
    }
}

//! `_weight_int4pack_mm_for_cpu` becomes a `linear` with a dequantised weight, where its codes are known.
//!
//! The op computes `x W^T` with `W[n, k] = (code[n, k] - 8) * scale[n, g] + zero[n, g]`, g being the group of k. Its codes
//! are constants that the program packs itself, or constants that were packed before the export: how those lie depends on
//! the machine that packed them, which only the user knows. See [`Int4PackLayout`].

use std::collections::HashSet;

use super::weight::{concrete_sizes, defined_by, dtype_of, first_value, keeps_everything};
use crate::{
    base::{DType, Error, HostTensor, Result, SymExpr},
    ir::{
        Arg, Constant, Constness, Graph, InputKind, IntArg, Node, NodeId, Patch, TensorType, Type, ValueId,
    },
    passes::evaluate::{Evaluator, FoldLimits},
};

const PRODUCT: &str = "aten._weight_int4pack_mm_for_cpu.default";
const PACKING: &str = "aten._convert_weight_to_int4pack_for_cpu.default";

/// What torch takes for `qGroupSize`.
const GROUP_SIZES: [usize; 4] = [32, 64, 128, 256];

/// Rows of a packed weight are a multiple of this.
const ROW_MULTIPLE: usize = 16;

/// How `aten._convert_weight_to_int4pack_for_cpu` lays out a weight `[N, K]` of 4-bit codes in bytes, which depends on the
/// CPU that it runs on and is not in the file.
///
/// Rows are cut into blocks of B; a block holds, for each column in turn, B / 2 bytes of two rows each, the first row in
/// the low bits. A last block of fewer rows holds neighbours, in every layout.
///
/// `torch.backends.cpu.get_cpu_capability()` says which layout a machine makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Int4PackLayout {
    /// `AVX512`: B is 64, and a byte holds rows j and j + 32.
    Avx512,
    /// `AVX2`: B is 32, and a byte holds rows j and j + 16.
    Avx2,
    /// `DEFAULT` on x86: B is 32, and a byte holds the neighbours 2j and 2j + 1.
    Scalar,
}

impl Int4PackLayout {
    /// The codes, row-major, of `bytes`, a packed weight `[rows, columns]`; `None` when they are too few.
    fn unpacked(self, bytes: &[u8], rows: usize, columns: usize) -> Option<Vec<u8>> {
        let block = if self == Int4PackLayout::Avx512 { 64 } else { 32 };
        let mut codes = Vec::with_capacity(rows * columns);
        for row in 0..rows {
            let (start, index) = (row / block * block, row % block);
            let height = block.min(rows - start);
            let joins_halves = height == block && self != Int4PackLayout::Scalar;
            let (byte, is_high) = match joins_halves {
                true => (index % (block / 2), index >= block / 2),
                false => (index / 2, index % 2 == 1),
            };
            for column in 0..columns {
                let pair = bytes.get(start * columns / 2 + column * height / 2 + byte)?;
                codes.push(if is_high { pair >> 4 } else { pair & 15 });
            }
        }
        Some(codes)
    }
}

/// Rewrites every product whose codes are known; gives the names of the nodes that it has added.
///
/// # Errors
/// Operands that do not fit each other, naming the node.
pub(super) fn run(
    graph: &mut Graph,
    layout: Option<Int4PackLayout>,
    limits: &FoldLimits,
) -> Result<HashSet<String>> {
    let mut found = Vec::new();
    if !graph.nodes().any(|(_, node)| node.op == *PRODUCT) {
        return Ok(HashSet::new());
    }
    let constness = Constness::analyse(graph)?;
    let mut finder =
        Finder { graph, constness: &constness, evaluator: Evaluator::new(graph, limits), layout };
    for (id, node) in graph.nodes().filter(|(_, node)| node.op == *PRODUCT) {
        found.extend(finder.product(id, node).map_err(|error| error.at_node(&node.name))?);
    }
    found.into_iter().map(|product| product.apply(graph)).collect()
}

/// A product whose codes are known.
struct Product {
    node: NodeId,
    x: ValueId,
    dtype: DType,
    group: usize,
    /// uint8, sizes `[N, K]`.
    codes: HostTensor,
    /// float32, sizes `[N, K / group]`.
    scales: HostTensor,
    /// float32, sizes `[N, K / group]`: the code of 0.
    zeros: HostTensor,
}

impl Product {
    fn apply(self, graph: &mut Graph) -> Result<String> {
        let name = graph.node(self.node)?.name.clone();
        let sizes: Vec<SymExpr> =
            self.codes.sizes().iter().map(|&size| SymExpr::Const(size as i64)).collect();
        let ty = Type::Tensor(TensorType { dtype: self.dtype, sizes });
        let mut constant = |what: &str, tensor: HostTensor| {
            let name = format!("{name}_{what}");
            let constant = Constant::from_tensor(&name, tensor);
            graph.add_constant_input(&name, constant, InputKind::Derived).map(Arg::Value)
        };
        let codes = constant("codes", self.codes)?;
        let (scale, zero) = (constant("scales", self.scales)?, constant("zeros", self.zeros)?);
        let args = vec![
            ("input", codes),
            ("block_size", Arg::Ints(vec![IntArg::Const(1), IntArg::Const(self.group as i64)])),
            ("scale", scale),
            ("zero_point", zero),
            ("input_dtype", Arg::DType(DType::U8)),
            ("quant_min", Arg::Int(0)),
            ("quant_max", Arg::Int(15)),
            ("output_dtype", Arg::DType(self.dtype)),
        ];
        let weight_name = graph.unique_name(&format!("{name}_weight"));
        let mut patch = Patch::new(graph);
        let weight = patch.node(&weight_name, "torchao.dequantize_affine.default", args, ty);
        let args = vec![("input", Arg::Value(self.x)), ("weight", Arg::Value(weight))];
        patch.becomes("aten.linear.default", args);
        patch.apply(graph, self.node)?;
        Ok(weight_name)
    }
}

struct Finder<'a> {
    graph: &'a Graph,
    constness: &'a Constness,
    evaluator: Evaluator<'a>,
    layout: Option<Int4PackLayout>,
}

impl Finder<'_> {
    /// `node` with its codes; `None` when nobody knows them.
    fn product(&mut self, id: NodeId, node: &Node) -> Result<Option<Product>> {
        let operand = |name: &str| {
            node.value_arg(name).ok_or_else(|| Error::invalid_graph("is missing").at_operand(name))
        };
        let (x, packed, params) = (operand("self")?, operand("mat2")?, operand("qScaleAndZeros")?);
        let Some(codes) = self.codes(packed)? else { return Ok(None) };
        let &[n, k] = codes.sizes() else { return Err(Error::internal("codes are no matrix")) };
        let dtype = self.check_x(x, k).map_err(|error| error.at_operand("self"))?;
        let group = group_size(node, k).map_err(|error| error.at_operand("qGroupSize"))?;
        let wanted = [k / group, n, 2];
        let sizes = concrete_sizes(self.graph, params);
        if sizes.as_deref() != Some(&wanted) || dtype_of(self.graph, params) != Some(dtype) {
            let found = self.graph.value(params)?.ty.clone();
            let text =
                format!("is {found}; {n} rows of {k} columns in groups of {group} take {dtype}{wanted:?}");
            return Err(Error::invalid_graph(text).at_operand("qScaleAndZeros"));
        }
        if !self.constness.is_constant(params) {
            let text = "is run-time data; scales of packed weights are constants of the program";
            return Err(Error::unsupported(text).at_operand("qScaleAndZeros"));
        }
        let params = self.evaluate(params).map_err(|error| error.at_operand("qScaleAndZeros"))?;
        let (codes, scales, zeros) = affine(codes, &params.to_f32s(), group)?;
        Ok(Some(Product { node: id, x, dtype, group, codes, scales, zeros }))
    }

    /// The codes behind `packed`, in uint8 `[N, K]`.
    fn codes(&mut self, packed: ValueId) -> Result<Option<HostTensor>> {
        let mut source = packed;
        while let Some(node) = defined_by(self.graph, source) {
            let Some(first) = first_value(node) else { break };
            if node.op == *PACKING {
                return match self.constness.is_constant(first) {
                    true => self.codes_to_pack(first).map(Some),
                    false => Ok(None),
                };
            }
            if !keeps_everything(self.graph, node, first) {
                break;
            }
            source = first;
        }
        match self.layout {
            Some(layout) if self.constness.is_constant(packed) => self.packed_codes(packed, layout).map(Some),
            _ => Ok(None),
        }
    }

    /// The operand of the op that packs, int32 `[N, K]`.
    fn codes_to_pack(&mut self, codes: ValueId) -> Result<HostTensor> {
        let at_operand = |error: Error| error.at_operand("mat2");
        let codes = self.evaluate(codes).map_err(at_operand)?;
        let &[n, k] = codes.sizes() else { return Err(at_operand(no_matrix(&codes, "int32[N, K]"))) };
        check_sizes(n, k).map_err(at_operand)?;
        let bytes: Option<Vec<u8>> = codes
            .to_i64s()
            .into_iter()
            .map(|code| u8::try_from(code).ok().filter(|&code| code < 16))
            .collect();
        match bytes {
            Some(bytes) if codes.dtype() == DType::I32 => HostTensor::new(DType::U8, vec![n, k], bytes),
            Some(_) => Err(at_operand(no_matrix(&codes, "int32[N, K]"))),
            None => Err(at_operand(Error::invalid_graph("is packed from codes other than 0 to 15"))),
        }
    }

    /// The codes of a weight that was packed before the export, uint8 `[N, K / 2]`.
    fn packed_codes(&mut self, packed: ValueId, layout: Int4PackLayout) -> Result<HostTensor> {
        let at_operand = |error: Error| error.at_operand("mat2");
        let packed = self.evaluate(packed).map_err(at_operand)?;
        let (&[n, pairs], DType::U8) = (packed.sizes(), packed.dtype()) else {
            return Err(at_operand(no_matrix(&packed, "uint8[N, K / 2]")));
        };
        let k = 2 * pairs;
        check_sizes(n, k).map_err(at_operand)?;
        let codes = layout.unpacked(packed.bytes(), n, k);
        HostTensor::new(
            DType::U8,
            vec![n, k],
            codes.ok_or_else(|| Error::internal("a packed weight is too short"))?,
        )
    }

    fn evaluate(&mut self, value: ValueId) -> Result<HostTensor> {
        self.evaluator.evaluate(value, true).map_err(Error::unsupported)?.to_tensor()
    }

    /// The dtype of x, which has to be `[M, k]`.
    fn check_x(&self, x: ValueId, k: usize) -> Result<DType> {
        let ty = &self.graph.value(x)?.ty;
        match ty.as_tensor().map(|ty| (ty.dtype, ty.sizes.as_slice())) {
            Some((dtype @ (DType::F32 | DType::F16 | DType::BF16), [_, last]))
                if last.as_const() == i64::try_from(k).ok() =>
            {
                Ok(dtype)
            }
            _ => Err(Error::invalid_graph(format!("is {ty}; the weight takes floats of sizes [M, {k}]"))),
        }
    }
}

fn no_matrix(found: &HostTensor, wanted: &str) -> Error {
    Error::invalid_graph(format!("is packed from {}{:?}; takes {wanted}", found.dtype(), found.sizes()))
}

fn check_sizes(n: usize, k: usize) -> Result<()> {
    if n == 0 || !n.is_multiple_of(ROW_MULTIPLE) || k == 0 || !k.is_multiple_of(2) {
        let text =
            format!("holds {n} rows of {k} codes; rows come in multiples of {ROW_MULTIPLE}, codes in pairs");
        return Err(Error::invalid_graph(text));
    }
    Ok(())
}

fn group_size(node: &Node, k: usize) -> Result<usize> {
    let Some(Arg::Int(size)) = node.arg("qGroupSize") else {
        return Err(Error::unsupported("is no number of the program"));
    };
    let group = usize::try_from(*size).ok().filter(|size| GROUP_SIZES.contains(size));
    let group = group.ok_or_else(|| Error::invalid_graph(format!("is {size}; takes 32, 64, 128 and 256")))?;
    if !k.is_multiple_of(group) {
        return Err(Error::invalid_graph(format!("is {group}, which does not divide the {k} columns")));
    }
    Ok(group)
}

/// From `(code - 8) * scale + zero` to `(code - zero') * scale'`: codes, scales and zero points. `params` holds scale and
/// zero of sizes `[K / group, N, 2]`.
fn affine(codes: HostTensor, params: &[f32], group: usize) -> Result<(HostTensor, HostTensor, HostTensor)> {
    const MIDDLE: u8 = 8;
    let &[n, k] = codes.sizes() else { return Err(Error::internal("codes are no matrix")) };
    let groups = k / group;
    let mut bytes = codes.bytes().to_vec();
    let (mut scales, mut zeros) = (Vec::with_capacity(n * groups), Vec::with_capacity(n * groups));
    for row in 0..n {
        for index in 0..groups {
            let at = 2 * (index * n + row);
            let &[scale, zero] = params.get(at..at + 2).unwrap_or_default() else {
                return Err(Error::internal("scales of a packed weight are too few"));
            };
            if scale == 0.0 && zero != 0.0 {
                // All weights of the group are `zero`: one step above the middle, with that as the step.
                bytes[row * k + index * group..][..group].fill(MIDDLE + 1);
                scales.push(zero);
                zeros.push(f32::from(MIDDLE));
            } else {
                scales.push(scale);
                zeros.push(f32::from(MIDDLE) - if zero == 0.0 { 0.0 } else { zero / scale });
            }
        }
    }
    Ok((
        HostTensor::new(DType::U8, vec![n, k], bytes)?,
        HostTensor::from_f32(&[n, groups], &scales)?,
        HostTensor::from_f32(&[n, groups], &zeros)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `torch.ops.aten._convert_weight_to_int4pack_for_cpu` gives on each kind of CPU for codes
    /// `(3 n + 5 k + n // 16) % 16` of sizes [80, 2].
    const PACKED: [(Int4PackLayout, &str); 3] = [
        (
            Int4PackLayout::Scalar,
            "3096fc52b81e74da41a70d63c92f85eb85eb41a70d63c92f96fc52b81e74da3052b81e74da3096fc63c92f85eb41a70d\
             a70d63c92f85eb41b81e74da3096fc5274da3096fc52b81ec92f85eb41a70d63",
        ),
        (
            Int4PackLayout::Avx2,
            "104376a9dc0f326598cbfe215487baed6598cbfe215487baed104376a9dc0f32326598cbfe215487baed104376a9dc0f\
             87baed104376a9dc0f326598cbfe215474da3096fc52b81ec92f85eb41a70d63",
        ),
        (
            Int4PackLayout::Avx512,
            "205386b9ec1f4275a8db0e316497cafd316497cafd205386b9ec1f4275a8db0e75a8db0e316497cafd205386b9ec1f42\
             86b9ec1f4275a8db0e316497cafd205374da3096fc52b81ec92f85eb41a70d63",
        ),
    ];

    #[test]
    fn every_layout_gives_back_the_codes() {
        let wanted: Vec<u8> = (0..80u8)
            .flat_map(|n| [0, 5].map(|k| ((u32::from(n) * 3 + k + u32::from(n) / 16) % 16) as u8))
            .collect();
        for (layout, packed) in PACKED {
            let bytes: Vec<u8> = packed
                .as_bytes()
                .chunks(2)
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect();
            assert_eq!(layout.unpacked(&bytes, 80, 2), Some(wanted.clone()), "{layout:?}");
            assert_eq!(layout.unpacked(&bytes[1..], 80, 2), None, "{layout:?}");
        }
    }

    #[test]
    fn scales_of_zero_keep_their_zero() {
        let codes = HostTensor::new(DType::U8, vec![2, 2], vec![0, 15, 3, 9]).unwrap();
        let (codes, scales, zeros) = affine(codes, &[0.0, 0.5, 2.0, -4.0], 2).unwrap();
        assert_eq!(codes.bytes(), [9, 9, 3, 9]);
        assert_eq!((scales.to_f32s(), zeros.to_f32s()), (vec![0.5, 2.0], vec![8.0, 10.0]));
    }
}

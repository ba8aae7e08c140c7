//! Constants and words as kernels get them.
use half::f16;

use super::{source::clamped_f16, *};
use crate::ir::{Constness, parse_graph};

fn prepack(text: &str, packing: Packing, element: Element) -> Prepack {
    let graph = parse_graph(text).unwrap();
    let constness = Constness::analyse(&graph).unwrap();
    let constant = constness.tensor_ref(&graph, graph.value_named("w").unwrap()).unwrap();
    Prepack::new(constant, packing, element, false)
}

fn constant(prepack: &Prepack) -> &crate::ir::Constant {
    match prepack {
        Prepack::Constant(packed) => packed.constant.constant(),
        Prepack::Words { .. } => panic!("words"),
    }
}

#[test]
fn words_lie_as_they_are() {
    let words = |words: &[u32]| Prepack::Words { name: "node".to_string(), words: words.into() };
    let prepack = words(&[1, 2, 3, 4, 5, 0xffff_ffff]);
    let mut bytes = vec![0; prepack.len_bytes().unwrap()];
    let (first, rest) = bytes.split_at_mut(16);
    prepack.write(16, rest).unwrap();
    prepack.write(0, first).unwrap();
    assert_eq!((bytes[4], bytes[16], bytes[23]), (2, 5, 255));
    assert_eq!(prepack.key(), Prepack::Words { name: "other".to_string(), words: words_of(&prepack) }.key());
    assert_ne!(prepack.key(), words(&[1]).key());
}

fn words_of(prepack: &Prepack) -> Arc<[u32]> {
    let mut bytes = vec![0; prepack.len_bytes().unwrap()];
    prepack.write(0, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

#[test]
fn panels_hold_four_rows_side_by_side() {
    let prepack =
        prepack("graph g\ninput %w: float32[5, 3] = parameter \"w\"", Packing::Panels4, Element::F32);
    let mut bytes = vec![0xffu8; prepack.len_bytes().unwrap()];
    assert_eq!(bytes.len(), 2 * 4 * 3 * 4);
    prepack.write(0, &mut bytes).unwrap();
    let packed: Vec<f32> =
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let plain = constant(&prepack).to_tensor().unwrap().to_f32s();
    for n in 0..8 {
        for k in 0..3 {
            let want = if n < 5 { plain[n * 3 + k] } else { 0.0 };
            assert_eq!(packed[((n / 4) * 3 + k) * 4 + n % 4], want, "({n}, {k})");
        }
    }
}

#[test]
fn codes_lie_in_words_of_one_row() {
    for (dtype, bits, offset) in [("int8", 8, 0), ("uint8", 8, 128), ("int8", 4, 0), ("uint8", 4, 8)] {
        let text = format!("graph g\ninput %w: {dtype}[5, 11] = parameter \"w\"");
        let prepack = prepack(&text, Packing::Codes { bits, offset }, Element::I32);
        let blocks = if bits == 8 { 3 } else { 2 };
        let mut bytes = vec![0xffu8; prepack.len_bytes().unwrap()];
        assert_eq!(bytes.len(), 2 * blocks * 16);
        prepack.write(0, &mut bytes).unwrap();
        let plain = constant(&prepack).to_tensor().unwrap().to_i64s();
        let words: Vec<u32> =
            bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let (codes_a_word, mask) = (32 / usize::from(bits), (1u32 << bits) - 1);
        for n in 0..8 {
            for k in 0..blocks * codes_a_word {
                let word = words[((n / 4) * blocks + k / codes_a_word) * 4 + n % 4];
                let got = word >> (k % codes_a_word * usize::from(bits)) & mask;
                let want = if n < 5 && k < 11 { plain[n * 11 + k] - i64::from(offset) } else { 0 };
                assert_eq!(got, want as u32 & mask, "{dtype} in {bits} bits at ({n}, {k})");
            }
        }
    }
}

#[test]
fn split_bytes_lie_as_codes_of_4_bits() {
    let order =
        |bits: u8| (0..8 / bits).map(|i| split_code(0b11_01_10_00, bits, i.into())).collect::<Vec<_>>();
    assert_eq!((order(4), order(2)), (vec![13, 8], vec![0, 2, 1, 3]));
    for bits in [4u8, 2] {
        let text = "graph g\ninput %w: uint8[5, 3] = parameter \"w\"";
        let prepack = prepack(text, Packing::Split { bits }, Element::I32);
        let (each, plain) = (8 / usize::from(bits), constant(&prepack).to_tensor().unwrap());
        let (k, blocks) = (3 * each, (3 * each).div_ceil(8));
        let mut bytes = vec![0xffu8; prepack.len_bytes().unwrap()];
        assert_eq!(bytes.len(), 2 * blocks * 16);
        prepack.write(0, &mut bytes).unwrap();
        let words: Vec<u32> =
            bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        for n in 0..8 {
            for column in 0..blocks * 8 {
                let got = words[((n / 4) * blocks + column / 8) * 4 + n % 4] >> (column % 8 * 4) & 15;
                let is_inside = n < 5 && column < k;
                let code = |byte: u8| i32::from(split_code(byte, bits, column)) - (1 << (bits - 1));
                let want = if is_inside { code(plain.bytes()[n * 3 + column / each]) } else { 0 };
                assert_eq!(got, want as u32 & 15, "{bits} bits at ({n}, {column})");
            }
        }
    }
}

#[test]
fn panels_of_halves_hold_the_same_as_those_of_floats() {
    let text = "graph g\ninput %w: float16[6, 5] = parameter \"w\"";
    let packed = |element: Element| {
        let prepack = prepack(text, Packing::Panels4, element);
        let mut bytes = vec![0xffu8; prepack.len_bytes().unwrap()];
        prepack.write(0, &mut bytes).unwrap();
        bytes
    };
    let (halves, floats) = (packed(Element::F16), packed(Element::F32));
    let halves: Vec<f32> =
        halves.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect();
    let floats: Vec<f32> =
        floats.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    assert_eq!(halves, floats);
}

#[test]
fn pieces_equal_the_whole() {
    for (dtype, element) in [("float32", Element::F16), ("float32", Element::F32), ("float16", Element::F16)]
    {
        let text = format!("graph g\ninput %w: {dtype}[6, 10] = parameter \"w\"");
        let prepack = prepack(&text, Packing::Panels4, element);
        let mut whole = vec![0xffu8; prepack.len_bytes().unwrap()];
        prepack.write(0, &mut whole).unwrap();
        for quads in [1, 3, 7, 64] {
            let piece_bytes = quads * 4 * element.size_bytes();
            let mut pieces = vec![0xeeu8; whole.len()];
            for (index, piece) in pieces.chunks_mut(piece_bytes).enumerate() {
                prepack.write(index * piece_bytes, piece).unwrap();
            }
            assert_eq!(whole, pieces, "{dtype} as {element:?}, {quads} quads a piece");
        }
    }
}

#[test]
fn halves_clamp_finite_values_only() {
    assert_eq!(clamped_f16(-1e9).to_f32(), -65504.0);
    assert_eq!(clamped_f16(f32::NEG_INFINITY).to_f32(), f32::NEG_INFINITY);
    assert!(clamped_f16(f32::NAN).is_nan());
}

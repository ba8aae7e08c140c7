//! Launches of products on small devices, and how dims merge.

use super::*;
use crate::{
    base::DType,
    ops::Precision,
    shader::{Candidate, DeviceProfile, OperandAccess, Region, StorageId},
};

fn tensor(id: u32, sizes: &[usize]) -> Tensor {
    Tensor {
        storage: StorageId(id),
        dtype: DType::F32,
        element: Element::F32,
        sizes: sizes.to_vec(),
        strides: shape::contiguous_strides(sizes),
        offset_elems: 0,
    }
}

/// The dispatches of `[m, k]` times a packed weight of `[n, k]`, as (operand regions, groups).
fn linear(profile: &DeviceProfile, m: usize, k: usize, n: usize) -> Vec<(Vec<Region>, [u32; 3])> {
    let mut cx = Lowering::new(profile, Precision::F32);
    let product = Product::new(tensor(0, &[m, k]), Columns::Panels(tensor(1, &[n, k])));
    product.emit(&mut cx, &tensor(2, &[m, n])).unwrap();
    let dispatches = cx.finish().dispatches.into_iter();
    dispatches.map(|d| (d.operands.iter().map(|operand| operand.region).collect(), d.groups)).collect()
}

#[test]
fn a_row_of_millions_of_columns_stays_within_group_limits() {
    for n in [270_336, 2_703_360] {
        for (_, groups) in linear(&DeviceProfile::minimum(), 1, 64, n) {
            assert!(groups.iter().all(|&count| (1..=65535).contains(&count)), "{groups:?}");
        }
    }
}

#[test]
fn a_weight_beyond_a_descriptor_is_bound_in_pieces_that_join() {
    let profile = DeviceProfile::minimum();
    let (k, n) = (260, 151_936);
    for m in [1, 3] {
        let launches = linear(&profile, m, k, n);
        assert!(launches.len() > 1);
        let mut next = 0;
        for (regions, _) in &launches {
            assert_eq!(regions[1].offset_bytes, next);
            assert!(regions[1].len_bytes <= profile.max_storage_buffer_range_bytes);
            next += regions[1].len_bytes;
        }
        assert_eq!(next, (n * k * 4) as u64);
    }
}

#[test]
fn few_work_groups_a_launch_split_rows_and_columns() {
    let profile = DeviceProfile { max_groups: [7; 3], ..DeviceProfile::minimum() };
    let launches = linear(&profile, 500, 8, 2000);
    assert!(launches.iter().all(|(_, groups)| groups.iter().all(|&count| count <= 7)));
    let first_elems: std::collections::BTreeSet<u64> =
        launches.iter().map(|(regions, _)| regions[3].offset_bytes).collect();
    assert_eq!(first_elems.len(), launches.len());
}

#[test]
fn few_rows_of_many_terms_are_shared_on_gpus() {
    let kernel_of = |class: DeviceClass, m: usize, k: usize, n: usize| {
        let gpu =
            DeviceProfile { max_invocations: 1024, max_group_size: [1024; 3], ..DeviceProfile::minimum() };
        let profile = DeviceProfile { class, ..gpu };
        let mut cx = Lowering::new(&profile, Precision::F32);
        let product = Product::new(tensor(0, &[m, k]), Columns::Panels(tensor(1, &[n, k])));
        product.emit(&mut cx, &tensor(2, &[m, n])).unwrap();
        let dispatch = cx.finish().dispatches.remove(0);
        let record = dispatch.choice.unwrap();
        (dispatch.kernel.info().unwrap().name, record.name_of(record.candidate), dispatch.groups)
    };
    let phone = DeviceClass::Adreno7xx;
    assert_eq!(kernel_of(phone, 3, 384, 1536), ("matmul_split", "split4 64x1".to_string(), [1, 96, 1]));
    assert_eq!(kernel_of(phone, 16, 4096, 128), ("matmul_split", "split4 64x1".to_string(), [4, 8, 1]));
    assert_eq!(kernel_of(phone, 2, 384, 384).1, "split2 64x1");
    assert_eq!(kernel_of(DeviceClass::Desktop, 8, 384, 384).1, "split8 64x1");
    assert_eq!(kernel_of(phone, 1, 4096, 64).0, "matmul_row");
    // Enough invocations, or too few terms, and a CPU.
    assert_eq!(kernel_of(phone, 128, 384, 384).0, "matmul");
    assert_eq!(kernel_of(phone, 8, 4096, 16_384).0, "matmul");
    assert_eq!(kernel_of(phone, 3, 64, 64).0, "matmul");
    assert_eq!(kernel_of(DeviceClass::Cpu, 3, 384, 1536).0, "matmul");
}

#[test]
fn batches_join_the_rows_of_a_shared_matrix() {
    let y = tensor(2, &[2, 5, 3, 8]);
    let product = Product::new(tensor(0, &[2, 5, 3, 4]), Columns::Live(tensor(1, &[4, 8])));
    let launch = Launch::new(&product, &y).unwrap().unwrap();
    assert_eq!((launch.batches(), launch.rows(), launch.columns(), launch.depth()), (1, 30, 8, 4));
    assert!(launch.a_vec4());
    assert_eq!(launch.b_loads(), 1);
}

#[test]
fn one_column_becomes_one_row() {
    let y = tensor(2, &[6, 1]);
    let product = Product::new(tensor(0, &[6, 4]), Columns::Live(tensor(1, &[4, 1])));
    let launch = Launch::new(&product, &y).unwrap().unwrap();
    assert_eq!((launch.rows(), launch.columns()), (1, 6));
    assert_eq!(launch.b_loads(), 2);
}

#[test]
fn vectors_need_alignment() {
    let misaligned = Tensor { offset_elems: 2, ..tensor(0, &[3, 8]) };
    assert!(!vectors_along(&misaligned, 1));
    assert!(!vectors_along(&tensor(0, &[3, 6]), 1));
    assert!(vectors_along(&tensor(0, &[1, 6]), 1));
    assert!(vectors_along(&transposed(&tensor(0, &[3, 8])), 0));
}

/// What an Adreno makes of halves of `[m, k]`, `offset` elements into their storage, times a packed weight of `[n, k]`.
fn chosen_of_halves(
    max_texels: u64,
    [m, k, n]: [usize; 3],
    offset_elems: usize,
) -> (ProductWay, Vec<OperandAccess>) {
    let profile = DeviceProfile {
        class: DeviceClass::Adreno7xx,
        max_texel_buffer_elems: max_texels,
        ..DeviceProfile::minimum()
    };
    let half = |id, sizes: &[usize]| Tensor { element: Element::F16, ..tensor(id, sizes) };
    let mut cx = Lowering::new(&profile, Precision::F16);
    let a = Tensor { offset_elems, ..half(0, &[m, k]) };
    Product::new(a, Columns::Panels(half(1, &[n, k]))).emit(&mut cx, &half(2, &[m, n])).unwrap();
    let dispatch = cx.finish().dispatches.remove(0);
    let Candidate { way, .. } = dispatch.choice.unwrap().candidate;
    (MATMUL.ways[way].value, dispatch.operands.iter().map(|operand| operand.access).collect())
}

#[test]
fn halves_are_read_as_texels_where_a_view_holds_them() {
    use OperandAccess::{Read, ReadTexels, Write};
    let (way, accesses) = chosen_of_halves(65536, [8, 64, 132], 4);
    assert_eq!((way, accesses), (ProductWay::Texels, vec![ReadTexels, ReadTexels, Read, Write]));
    for (max_texels, sizes, offset_elems) in [
        (65536, [8, 64, 128], 0),    // a group of several tiles
        (65536, [7, 64, 132], 0),    // fewer rows than a tile
        (65536, [8, 66, 132], 0),    // rows of no whole texels
        (65536, [8, 64, 132], 2),    // a start within a texel
        (2143, [8, 64, 132], 0),     // 2112 texels of b, and 32 before them that an aligned start may add
        (65536, [4096, 64, 132], 0), // more texels of a than a view has, with those before them
    ] {
        let (way, accesses) = chosen_of_halves(max_texels, sizes, offset_elems);
        assert!(matches!(way, ProductWay::Tile(_)), "{sizes:?}: {way:?}");
        assert_eq!(accesses, [Read, Read, Read, Write], "{sizes:?}");
    }
    assert_eq!(chosen_of_halves(2144, [8, 64, 132], 0).0, ProductWay::Texels);
}

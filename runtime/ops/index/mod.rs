//! Elements at positions that are data: reads (`embedding`, `index_select`, `gather`,
//! `take_along_dim`, `index.Tensor`) and writes
//! (`index_put`, `index_copy`, `index_add`, `index_fill`, `scatter`, `scatter_add`, `masked_scatter`).
//!
//! Tables of every dtype, indices of int64 or int32. Kernels check every index: they skip the access and report node
//! and value. Negative indices count from the end where they do in PyTorch. Several index tensors become one tensor
//! of offsets first. A mask is refused, as it selects a number of elements that only a run tells; only
//! `index_put` of one value takes one. Sums of repeated positions are taken in order, without atomics.

mod launch;
mod masked;
mod one_hot;
mod panels;
mod read;
mod space;
mod sum;
mod write;

pub use launch::checked_rows;
pub use masked::MaskedScatter;
pub use one_hot::OneHot;
pub use read::IndexRead;
pub use space::{check_dtype, check_rows, position};
pub use write::IndexWrite;

//! Which elements of a table a call names: its walk and its indices, apart from any memory.

use crate::{
    base::{DType, Error, ErrorKind, HostTensor, Result, shape},
    ops::{ArgValue, Args, Meta, view::Layout},
};

/// The elements that a call names, laid out as a space: element `i` is `table[walk(i) + index(i)]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// Sizes of the space.
    pub sizes: Vec<usize>,
    /// For each dim of the space, the dim of the table that it walks along.
    pub walks: Vec<Option<usize>>,
    /// For each dim of the space, the dim of the index tensors that it runs along.
    pub runs: Vec<Option<usize>>,
    /// What the index tensors broadcast to.
    pub index_sizes: Vec<usize>,
    /// For each index tensor, the dim of the table that it indexes.
    pub indexed: Vec<usize>,
    /// Sizes of the table, of rank 1 at least.
    pub table_sizes: Vec<usize>,
    /// Whether a negative index counts from the end.
    pub wraps: bool,
}

/// The name of the operand that is indexed.
pub fn table_name(base: &str) -> &'static str {
    if base == "embedding" { "weight" } else { "self" }
}

/// The index tensors of a call, in order.
///
/// # Errors
/// When the call lacks one.
pub fn index_operands<T>(args: &Args<T>) -> Result<Vec<&T>> {
    match args.op().base() {
        "embedding" | "take_along_dim" => Ok(vec![args.tensor("indices")?]),
        "index" | "_unsafe_index" | "index_put" | "_unsafe_index_put" => {
            Ok(args.tensors("indices")?.iter().flatten().collect())
        }
        _ => Ok(vec![args.tensor("index")?]),
    }
}

impl Space {
    /// The space of a call.
    ///
    /// # Errors
    /// What PyTorch refuses of the dims, sizes and dtypes; masks, which select a number of elements that only a run
    /// tells.
    pub fn of(args: &Args<Meta>) -> Result<Space> {
        let base = args.op().base();
        let table = args.tensor(table_name(base))?;
        let space = match base {
            "embedding" => by_row(table, args.tensor("indices")?)?,
            "index_select" | "index_copy" | "index_add" | "index_fill" => along_dim(args, table)?,
            "gather" | "scatter" | "scatter_add" => per_element(args, table)?,
            "take_along_dim" => per_broadcast_element(args, table)?,
            _ => by_tensors(args, table)?,
        };
        for &dim in &space.indexed {
            check_elements(space.table_sizes[dim], dim, &space.sizes)
                .map_err(|error| error.at_operand(table_name(base)))?;
        }
        Ok(space)
    }

    /// Strides of a table with strides `table` over the space; 0 along dims that do not walk.
    pub fn walk_strides(&self, table: &[usize]) -> Vec<usize> {
        self.walks.iter().map(|walk| walk.map_or(0, |dim| table[dim])).collect()
    }

    /// Strides of a tensor over the space that has strides `index` over the index tensors' broadcast sizes.
    pub fn run_strides(&self, index: &[usize]) -> Vec<usize> {
        self.runs.iter().map(|run| run.map_or(0, |dim| index[dim])).collect()
    }

    /// The part of the table that the space can reach, as one view of it: the walked dims in the space's order and
    /// as long as it walks, then the indexed dims; and the same space over that view.
    pub fn reach(&self, table: &Layout) -> (Layout, Space) {
        let mut dims = Vec::new();
        let mut view = table.clone();
        let mut walks = Vec::with_capacity(self.walks.len());
        for (&walk, &size) in self.walks.iter().zip(&self.sizes) {
            walks.push(walk.map(|dim| {
                view.sizes[dim] = size;
                dims.push(dim);
                dims.len() - 1
            }));
        }
        let indexed = (dims.len()..dims.len() + self.indexed.len()).collect();
        dims.extend(&self.indexed);
        let view = view.permuted(&dims);
        let space = Space { walks, indexed, table_sizes: view.sizes.clone(), ..self.clone() };
        (view, space)
    }

    /// For every element of the space in row-major order, its offset in a contiguous table.
    ///
    /// # Errors
    /// When an index is out of range.
    pub fn offsets(&self, indices: &[&HostTensor]) -> Result<Vec<usize>> {
        let table_strides = shape::contiguous_strides(&self.table_sizes);
        let mut linear = vec![0usize; shape::numel(&self.index_sizes)?];
        for (index, &dim) in indices.iter().zip(&self.indexed) {
            let values = index.to_i64s();
            let own = shape::contiguous_strides(index.sizes());
            let strides = shape::broadcast_strides(index.sizes(), &own, &self.index_sizes)?;
            let mut sums = linear.iter_mut();
            let mut fault = None;
            shape::for_each_offset(&self.index_sizes, &strides, 0, |at| {
                let position = position_in(values[at], (self.table_sizes[dim], dim), self.wraps);
                match (position, sums.next()) {
                    (Ok(position), Some(sum)) => *sum += position * table_strides[dim],
                    (Err(error), _) => fault = Some(error),
                    _ => {}
                }
            });
            if let Some(fault) = fault {
                return Err(fault);
            }
        }
        let mut offsets = Vec::with_capacity(shape::numel(&self.sizes)?);
        shape::for_each_offset(&self.sizes, &self.walk_strides(&table_strides), 0, |walk| offsets.push(walk));
        let run_strides = self.run_strides(&shape::contiguous_strides(&self.index_sizes));
        let mut slots = offsets.iter_mut();
        shape::for_each_offset(&self.sizes, &run_strides, 0, |at| {
            if let Some(slot) = slots.next() {
                *slot += linear[at];
            }
        });
        Ok(offsets)
    }
}

/// The row that `index` names of a table of `rows` rows; negative ones count from the end where `wraps`.
///
/// # Errors
/// When it is out of range.
pub fn position(index: i64, rows: usize, wraps: bool) -> Result<usize> {
    position_in(index, (rows, 0), wraps)
}

fn position_in(index: i64, (size, dim): (usize, usize), wraps: bool) -> Result<usize> {
    let wrapped = if index < 0 && wraps { index.saturating_add(size as i64) } else { index };
    usize::try_from(wrapped).ok().filter(|&position| position < size).ok_or_else(|| {
        let text = format!("index {index} is out of range for the {size} elements of dim {dim}");
        Error::new(ErrorKind::BadData, text)
    })
}

/// Refuses indices of sizes `indices` into a table without rows.
///
/// # Errors
/// When there are indices and no rows.
pub fn check_rows(rows: usize, indices: &[usize]) -> Result<()> {
    check_elements(rows, 0, indices)
}

fn check_elements(size: usize, dim: usize, named: &[usize]) -> Result<()> {
    if size == 0 && shape::numel(named)? > 0 {
        return Err(Error::invalid_input(format!("dim {dim} has no elements to index")));
    }
    Ok(())
}

/// The table's sizes; a tensor without dims counts as one with a single element.
fn with_dims(sizes: &[usize]) -> Vec<usize> {
    if sizes.is_empty() { vec![1] } else { sizes.to_vec() }
}

/// Refuses indices that are no whole numbers, and masks.
///
/// # Errors
/// For any dtype but int64 and int32.
pub fn check_dtype(index: &Meta, name: &str) -> Result<()> {
    match index.dtype {
        DType::I64 | DType::I32 => Ok(()),
        DType::Bool | DType::U8 => Err(Error::unsupported(
            "a mask selects a number of elements that only a run tells; use `where`, or indices",
        )
        .at_operand(name)),
        other => Err(Error::invalid_input(format!("indices are integers, not {other}")).at_operand(name)),
    }
}

/// Whole rows of a matrix: the index tensor's dims, then the row.
fn by_row(table: &Meta, index: &Meta) -> Result<Space> {
    check_dtype(index, "indices")?;
    let &[_, columns] = table.sizes.as_slice() else {
        let text = format!("a table of rows has 2 dims, not {}", table.sizes.len());
        return Err(Error::invalid_input(text).at_operand("weight"));
    };
    let rank = index.sizes.len();
    Ok(Space {
        sizes: [index.sizes.as_slice(), &[columns]].concat(),
        walks: (0..rank).map(|_| None).chain([Some(1)]).collect(),
        runs: (0..rank).map(Some).chain([None]).collect(),
        index_sizes: index.sizes.clone(),
        indexed: vec![0],
        table_sizes: table.sizes.clone(),
        wraps: false,
    })
}

/// Whole slices along one dim, named by a vector.
fn along_dim(args: &Args<Meta>, table: &Meta) -> Result<Space> {
    let index = args.tensor("index")?;
    check_dtype(index, "index")?;
    let index_sizes = with_dims(&index.sizes);
    let &[count] = index_sizes.as_slice() else {
        return Err(Error::invalid_input("an index here has 1 dim").at_operand("index"));
    };
    let table_sizes = with_dims(&table.sizes);
    let dim = args.dim_or("dim", 0, table.sizes.len())?;
    let mut sizes = table_sizes.clone();
    sizes[dim] = count;
    Ok(Space {
        walks: (0..sizes.len()).map(|d| (d != dim).then_some(d)).collect(),
        runs: (0..sizes.len()).map(|d| (d == dim).then_some(0)).collect(),
        sizes,
        index_sizes,
        indexed: vec![dim],
        table_sizes,
        wraps: args.op().base() == "index_fill",
    })
}

/// One index an element, along one dim.
fn per_element(args: &Args<Meta>, table: &Meta) -> Result<Space> {
    let index = args.tensor("index")?;
    check_dtype(index, "index")?;
    let (table_sizes, sizes) = (with_dims(&table.sizes), with_dims(&index.sizes));
    let dim = args.dim_or("dim", 0, table.sizes.len())?;
    let empty = sizes.contains(&0);
    let fits = sizes.len() == table_sizes.len()
        && (0..sizes.len()).all(|d| d == dim || empty || sizes[d] <= table_sizes[d]);
    if !fits && !empty {
        let text =
            format!("sizes {:?} do not fit a tensor of sizes {:?} along dim {dim}", index.sizes, table.sizes);
        return Err(Error::invalid_input(text).at_operand("index"));
    }
    Ok(Space {
        walks: (0..sizes.len()).map(|d| (d != dim && d < table_sizes.len()).then_some(d)).collect(),
        runs: (0..sizes.len()).map(Some).collect(),
        index_sizes: sizes.clone(),
        sizes,
        indexed: vec![dim],
        table_sizes,
        wraps: false,
    })
}

/// One index an element, along one dim; the other dims of table and indices broadcast.
fn per_broadcast_element(args: &Args<Meta>, table: &Meta) -> Result<Space> {
    let index = args.tensor("indices")?;
    check_dtype(index, "indices")?;
    let rank = table.sizes.len();
    if !args.has("dim") || rank == 0 || index.sizes.len() != rank {
        let text = format!("indices of rank {rank}, as the tensor, along a named dim are needed");
        return Err(Error::unsupported(text).at_operand("indices"));
    }
    let dim = args.dim_or("dim", 0, rank)?;
    let mut others = table.sizes.clone();
    others[dim] = index.sizes[dim];
    let sizes = shape::broadcast(&others, &index.sizes).map_err(|error| error.at_operand("indices"))?;
    Ok(Space {
        walks: (0..rank).map(|d| (d != dim && table.sizes[d] == sizes[d]).then_some(d)).collect(),
        runs: (0..rank).map(|d| (index.sizes[d] == sizes[d]).then_some(d)).collect(),
        sizes,
        index_sizes: index.sizes.clone(),
        indexed: vec![dim],
        table_sizes: table.sizes.clone(),
        wraps: false,
    })
}

/// `table[i, :, j]`: index tensors broadcast together; their dims stand where they are side by side, else in front.
fn by_tensors(args: &Args<Meta>, table: &Meta) -> Result<Space> {
    let named = args.tensors("indices")?;
    if named.len() > table.sizes.len() {
        let text = format!("{} indices are given for rank {}", named.len(), table.sizes.len());
        return Err(Error::invalid_input(text).at_operand("indices"));
    }
    let mut indexed = Vec::new();
    let mut index_sizes = Vec::new();
    for (dim, index) in named.iter().enumerate() {
        let Some(index) = index else { continue };
        check_dtype(index, "indices")?;
        index_sizes =
            shape::broadcast(&index_sizes, &index.sizes).map_err(|error| error.at_operand("indices"))?;
        indexed.push(dim);
    }
    let (Some(&first), Some(&last)) = (indexed.first(), indexed.last()) else {
        return Err(Error::invalid_input("needs at least one index tensor").at_operand("indices"));
    };
    let front = if last - first + 1 == indexed.len() { first } else { 0 };
    let kept: Vec<usize> = (0..table.sizes.len()).filter(|dim| !indexed.contains(dim)).collect();
    let (mut sizes, mut walks, mut runs) = (Vec::new(), Vec::new(), Vec::new());
    for position in 0..=kept.len() {
        if position == front {
            sizes.extend_from_slice(&index_sizes);
            walks.extend(index_sizes.iter().map(|_| None));
            runs.extend((0..index_sizes.len()).map(Some));
        }
        if let Some(&dim) = kept.get(position) {
            sizes.push(table.sizes[dim]);
            walks.push(Some(dim));
            runs.push(None);
        }
    }
    Ok(Space { sizes, walks, runs, index_sizes, indexed, table_sizes: table.sizes.clone(), wraps: true })
}

/// Whether the call has a mask among its index tensors.
pub fn has_mask(args: &Args<Meta>) -> bool {
    match args.get("indices") {
        Some(ArgValue::Tensors(tensors)) => {
            tensors.iter().flatten().any(|index| index.dtype == DType::Bool || index.dtype == DType::U8)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::OpName;

    fn index(table: &[usize], indices: &[Option<&[usize]>]) -> Space {
        let indices = indices.iter().map(|sizes| sizes.map(|sizes| Meta::new(DType::I64, sizes))).collect();
        let items = vec![
            ("self".to_string(), ArgValue::Tensor(Meta::new(DType::F32, table))),
            ("indices".to_string(), ArgValue::Tensors(indices)),
        ];
        Space::of(&Args::new(OpName::new("aten.index.Tensor"), items)).unwrap()
    }

    #[test]
    fn index_dims_stand_where_they_are_or_in_front() {
        let side_by_side = index(&[4, 5, 6], &[None, Some(&[2, 1]), Some(&[3])]);
        assert_eq!(side_by_side.sizes, [4, 2, 3]);
        assert_eq!(side_by_side.runs, [None, Some(0), Some(1)]);
        let apart = index(&[4, 5, 6], &[Some(&[2]), None, Some(&[2])]);
        assert_eq!((apart.sizes.as_slice(), apart.walks.as_slice()), (&[2, 5][..], &[None, Some(1)][..]));
    }

    #[test]
    fn reach_puts_walked_dims_first() {
        let space = index(&[4, 5, 6], &[Some(&[2]), None, Some(&[2])]);
        let (view, over_view) = space.reach(&Layout::contiguous(&[4, 5, 6]));
        assert_eq!((view.sizes.as_slice(), view.strides.as_slice()), (&[5, 4, 6][..], &[6, 30, 1][..]));
        assert_eq!((over_view.walks, over_view.indexed), (vec![None, Some(0)], vec![1, 2]));
    }

    #[test]
    fn an_index_out_of_range_is_bad_data() {
        let space = index(&[3], &[Some(&[1])]);
        let offsets = |value| space.offsets(&[&HostTensor::from_i64(&[1], &[value]).unwrap()]);
        assert_eq!(offsets(-3).unwrap(), [0]);
        assert_eq!(offsets(3).unwrap_err().kind(), ErrorKind::BadData);
        assert!(offsets(-4).is_err());
    }
}

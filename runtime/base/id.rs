//! Typed ids and the vectors they index, so that a node id can never be used as a value id.

use std::{fmt, marker::PhantomData};

use super::{Error, Result};

/// An index with a type of its own; made by [`typed_id!`](crate::typed_id).
pub trait TypedId: Copy + Eq + fmt::Debug + fmt::Display {
    /// The id of position `index`.
    fn from_index(index: usize) -> Self;
    /// The position that the id stands for.
    fn index(self) -> usize;
}

/// Declares a typed id whose text form is a prefix and its number: `typed_id!(ValueId, "v")`.
#[macro_export]
#[doc(hidden)]
macro_rules! typed_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $crate::base::TypedId for $name {
            fn from_index(index: usize) -> Self {
                Self(index as u32)
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self}")
            }
        }
    };
}

/// A growing vector that is indexed by one type of id.
#[derive(Clone)]
pub struct IdVec<I, T> {
    items: Vec<T>,
    id: PhantomData<I>,
}

impl<I: TypedId, T> IdVec<I, T> {
    /// An empty vector.
    pub const fn new() -> Self {
        IdVec { items: Vec::new(), id: PhantomData }
    }

    /// Appends `item` and returns its id.
    pub fn push(&mut self, item: T) -> I {
        self.items.push(item);
        I::from_index(self.items.len() - 1)
    }

    /// The item of `id`; an error when `id` belongs to another vector.
    pub fn get(&self, id: I) -> Result<&T> {
        self.items.get(id.index()).ok_or_else(|| Error::internal(format!("{id} does not exist")))
    }

    /// The item of `id`, to change.
    pub fn get_mut(&mut self, id: I) -> Result<&mut T> {
        self.items.get_mut(id.index()).ok_or_else(|| Error::internal(format!("{id} does not exist")))
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Every id, in order.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = I> + use<I, T> {
        (0..self.items.len()).map(I::from_index)
    }

    /// Every id with its item, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (I, &T)> {
        self.items.iter().enumerate().map(|(index, item)| (I::from_index(index), item))
    }
}

impl<I: TypedId, T> Default for IdVec<I, T> {
    fn default() -> Self {
        IdVec::new()
    }
}

impl<I: TypedId, T: fmt::Debug> fmt::Debug for IdVec<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

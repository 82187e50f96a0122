//! Categories of variables and event types (MPI 4.1 §16.3.9).

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::table::Table;

/// A category's index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Category(pub(crate) i32);

impl Category {
    /// Returns its index.
    pub const fn index(self) -> i32 {
        self.0
    }

    /// Returns the category that has this index; any number is safe to use.
    pub const fn from_index(index: i32) -> Self {
        Self(index)
    }
}

/// The members of a category; the lists only grow, in this order.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Members {
    /// Indexes of control variables.
    pub cvars: Vec<i32>,
    /// Indexes of performance variables.
    pub pvars: Vec<i32>,
    /// Indexes of event types.
    pub events: Vec<i32>,
    /// Indexes of categories.
    pub categories: Vec<i32>,
}

/// The description of a category.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CategoryInfo {
    /// Its name; no other category has it.
    pub name: String,
    /// Its description; may be empty.
    pub description: String,
    /// Its current members.
    pub members: Members,
}

/// Something that a category may hold, by its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CategoryMember {
    /// A control variable.
    Cvar(i32),
    /// A performance variable.
    Pvar(i32),
    /// An event type.
    Event(i32),
    /// Another category.
    Category(Category),
}

#[derive(Debug)]
pub(crate) struct CategoryState {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) members: Mutex<Members>,
}

impl CategoryState {
    pub(crate) fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The categories of a runtime.
#[derive(Debug, Default)]
pub(crate) struct Categories {
    pub(crate) table: Table<CategoryState>,
    pub(crate) stamp: AtomicI32,
}

impl Categories {
    pub(crate) fn changed(&self) {
        self.stamp.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether `inner` is `outer`, or holds it somewhere.
    pub(crate) fn reaches(&self, inner: i32, outer: i32) -> bool {
        inner == outer
            || self.table.at(inner).is_some_and(|state| {
                let members = state.members().categories.clone();
                members.iter().any(|member| self.reaches(*member, outer))
            })
    }
}

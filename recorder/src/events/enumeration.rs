//! Enumerations: names of values (MPI 4.1 §16.3.5).

use super::error::{Error, Result};

/// An enumeration handle: its index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Enumeration(i32);

impl Enumeration {
    pub(crate) const fn new(index: usize) -> Self {
        Self(index as i32)
    }

    /// Returns the handle as a number, for other languages; never negative.
    pub const fn index(self) -> i32 {
        self.0
    }

    /// Returns the handle that has this number; any number is safe to use.
    pub const fn from_index(index: i32) -> Self {
        Self(index)
    }
}

/// The description of an enumeration, which never changes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EnumerationInfo {
    /// Its name; no other enumeration has it.
    pub name: String,
    /// Values and their names; at least one.
    pub items: Vec<(i32, String)>,
}

impl EnumerationInfo {
    pub(crate) fn new(name: &str, items: &[(i32, &str)]) -> Result<Self> {
        let mut names: Vec<&str> = items.iter().map(|(_, name)| *name).collect();
        names.sort_unstable();
        let is_good = !name.is_empty()
            && !name.contains('\0')
            && !items.is_empty()
            && names.iter().all(|n| !n.is_empty() && !n.contains('\0'))
            && names.windows(2).all(|pair| pair[0] != pair[1]);
        if !is_good {
            return Err(Error::Invalid);
        }
        let items = items
            .iter()
            .map(|(value, name)| (*value, (*name).to_owned()));
        Ok(Self {
            name: name.to_owned(),
            items: items.collect(),
        })
    }

    /// Returns an item's value and name.
    ///
    /// # Errors
    /// [`Error::InvalidItem`] if there is no such item.
    pub fn item(&self, index: i32) -> Result<(i32, &str)> {
        let item = usize::try_from(index).ok().and_then(|i| self.items.get(i));
        let (value, name) = item.ok_or(Error::InvalidItem)?;
        Ok((*value, name))
    }

    /// Returns the name of a value, if it has one.
    pub fn name_of(&self, value: i32) -> Option<&str> {
        let mut items = self.items.iter();
        let item = items.find(|(known, _)| *known == value);
        item.map(|(_, name)| name.as_str())
    }
}

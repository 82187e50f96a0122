//! Constructs of threads, such as parallel regions and barriers, as regions that are named by where they are in the code.

use std::sync::OnceLock;

/// A kind of constructs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Construct {
    /// What its regions are called, up to where they are.
    pub name: &'static str,
    /// The group of its regions.
    pub group: &'static str,
}

static CONSTRUCTS: OnceLock<&'static [Construct]> = OnceLock::new();

/// Sets what the numbers of constructs mean: the first one has number 1. There are at most 255. Later calls change nothing.
pub fn set_constructs(constructs: &'static [Construct]) {
    let _ = CONSTRUCTS.set(constructs);
}

/// Returns the construct of this number. `None` means that it is a function.
pub(crate) fn find(number: u8) -> Option<&'static Construct> {
    CONSTRUCTS.get()?.get(usize::from(number).checked_sub(1)?)
}

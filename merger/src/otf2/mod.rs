//! OTF2 archives as inputs and as outputs. Opening one goes once through all its files: which parts they have, which types of
//! events, what they refer to, what is damaged. Each process of the archive then is a recording like any other,
//! whose chunks are decoded from the archive's files when the merge comes to them.

mod names;
mod read;
mod write;

pub(crate) use read::anchor::{anchor_for, is_anchor};
pub(crate) use read::open::open;
pub(crate) use read::part::ArchivePart;
pub(crate) use write::archive::write_archive;
pub use write::archive::{ArchiveOptions, anchor_of};

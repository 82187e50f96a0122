//! OTF2 archives as inputs and as outputs. Opening one goes once through all its files: which parts they have, which types of
//! events, what they refer to, what is damaged. Each process of the archive then is a recording like any other,
//! whose chunks are decoded from the archive's files when the merge comes to them.

mod archive;
mod backward;
mod catalogue;
mod decode;
mod markers;
mod naming;
mod outgoing;
mod scan;
mod world;
mod write;

pub(crate) use archive::{ArchivePart, anchor_for, is_anchor, open};
pub(crate) use write::write_archive;
pub use write::{ArchiveOptions, anchor_of};

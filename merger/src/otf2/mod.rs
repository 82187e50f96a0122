//! OTF2 archives as inputs and as outputs. Opening an archive reads all its files once, to find their parts, types of
//! events, references and damage. Each process of the archive then is a recording like any other, whose chunks are
//! decoded from the archive's files when the merge reaches them.

mod numbering;
mod read;
mod write;

pub(crate) use read::anchor::{anchor_for, is_anchor};
pub(crate) use read::open::{DIGEST_START, digest, open};
pub(crate) use read::part::ArchivePart;
pub(crate) use write::archive::write_archive;
pub use write::archive::{ArchiveOptions, anchor_of};

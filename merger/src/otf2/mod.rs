//! OTF2 archives as inputs. Opening one goes once through all its files: which parts they have, which types of
//! events, what they refer to, what is damaged. Each process of the archive then is a recording like any other,
//! whose chunks are decoded from the archive's files when the merge comes to them.

mod archive;
mod catalogue;
mod decode;
mod naming;
mod scan;
mod world;

pub(crate) use archive::{ArchivePart, is_anchor, open};

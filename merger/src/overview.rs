//! The overview of a trace: values of bins of time, by lane (SPEC.md, *Overview*).

pub(crate) mod groups;
pub(crate) mod lane;
pub(crate) mod shard;
pub(crate) mod writer;

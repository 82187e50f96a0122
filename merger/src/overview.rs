//! The overview of a trace: values of bins of time, by lane (SPEC.md, *Overview*).

mod group_lane;
pub(crate) mod groups;
pub(crate) mod lane;
mod own_lane;
pub(crate) mod shard;
pub(crate) mod writer;

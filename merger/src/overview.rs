//! The overview of a trace: values of bins of time (SPEC.md, *Overview*).

mod bin_table;
pub(crate) mod event_bins;
mod group_lane;
pub(crate) mod groups;
pub(crate) mod lane;
pub(crate) mod message_bins;
mod metric_bins;
mod own_lane;
pub(crate) mod shard;
pub(crate) mod writer;

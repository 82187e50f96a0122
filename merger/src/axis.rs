//! Events on the axis: chunks as they were decoded, strips of it, what events are called there, and the proof of their
//! order.

pub(crate) mod batch;
pub(crate) mod proof;
pub(crate) mod strip;
pub(crate) mod unify;

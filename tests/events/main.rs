//! The event interface, beside the standard's text: `conformance.tsv` says which test shows which
//! sentence.

mod attach;
mod conformance;
mod drops;
mod events;
mod order;
mod storm;
mod support;
mod variables;

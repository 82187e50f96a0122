//! The event interface, compared with the standard's text: `conformance.tsv` lists which test
//! proves which sentence.

mod attach;
mod conformance;
mod drops;
mod events;
mod order;
mod storm;
mod support;
mod variables;

//! Inputs: finding them, opening them, and reading them in time order.

pub(crate) mod compress;
pub(crate) mod file;
pub(crate) mod find;
mod host;
pub(crate) mod rank_claim;
pub(crate) mod reader;
pub(crate) mod recording;
pub(crate) mod recover;
pub(crate) mod run;
pub(crate) mod stream;
pub(crate) mod ticks;
pub(crate) mod trace;
pub(crate) mod unplaced;

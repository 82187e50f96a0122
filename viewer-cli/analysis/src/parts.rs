//! Parts of an analysis that several processes work on: each gathers what the analysis needs of some slices of a trace, and one
//! process follows the messages and operations from slice to slice.

use annals_format::EventTypeId;
use annals_merger::{MergeError, Query, ReadSummary, Reader, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::state::{CallState, EventState, fold_calls, fold_events};

/// What a process gathered of a part of a trace, for the same version of this crate.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    version: String,
    trace: TraceIdentity,
    slices: GatheredSlices,
    has_damage: bool,
}

impl Part {
    /// Returns what a state gathered that was made of `reader`'s part.
    pub(crate) fn of<S: SlicedState>(
        reader: &Reader,
        mut state: S,
        summary: &ReadSummary,
    ) -> Result<Self> {
        let whole = reader.summary()?;
        let later = std::mem::take(state.later());
        let mut slices = GatheredSlices::default();
        slices.push(&state.into_slice());
        slices.0.extend(later.0);
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            trace: identity_of(reader),
            slices,
            has_damage: summary.damage.len() != whole.damage.len()
                || summary.losses.len() != whole.losses.len(),
        })
    }

    /// Returns whether chunks could not be read. The losses in their place are not known to the analysis of parts: such a trace must
    /// be analysed in one piece.
    pub const fn has_damage(&self) -> bool {
        self.has_damage
    }

    /// Encodes it for another process.
    pub fn encode(&self) -> Vec<u8> {
        encoded(self)
    }

    /// Decodes what [`Part::encode`] returned in another process: the `number`-th part, from 0.
    ///
    /// # Errors
    /// If it is something else, or of another version.
    pub fn decode(bytes: &[u8], number: usize) -> Result<Self> {
        let refuse = |why: String| MergeError::NoPart {
            number: number + 1,
            why,
        };
        let part: Self = postcard::from_bytes(bytes).map_err(|error| refuse(error.to_string()))?;
        let version = env!("CARGO_PKG_VERSION");
        if part.version != version {
            let other = part.version;
            return Err(refuse(format!(
                "it is of version {other}, this is {version}"
            )));
        }
        Ok(part)
    }
}

/// Length in bytes, number of events, and times of the first and the last, nanoseconds.
type TraceIdentity = (u64, u64, i64, i64);

fn identity_of(reader: &Reader) -> TraceIdentity {
    let events = reader.events_before(i64::MAX);
    let span = (reader.first_ns(), reader.last_ns());
    (reader.origin().bytes, events, span.0, span.1)
}

/// Where an analysis has its slices from.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// It reads the trace.
    Trace,
    /// Other processes have gathered them, all parts in order.
    Parts(&'a [Part]),
}

/// Encoded slices, in order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct GatheredSlices(Vec<ByteBuf>);

impl GatheredSlices {
    pub(crate) fn push(&mut self, slice: &impl Serialize) {
        self.0.push(ByteBuf::from(encoded(slice)));
    }
}

fn encoded(value: &impl Serialize) -> Vec<u8> {
    // Nothing of it is of a kind that cannot be encoded, and memory is all that is written to.
    postcard::to_stdvec(value).unwrap_or_default()
}

/// A state whose slices other processes can gather.
pub(crate) trait SlicedState: Sized {
    /// What a slice adds to the state of those before it.
    type Slice: Serialize + DeserializeOwned;

    /// Returns what this state adds to that of the slices before it.
    fn into_slice(self) -> Self::Slice;

    /// Adds the slice that follows.
    fn add_slice(&mut self, slice: Self::Slice);

    /// The slices that follow, in a state that only gathers.
    fn later(&mut self) -> &mut GatheredSlices;
}

/// Adds the gathered slices to a state. The result is that of reading the trace.
fn add_parts<S: SlicedState>(
    reader: &Reader,
    parts: &[Part],
    mut state: S,
) -> Result<(S, ReadSummary)> {
    for (number, part) in parts.iter().enumerate() {
        let refuse = |why: String| MergeError::NoPart {
            number: number + 1,
            why,
        };
        if part.trace != identity_of(reader) {
            return Err(refuse("it is of another trace".to_owned()));
        }
        for slice in &part.slices.0 {
            let slice = postcard::from_bytes(slice);
            let slice = slice.map_err(|error| refuse(error.to_string()))?;
            state.add_slice(slice);
        }
    }
    Ok((state, reader.summary()?))
}

/// Does what [`fold_calls`] does, with slices from `source`.
pub(crate) fn fold_calls_of<S: CallState + SlicedState>(
    reader: &Reader,
    query: &Query,
    source: Source<'_>,
    new: impl Fn(usize) -> S + Sync,
) -> Result<(S, ReadSummary)> {
    match source {
        Source::Trace => fold_calls(reader, query, new),
        Source::Parts(parts) => add_parts(reader, parts, new(0)),
    }
}

/// Does what [`fold_events`] does, with slices from `source`.
pub(crate) fn fold_events_of<S: EventState + SlicedState>(
    reader: &Reader,
    query: &Query,
    types: impl IntoIterator<Item = EventTypeId>,
    source: Source<'_>,
    new: impl Fn(usize) -> S + Sync,
) -> Result<(S, ReadSummary)> {
    match source {
        Source::Trace => fold_events(reader, query, types, new),
        Source::Parts(parts) => add_parts(reader, parts, new(0)),
    }
}

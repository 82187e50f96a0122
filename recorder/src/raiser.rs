//! Raising by numbers: for callers that hold ids and no references, as those from other languages
//! do.

use annals_format::{Cause, EventTypeId, RegionId, SourceId};

use crate::builtin::{ENTER, LEAVE, THREADS};
use crate::elements::{
    self, ElementKind, Few, Integers, MOST_FEW, Numbers, OneText, Present, Raw, RowShape, Typed,
    Values,
};
use crate::row::PutRow;
use crate::shared::Shared;
use crate::thread_streams::{self, Last, WithLast};

/// Why an event was not taken. It is counted, as [`crate::Status::misused`] or
/// [`crate::Status::raised_after_finish`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// An id does not name anything that was added to the recorder.
    Unknown,
    /// The values do not fit the event type.
    Values,
    /// The recording is finished.
    Finished,
    /// This is a forked child, and the recording its parent's.
    Forked,
    /// The event does not go the short way, and nothing was done nor counted: only within
    /// [`Raiser::short`].
    NotShort,
}

/// Raises the events of a recorder by their numbers, and checks all of them. For signal handlers as
/// well, like [`crate::Recorder::raise`].
#[derive(Clone, Copy, Debug)]
pub struct Raiser<'a> {
    shared: &'a Shared,
    /// There when events are to go the short way or none.
    short: Option<Last<'a>>,
}

/// Raises an event.
/// A trait and not a closure, so that its method can be marked as always inlined: facts known at
/// the call, such as that the event happens now, are then known on the whole path (benches/c_path).
pub trait Raise: Copy {
    /// Raises. Inlined always.
    ///
    /// # Errors
    /// An event was not taken.
    fn to(self, raiser: Raiser<'_>) -> Result<(), Refusal>;
}

struct Shortly<R>(R);

impl<R: Raise> WithLast for Shortly<R> {
    type Outcome = Option<Result<(), Refusal>>;

    #[inline(always)]
    fn work(self, shared: &Shared, last: Last<'_>) -> Self::Outcome {
        let short = Some(last);
        match self.0.to(Raiser { shared, short }) {
            Err(Refusal::NotShort) => None,
            outcome => Some(outcome),
        }
    }
}

struct Wholly<R>(R);

impl<R: Raise> WithLast for Wholly<R> {
    type Outcome = Result<(), Refusal>;

    #[inline(always)]
    fn work(self, shared: &Shared, _: Last<'_>) -> Self::Outcome {
        self.0.to(Raiser::new(shared))
    }
}

impl<'a> Raiser<'a> {
    #[inline]
    pub(crate) const fn new(shared: &'a Shared) -> Self {
        Self {
            shared,
            short: None,
        }
    }

    pub(crate) fn shared(self) -> &'a Shared {
        self.shared
    }

    /// Tries the fast path only: raises one event, now, with the recorder that has this
    /// [number](crate::Recorder::number).
    ///
    /// The fast path needs the calling thread's last event to be of the same recorder, room in the
    /// buffer, no rule that applies to the event, and few elements. Returns `None` if the event was
    /// not raised; then nothing has changed, and [`Self::with_last`] is the next to try. Never
    /// panics, so callers from other languages need no guard.
    #[inline(always)]
    pub fn short(number: u32, what: impl Raise) -> Option<Result<(), Refusal>> {
        thread_streams::with_last(number, Shortly(what))?
    }

    /// Raises with the recorder that has this [number](crate::Recorder::number) if the calling
    /// thread raised its last event there: found without looking the recorder up. None if it did
    /// not, and nothing was done.
    #[inline(always)]
    pub fn with_last(number: u32, what: impl Raise) -> Option<Result<(), Refusal>> {
        thread_streams::with_last(number, Wholly(what))
    }

    /// Enters a region.
    ///
    /// # Errors
    /// The event was not taken.
    #[inline(always)]
    pub fn enter(self, region: RegionId) -> Result<(), Refusal> {
        self.enter_or_leave(ENTER, region)
    }

    /// Leaves a region.
    ///
    /// # Errors
    /// The event was not taken.
    #[inline(always)]
    pub fn leave(self, region: RegionId) -> Result<(), Refusal> {
        self.enter_or_leave(LEAVE, region)
    }

    #[inline(always)]
    fn enter_or_leave(self, event_type: EventTypeId, region: RegionId) -> Result<(), Refusal> {
        let shared = self.shared;
        if !shared.has_region(region) {
            return self.misused(Refusal::Unknown);
        }
        let switch = shared.gates.region(region);
        if switch.has_changed() {
            if self.short.is_some() {
                return Err(Refusal::NotShort);
            }
            if !thread_streams::admits_changed(shared, region, event_type == ENTER, switch) {
                return self.check_open();
            }
        } else if switch.is_off() {
            return self.check_open();
        }
        self.check_open_unless_short()?;
        let bound = RegionId::bound(region);
        let row = Typed::<(RegionId,)>(&(region,));
        self.put(event_type, bound, row)
    }

    /// Raises an event of a source, now or at this tick of the source's clock.
    ///
    /// # Errors
    /// The event was not taken.
    #[inline(always)]
    pub fn raise<'v>(
        self,
        source: SourceId,
        tick: Option<u64>,
        event_type: EventTypeId,
        values: impl Values<'v>,
    ) -> Result<(), Refusal> {
        let shared = self.shared;
        let Some(shape) = shared.row_shape(event_type) else {
            return self.misused(Refusal::Unknown);
        };
        if source != THREADS && shared.source(source).is_none() {
            return self.misused(Refusal::Unknown);
        }
        if source == THREADS
            && tick.is_none()
            && let Some(outcome) = self.raise_few(event_type, shape, values)
        {
            return outcome;
        }
        if self.short.is_some() {
            return Err(Refusal::NotShort);
        }
        if !shape.fits_numbers(values) {
            return self.raise_any(source, tick, event_type, shape, values);
        }
        self.check_open()?;
        let row = Numbers(values);
        thread_streams::raise(shared, source, event_type, tick, row.bound(), row);
        Ok(())
    }

    /// Raises an event of up to eight values that are all present, now, by code generated for their
    /// number: for three numbers from C, 205 instructions instead of 283. Returns `None`, with
    /// nothing changed, for other values.
    #[inline(always)]
    fn raise_few<'v>(
        self,
        event_type: EventTypeId,
        shape: &RowShape,
        values: impl Values<'v>,
    ) -> Option<Result<(), Refusal>> {
        const _: () = assert!(MOST_FEW == 8);
        match values.len() {
            1 => self.raise_as_many::<1>(event_type, shape, values),
            2 => self.raise_as_many::<2>(event_type, shape, values),
            3 => self.raise_as_many::<3>(event_type, shape, values),
            4 => self.raise_as_many::<4>(event_type, shape, values),
            5 => self.raise_as_many::<5>(event_type, shape, values),
            6 => self.raise_as_many::<6>(event_type, shape, values),
            7 => self.raise_as_many::<7>(event_type, shape, values),
            8 => self.raise_as_many::<8>(event_type, shape, values),
            _ => None,
        }
    }

    #[inline(always)]
    fn raise_as_many<'v, const N: usize>(
        self,
        event_type: EventTypeId,
        shape: &RowShape,
        values: impl Values<'v>,
    ) -> Option<Result<(), Refusal>> {
        if !shape.fits_few::<N>(values) {
            return None;
        }
        if let Err(refusal) = self.check_open_unless_short() {
            return Some(Err(refusal));
        }
        Some(match shape.few_are {
            Few::OneText if N == 1 => {
                let (row, bound) = OneText::new(values.get(0))?;
                self.put(event_type, bound, row)
            }
            Few::Unsigned => {
                let row = Integers::<_, N, false>(values);
                let bound = Integers::<(), N, false>::BOUND;
                self.put(event_type, bound, row)
            }
            // In parts: as a whole, it would go through memory.
            Few::Integers => raise_integers::<N>(self.shared, self.short, event_type, values),
            Few::OneText | Few::Any => {
                return raise_present::<N>(self.shared, self.short, event_type, values);
            }
        })
    }

    /// Raises an event of any values: texts, absent ones, and those that do not fit.
    #[inline(never)]
    fn raise_any<'v>(
        self,
        source: SourceId,
        tick: Option<u64>,
        event_type: EventTypeId,
        shape: &RowShape,
        values: impl Values<'v>,
    ) -> Result<(), Refusal> {
        let Some(fit) = elements::fit(&shape.schema, values) else {
            return self.misused(Refusal::Values);
        };
        self.check_open()?;
        let row = Raw { fit, values };
        thread_streams::raise(self.shared, source, event_type, tick, fit.bound, row);
        Ok(())
    }

    /// Counts events that a source dropped itself: see [`crate::Recorder::report_dropped`].
    ///
    /// # Errors
    /// The count was refused.
    pub fn report_dropped(
        self,
        source: SourceId,
        event_type: EventTypeId,
        count: u64,
    ) -> Result<(), Refusal> {
        self.count_lost(source, event_type, count, Cause::ReportedBySource)
    }

    /// Counts an event without a callback: see [`crate::Recorder::report_no_callback`].
    ///
    /// # Errors
    /// The event was refused.
    pub fn report_no_callback(
        self,
        source: SourceId,
        event_type: EventTypeId,
    ) -> Result<(), Refusal> {
        self.report_no_callbacks(source, event_type, 1)
    }

    /// Counts events without a callback: see [`crate::Recorder::report_no_callbacks`].
    ///
    /// # Errors
    /// The count was refused.
    pub fn report_no_callbacks(
        self,
        source: SourceId,
        event_type: EventTypeId,
        count: u64,
    ) -> Result<(), Refusal> {
        self.count_lost(source, event_type, count, Cause::NoCallback)
    }

    fn count_lost(
        self,
        source: SourceId,
        event_type: EventTypeId,
        count: u64,
        cause: Cause,
    ) -> Result<(), Refusal> {
        if self.short.is_some() {
            return Err(Refusal::NotShort);
        }
        let shared = self.shared;
        if shared.row_schema(event_type).is_none() || shared.source(source).is_none() {
            return self.misused(Refusal::Unknown);
        }
        self.check_open()?;
        thread_streams::count_lost(shared, source, event_type, count, cause);
        Ok(())
    }

    /// Checks whether events are accepted, also while recording is paused.
    ///
    /// # Errors
    /// Why they are not.
    pub fn state(self) -> Result<(), Refusal> {
        if self.shared.guard.is_open() {
            Ok(())
        } else if self.shared.is_finishing() {
            Err(Refusal::Finished)
        } else {
            Err(Refusal::Forked)
        }
    }

    /// Raises an event of the process's own source, now.
    #[inline(always)]
    fn put(self, event_type: EventTypeId, bound: usize, row: impl PutRow) -> Result<(), Refusal> {
        let Some(last) = self.short else {
            thread_streams::raise(self.shared, THREADS, event_type, None, bound, row);
            return Ok(());
        };
        if last.raise_if_plain(THREADS, event_type, bound, row) {
            Ok(())
        } else {
            Err(Refusal::NotShort)
        }
    }

    /// Refuses and counts events after the recording's end or a fork.
    #[inline(always)]
    fn check_open(self) -> Result<(), Refusal> {
        if self.shared.guard.is_open() {
            return Ok(());
        }
        self.shared.count_unrecorded();
        self.state()
    }

    /// Refuses and counts events after the recording's end or a fork, except on the fast path: that
    /// checks by itself, and is not taken then.
    #[inline(always)]
    fn check_open_unless_short(self) -> Result<(), Refusal> {
        match self.short {
            Some(_) => Ok(()),
            None => self.check_open(),
        }
    }

    #[cold]
    fn misused(self, refusal: Refusal) -> Result<(), Refusal> {
        self.shared.count_misused();
        Err(refusal)
    }
}

/// Out of line, so that the path of the others stays short.
#[inline(never)]
fn raise_integers<'v, const N: usize>(
    shared: &Shared,
    short: Option<Last<'_>>,
    event_type: EventTypeId,
    values: impl Values<'v>,
) -> Result<(), Refusal> {
    let row = Integers::<_, N, true>(values);
    let bound = Integers::<(), N, true>::BOUND;
    Raiser { shared, short }.put(event_type, bound, row)
}

#[inline(never)]
fn raise_present<'v, const N: usize>(
    shared: &Shared,
    short: Option<Last<'_>>,
    event_type: EventTypeId,
    values: impl Values<'v>,
) -> Option<Result<(), Refusal>> {
    let (row, bound) = Present::<_, N>::new(values)?;
    Some(Raiser { shared, short }.put(event_type, bound, row))
}

//! Raising by numbers: for callers that hold ids and no references, as those from other languages do.

use annals_format::{Cause, EventTypeId, RegionId, SourceId};

use crate::elements::{
    self, ElementKind, Few, Integers, MOST_FEW, Numbers, Present, Raw, Shape, Typed, Values,
};
use crate::recorder::{ENTER, LEAVE, THREADS};
use crate::shared::Shared;
use crate::thread;

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
}

/// What raises the events of a recorder by their numbers, and checks all of them. For signal handlers
/// as well, like [`crate::Recorder::raise`].
#[derive(Clone, Copy, Debug)]
pub struct Raiser<'a>(&'a Shared);

impl<'a> Raiser<'a> {
    #[inline]
    pub(crate) const fn new(shared: &'a Shared) -> Self {
        Self(shared)
    }

    pub(crate) fn shared(self) -> &'a Shared {
        self.0
    }

    /// Works with the recorder that has this [number](crate::Recorder::number) if the calling thread
    /// raised its last event there: found without looking the recorder up. None if it did not, and
    /// nothing was done.
    #[inline(always)]
    pub fn with_last<T>(number: u32, work: impl FnOnce(Raiser<'_>) -> T) -> Option<T> {
        thread::with_last(number, |shared| work(Raiser(shared)))
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
        let shared = self.0;
        if !shared.has_region(region) {
            return self.misused(Refusal::Unknown);
        }
        self.check_open()?;
        if !shared.control.is_region_off(region) {
            let bound = RegionId::bound(region);
            let row = Typed::<(RegionId,)>((region,));
            thread::raise(shared, THREADS, event_type, None, bound, row);
        }
        Ok(())
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
        let shared = self.0;
        let Some(shape) = shared.form(event_type) else {
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
        if !shape.fits_numbers(values) {
            return self.raise_any(source, tick, event_type, shape, values);
        }
        self.check_open()?;
        let row = Numbers(values);
        thread::raise(shared, source, event_type, tick, row.bound(), row);
        Ok(())
    }

    /// The same for a few values that are all there, now, by code that is made for how many there are: for
    /// three numbers from C, 205 instructions and not 283. None, and nothing done, for other values.
    #[inline(always)]
    fn raise_few<'v>(
        self,
        event_type: EventTypeId,
        shape: &Shape,
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
        shape: &Shape,
        values: impl Values<'v>,
    ) -> Option<Result<(), Refusal>> {
        if !shape.fits_few::<N>(values) {
            return None;
        }
        if let Err(refusal) = self.check_open() {
            return Some(Err(refusal));
        }
        match shape.few_are {
            Few::Unsigned => {
                let row = Integers::<_, N, false>(values);
                let bound = Integers::<(), N, false>::BOUND;
                thread::raise(self.0, THREADS, event_type, None, bound, row);
            }
            Few::Integers => self.raise_integers::<N>(event_type, values),
            Few::Any => return self.raise_present::<N>(event_type, values),
        }
        Some(Ok(()))
    }

    /// Out of line, so that the path of the others stays short.
    #[inline(never)]
    fn raise_integers<'v, const N: usize>(self, event_type: EventTypeId, values: impl Values<'v>) {
        let row = Integers::<_, N, true>(values);
        let bound = Integers::<(), N, true>::BOUND;
        thread::raise(self.0, THREADS, event_type, None, bound, row);
    }

    #[inline(never)]
    fn raise_present<'v, const N: usize>(
        self,
        event_type: EventTypeId,
        values: impl Values<'v>,
    ) -> Option<Result<(), Refusal>> {
        let (row, bound) = Present::<_, N>::new(values)?;
        thread::raise(self.0, THREADS, event_type, None, bound, row);
        Some(Ok(()))
    }

    /// The same for any values: texts, absent ones, and those that do not fit.
    #[inline(never)]
    fn raise_any<'v>(
        self,
        source: SourceId,
        tick: Option<u64>,
        event_type: EventTypeId,
        shape: &Shape,
        values: impl Values<'v>,
    ) -> Result<(), Refusal> {
        let Some(fit) = elements::fit(&shape.schema, values) else {
            return self.misused(Refusal::Values);
        };
        self.check_open()?;
        let row = Raw { fit, values };
        thread::raise(self.0, source, event_type, tick, fit.bound, row);
        Ok(())
    }

    /// As [`crate::Recorder::report_dropped`].
    ///
    /// # Errors
    /// The count was not taken.
    pub fn report_dropped(
        self,
        source: SourceId,
        event_type: EventTypeId,
        count: u64,
    ) -> Result<(), Refusal> {
        self.lose(source, event_type, count, Cause::ReportedBySource)
    }

    /// As [`crate::Recorder::report_no_callback`].
    ///
    /// # Errors
    /// The event was not taken.
    pub fn report_no_callback(
        self,
        source: SourceId,
        event_type: EventTypeId,
    ) -> Result<(), Refusal> {
        self.report_no_callbacks(source, event_type, 1)
    }

    /// As [`crate::Recorder::report_no_callbacks`].
    ///
    /// # Errors
    /// The count was not taken.
    pub fn report_no_callbacks(
        self,
        source: SourceId,
        event_type: EventTypeId,
        count: u64,
    ) -> Result<(), Refusal> {
        self.lose(source, event_type, count, Cause::NoCallback)
    }

    fn lose(
        self,
        source: SourceId,
        event_type: EventTypeId,
        count: u64,
        cause: Cause,
    ) -> Result<(), Refusal> {
        let shared = self.0;
        if shared.shape(event_type).is_none() || shared.source(source).is_none() {
            return self.misused(Refusal::Unknown);
        }
        self.check_open()?;
        thread::lose(shared, source, event_type, count, cause);
        Ok(())
    }

    /// Whether events would be taken, also while recording is paused.
    ///
    /// # Errors
    /// Why not.
    pub fn state(self) -> Result<(), Refusal> {
        if self.0.guard.is_on() {
            Ok(())
        } else if self.0.is_finishing() {
            Err(Refusal::Finished)
        } else {
            Err(Refusal::Forked)
        }
    }

    /// Refuses, and counts, what comes after the recording's end or a fork.
    #[inline(always)]
    fn check_open(self) -> Result<(), Refusal> {
        if self.0.guard.is_on() {
            return Ok(());
        }
        self.0.count_unrecorded();
        self.state()
    }

    #[cold]
    fn misused(self, refusal: Refusal) -> Result<(), Refusal> {
        self.0.count_unknown_type();
        Err(refusal)
    }
}

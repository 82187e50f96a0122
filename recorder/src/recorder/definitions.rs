//! Definitions that programs add to a recording: ranks, properties, clocks, sources, regions, event
//! types, objects.

use std::marker::PhantomData;

use annals_format::names::element;
use annals_format::{
    ClockId, Definition, EventTypeId, EventTypeSchema, HostOffset, ObjectId, Rank, RegionId,
    RemoteMembers, Role, SourceId,
};

use super::Recorder;
use crate::builtin::PROCESS;
use crate::clock;
use crate::elements::{ElementKind, Elements};
use crate::error::Result;
use crate::event_type::{DynamicEventType, EventType, Metric};
use crate::launcher;
use crate::rules::{Subject, Verdict};
use crate::spec::{ClockSpec, EventTypeSpec, SourceSpec};

impl Recorder {
    /// Sets the rank of this process, when it becomes known after the start.
    ///
    /// # Errors
    /// `RecorderError::Finished`, or `RecorderError::Full` if there is no room for another
    /// definition.
    pub fn set_rank(&self, rank: u32, rank_count: Option<u32>) -> Result<()> {
        let rank = Rank {
            process: PROCESS,
            rank,
            rank_count,
            is_assigned: false,
        };
        self.define(|definer| definer.add(Definition::Rank(rank)))?;
        launcher::pass_on(rank.rank);
        Ok(())
    }

    /// Sets the world in which the rank counts, if the run has several that each count from 0: the
    /// same name in all processes of a world, and different names for different worlds. The
    /// launcher's name for it is known already.
    ///
    /// # Errors
    /// `RecorderError::Finished`, or `RecorderError::Full` if there is no room for another
    /// definition.
    pub fn set_world(&self, name: &str) -> Result<()> {
        self.define(|definer| definer.world(name))
    }

    /// Adds a property of the process: something a reader may want to know.
    ///
    /// # Errors
    /// `RecorderError::Finished`, or `RecorderError::Full` if there is no room for another
    /// definition.
    pub fn add_property(&self, key: &str, value: &str) -> Result<()> {
        self.define(|definer| definer.property(key, value))
    }

    /// Stores an offset between the reference clocks of two hosts, usually [`Recorder::boot_id`]
    /// and another's, as a message there and back measures it: this process reads
    /// [`Recorder::reference_ns`], the other host answers with its own reading, this process reads
    /// again.
    ///
    /// The merge relates hosts by these, with their bounds. Worth having: at least one at the start
    /// and one at the end, each the one with the shortest round trip of many.
    ///
    /// # Errors
    /// `RecorderError::Finished`, or `RecorderError::Full` if there is no room for another
    /// definition.
    pub fn add_host_offset(&self, offset: HostOffset) -> Result<()> {
        self.define(|definer| definer.add(Definition::HostOffset(offset)))
    }

    /// Adds a clock.
    ///
    /// # Errors
    /// If its rate is 0, the recording is finished, or there is no room
    /// for another definition.
    pub fn add_clock(&self, spec: &ClockSpec) -> Result<ClockId> {
        self.define(|definer| definer.clock(spec))
    }

    /// Ties a clock that the recorder cannot read ([`ClockSpec::unreadable`]) to the host's
    /// reference clock, at this moment.
    ///
    /// `read` reads it, several times in a row, on this thread. It may raise events. Two such
    /// moments, some time apart, bound the error of the clock's times, which its events alone
    /// cannot.
    ///
    /// # Errors
    /// If the clock is not one of this recorder, or one that the recorder reads itself, the
    /// recording is finished, or there is no room for another definition.
    ///
    /// # Panics
    /// If `read` does.
    pub fn calibrate(&self, clock: ClockId, read: impl Fn() -> u64) -> Result<()> {
        let definition = self.define(|definer| definer.unreadable_clock(clock))?;
        // Not while others wait for the definitions: what it raises may need them.
        let point = clock::calibrate_by(&definition, read);
        self.define(|definer| definer.tie(&definition, point))
    }

    /// Adds a source.
    ///
    /// # Errors
    /// If its clock is not one of this recorder, the recording is finished, or there is no room
    /// for another definition.
    pub fn add_source(&self, spec: &SourceSpec) -> Result<SourceId> {
        self.define(|definer| definer.source(spec))
    }

    /// Adds a region, or finds the one that is the same.
    ///
    /// # Errors
    /// `RecorderError::Finished`, or `RecorderError::Full` if there is no room for another
    /// definition.
    pub fn add_region(&self, name: &str) -> Result<RegionId> {
        self.add_region_at(name, "", 0, "")
    }

    /// Adds a region with its source file, line and group, or finds an equal one.
    /// Line 0 means that it is unknown.
    ///
    /// # Errors
    /// `RecorderError::Finished`, or `RecorderError::Full` if there is no room for another
    /// definition.
    pub fn add_region_at(
        &self,
        name: &str,
        file: &str,
        line: u32,
        group: &str,
    ) -> Result<RegionId> {
        self.define(|definer| definer.region(name, file, line, group))
    }

    /// Adds an event type whose elements have the types `E`, a tuple; or finds the one that is the
    /// same.
    ///
    /// # Errors
    /// If the names do not match the tuple, the name is taken by a different event type, the
    /// recording is finished, or there is no room for another definition.
    pub fn add_event_type<E: Elements>(&self, spec: &EventTypeSpec) -> Result<EventType<E>> {
        let id = self.define(|definer| definer.event_type(spec, &E::schema()))?;
        Ok(EventType {
            id,
            recorder: self.shared().number,
            elements: PhantomData,
        })
    }

    /// Returns whether the rules of the recorder, as they are now, leave out events of a type of the program's threads.
    pub fn leaves_out(&self, spec: &EventTypeSpec) -> bool {
        let rules = &self.shared().rules;
        let of_source = rules.verdict(Subject::Source, "threads", None);
        let of_type = rules.verdict(Subject::Event, &spec.name, Some(spec.verbosity));
        (of_source, of_type) != (Verdict::On, Verdict::On)
    }

    /// Returns whether the rules leave out the enters and leaves of regions of this name.
    pub fn leaves_out_region(&self, name: &str) -> bool {
        self.shared().rules.verdict(Subject::Region, name, None) == Verdict::Off
    }

    /// Adds an event type whose element types are known only now.
    ///
    /// # Errors
    /// If the names do not match the tuple, the name is taken by a different event type, the
    /// recording is finished, or there is no room for another definition.
    pub fn add_dynamic_event_type(
        &self,
        spec: &EventTypeSpec,
        schema: EventTypeSchema,
    ) -> Result<DynamicEventType> {
        let id = self.define(|definer| definer.event_type(spec, &schema))?;
        Ok(DynamicEventType {
            id,
            recorder: self.shared().number,
        })
    }

    /// Adds an object that events may refer to ([`Reference::Object`](crate::Reference::Object))
    /// and registrations may be bound to: its kind, as `communicator` or `window`, and its name.
    ///
    /// # Errors
    /// `RecorderError::Finished`, or `RecorderError::Full` if there is no room for another
    /// definition.
    pub fn add_object(&self, kind: &str, name: &str) -> Result<ObjectId> {
        self.define(|definer| definer.object(kind, name))
    }

    /// Stores that a communicator has processes of other worlds, and how it was made; the process and `made` of `members` are
    /// set here. Elements of events may contain the numbers from [`RemoteMembers::first`] on as ranks.
    ///
    /// # Errors
    /// `RecorderError::Finished`, or `RecorderError::Full` if there is no room for another
    /// definition.
    pub fn add_remote_members(&self, made: &str, members: RemoteMembers) -> Result<()> {
        self.define(|definer| definer.remote_members(made, members))
    }

    /// Records that events of this type are recorded because a tool registered for them, and for
    /// which object if they are bound.
    ///
    /// # Errors
    /// If the event type or the object is not one of this recorder, the recording is finished, or
    /// there is no room for another definition.
    pub fn add_registration(
        &self,
        event_type: EventTypeId,
        object: Option<ObjectId>,
    ) -> Result<()> {
        self.define(|definer| definer.registration(event_type, object))
    }

    /// Adds a metric with this unit.
    ///
    /// # Errors
    /// If the names do not match the tuple, the name is taken by a different event type, the
    /// recording is finished, or there is no room for another definition.
    pub fn add_metric<T: ElementKind>(&self, name: &str, unit: &str) -> Result<Metric<T>> {
        let spec = EventTypeSpec::new(name)
            .role(Role::Metric)
            .element_in(element::VALUE, unit);
        self.add_event_type(&spec).map(Metric)
    }
}

//! Defining: stores definitions in the registry, and prepares what the event path needs of them.
//!
//! A [`Definer`] holds the lock of the registry. Each definition is stored in the live file, or in
//! the recording, when its method returns.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, MutexGuard};

use annals_format::live::layout as l;
use annals_format::{
    CalibrationPoint, Clock, ClockId, ClockKind, Definition, Definitions, Element, ElementType,
    EventType, EventTypeId, EventTypeSchema, Location, LocationKind, Object, ObjectId, Property,
    Region, RegionId, Registration, RemoteMembers, Schema, Source, SourceId,
    Stream as StreamDefinition, StringId, World,
};

use crate::builtin::PROCESS;
use crate::clock::TickSource;
use crate::elements::RowShape;
use crate::error::{RecorderError, Result};
use crate::gate::Moment;
use crate::limits::{MAX_EVENT_TYPES, MAX_SOURCES};
use crate::registry::Registry;
use crate::rules::{Rules, Subject, Verdict};
use crate::shared::Shared;
use crate::source::SourceState;
use crate::spec::{ClockSpec, ElementSpec, EventTypeSpec, SourceSpec};
use crate::stream::{Opening, Stream, phase};
use crate::switch::Switch;
use crate::sync::lock;

/// A clock that wraps, or cannot be read, needs observations at least this often to be placed.
const OBSERVED_BELOW_NS: u128 = 24 * 3600 * 1_000_000_000;

/// Defines things of one recorder, while it holds the lock of the registry.
pub(crate) struct Definer<'a> {
    shared: &'a Shared,
    registry: MutexGuard<'a, Registry>,
}

impl<'a> Definer<'a> {
    /// Waits for the registry's lock.
    pub(crate) fn lock(shared: &'a Shared) -> Self {
        Self {
            shared,
            registry: lock(&shared.registry),
        }
    }

    /// Returns everything that is defined so far.
    pub(crate) fn definitions(&self) -> &Definitions {
        &self.registry.definitions
    }

    /// Returns the row schemas of all event types.
    pub(crate) fn schema(&self) -> Arc<Schema> {
        self.registry.schema()
    }

    /// Closes the registry: no definition can be added any more.
    pub(crate) fn close(&mut self) {
        self.registry.close();
    }

    /// Adds a definition.
    pub(crate) fn add(&mut self, definition: Definition) -> Result<()> {
        let sink = self.shared.definition_sink();
        self.registry.add(&sink, definition)
    }

    /// Returns the id of a string; defines it when it is new.
    pub(crate) fn string(&mut self, text: &str) -> Result<StringId> {
        let sink = self.shared.definition_sink();
        self.registry.string(&sink, text)
    }

    /// Defines in which of several worlds of the run the rank counts.
    pub(crate) fn world(&mut self, name: &str) -> Result<()> {
        let world = World {
            process: PROCESS,
            name: self.string(name)?,
            first_rank: 0,
        };
        self.add(Definition::World(world))
    }

    /// Defines that a communicator has processes of several worlds.
    pub(crate) fn remote_members(&mut self, made: &str, members: RemoteMembers) -> Result<()> {
        let members = RemoteMembers {
            process: PROCESS,
            made: self.string(made)?,
            ..members
        };
        self.add(Definition::RemoteMembers(members))
    }

    /// Defines a property of the process.
    pub(crate) fn property(&mut self, key: &str, value: &str) -> Result<()> {
        let key = self.string(key)?;
        let value = self.string(value)?;
        let property = Property {
            process: PROCESS,
            key,
            value,
        };
        self.add(Definition::Property(property))
    }

    /// Defines a clock, and calibrates it if it can be read.
    pub(crate) fn clock(&mut self, spec: &ClockSpec) -> Result<ClockId> {
        if spec.ticks_per_second == 0 {
            return Err(RecorderError::Definition {
                name: spec.name.clone(),
                why: "a clock has at least one tick per second".to_owned(),
            });
        }
        let clock = Clock {
            id: ClockId::new(self.registry.clocks.len() as u32),
            process: PROCESS,
            name: self.string(&spec.name)?,
            kind: match spec.ticks {
                TickSource::Tsc => ClockKind::Tsc,
                TickSource::Reference => ClockKind::Reference,
                TickSource::Function(_) => ClockKind::Readable,
                TickSource::Unreadable(_) => ClockKind::Unreadable,
            },
            ticks_per_second: spec.ticks_per_second,
            rate_error_ppb: spec.rate_error_ppb,
            max_ticks: spec.max_ticks,
        };
        let id = clock.id;
        self.add(Definition::Clock(clock))?;
        self.registry.clocks.push(match &spec.ticks {
            // A specification may be used for several clocks.
            TickSource::Unreadable(_) => TickSource::Unreadable(Arc::default()),
            ticks => ticks.clone(),
        });
        self.calibrate(id)?;
        Ok(id)
    }

    /// Returns the definition of a clock that the recorder does not read itself.
    pub(crate) fn unreadable_clock(&self, id: ClockId) -> Result<Clock> {
        let clock = self.registry.definitions.clocks.get(&id);
        let clock = clock.ok_or(RecorderError::Unknown {
            what: "clock",
            number: id.get(),
        })?;
        if clock.kind == ClockKind::Unreadable {
            return Ok(clock.clone());
        }
        Err(RecorderError::Definition {
            name: self.registry.definitions.string(clock.name).to_owned(),
            why: "the recorder calibrates this clock itself".to_owned(),
        })
    }

    /// Defines a calibration point of a clock that the recorder does not read itself.
    pub(crate) fn tie(&mut self, clock: &Clock, point: CalibrationPoint) -> Result<()> {
        if let TickSource::Unreadable(tied) = &self.registry.clocks[clock.id.index()] {
            tied.set(clock, &point);
        }
        self.add(Definition::Calibration(point))
    }

    /// Takes a calibration point of a clock, if it can be read.
    fn calibrate(&mut self, id: ClockId) -> Result<()> {
        let clock = self.registry.definitions.clocks.get(&id);
        let point: Option<CalibrationPoint> =
            clock.and_then(|clock| self.registry.clocks[id.index()].calibrate(clock));
        match point {
            Some(point) => self.add(Definition::Calibration(point)),
            None => Ok(()),
        }
    }

    /// Takes a calibration point of every clock that can be read.
    pub(crate) fn calibrate_all(&mut self) -> Result<()> {
        (0..self.registry.clocks.len()).try_for_each(|n| self.calibrate(ClockId::new(n as u32)))
    }

    /// Defines a source, and opens the stream that counts its losses without a stream.
    pub(crate) fn source(&mut self, spec: &SourceSpec) -> Result<SourceId> {
        let shared = self.shared;
        let clock = spec.clock.unwrap_or(ClockId::new(0));
        self.registry.check_open()?;
        let definition = self.registry.definitions.clocks.get(&clock);
        let definition = definition.ok_or(RecorderError::Unknown {
            what: "clock",
            number: clock.get(),
        })?;
        let id = SourceId::new(self.registry.definitions.sources.len() as u32);
        if id.index() >= MAX_SOURCES {
            return Err(RecorderError::Full { what: "sources" });
        }
        let (max_ticks, ticks_per_second) = (definition.max_ticks, definition.ticks_per_second);
        let period_ns = (u128::from(max_ticks) + 1) * 1_000_000_000 / u128::from(ticks_per_second);
        let ticks = self.registry.clocks[clock.index()].clone();
        let is_observed =
            period_ns < OBSERVED_BELOW_NS || matches!(ticks, TickSource::Unreadable(_));
        // Sixteen to a period; a clock that cannot be read gets at most a thousand a second.
        let interval_ns = (period_ns / 16).min(1_000_000) as i64;
        let source = Source {
            id,
            process: PROCESS,
            name: self.string(&spec.name)?,
            description: self.string(&spec.description)?,
            ordering: spec.ordering,
            clock,
        };
        self.add(Definition::Source(source))?;
        let open_tick = ticks.read();
        let no_room = || RecorderError::Full {
            what: "open streams",
        };
        let stream = shared.streams.claim().ok_or_else(no_room)?;
        let verdict = shared.rules.verdict(Subject::Source, &spec.name, None);
        let state = SourceState {
            clock: ticks,
            max_ticks,
            ticks_per_second,
            observation_interval_ns: is_observed.then_some(interval_ns),
            overflow: spec.overflow.unwrap_or(shared.overflow),
            has_own_location: spec.has_own_location,
            switch: AtomicU8::new(Switch::first(verdict == Verdict::Off).bits()),
            unattributed: stream.slot,
        };
        let opening = Opening {
            id: shared.next_stream_id(),
            source: id,
            location: None,
            open_tick,
            is_companion: false,
        };
        stream.fill(shared, &state, &opening);
        stream.is_announced.store(true, Ordering::Relaxed);
        self.add(stream_definition(stream))?;
        let _ = shared.sources[id.index()].set(state);
        shared.publish(stream, &opening);
        stream.phase.store(phase::OPEN, Ordering::Release);
        let blocks = self
            .registry
            .event_types
            .len()
            .div_ceil(l::ROWS_PER_SEGMENT);
        if (0..blocks).any(|block| !shared.give_segment(stream, block)) {
            return Err(RecorderError::Full {
                what: "event counters",
            });
        }
        Ok(id)
    }

    /// Changes what is recorded, from now on and in all threads.
    pub(crate) fn apply(&mut self, rules: &Rules) -> Result<()> {
        self.registry.check_open()?;
        self.shared.rules.add(rules);
        self.renew_rules();
        self.shared.renew_gates();
        Ok(())
    }

    /// Computes all gates again.
    fn renew_rules(&self) {
        let (registry, gates) = (&*self.registry, &self.shared.gates);
        let rules = &self.shared.rules;
        for source in registry.definitions.sources.values() {
            let verdict = rules.verdict(Subject::Source, registry.text(source.name), None);
            if let Some(state) = self.shared.source(source.id) {
                state.turn(verdict == Verdict::Off);
            }
        }
        for (id, event_type) in &registry.definitions.event_types {
            let name = registry.text(event_type.name);
            let source = Switch::first(false);
            let is_watched = gates.gate(*id, source, true, 1).is_watched();
            gates.rule_event_type(rules, event_type, name, is_watched, Moment::Later);
        }
        for (id, region) in &registry.definitions.regions {
            gates.rule_region(rules, *id, registry.text(region.name), Moment::Later);
        }
    }

    /// Defines the streams that threads have opened since the last call, with their locations.
    /// Until then, only the slots of the live file show them.
    pub(crate) fn announce(&mut self) -> Result<()> {
        let shared = self.shared;
        let news = shared.streams.in_use();
        for stream in news.filter(|stream| !stream.is_announced.load(Ordering::Relaxed)) {
            if let Some(id) = stream.location()
                && !self.registry.definitions.locations.contains_key(&id)
            {
                let slot = shared.memory.slot(stream.slot);
                let system_id = slot.system_id().load(Ordering::Relaxed);
                let [a, b] = slot.name().map(|word| word.load(Ordering::Relaxed));
                let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
                let mut name =
                    annals_format::live::thread_name(&bytes, system_id, std::process::id());
                let state = shared.source(stream.source());
                if state.is_some_and(|state| state.has_own_location)
                    && let Some(source) = self.registry.definitions.sources.get(&stream.source())
                    && let Some(source) = self.registry.definitions.strings.get(&source.name)
                {
                    name = format!("{name} {source}");
                }
                let location = Location {
                    id,
                    process: PROCESS,
                    name: self.string(&name)?,
                    kind: LocationKind::Thread,
                    system_id,
                };
                self.add(Definition::Location(location))?;
            }
            self.add(stream_definition(stream))?;
            stream.is_announced.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Defines a region, or returns the id of an equal one.
    pub(crate) fn region(
        &mut self,
        name: &str,
        file: &str,
        line: u32,
        group: &str,
    ) -> Result<RegionId> {
        let name = self.string(name)?;
        let file = self.string(file)?;
        let group = self.string(group)?;
        let key = (name, file, line, group);
        if let Some(id) = self.registry.regions.get(&key) {
            return Ok(*id);
        }
        self.registry.check_open()?;
        let full = RecorderError::Full { what: "regions" };
        let id = self.shared.next_region_id().ok_or(full)?;
        let region = Region {
            id,
            name,
            file,
            line,
            group,
        };
        self.new_region(region, Moment::First)?;
        self.registry.regions.insert(key, id);
        Ok(id)
    }

    /// Defines an object that events may refer to.
    pub(crate) fn object(&mut self, kind: &str, name: &str) -> Result<ObjectId> {
        let object = Object {
            id: ObjectId::new(self.registry.definitions.objects.len() as u32),
            process: PROCESS,
            kind: self.string(kind)?,
            name: self.string(name)?,
        };
        self.add(Definition::Object(object))?;
        Ok(object.id)
    }

    /// Defines that events of a type are recorded because a tool registered for them.
    pub(crate) fn registration(
        &mut self,
        event_type: EventTypeId,
        object: Option<ObjectId>,
    ) -> Result<()> {
        let unknown = |what, number| Err(RecorderError::Unknown { what, number });
        if !self
            .registry
            .definitions
            .event_types
            .contains_key(&event_type)
        {
            return unknown("event type", event_type.get());
        }
        if let Some(object) = object
            && !self.registry.definitions.objects.contains_key(&object)
        {
            return unknown("object", object.get());
        }
        let registration = Registration {
            process: PROCESS,
            event_type,
            object,
        };
        self.add(Definition::Registration(registration))
    }

    /// Defines a region that has its number already, and that may have been raised with that.
    pub(crate) fn new_region(&mut self, region: Region, moment: Moment) -> Result<()> {
        let name = self.registry.definitions.string(region.name);
        self.shared.triggers.watch_region(region.id, name);
        let gates = &self.shared.gates;
        gates.rule_region(&self.shared.rules, region.id, name, moment);
        self.add(Definition::Region(region))
    }

    /// Defines an event type, or returns the id of an equal one.
    pub(crate) fn event_type(
        &mut self,
        spec: &EventTypeSpec,
        schema: &EventTypeSchema,
    ) -> Result<EventTypeId> {
        let key_element = check_event_type(spec, schema)?;
        self.registry.check_open()?;
        let known = self.registry.event_types.get(&spec.name).copied();
        let id = known.unwrap_or_else(|| EventTypeId::new(self.registry.event_types.len() as u32));
        if id.index() >= MAX_EVENT_TYPES {
            return Err(RecorderError::Full {
                what: "event types",
            });
        }
        let mut elements = Vec::new();
        for (element, (element_type, is_optional)) in spec.elements.iter().zip(&schema.elements) {
            elements.push(self.element(element, *element_type, *is_optional)?);
        }
        let event_type = EventType {
            id,
            name: self.string(&spec.name)?,
            description: self.string(&spec.description)?,
            verbosity: spec.verbosity,
            role: spec.role,
            key_element,
            elements,
        };
        if known.is_none() {
            self.new_event_type(&spec.name, event_type)?;
        } else if self.registry.definitions.event_types.get(&id) != Some(&event_type) {
            return Err(RecorderError::Conflict {
                name: spec.name.clone(),
            });
        }
        Ok(id)
    }

    /// Defines an event type that is not known yet, once everything is ready to raise it.
    fn new_event_type(&mut self, name: &str, event_type: EventType) -> Result<()> {
        let (shared, id) = (self.shared, event_type.id);
        let elements: Vec<(&str, ElementType, bool)> = event_type
            .elements
            .iter()
            .map(|e| (self.registry.text(e.name), e.element_type, e.is_optional))
            .collect();
        let triggers = &shared.triggers;
        let is_watched = triggers.watch_event_type(id, name, event_type.role, &elements);
        shared
            .gates
            .rule_event_type(&shared.rules, &event_type, name, is_watched, Moment::First);
        // Counters first: a type without them could be raised and not counted. Streams of threads
        // take theirs with the first event. When none are left, the counters of streams without a
        // location count.
        let block = id.index() / l::ROWS_PER_SEGMENT;
        for stream in shared.streams.in_use().filter(|s| s.location().is_none()) {
            if !shared.give_segment(stream, block) {
                return Err(RecorderError::Full {
                    what: "event counters",
                });
            }
        }
        shared.renew_gates_of(block);
        let shape = RowShape::new(EventTypeSchema::of(&event_type));
        let _ = shared.row_shapes[id.index()].set(shape);
        let mut schema = (*self.registry.schema).clone();
        schema.add(&event_type);
        self.add(Definition::EventType(event_type))?;
        self.registry.schema = Arc::new(schema);
        self.registry.event_types.insert(name.to_owned(), id);
        Ok(())
    }

    /// Builds the definition of one element, interning its name and unit.
    fn element(
        &mut self,
        element: &ElementSpec,
        element_type: ElementType,
        is_optional: bool,
    ) -> Result<Element> {
        Ok(Element {
            name: self.string(&element.name)?,
            element_type,
            is_optional,
            reference: element.reference,
            unit: self.string(&element.unit)?,
            original_bits: 0,
        })
    }
}

/// Checks that a specification is consistent. Returns the position of its key element.
fn check_event_type(spec: &EventTypeSpec, schema: &EventTypeSchema) -> Result<Option<u8>> {
    let wrong = |why: String| RecorderError::Definition {
        name: spec.name.clone(),
        why,
    };
    if spec.elements.len() != schema.elements.len() {
        return Err(wrong(format!(
            "{} elements are named, {} have a type",
            spec.elements.len(),
            schema.elements.len()
        )));
    }
    if schema.elements.len() > annals_format::MAX_ELEMENTS {
        return Err(wrong("at most 256 elements are possible".to_owned()));
    }
    for (index, element) in spec.elements.iter().enumerate() {
        if spec.elements[..index]
            .iter()
            .any(|e| e.name == element.name)
        {
            return Err(wrong(format!("two elements are named `{}`", element.name)));
        }
    }
    let Some(key) = &spec.key_element else {
        return Ok(None);
    };
    let position = spec.elements.iter().position(|e| e.name == *key);
    let missing = || wrong(format!("the key `{key}` is not one of the elements"));
    Ok(Some(position.ok_or_else(missing)? as u8))
}

fn stream_definition(stream: &Stream) -> Definition {
    Definition::Stream(StreamDefinition {
        id: stream.id(),
        source: stream.source(),
        location: stream.location(),
    })
}

//! Perfetto's trace format: packets in protocol buffers (`perfetto/trace/trace_packet.proto`).
//!
//! Processes and locations are tracks; below a location's track is one for each source, which has the points as
//! instants, and one for each metric. Names are interned and tracks are described at the beginning; so packets depend
//! on no other packets than these. The exception is the track of a metric: it is described before its first value.

use annals_format::{EventType, EventTypeId, Reference, RegionId, Role, StreamId, Value};
use rustc_hash::FxHashMap;

use crate::values::{hex, referred};
use crate::write::exporter::{
    Call, Context, Ending, Enter, Events, Exporter, Message, Wants, ending,
};
use crate::write::layout::Layout;
use crate::write::output::Output;
use crate::write::proto::{bytes, fixed, message, number};
use crate::write::tables::metrics_of;
use annals_merger::ByStream;

/// Length of the buffer, in bytes, beyond which it is written to the output.
const BUFFER_BYTES: usize = 1 << 20;

// Numbers of the messages' fields in the schema.
mod trace {
    pub(super) const PACKET: u64 = 1;
}
mod packet {
    pub(super) const CLOCK_SNAPSHOT: u64 = 6;
    pub(super) const TIMESTAMP: u64 = 8;
    pub(super) const SEQUENCE_ID: u64 = 10;
    pub(super) const TRACK_EVENT: u64 = 11;
    pub(super) const INTERNED_DATA: u64 = 12;
    pub(super) const SEQUENCE_FLAGS: u64 = 13;
    pub(super) const PREVIOUS_PACKET_DROPPED: u64 = 42;
    pub(super) const TRACK_DESCRIPTOR: u64 = 60;
}
mod event {
    pub(super) const DEBUG_ANNOTATION: u64 = 4;
    pub(super) const TYPE: u64 = 9;
    pub(super) const NAME_IID: u64 = 10;
    pub(super) const TRACK_UUID: u64 = 11;
    pub(super) const CATEGORY: u64 = 22;
    pub(super) const NAME: u64 = 23;
    pub(super) const COUNTER_VALUE: u64 = 30;
    pub(super) const SOURCE_LOCATION_IID: u64 = 34;
    pub(super) const DOUBLE_COUNTER_VALUE: u64 = 44;
    pub(super) const FLOW_ID: u64 = 47;
}
mod annotation {
    pub(super) const NAME_IID: u64 = 1;
    pub(super) const BOOL: u64 = 2;
    pub(super) const UINT: u64 = 3;
    pub(super) const INT: u64 = 4;
    pub(super) const DOUBLE: u64 = 5;
    pub(super) const STRING: u64 = 6;
    pub(super) const NAME: u64 = 10;
}
mod track {
    pub(super) const UUID: u64 = 1;
    pub(super) const NAME: u64 = 2;
    pub(super) const PROCESS: u64 = 3;
    pub(super) const THREAD: u64 = 4;
    pub(super) const PARENT: u64 = 5;
    pub(super) const COUNTER: u64 = 8;
}

// Values of `TracePacket.sequence_flags`. The incremental state of a sequence is its interned names.
/// `SEQ_INCREMENTAL_STATE_CLEARED`: the packet begins a new state.
const STATE_CLEARED: u64 = 1;
/// `SEQ_NEEDS_INCREMENTAL_STATE`: the packet refers to interned names.
const NEEDS_STATE: u64 = 2;

// Values of `TrackEvent.type`.
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// Id of the sequence of all packets but those of losses.
const SEQUENCE: u64 = 1;
/// Id of the first sequence of losses. Each stream with losses has one, because a packet of a loss marks its whole
/// sequence as incomplete.
const LOSSES: u64 = 2;

// Ids of Perfetto's built-in clocks.
const REALTIME: u64 = 1;
const BOOTTIME: u64 = 6;

/// The form of an event type in the output.
#[derive(Clone, Debug)]
struct EventForm {
    /// Id of its interned name.
    name: u64,
    /// For each element, the id of its interned name.
    elements: Vec<u64>,
    /// Index of the element that is the value of the metric; `None` means that the type is no metric.
    metric: Option<usize>,
}

/// A trace of Perfetto under construction.
pub(crate) struct Perfetto<'a> {
    context: &'a Context<'a>,
    out: Output,
    /// Packets that are not yet written to the output.
    buffer: Vec<u8>,
    layout: Layout,
    forms: FxHashMap<EventTypeId, EventForm>,
    /// Ids of each region's interned name and source location; the latter is 0 if it is not known.
    regions: FxHashMap<RegionId, (u64, u64)>,
    /// The track of each stream's source.
    streams: ByStream<u64>,
    /// The tracks of metrics that have had a value.
    counters: FxHashMap<(StreamId, EventTypeId), u64>,
    /// Id of the next track that is described.
    next_uuid: u64,
}

fn annotate(name: &str, field: u64, value: u64, out: &mut Vec<u8>) {
    message(event::DEBUG_ANNOTATION, out, |out| {
        bytes(annotation::NAME, name.as_bytes(), out);
        number(field, value, out);
    });
}

fn annotate_text(name: &str, text: &str, out: &mut Vec<u8>) {
    message(event::DEBUG_ANNOTATION, out, |out| {
        bytes(annotation::NAME, name.as_bytes(), out);
        bytes(annotation::STRING, text.as_bytes(), out);
    });
}

/// Returns a time as Perfetto's timestamp, which cannot be below 0.
fn timestamp(time_ns: i64) -> u64 {
    u64::try_from(time_ns).unwrap_or(0)
}

/// Writes a packet with one track event, which `fill` fills in.
#[inline]
fn event_packet(time_ns: i64, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    message(trace::PACKET, out, |out| {
        number(packet::TIMESTAMP, timestamp(time_ns), out);
        number(packet::SEQUENCE_ID, SEQUENCE, out);
        number(packet::SEQUENCE_FLAGS, NEEDS_STATE, out);
        message(packet::TRACK_EVENT, out, |out| {
            fill(out);
            if time_ns < 0 {
                annotate("time_ns", annotation::INT, time_ns as u64, out);
            }
        });
    });
}

impl<'a> Perfetto<'a> {
    pub(crate) fn create(context: &'a Context<'a>, out: Output) -> anyhow::Result<Self> {
        let layout = Layout::of(context);
        let mut perfetto = Self {
            context,
            out,
            buffer: Vec::with_capacity(BUFFER_BYTES + (1 << 16)),
            // The ids up to here are those of processes' and locations' tracks.
            next_uuid: (layout.processes.len() + layout.threads.len()) as u64 + 1,
            layout,
            forms: FxHashMap::default(),
            regions: FxHashMap::default(),
            streams: ByStream::default(),
            counters: FxHashMap::default(),
        };
        perfetto.put_clocks();
        perfetto.put_names();
        perfetto.put_tracks();
        perfetto.flush(0)?;
        Ok(perfetto)
    }

    /// Writes the buffer to the output if it has more than `limit` bytes.
    fn flush(&mut self, limit: usize) -> anyhow::Result<()> {
        if self.buffer.len() > limit {
            self.out.put(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Writes the trace time and the wall clock at its zero.
    fn put_clocks(&mut self) {
        let zero = self.context.definitions.time_zero;
        let Some(unix_ns) = zero.and_then(|zero| u64::try_from(zero.unix_ns).ok()) else {
            // One clock alone has nothing to be compared with.
            return;
        };
        message(trace::PACKET, &mut self.buffer, |out| {
            number(packet::TIMESTAMP, 0, out);
            number(packet::SEQUENCE_ID, SEQUENCE, out);
            message(packet::CLOCK_SNAPSHOT, out, |out| {
                for (clock, time) in [(BOOTTIME, 0), (REALTIME, unix_ns)] {
                    message(1, out, |out| {
                        number(1, clock, out);
                        number(2, time, out);
                    });
                }
                number(2, BOOTTIME, out);
            });
        });
    }

    /// Interns all names: of event types, elements, regions, and where regions are.
    fn put_names(&mut self) {
        let d = self.context.definitions;
        let metrics = metrics_of(self.context);
        let mut data = Vec::new();
        let mut names = 0;
        let mut elements: FxHashMap<String, u64> = FxHashMap::default();
        let mut name_of = |text: &str, data: &mut Vec<u8>| {
            names += 1;
            message(2, data, |out| {
                number(1, names, out);
                bytes(2, text.as_bytes(), out);
            });
            names
        };
        for (id, event_type) in &d.event_types {
            let name = name_of(&d.event_type_name(*id), &mut data);
            let each = event_type.elements.iter().map(|element| {
                let text = d.string(element.name);
                let next = elements.len() as u64 + 1;
                let iid = *elements.entry(text.to_owned()).or_insert(next);
                if iid == next {
                    message(3, &mut data, |out| {
                        number(1, iid, out);
                        bytes(2, text.as_bytes(), out);
                    });
                }
                iid
            });
            let form = EventForm {
                name,
                elements: each.collect(),
                metric: metrics.get(id).copied(),
            };
            self.forms.insert(*id, form);
        }
        let mut places = 0;
        for (id, region) in &d.regions {
            let name = name_of(&d.region_name(*id), &mut data);
            let file = d.string(region.file);
            let mut place = 0;
            if !file.is_empty() {
                places += 1;
                place = places;
                message(4, &mut data, |out| {
                    number(1, place, out);
                    bytes(2, file.as_bytes(), out);
                    bytes(3, d.region_name(*id).as_bytes(), out);
                    number(4, region.line.into(), out);
                });
            }
            self.regions.insert(*id, (name, place));
        }
        message(trace::PACKET, &mut self.buffer, |out| {
            number(packet::SEQUENCE_ID, SEQUENCE, out);
            number(packet::SEQUENCE_FLAGS, STATE_CLEARED, out);
            bytes(packet::INTERNED_DATA, &data, out);
        });
    }

    /// Writes a packet that describes a track, which `fill` fills in.
    fn put_track(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        message(trace::PACKET, &mut self.buffer, |out| {
            number(packet::SEQUENCE_ID, SEQUENCE, out);
            message(packet::TRACK_DESCRIPTOR, out, fill);
        });
    }

    /// Describes the tracks of processes, locations and sources.
    fn put_tracks(&mut self) {
        let context = self.context;
        // Only processes and locations with contents are shown.
        let mut location_is_shown = vec![false; context.locations.len()];
        let mut process_is_shown = vec![false; self.layout.processes.len() + 1];
        for (_, place) in context.streams() {
            let number = place.location_id.and_then(|id| context.number_of(id));
            if let Some(number) = number {
                location_is_shown[number] = true;
            }
            if let Some(process) = process_is_shown.get_mut(self.layout.pid(place.process) as usize)
            {
                *process = true;
            }
        }
        for process in self.layout.processes.clone() {
            if process_is_shown[process.pid as usize] {
                self.put_track(|out| {
                    number(track::UUID, process.pid.into(), out);
                    message(track::PROCESS, out, |out| {
                        number(1, process.pid.into(), out);
                        if !process.command.is_empty() {
                            bytes(2, process.command.as_bytes(), out);
                        }
                        bytes(6, process.name.as_bytes(), out);
                        bytes(8, process.label.as_bytes(), out);
                    });
                });
            }
        }
        for (location, thread) in self.layout.threads.clone().into_iter().enumerate() {
            if location_is_shown[location] {
                self.put_track(|out| {
                    number(track::UUID, thread.tid.into(), out);
                    number(track::PARENT, thread.pid.into(), out);
                    message(track::THREAD, out, |out| {
                        number(1, thread.pid.into(), out);
                        number(2, thread.tid.into(), out);
                        bytes(5, thread.name.as_bytes(), out);
                    });
                });
            }
        }
        let streams: Vec<StreamId> = context.streams().map(|(stream, _)| stream).collect();
        let tracks = streams.into_iter().map(|stream| {
            let (uuid, parent) = (self.next_uuid, self.parent(stream));
            self.next_uuid += 1;
            let name = &context.places.get(stream).source;
            self.put_track(|out| {
                number(track::UUID, uuid, out);
                bytes(track::NAME, name.as_bytes(), out);
                number(track::PARENT, parent, out);
            });
            (stream, uuid)
        });
        self.streams = tracks.collect::<Vec<_>>().into_iter().collect();
    }

    /// Returns the track that those of a stream belong to: its location's, else its process's.
    fn parent(&self, stream: StreamId) -> u64 {
        let place = self.context.places.get(stream);
        let location = place.location_id.and_then(|id| self.context.number_of(id));
        match location {
            Some(location) => self.layout.threads[location].tid.into(),
            None => self.layout.pid(place.process).into(),
        }
    }

    /// Returns the track of a metric in a stream. Describes it if this is the metric's first value.
    fn counter_track(&mut self, stream: StreamId, event_type: EventTypeId, element: usize) -> u64 {
        if let Some(uuid) = self.counters.get(&(stream, event_type)) {
            return *uuid;
        }
        let (uuid, parent) = (self.next_uuid, self.parent(stream));
        self.next_uuid += 1;
        let d = self.context.definitions;
        let name = d.event_type_name(event_type);
        let unit = d.string(d.event_types[&event_type].elements[element].unit);
        self.put_track(|out| {
            number(track::UUID, uuid, out);
            bytes(track::NAME, name.as_bytes(), out);
            number(track::PARENT, parent, out);
            message(track::COUNTER, out, |out| {
                if !unit.is_empty() {
                    bytes(6, unit.as_bytes(), out);
                }
            });
        });
        self.counters.insert((stream, event_type), uuid);
        uuid
    }

    /// Returns the ids of a region's interned name and source location. 0 means that there is none.
    fn interned_region(&self, region: RegionId) -> (u64, u64) {
        self.regions.get(&region).copied().unwrap_or((0, 0))
    }

    /// Writes a region's name and source location into an event: interned, or as text if it is not defined.
    fn put_region_name(&self, region: RegionId, out: &mut Vec<u8>) {
        match self.interned_region(region) {
            (0, _) => {
                let name = self.context.definitions.region_name(region);
                bytes(event::NAME, name.as_bytes(), out);
            }
            (name, place) => {
                number(event::NAME_IID, name, out);
                if place != 0 {
                    number(event::SOURCE_LOCATION_IID, place, out);
                }
            }
        }
    }

    /// Writes the elements of an event into it, as annotations.
    fn put_elements(
        &self,
        events: &Events<'_>,
        nth: usize,
        definition: &EventType,
        names: &[u64],
        out: &mut Vec<u8>,
    ) {
        let d = self.context.definitions;
        for (at, element) in definition.elements.iter().enumerate() {
            let value = events.value(nth, at);
            if value == Value::Absent {
                continue;
            }
            message(event::DEBUG_ANNOTATION, out, |out| {
                number(annotation::NAME_IID, names[at], out);
                let name = match element.reference {
                    Reference::None | Reference::Rank => None,
                    _ => referred(d, element, value),
                };
                match (name, value) {
                    (Some(name), _) => bytes(annotation::STRING, name.as_bytes(), out),
                    (None, Value::I32(value)) => {
                        number(annotation::INT, i64::from(value) as u64, out);
                    }
                    (None, Value::I64(value)) => number(annotation::INT, value as u64, out),
                    (None, Value::U32(value)) => number(annotation::UINT, value.into(), out),
                    (None, Value::U64(value)) => number(annotation::UINT, value, out),
                    (None, Value::F64(value)) => fixed(annotation::DOUBLE, value.to_bits(), out),
                    (None, Value::String(text)) => {
                        let text = annals_format::text_of_value(text);
                        bytes(annotation::STRING, text.as_bytes(), out);
                    }
                    (None, Value::Bytes(value)) => {
                        bytes(annotation::STRING, hex(value).as_bytes(), out);
                    }
                    (None, Value::Absent) => {}
                }
            });
        }
    }

    /// Writes a value of a metric.
    fn put_counter(&mut self, time_ns: i64, track: u64, value: Value<'_>) {
        event_packet(time_ns, &mut self.buffer, |out| {
            number(event::TYPE, COUNTER, out);
            number(event::TRACK_UUID, track, out);
            match (value, value.as_integer().map(i64::try_from)) {
                (Value::F64(value), _) => {
                    fixed(event::DOUBLE_COUNTER_VALUE, value.to_bits(), out);
                }
                (_, Some(Ok(value))) => number(event::COUNTER_VALUE, value as u64, out),
                (value, _) => {
                    let value = value.as_integer().unwrap_or(0) as f64;
                    fixed(event::DOUBLE_COUNTER_VALUE, value.to_bits(), out);
                }
            }
        });
    }
}

impl Exporter for Perfetto<'_> {
    fn wants(&self) -> Wants {
        Wants {
            calls: true,
            begins: true,
            apart: true,
            calls_by_type: true,
            events: true,
            messages: true,
            time: false,
        }
    }

    fn enter(&mut self, enter: &Enter) -> anyhow::Result<()> {
        let track = self.layout.threads[enter.location].tid;
        let mut buffer = std::mem::take(&mut self.buffer);
        event_packet(enter.time_ns, &mut buffer, |out| {
            number(event::TYPE, SLICE_BEGIN, out);
            number(event::TRACK_UUID, track.into(), out);
            self.put_region_name(enter.region, out);
        });
        self.buffer = buffer;
        self.flush(BUFFER_BYTES)
    }

    fn leave(&mut self, call: &Call) -> anyhow::Result<()> {
        let track = self.layout.threads[call.location].tid;
        let window = self.context.window;
        event_packet(call.end_ns, &mut self.buffer, |out| {
            number(event::TYPE, SLICE_END, out);
            number(event::TRACK_UUID, track.into(), out);
            if call.is_uncertain {
                annotate("uncertain", annotation::BOOL, 1, out);
            }
            if call.how != annals_merger::Close::Left {
                annotate_text("ended", ending(call.how), out);
            }
            if call.begin_ns < window.from_ns {
                annotate("begin_ns", annotation::INT, call.begin_ns as u64, out);
            }
        });
        self.flush(BUFFER_BYTES)
    }

    fn unmatched(&mut self, leave: &Enter) -> anyhow::Result<()> {
        let track = self.layout.threads[leave.location].tid;
        let name = self.context.definitions.region_name(leave.region);
        event_packet(leave.time_ns, &mut self.buffer, |out| {
            number(event::TYPE, INSTANT, out);
            number(event::TRACK_UUID, track.into(), out);
            let name = format!("left without enter: {name}");
            bytes(event::NAME, name.as_bytes(), out);
        });
        self.flush(BUFFER_BYTES)
    }

    fn events(&mut self, events: &Events<'_>) -> anyhow::Result<()> {
        let d = self.context.definitions;
        let forms = events.event_types().enumerate().map(|(at, id)| {
            // Calls are slices; what has no location cannot be one.
            let form = self.forms.get(&id).cloned();
            let definition = d.event_types.get(&id);
            (events.is_move[at], form.zip(definition))
        });
        let forms: Vec<(bool, Option<(EventForm, &EventType)>)> = forms.collect();
        for nth in 0..events.len() {
            let (is_move, form) = &forms[events.type_place(nth)];
            let (time_ns, stream) = (events.time(nth), events.stream(nth));
            if *is_move && self.context.places.get(stream).location_id.is_some() {
                continue;
            }
            let Some((form, event_type)) = form else {
                continue;
            };
            if let Some(element) = form.metric {
                let value = events.value(nth, element);
                if value != Value::Absent {
                    let track = self.counter_track(stream, event_type.id, element);
                    self.put_counter(time_ns, track, value);
                    self.flush(BUFFER_BYTES)?;
                    continue;
                }
            }
            let track = self.streams.get(stream).unwrap_or(0);
            let mut buffer = std::mem::take(&mut self.buffer);
            event_packet(time_ns, &mut buffer, |out| {
                number(event::TYPE, INSTANT, out);
                number(event::TRACK_UUID, track, out);
                number(event::NAME_IID, form.name, out);
                self.put_elements(events, nth, event_type, &form.elements, out);
                let is_side = matches!(event_type.role, Role::Send | Role::Receive);
                if is_side && let Some(flow) = events.message(nth) {
                    // 0 is no flow.
                    fixed(event::FLOW_ID, flow + 1, out);
                }
            });
            self.buffer = buffer;
            self.flush(BUFFER_BYTES)?;
        }
        Ok(())
    }

    fn message(&mut self, found: &Message) -> anyhow::Result<()> {
        // The receive was written before its send was known.
        if found.is_late && self.context.filter.takes_stream(found.to) {
            let track = self.streams.get(found.to).unwrap_or(0);
            event_packet(found.receive_ns, &mut self.buffer, |out| {
                number(event::TYPE, INSTANT, out);
                number(event::TRACK_UUID, track, out);
                bytes(event::NAME, b"message received", out);
                fixed(event::FLOW_ID, found.number + 1, out);
            });
        }
        self.flush(BUFFER_BYTES)
    }

    fn finish(mut self: Box<Self>, ending: &Ending<'_>) -> anyhow::Result<()> {
        // A sequence for each stream that has losses: `previous_packet_dropped` is said of a sequence.
        let mut sequences: FxHashMap<StreamId, u64> = FxHashMap::default();
        for loss in ending.losses {
            let next = LOSSES + sequences.len() as u64;
            let sequence = *sequences.entry(loss.stream).or_insert(next);
            let track = self.streams.get(loss.stream);
            let track = track.unwrap_or_else(|| self.parent(loss.stream));
            let d = self.context.definitions;
            let event_type = loss.event_type.map(|id| d.event_type_name(id));
            let least = if loss.is_lower_bound { "at least " } else { "" };
            let name = format!(
                "{}: {least}{} {} ({})",
                loss.cause.kind(),
                loss.count,
                event_type.as_deref().unwrap_or("events of any type"),
                loss.cause.name()
            );
            message(trace::PACKET, &mut self.buffer, |out| {
                number(packet::TIMESTAMP, timestamp(loss.to_ns), out);
                number(packet::SEQUENCE_ID, sequence, out);
                number(packet::PREVIOUS_PACKET_DROPPED, 1, out);
                message(packet::TRACK_EVENT, out, |out| {
                    number(event::TYPE, INSTANT, out);
                    number(event::TRACK_UUID, track, out);
                    bytes(event::CATEGORY, b"loss", out);
                    bytes(event::NAME, name.as_bytes(), out);
                    annotate("count", annotation::UINT, loss.count, out);
                    annotate(
                        "is_lower_bound",
                        annotation::BOOL,
                        loss.is_lower_bound.into(),
                        out,
                    );
                    annotate_text("cause", loss.cause.name(), out);
                    annotate_text("kind", loss.cause.kind(), out);
                    if let Some(event_type) = &event_type {
                        annotate_text("event", event_type, out);
                    }
                    annotate("from_ns", annotation::INT, loss.from_ns as u64, out);
                    annotate("to_ns", annotation::INT, loss.to_ns as u64, out);
                });
            });
            self.flush(BUFFER_BYTES)?;
        }
        self.flush(0)?;
        self.out.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::timestamp;

    #[test]
    fn times_before_the_start_are_at_it() {
        assert_eq!(timestamp(-5), 0);
        assert_eq!(timestamp(7), 7);
    }
}

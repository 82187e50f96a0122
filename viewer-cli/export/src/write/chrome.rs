//! Chrome's trace event format (JSON): what chrome://tracing, Perfetto, Speedscope and many others read.
//!
//! Times are microseconds with three decimal places, exact to the nanosecond. Calls are `B` and `E`, points `i`,
//! metrics `C`, sides of messages `X` of no length with flows `s` and `f` between them, losses `i` of the category
//! `loss`.

use std::io::Write as _;

use annals_format::{EventTypeId, Role, StreamId, Value};
use serde_json::json;

use crate::values::{put_json, put_value_json};
use crate::write::exporter::{
    Call, Context, Ending, Enter, Events, Exporter, Message, Wants, ending,
};
use crate::write::layout::Layout;
use crate::write::output::Output;
use crate::write::tables::metrics_of;

const BUFFER_BYTES: usize = 1 << 20;

/// A trace of Chrome under construction.
pub(crate) struct Chrome<'a> {
    context: &'a Context<'a>,
    out: Output,
    buffer: Vec<u8>,
    /// By location: `"pid":1,"tid":4`.
    places: Vec<Vec<u8>>,
    /// By stream without a location.
    elsewhere: Vec<(StreamId, Vec<u8>)>,
    metrics: rustc_hash::FxHashMap<EventTypeId, usize>,
}

/// Microseconds, exact.
fn put_time(time_ns: i64, out: &mut Vec<u8>) {
    let (sign, magnitude) = (if time_ns < 0 { "-" } else { "" }, time_ns.unsigned_abs());
    let _ = write!(out, "{sign}{}.{:03}", magnitude / 1000, magnitude % 1000);
}

impl<'a> Chrome<'a> {
    pub(crate) fn create(context: &'a Context<'a>, out: Output) -> anyhow::Result<Self> {
        let layout = Layout::of(context);
        let place = |pid: u32, tid: u32| format!("\"pid\":{pid},\"tid\":{tid}").into_bytes();
        let threads = layout.threads.iter();
        let places: Vec<Vec<u8>> = threads
            .map(|thread| place(thread.pid, thread.tid))
            .collect();
        let mut next = (layout.processes.len() + layout.threads.len()) as u32 + 1;
        let mut elsewhere = Vec::new();
        let mut buffer = b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n".to_vec();
        let start = buffer.len();
        let mut meta = |name: &str, place: &[u8], args: serde_json::Value| {
            buffer.extend_from_slice(if buffer.len() == start { b"{" } else { b",\n{" });
            let _ = write!(buffer, "\"ph\":\"M\",\"name\":\"{name}\",\"ts\":0,");
            buffer.extend_from_slice(place);
            let _ = write!(buffer, ",\"args\":{args}}}");
        };
        for process in &layout.processes {
            let at = place(process.pid, 0);
            meta("process_name", &at, json!({"name": process.name}));
            let label = match process.command.as_str() {
                "" => process.label.clone(),
                command => format!("{}: {command}", process.label),
            };
            meta("process_labels", &at, json!({"labels": label}));
            meta(
                "process_sort_index",
                &at,
                json!({"sort_index": process.rank}),
            );
        }
        for (thread, at) in layout.threads.iter().zip(&places) {
            meta("thread_name", at, json!({"name": thread.name}));
            meta("thread_sort_index", at, json!({"sort_index": thread.tid}));
        }
        for (stream, of) in context.streams() {
            if of
                .location_id
                .and_then(|id| context.number_of(id))
                .is_none()
            {
                let at = place(layout.pid(of.process), next);
                next += 1;
                meta("thread_name", &at, json!({"name": of.source}));
                elsewhere.push((stream, at));
            }
        }
        if layout.processes.is_empty() && elsewhere.is_empty() {
            // An event without effect, because what follows begins with a comma.
            meta("process_name", &place(1, 0), json!({"name": "nothing"}));
        }
        Ok(Self {
            context,
            out,
            buffer,
            places,
            elsewhere,
            metrics: metrics_of(context),
        })
    }

    fn flush(&mut self, limit: usize) -> anyhow::Result<()> {
        if self.buffer.len() > limit {
            self.out.put(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Returns where events of a stream are shown.
    fn place(&self, stream: StreamId) -> &[u8] {
        let place = self.context.places.get(stream);
        let location = place.location_id.and_then(|id| self.context.number_of(id));
        match location {
            Some(location) => &self.places[location],
            None => {
                let mut elsewhere = self.elsewhere.iter();
                let found = elsewhere.find(|(known, _)| *known == stream);
                found.map_or(b"\"pid\":1,\"tid\":0", |(_, place)| place)
            }
        }
    }

    /// Writes an event up to its arguments.
    fn begin(&self, phase: &str, time_ns: i64, place: &[u8], name: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\n{\"ph\":\"");
        out.extend_from_slice(phase.as_bytes());
        out.extend_from_slice(b"\",\"ts\":");
        put_time(time_ns, out);
        out.push(b',');
        out.extend_from_slice(place);
        out.extend_from_slice(b",\"name\":");
        put_json(out, name);
    }

    fn put_elements(
        &self,
        events: &Events<'_>,
        event: usize,
        event_type: EventTypeId,
        out: &mut Vec<u8>,
    ) {
        let d = self.context.definitions;
        let Some(definition) = d.event_types.get(&event_type) else {
            return;
        };
        out.extend_from_slice(b",\"args\":{");
        let mut is_first = true;
        for (at, element) in definition.elements.iter().enumerate() {
            let value = events.value(event, at);
            if value == Value::Absent {
                continue;
            }
            if !is_first {
                out.push(b',');
            }
            is_first = false;
            put_json(out, d.string(element.name));
            out.push(b':');
            put_value_json(out, d, element, value);
        }
        out.push(b'}');
    }
}

impl Exporter for Chrome<'_> {
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
        let d = self.context.definitions;
        let mut out = std::mem::take(&mut self.buffer);
        let place = &self.places[enter.location];
        self.begin(
            "B",
            enter.time_ns,
            place,
            &d.region_name(enter.region),
            &mut out,
        );
        out.extend_from_slice(b",\"cat\":\"region\"");
        if let Some(region) = d.regions.get(&enter.region)
            && !d.string(region.file).is_empty()
        {
            out.extend_from_slice(b",\"args\":{\"file\":");
            put_json(&mut out, d.string(region.file));
            let _ = write!(out, ",\"line\":{}}}", region.line);
        }
        out.push(b'}');
        self.buffer = out;
        self.flush(BUFFER_BYTES)
    }

    fn leave(&mut self, call: &Call) -> anyhow::Result<()> {
        let d = self.context.definitions;
        let mut out = std::mem::take(&mut self.buffer);
        let place = &self.places[call.location];
        self.begin(
            "E",
            call.end_ns,
            place,
            &d.region_name(call.region),
            &mut out,
        );
        let mut args = serde_json::Map::new();
        if call.is_uncertain {
            args.insert("uncertain".to_owned(), true.into());
        }
        if call.how != annals_merger::Close::Left {
            args.insert("ended".to_owned(), ending(call.how).into());
        }
        if call.begin_ns < self.context.window.from_ns {
            args.insert("begin_ns".to_owned(), call.begin_ns.into());
        }
        if !args.is_empty() {
            let _ = write!(out, ",\"args\":{}", serde_json::Value::Object(args));
        }
        out.push(b'}');
        self.buffer = out;
        self.flush(BUFFER_BYTES)
    }

    fn unmatched(&mut self, leave: &Enter) -> anyhow::Result<()> {
        let name = self.context.definitions.region_name(leave.region);
        let name = format!("left without enter: {name}");
        let mut out = std::mem::take(&mut self.buffer);
        self.begin(
            "i",
            leave.time_ns,
            &self.places[leave.location],
            &name,
            &mut out,
        );
        out.extend_from_slice(b",\"s\":\"t\"}");
        self.buffer = out;
        self.flush(BUFFER_BYTES)
    }

    fn events(&mut self, events: &Events<'_>) -> anyhow::Result<()> {
        let d = self.context.definitions;
        let kinds = events.event_types().enumerate().map(|(at, id)| {
            let role = d.event_types.get(&id).map(|event_type| event_type.role);
            let is_side = matches!(role, Some(Role::Send | Role::Receive));
            let metric = self.metrics.get(&id).copied();
            (
                events.is_move[at],
                id,
                d.event_type_name(id),
                is_side,
                metric,
            )
        });
        let kinds: Vec<_> = kinds.collect();
        for event in 0..events.len() {
            let (is_move, event_type, name, is_side, metric) = &kinds[events.type_place(event)];
            let (time_ns, stream) = (events.time(event), events.stream(event));
            let place = self.context.places.get(stream);
            if *is_move && place.location_id.is_some() {
                continue;
            }
            let mut out = std::mem::take(&mut self.buffer);
            let value = metric.map(|element| (element, events.value(event, element)));
            let value = value.filter(|(_, value)| *value != Value::Absent);
            if let Some((element, value)) = value {
                // Counters are of processes; those of a location need its name.
                let name = match &place.location {
                    Some(location) => format!("{name} ({location})"),
                    None => name.clone(),
                };
                self.begin("C", time_ns, self.place(stream), &name, &mut out);
                out.extend_from_slice(b",\"args\":{\"value\":");
                let definition = &d.event_types[event_type].elements[element];
                put_value_json(&mut out, d, definition, value);
                out.extend_from_slice(b"}}");
            } else {
                let phase = if *is_side { "X" } else { "i" };
                self.begin(phase, time_ns, self.place(stream), name, &mut out);
                let rest: &[u8] = match is_side {
                    true => b",\"dur\":0,\"cat\":",
                    false => b",\"s\":\"t\",\"cat\":",
                };
                out.extend_from_slice(rest);
                put_json(&mut out, &place.source);
                self.put_elements(events, event, *event_type, &mut out);
                out.push(b'}');
            }
            self.buffer = out;
            self.flush(BUFFER_BYTES)?;
        }
        Ok(())
    }

    fn message(&mut self, message: &Message) -> anyhow::Result<()> {
        let mut out = std::mem::take(&mut self.buffer);
        let sides = [
            ("s", message.send_ns, message.from, ""),
            ("f", message.receive_ns, message.to, ",\"bp\":\"e\""),
        ];
        for (phase, time_ns, stream, more) in sides {
            self.begin(phase, time_ns, self.place(stream), "message", &mut out);
            let number = message.number;
            let _ = write!(out, ",\"cat\":\"message\",\"id\":{number}{more}}}");
        }
        self.buffer = out;
        self.flush(BUFFER_BYTES)
    }

    fn finish(mut self: Box<Self>, ending: &Ending<'_>) -> anyhow::Result<()> {
        let d = self.context.definitions;
        for loss in ending.losses {
            let event_type = loss.event_type.map(|id| d.event_type_name(id));
            let least = if loss.is_lower_bound { "at least " } else { "" };
            let name = format!(
                "{}: {least}{} {} ({})",
                loss.cause.kind(),
                loss.count,
                event_type.as_deref().unwrap_or("events of any type"),
                loss.cause.name()
            );
            let mut out = std::mem::take(&mut self.buffer);
            self.begin("i", loss.to_ns, self.place(loss.stream), &name, &mut out);
            let args = json!({
                "count": loss.count,
                "is_lower_bound": loss.is_lower_bound,
                "kind": loss.cause.kind(),
                "cause": loss.cause.name(),
                "event": event_type,
                "source": self.context.places.get(loss.stream).source,
                "location": self.context.places.get(loss.stream).location,
                "from_ns": loss.from_ns,
                "to_ns": loss.to_ns,
            });
            let _ = write!(out, ",\"s\":\"t\",\"cat\":\"loss\",\"args\":{args}}}");
            self.buffer = out;
            self.flush(BUFFER_BYTES)?;
        }
        let sums = annals_merger::Sums::of(&ending.outcome.totals);
        let zero = d.time_zero.map(|zero| zero.unix_ns);
        let other = json!({
            "start_unix_ns": zero,
            "raised": sums.raised,
            "recorded": sums.recorded,
            "dropped": sums.dropped,
            "suppressed": sums.suppressed,
            "skipped": sums.skipped,
            "truncated": sums.truncated,
            "complete": ending.outcome.complete && self.context.opened.rejected().is_empty(),
        });
        let _ = writeln!(self.buffer, "\n],\"otherData\":{other}}}");
        self.flush(0)?;
        self.out.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::put_time;

    #[test]
    fn times_are_exact_microseconds() {
        let mut out = Vec::new();
        for time_ns in [0, 1, -1500, 123_456_789, i64::MIN] {
            put_time(time_ns, &mut out);
            out.push(b' ');
        }
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "0.000 0.001 -1.500 123456.789 -9223372036854775.808 ");
    }
}

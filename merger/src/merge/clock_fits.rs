//! How each clock becomes the axis, and how wrong its times may be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use annals_format::{
    BootId, CalibrationPoint, Clock, ClockId, ClockKind, ClockMap, Definition, Definitions,
};

use super::{Merge, MergedProcess};
use crate::clocks::bounds::Course;
use crate::clocks::hosts::Hosts;
use crate::clocks::observed::Observed;
use crate::clocks::steps::{ClockPoints, unwrap_points};
use crate::clocks::{self, ClockFit, Point};
use crate::input::recording::LeftOut;

impl Merge {
    /// Fits the clocks to hosts whose times have changed.
    pub(super) fn fit_again(&mut self) {
        let others = &self.inputs.other_points;
        let fits = fit_clocks(
            &self.definitions,
            &self.inputs.members,
            others,
            &self.axis.hosts,
        );
        self.axis.fits.clear();
        for (map, fit) in fits {
            self.definitions.clock_maps.insert(map.clock, map);
            self.axis.fits.push(fit);
        }
        self.move_to_zero();
        self.define_clock_errors();
    }

    /// Defines how wrong the times of each clock may be.
    pub(super) fn define_clock_errors(&mut self) {
        let mut alike: BTreeMap<(BootId, ClockKind, u64), ClockId> = BTreeMap::new();
        let fits: BTreeMap<ClockId, &ClockFit> =
            self.axis.fits.iter().map(|fit| (fit.clock, fit)).collect();
        let mut errors = Vec::new();
        // One fit's after the other: of a long run each has many corners.
        let mut lives = BTreeMap::new();
        for member in &self.inputs.members {
            let boot_id = member.boot_id(&self.definitions);
            let Some(host) = self.axis.hosts.get(boot_id) else {
                continue;
            };
            for number in member.numbers.clocks.values() {
                let (Some(clock), Some(fit)) =
                    (self.definitions.clocks.get(number), fits.get(number))
                else {
                    continue;
                };
                let first = match clock.kind {
                    ClockKind::Reference | ClockKind::Tsc => {
                        let identity = (boot_id, clock.kind, clock.ticks_per_second);
                        *alike.entry(identity).or_insert(*number)
                    }
                    ClockKind::Readable | ClockKind::Unreadable => *number,
                };
                let ends = (member.start_ns, member.end_ns);
                let place = (boot_id, Arc::as_ptr(&fit.own));
                let (_, of_fit) = lives
                    .entry(place)
                    .or_insert_with(|| ((host, &*fit.own), Vec::new()));
                of_fit.push((*number, first, ends));
            }
        }
        for ((host, own), lives) in lives.into_values() {
            let course = Course::new(own, host);
            let each = lives.into_iter();
            errors.extend(each.map(|(number, alike, (start_ns, end_ns))| {
                course.clock_error(number, alike, start_ns, end_ns)
            }));
        }
        for (number, trace) in self.inputs.traces.iter().enumerate() {
            let of_recordings = self
                .inputs
                .members
                .iter()
                .map(|member| member.boot_id(&self.definitions));
            let others = self.inputs.traces.iter().enumerate();
            let others = others.filter(|(other, _)| *other != number);
            let of_others = others.flat_map(|(_, other)| {
                let taken = other.own.iter();
                let taken = taken.filter(|(process, _)| other.processes.contains_key(process));
                let processes = taken.flat_map(|(_, own)| own.processes.values());
                processes.map(|process| process.boot_id)
            });
            let boots: BTreeSet<BootId> = of_recordings.chain(of_others).collect();
            errors.extend(trace.clock_errors(|boot_id| boots.contains(boot_id)));
        }
        for error in errors {
            self.definitions.add(Definition::ClockError(error));
        }
    }
}

/// Readings of the processor counter of a boot.
pub(super) type CounterPoints = (BootId, Vec<Point>);

/// Returns the readings of processor counters of a recording that another process merges.
pub(super) fn counter_points(of: &LeftOut) -> Vec<CounterPoints> {
    let counters = of.clocks.clocks.iter();
    let counters = counters.filter(|(_, clock)| clock.kind == ClockKind::Tsc);
    let points = counters.map(|(id, clock)| {
        let points = unwrap_points(clock, &readings(&of.clocks.calibration, *id)).points;
        (of.host.boot_id, points)
    });
    points.collect()
}

/// Returns the readings of a clock: tick, reference time and error, nanoseconds.
fn readings(calibration: &[CalibrationPoint], clock: ClockId) -> Vec<(u64, i64, u64)> {
    let points = calibration.iter().filter(|point| point.clock == clock);
    points
        .map(|point| (point.tick, point.reference_ns, point.error_ns))
        .collect()
}

/// Fits every clock of every process. Processor counters of one boot are one clock: their points are
/// pooled, so that ticks of two processes compare directly.
pub(super) fn fit_clocks(
    definitions: &Definitions,
    members: &[MergedProcess],
    others: &[CounterPoints],
    hosts: &Hosts,
) -> Vec<(ClockMap, ClockFit)> {
    let mut pools: BTreeMap<BootId, ClockPoints> = BTreeMap::new();
    for (boot_id, points) in others {
        pools.entry(*boot_id).or_default().points.extend(points);
    }
    let mut own: BTreeMap<ClockId, ClockPoints> = BTreeMap::new();
    for member in members {
        let boot_id = member.boot_id(definitions);
        for (id, number) in &member.numbers.clocks {
            let clock = &definitions.clocks[number];
            let mut unwrapped = unwrap_points(clock, &readings(&member.calibration, *id));
            let points = &mut unwrapped.points;
            if clock.kind == ClockKind::Reference {
                // Ticks are the reference clock; wherever the recording has none, this holds.
                points.insert(
                    0,
                    Point {
                        tick: 0,
                        time_ns: 0,
                        error_ns: 0,
                    },
                );
            }
            if points.is_empty() {
                points.extend(points_from_events(definitions, member, *number));
            }
            if clock.kind == ClockKind::Tsc {
                let pool = pools.entry(boot_id).or_default();
                pool.points.extend(points.iter());
            } else {
                own.insert(*number, unwrapped);
            }
        }
    }
    for pool in pools.values_mut() {
        pool.points
            .sort_by_key(|point| (point.time_ns, point.tick, point.error_ns));
    }
    let mut fits = Vec::new();
    let most_knots = clocks::most_knots(pools.len());
    // One fit for all that share points and rate: a run has as many clocks as processes.
    let mut pooled: BTreeMap<(BootId, u64), (ClockMap, ClockFit)> = BTreeMap::new();
    for member in members {
        let boot_id = member.boot_id(definitions);
        let fit = |number: ClockId, clock: &Clock, points: &ClockPoints| {
            let (map, fit) = clocks::fit(number, clock, points, most_knots);
            match hosts.get(boot_id) {
                Some(host) => (clocks::on_axis(&map, clock.kind, host), fit),
                None => (map, fit),
            }
        };
        for number in member.numbers.clocks.values() {
            let clock = &definitions.clocks[number];
            let pool = pools.get(&boot_id);
            let (Some(pool), ClockKind::Tsc) = (pool, clock.kind) else {
                fits.push(fit(*number, clock, &own[number]));
                continue;
            };
            let key = (boot_id, clock.ticks_per_second);
            let known = pooled.entry(key);
            let (map, of_pool) = known.or_insert_with(|| fit(*number, clock, pool));
            let map = ClockMap {
                clock: *number,
                ..map.clone()
            };
            let of_clock = ClockFit {
                clock: *number,
                ..of_pool.clone()
            };
            fits.push((map, of_clock));
        }
    }
    fits
}

/// Returns points of a clock that cannot be read, from its events.
fn points_from_events(
    definitions: &Definitions,
    member: &MergedProcess,
    clock_number: ClockId,
) -> Vec<Point> {
    let recording = &member.input.recording;
    let mut of_clock = Vec::new();
    for (id, contents) in &recording.streams {
        let number = member.numbers.streams.get(id);
        let stream = number.and_then(|number| definitions.streams.get(number));
        let source = stream.and_then(|stream| definitions.sources.get(&stream.source));
        if source.is_some_and(|source| source.clock == clock_number) {
            of_clock.extend(&contents.chunks);
        }
    }
    // In the order of observation, across all streams: each shows how often the clock has wrapped since the previous
    // one.
    of_clock.sort_by_key(|stored| stored.header.open_reference_ns);
    let mut observed = Observed::new(&definitions.clocks[&clock_number]);
    for stored in of_clock {
        let Ok(chunk) = member.input.load(stored) else {
            continue;
        };
        for (index, reference_ns) in &chunk.observations {
            if let Some(tick) = chunk.ticks.get(*index as usize) {
                observed.push(*tick, *reference_ns);
            }
        }
    }
    observed.points()
}

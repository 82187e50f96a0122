//! How the reference clocks of hosts become the axis: the first process's host is the axis, the others
//! are related to it by measured offsets, by a file of the user's, else by their wall clocks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use annals_format::{
    BootId, ClockId, ClockMap, Definitions, HostOffset, MapCursor, Relation, UNBOUNDED,
};
use serde::{Deserialize, Serialize};

use crate::clocks::MapMover;
use crate::clocks::hulls::{Fit, Hulls};
use crate::clocks::offsets::ClockOffsets;

/// Offsets closer than this are of one measurement: the best of them counts.
const STRETCH_NS: i64 = 1_000_000_000;
/// How far a reference clock's rate departs from its mean between two offsets, parts per 10⁹.
const WANDER_PPB: u128 = 1_000;
/// Maximum difference between the rates of two clocks without a measurement, in addition to the difference of their
/// nominal rates, parts per 10⁹.
pub(crate) const RATE_PPB: u128 = 200_000;

/// The most hosts in a chain of measurements: launchers measure along a star or a binary tree, and a chain costs the
/// square of its length.
const CHAIN_LINKS: usize = 64;

/// Returns a part of a time, rounded up.
pub(crate) fn parts_of(ns: u64, ppb: u128) -> u64 {
    let parts = (u128::from(ns) * ppb).div_ceil(1_000_000_000);
    u64::try_from(parts).unwrap_or(UNBOUNDED)
}

/// Returns a share of a sum, rounded up.
pub(crate) fn scaled(sum: u64, part: u64, whole: u64) -> u64 {
    let scaled = (u128::from(sum) * u128::from(part)).div_ceil(u128::from(whole.max(1)));
    u64::try_from(scaled).unwrap_or(UNBOUNDED)
}

/// What the messages say of one host's clock: an offset and a rate, from the convex hulls of the messages
/// of both directions (Duda, Harrus, Haddad, Bernard 1987; Ashton 1995).
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct HostFitReport {
    /// Its name.
    pub name: String,
    /// The host whose messages decided.
    pub through: String,
    /// `accurate`: a line contradicts no message; `approximate`: none does, this one the least;
    /// `one-direction`: only a bound is known; `inconsistent`: no line is better than none, nothing was
    /// changed.
    pub quality: &'static str,
    /// The correction of its times at its start, nanoseconds.
    pub offset_start_ns: i64,
    /// The correction of its times at its end, nanoseconds.
    pub offset_end_ns: i64,
    /// Bound of the error at its start, nanoseconds, as long as the true offset is a line; null: none.
    pub bound_start_ns: Option<u64>,
    /// Bound of the error at its end, nanoseconds; null means none.
    pub bound_end_ns: Option<u64>,
}

/// The properties of a host before it is related to others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HostFacts {
    pub(crate) boot_id: BootId,
    pub(crate) name: String,
    /// Wall clock minus reference clock, when it was first read.
    pub(crate) unix_offset_ns: i64,
    /// How much that changed later: steps of the wall clock.
    pub(crate) unix_step_ns: u64,
    /// First and last known moment, reference clock.
    pub(crate) span: (i64, i64),
}

impl HostFacts {
    /// Returns what is known of the host of a process. `texts` has the strings.
    pub(crate) fn of(
        definitions: &Definitions,
        texts: &Definitions,
        last_reference_ns: Option<i64>,
    ) -> Self {
        let process = definitions.processes.values().next();
        let points = definitions.calibration.iter();
        let first = points.clone().min_by_key(|point| point.reference_ns);
        let at_start = process.map(|p| p.start_unix_ns.saturating_sub(p.start_reference_ns));
        let unix_offset_ns = first
            .map(|point| point.unix_offset_ns)
            .or(at_start)
            .unwrap_or(0);
        let steps = points
            .clone()
            .map(|point| point.unix_offset_ns.abs_diff(unix_offset_ns));
        let moments = points.map(|point| point.reference_ns);
        let moments = moments.chain(process.map(|process| process.start_reference_ns));
        let moments = moments.chain(last_reference_ns);
        Self {
            boot_id: process.map_or_else(BootId::default, |process| process.boot_id),
            name: process.map_or_else(String::new, |p| texts.string(p.host).to_owned()),
            unix_offset_ns,
            unix_step_ns: steps.max().unwrap_or(0),
            span: (
                moments.clone().min().unwrap_or(0),
                moments.max().unwrap_or(0),
            ),
        }
    }
}

/// Readings of a clock and of its parent's at the same moments, with the bound of their difference.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Link {
    map: ClockMap,
    errors: Vec<(i64, u64)>,
    points: usize,
    largest_residual_ns: u64,
}

fn map_of(mut knots: Vec<(i128, i64)>) -> ClockMap {
    if let [(tick, time_ns)] = knots[..] {
        knots.push((tick + 1_000_000_000, time_ns.saturating_add(1_000_000_000)));
    }
    ClockMap {
        clock: ClockId::new(0),
        error_ns: 0,
        knots: knots.into(),
    }
}

impl Link {
    /// Creates a line through points: own reading, the parent's, bound.
    fn through(mut points: Vec<(i64, i64, u64)>) -> Option<Self> {
        points.sort_unstable();
        let mut knots: Vec<(i64, i64, u64)> = Vec::new();
        let mut start = points.first()?.0;
        let mut best: Option<(i64, i64, u64)> = None;
        let mut keep = |point: Option<(i64, i64, u64)>| {
            let Some(point) = point else { return };
            let ascends = knots
                .last()
                .is_none_or(|last: &(i64, i64, u64)| point.0 > last.0 && point.1 > last.1);
            if ascends {
                knots.push(point);
            }
        };
        for point in &points {
            if point.0.saturating_sub(start) >= STRETCH_NS {
                keep(best.take());
                start = point.0;
            }
            if best.is_none_or(|best| point.2 < best.2) {
                best = Some(*point);
            }
        }
        keep(best);
        let map = map_of(knots.iter().map(|k| (i128::from(k.0), k.1)).collect());
        let mut cursor = MapCursor::new(&map);
        let residuals = points
            .iter()
            .map(|point| cursor.time_ns(point.0.into()).abs_diff(point.1));
        let largest_residual_ns = residuals.max().unwrap_or(0);
        Some(Self {
            errors: knots.iter().map(|knot| (knot.0, knot.2)).collect(),
            points: points.len(),
            largest_residual_ns,
            map,
        })
    }

    fn error_at(&self, reference_ns: i64) -> u64 {
        let errors = &self.errors;
        if let [(at, error)] = errors[..] {
            let passed = reference_ns.abs_diff(at);
            return error.saturating_add(parts_of(passed, RATE_PPB));
        }
        let behind = errors.partition_point(|(at, _)| *at <= reference_ns);
        let piece = behind.clamp(1, errors.len() - 1);
        let ((a, error_a), (b, error_b)) = (errors[piece - 1], errors[piece]);
        let run = b.abs_diff(a);
        let (from_a, from_b) = (reference_ns.abs_diff(a), reference_ns.abs_diff(b));
        let (base, distance) = if reference_ns < a {
            let both = error_a.saturating_add(error_b);
            (error_a.saturating_add(scaled(both, from_a, run)), from_a)
        } else if reference_ns > b {
            let both = error_a.saturating_add(error_b);
            (error_b.saturating_add(scaled(both, from_b, run)), from_b)
        } else {
            let between = scaled(error_a, from_b, run).saturating_add(scaled(error_b, from_a, run));
            (between, from_a.min(from_b))
        };
        base.saturating_add(parts_of(distance, WANDER_PPB))
    }

    /// Moments between which the bound is linear.
    fn corners(&self) -> Vec<i64> {
        let mut corners: Vec<i64> = self.errors.iter().map(|(at, _)| *at).collect();
        let middles = corners.windows(2).map(|pair| {
            let middle = i128::from(pair[0]) + i128::from(pair[1]);
            (middle / 2) as i64
        });
        let middles: Vec<i64> = middles.collect();
        corners.extend(middles);
        corners
    }
}

/// A host on the axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Host {
    pub(crate) facts: HostFacts,
    pub(crate) relation: Relation,
    /// The host that it was related through.
    pub(crate) through: Option<BootId>,
    /// Its reference clock to the axis.
    pub(crate) map: ClockMap,
    /// From this host to the axis; `None` for the axis itself.
    links: Vec<Arc<Link>>,
    is_bounded: bool,
}

impl Host {
    fn axis(facts: HostFacts) -> Self {
        Self {
            map: map_of(vec![(0, 0)]),
            facts,
            relation: Relation::SameHost,
            through: None,
            links: Vec::new(),
            is_bounded: true,
        }
    }

    fn behind(facts: HostFacts, link: Link, parent: &Self, relation: Relation) -> Self {
        // Knots of both; the parent's lie where this host's clock reads so.
        let mut ticks: BTreeSet<i128> = link.map.knots.iter().map(|knot| knot.0).collect();
        if parent.map.knots.len() > 2 {
            let mut inverse = MapCursor::new(&link.map);
            let knots = parent.map.knots.iter();
            ticks.extend(knots.map(|(tick, _)| {
                inverse.tick((*tick).clamp(i64::MIN.into(), i64::MAX.into()) as i64)
            }));
        }
        let (mut to_parent, mut to_axis) = (MapCursor::new(&link.map), MapCursor::new(&parent.map));
        let mut knots: Vec<(i128, i64)> = Vec::new();
        for tick in ticks {
            let time_ns = to_axis.time_ns(to_parent.time_ns(tick).into());
            if knots.last().is_none_or(|last| time_ns > last.1) {
                knots.push((tick, time_ns));
            }
        }
        let mut links = vec![Arc::new(link)];
        links.extend(parent.links.iter().cloned());
        Self {
            relation: relation.max(parent.relation),
            through: Some(parent.facts.boot_id),
            map: map_of(knots),
            is_bounded: parent.is_bounded && relation != Relation::WallClock,
            links,
            facts,
        }
    }

    /// Relates a host to a parent by the offsets that were measured between the two. `None` means that there are none.
    fn measured(
        facts: &HostFacts,
        parent: &Self,
        pairs: &BTreeMap<Ends, Vec<HostOffset>>,
    ) -> Option<Self> {
        let (child, of) = (facts.boot_id, parent.facts.boot_id);
        let offsets = pairs.get(&(child.min(of), child.max(of)))?;
        let link = measured_link(child, offsets)?;
        Some(Self::behind(
            facts.clone(),
            link,
            parent,
            Relation::Measured,
        ))
    }

    /// Returns the axis time of a reading of the reference clock.
    pub(crate) fn axis_ns(&self, reference_ns: i64) -> i64 {
        MapCursor::new(&self.map).time_ns(reference_ns.into())
    }

    /// Returns the bound of the error of [`Self::axis_ns`], nanoseconds.
    pub(crate) fn error_at(&self, reference_ns: i64) -> u64 {
        if !self.is_bounded {
            return UNBOUNDED;
        }
        let mut reading = reference_ns;
        let mut sum = 0_u64;
        for link in &self.links {
            sum = sum.saturating_add(link.error_at(reading));
            reading = MapCursor::new(&link.map).time_ns(reading.into());
        }
        sum
    }

    /// Moments of the reference clock between which the bound is about linear.
    pub(crate) fn corners(&self) -> Vec<i64> {
        let mut corners = Vec::new();
        for (depth, link) in self.links.iter().enumerate() {
            for corner in link.corners() {
                // Back through the links before it.
                let mut reading = corner;
                for before in self.links[..depth].iter().rev() {
                    let tick = MapCursor::new(&before.map).tick(reading);
                    reading = tick.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
                }
                corners.push(reading);
            }
        }
        corners
    }

    /// Measurements that relate it, and the largest distance of one from the line through the best.
    pub(crate) fn measurements(&self) -> (usize, u64) {
        let link = self.links.first();
        link.map_or((0, 0), |link| (link.points, link.largest_residual_ns))
    }

    /// Adds to its times what the messages say; `parent_errors` are the errors of the host whose messages
    /// these are, at the ends.
    fn correct(
        &mut self,
        fit: &Fit,
        through: BootId,
        parent_errors: (u64, u64),
        relation: Relation,
    ) {
        let (start, end) = self.facts.span;
        let end = end.max(start.saturating_add(STRETCH_NS));
        let mut ticks: BTreeSet<i128> = [start, end].map(i128::from).into();
        if self.map.knots.len() > 2 {
            ticks.extend(self.map.knots.iter().map(|knot| knot.0));
        }
        let mut cursor = MapCursor::new(&self.map);
        let mut knots: Vec<(i128, i64)> = Vec::new();
        for tick in ticks {
            let time_ns = cursor.time_ns(tick);
            let time_ns = time_ns.saturating_add(fit.at(time_ns));
            if knots.last().is_none_or(|last| time_ns > last.1) {
                knots.push((tick, time_ns));
            }
        }
        self.map = map_of(knots);
        self.relation = relation;
        self.through = Some(through);
        self.is_bounded = fit.bounds.is_some() && parent_errors.0.max(parent_errors.1) != UNBOUNDED;
        let (at_start, at_end) = fit.bounds.unwrap_or_default();
        self.links = vec![Arc::new(Link {
            map: self.map.clone(),
            errors: vec![
                (start, at_start.saturating_add(parent_errors.0)),
                (end, at_end.saturating_add(parent_errors.1)),
            ],
            points: 0,
            largest_residual_ns: 0,
        })];
    }

    /// Returns the first and last known moment on the axis.
    pub(crate) fn axis_span(&self) -> (i64, i64) {
        let (start, end) = self.facts.span;
        (self.axis_ns(start), self.axis_ns(end))
    }

    fn shift(&mut self, by_ns: i64) {
        MapMover::new(by_ns.saturating_neg()).move_map(&mut self.map);
    }
}

/// Boot ids in plans: an array of bytes.
mod bytes {
    use annals_format::BootId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(id: &BootId, to: S) -> Result<S::Ok, S::Error> {
        id.0.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BootId, D::Error> {
        Deserialize::deserialize(from).map(BootId)
    }
}

/// What the messages between two hosts say of the clock of one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Correction {
    /// Boot id of the host that is corrected.
    #[serde(with = "bytes")]
    host: BootId,
    /// That of the one whose messages decide.
    #[serde(with = "bytes")]
    through: BootId,
    fit: Fit,
    /// Whether that is by collective operations.
    #[serde(default)]
    is_by_collectives: bool,
}

/// All hosts of a run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Hosts {
    by_boot: BTreeMap<BootId, Host>,
    unix_base_ns: i64,
    /// Reference clock of the first host at the axis's 0.
    zero_reference_ns: i64,
    /// What was corrected, in this order.
    corrections: Vec<Correction>,
}

/// A pair of hosts, the smaller boot id first.
type Ends = (BootId, BootId);

impl Hosts {
    /// Relates hosts to the first of them.
    pub(crate) fn relate(
        facts: Vec<HostFacts>,
        offsets: &[HostOffset],
        file: Option<&ClockOffsets>,
    ) -> Self {
        let mut pairs: BTreeMap<Ends, Vec<HostOffset>> = BTreeMap::new();
        for offset in offsets.iter().filter(|offset| offset.from != offset.to) {
            let ends = (offset.from.min(offset.to), offset.from.max(offset.to));
            pairs.entry(ends).or_default().push(*offset);
        }
        let mut hosts = Self {
            unix_base_ns: facts.first().map_or(0, |first| first.unix_offset_ns),
            ..Self::default()
        };
        let base = facts.first().map(|first| first.boot_id);
        let mut waiting: Vec<HostFacts> = Vec::new();
        for host in facts {
            if waiting.iter().all(|known| known.boot_id != host.boot_id) {
                waiting.push(host);
            }
        }
        while !waiting.is_empty() {
            let next = waiting.remove(0);
            let (boot_id, next) = (next.boot_id, next);
            let host = match base.and_then(|base| hosts.by_boot.get(&base)) {
                None => Host::axis(next),
                Some(axis) => {
                    let link = wall_link(&next, &axis.facts);
                    Host::behind(next, link, axis, Relation::WallClock)
                }
            };
            hosts.by_boot.insert(boot_id, host);
            if let Some(file) = file {
                hosts.extend_by_file(boot_id, &mut waiting, file);
            }
            hosts.extend_by_offsets(&mut waiting, &pairs);
        }
        hosts
    }

    /// Relates what the user's file names to a host that it names too.
    fn extend_by_file(&mut self, from: BootId, waiting: &mut Vec<HostFacts>, file: &ClockOffsets) {
        let Some(parent) = self.by_boot.get(&from).cloned() else {
            return;
        };
        let Some(of_parent) = file.of_host(&parent.facts.name) else {
            return;
        };
        let is_named = |facts: &HostFacts| file.of_host(&facts.name).is_some();
        for facts in waiting.extract_if(.., |facts| is_named(facts)) {
            let Some(own) = file.of_host(&facts.name) else {
                continue;
            };
            let wall = i128::from(facts.unix_offset_ns) + i128::from(own.offset_ns);
            let of_axis = i128::from(parent.facts.unix_offset_ns) + i128::from(of_parent.offset_ns);
            let at = facts.span.0;
            let there = i128::from(at) + wall - of_axis;
            let there = there.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
            let steps = facts.unix_step_ns.saturating_add(parent.facts.unix_step_ns);
            let error_ns = own
                .error_ns
                .saturating_add(of_parent.error_ns)
                .saturating_add(steps);
            let link = Link::through(vec![(at, there, error_ns)]);
            if let Some(link) = link {
                let boot_id = facts.boot_id;
                let host = Host::behind(facts, link, &parent, Relation::File);
                self.by_boot.insert(boot_id, host);
            }
        }
    }

    /// Relates hosts by measured offsets to those that are related: always the one whose bound at its
    /// start is the smallest (Dijkstra 1959). Of equal bounds, the first host in `waiting` is related, through
    /// the parent with the smallest boot id. Nothing is related through a chain of [`CHAIN_LINKS`] links.
    fn extend_by_offsets(
        &mut self,
        waiting: &mut Vec<HostFacts>,
        pairs: &BTreeMap<Ends, Vec<HostOffset>>,
    ) {
        let mut neighbours: BTreeMap<BootId, Vec<BootId>> = BTreeMap::new();
        for &(a, b) in pairs.keys() {
            neighbours.entry(a).or_default().push(b);
            neighbours.entry(b).or_default().push(a);
        }
        let index_of: BTreeMap<BootId, usize> = (waiting.iter().enumerate())
            .map(|(index, facts)| (facts.boot_id, index))
            .collect();
        let mut unrelated: Vec<Option<HostFacts>> = waiting.drain(..).map(Some).collect();
        let mut candidates = BinaryHeap::new();
        let mut reached: Vec<BootId> = self.by_boot.keys().copied().collect();
        loop {
            for boot_id in reached.drain(..) {
                let parent = &self.by_boot[&boot_id];
                if parent.links.len() == CHAIN_LINKS {
                    continue;
                }
                for child in neighbours.get(&boot_id).into_iter().flatten() {
                    let Some(&index) = index_of.get(child) else {
                        continue;
                    };
                    let Some(facts) = &unrelated[index] else {
                        continue;
                    };
                    let Some(host) = Host::measured(facts, parent, pairs) else {
                        continue;
                    };
                    let error_ns = host.error_at(facts.span.0);
                    candidates.push(Reverse((error_ns, index, boot_id)));
                }
            }
            let Some(Reverse((_, index, parent))) = candidates.pop() else {
                break;
            };
            let Some(facts) = unrelated[index].take() else {
                continue; // related by a smaller bound already
            };
            let related = Host::measured(&facts, &self.by_boot[&parent], pairs);
            let host = related.expect("it was a candidate");
            reached.push(facts.boot_id);
            self.by_boot.insert(facts.boot_id, host);
        }
        waiting.extend(unrelated.into_iter().flatten());
    }

    /// Corrects hosts by messages, from the axis on: always the host with messages in both directions, and
    /// of these with the most, to one that is settled. `hulls` are by child and parent.
    pub(crate) fn correct(
        &mut self,
        base: BootId,
        mut hulls: BTreeMap<Ends, Hulls>,
    ) -> Vec<HostFitReport> {
        let mut settled: BTreeMap<BootId, Option<Fit>> = BTreeMap::from([(base, None)]);
        let mut reports = Vec::new();
        loop {
            let open = hulls.iter_mut().filter(|((child, parent), _)| {
                !settled.contains_key(child) && settled.contains_key(parent)
            });
            let ranked = open
                .map(|(ends, hulls)| (hulls.is_both(), hulls.messages, std::cmp::Reverse(*ends)));
            let Some((.., std::cmp::Reverse((child, parent)))) = ranked.max() else {
                return reports;
            };
            let of_parent = settled[&parent];
            let found = hulls.remove(&(child, parent)).unwrap_or_default();
            let found = match &of_parent {
                Some(fit) => found.moved(fit),
                None => found,
            };
            let host = self.by_boot.get(&child);
            let Some(host) = host.filter(|_| self.by_boot.contains_key(&parent)) else {
                settled.insert(child, None);
                continue;
            };
            let (start_ns, end_ns) = host.axis_span();
            let fit = found.fit(start_ns, end_ns);
            let correction = fit.map(|fit| Correction {
                host: child,
                through: parent,
                fit,
                is_by_collectives: false,
            });
            reports.extend(correction.and_then(|correction| self.apply(correction)));
            settled.insert(child, fit.filter(Fit::is_used));
        }
    }

    /// Corrects a host by what collective operations say of it, after the one through which it is related.
    pub(crate) fn relate_through(&mut self, host: BootId, through: BootId, fit: Fit) {
        let _ = self.apply(Correction {
            host,
            through,
            fit,
            is_by_collectives: true,
        });
    }

    /// Corrects a host, after the one through which it is corrected. `None` means that one of them does not exist.
    pub(crate) fn apply(&mut self, correction: Correction) -> Option<HostFitReport> {
        let Correction {
            host,
            through,
            fit,
            is_by_collectives,
        } = correction;
        let parent = self.by_boot.get(&through)?;
        let (start, end) = parent.facts.span;
        let errors = (parent.error_at(start), parent.error_at(end));
        let name = parent.facts.name.clone();
        let host = self.by_boot.get_mut(&host)?;
        let span = host.axis_span();
        let added = |at: i64| if fit.is_used() { fit.at(at) } else { 0 };
        let report = HostFitReport {
            name: host.facts.name.clone(),
            through: name,
            quality: fit.quality.name(),
            offset_start_ns: added(span.0),
            offset_end_ns: added(span.1),
            bound_start_ns: fit.bounds.map(|bounds| bounds.0),
            bound_end_ns: fit.bounds.map(|bounds| bounds.1),
        };
        if fit.is_used() {
            let relation = match is_by_collectives {
                true => Relation::Collectives,
                false => Relation::Messages,
            };
            host.correct(&fit, through, errors, relation);
        }
        self.corrections.push(correction);
        Some(report)
    }

    /// Returns what was corrected, in this order.
    pub(crate) fn corrections(&self) -> &[Correction] {
        &self.corrections
    }

    /// Returns the host with this boot id.
    pub(crate) fn get(&self, boot_id: BootId) -> Option<&Host> {
        self.by_boot.get(&boot_id)
    }

    /// Returns all hosts, by boot id.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Host> {
        self.by_boot.values()
    }

    /// Axis time of a reading of a host's reference clock.
    pub(crate) fn axis_ns(&self, boot_id: BootId, reference_ns: i64) -> i64 {
        self.get(boot_id)
            .map_or(reference_ns, |host| host.axis_ns(reference_ns))
    }

    /// Returns wall clock minus axis, nanoseconds.
    pub(crate) const fn unix_base_ns(&self) -> i64 {
        self.unix_base_ns
    }

    /// Returns the reference clock of the first host at the axis's 0, nanoseconds.
    pub(crate) const fn zero_reference_ns(&self) -> i64 {
        self.zero_reference_ns
    }

    /// Moves the axis.
    pub(crate) fn shift(&mut self, by_ns: i64) {
        self.zero_reference_ns = self.zero_reference_ns.saturating_add(by_ns);
        self.unix_base_ns = self.unix_base_ns.saturating_add(by_ns);
        self.by_boot.values_mut().for_each(|host| host.shift(by_ns));
    }

    /// Returns the number of hosts (boots).
    pub(crate) fn len(&self) -> usize {
        self.by_boot.len()
    }
}

fn wall_link(facts: &HostFacts, axis: &HostFacts) -> Link {
    let difference = i128::from(facts.unix_offset_ns) - i128::from(axis.unix_offset_ns);
    let difference = difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    Link {
        map: map_of(vec![(0, difference)]),
        errors: vec![(0, 0)],
        points: 0,
        largest_residual_ns: 0,
    }
}

/// Returns what offsets between two hosts say of one of them.
fn measured_link(child: BootId, offsets: &[HostOffset]) -> Option<Link> {
    let points = offsets.iter().filter_map(|offset| {
        let there = offset.reference_ns.checked_add(offset.offset_ns)?;
        Some(if offset.from == child {
            (offset.reference_ns, there, offset.error_ns)
        } else {
            (there, offset.reference_ns, offset.error_ns)
        })
    });
    Link::through(points.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(host: u32) -> BootId {
        BootId(u128::from(host).to_be_bytes())
    }

    fn facts(host: u32) -> HostFacts {
        HostFacts {
            boot_id: boot(host),
            name: format!("host{host}"),
            unix_offset_ns: 1_000_000,
            unix_step_ns: 0,
            span: (1_000, 2_000),
        }
    }

    /// Returns an offset: at reading 1 500 of `from`, the clock of `to` was 10 ns ahead.
    fn offset(from: u32, to: u32, error_ns: u64) -> HostOffset {
        HostOffset {
            from: boot(from),
            to: boot(to),
            reference_ns: 1_500,
            offset_ns: 10,
            error_ns,
        }
    }

    #[test]
    fn a_host_is_related_by_the_path_with_the_smallest_bound() {
        let offsets = [
            offset(2, 0, 500),
            offset(2, 1, 100),
            offset(1, 0, 100),
            offset(3, 2, 1),
        ];
        let hosts = Hosts::relate((0..4).map(facts).collect(), &offsets, None);
        let host = |host| hosts.get(boot(host)).unwrap();
        assert_eq!(host(2).through, Some(boot(1)));
        assert_eq!(host(2).axis_ns(1_500), 1_520);
        assert_eq!(host(3).axis_ns(1_500), 1_530);
        // 1 + 100 + 100, and 1 ns of rate for each of the two links that are read 10 and 20 ns after their measurement.
        assert_eq!(host(3).error_at(1_500), 203);
        assert!((0..4).all(|at| host(at).relation <= Relation::Measured));
    }

    #[test]
    fn beyond_the_longest_chain_the_wall_clock_relates_a_host() {
        let offsets: Vec<HostOffset> = (1..3_000).map(|host| offset(host, host - 1, 1)).collect();
        let hosts = Hosts::relate((0..3_000).map(facts).collect(), &offsets, None);
        let relation = |host| hosts.get(boot(host)).unwrap().relation;
        assert_eq!(hosts.len(), 3_000);
        assert_eq!(relation(64), Relation::Measured);
        assert_eq!(relation(65), Relation::WallClock);
        assert!(hosts.all().all(|host| host.corners().len() <= 64));
    }
}

//! Sums of samples by location and call path.

use annals_format::names::element;
use annals_format::{
    CallPathId, CodePlace, Definitions, EventTypeId, OrderedChunk, RegionId, Role,
};
use annals_merger::{Analysis, Frame, Pass, Query, SliceLength, Window};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::region_kinds::{RegionKind, RegionKinds, is_mpi_code};

/// Samples, added up.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SampleSum {
    /// Number of samples.
    pub count: u64,
    /// Processor time that they represent, nanoseconds.
    pub time_ns: i64,
    /// Sum of the squares of these times.
    squares: u128,
}

impl SampleSum {
    fn add(&mut self, time_ns: i64) {
        let square = u128::from(time_ns.unsigned_abs()).pow(2);
        self.merge(&Self {
            count: 1,
            time_ns,
            squares: square,
        });
    }

    /// Adds others.
    pub const fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
        self.squares = self.squares.saturating_add(other.squares);
    }

    /// Returns one standard deviation of the time, nanoseconds: the square root of the sum of the squares of what each sample represents.
    /// The number of samples that fall on a place is distributed as Poisson's law says.
    pub fn error_ns(&self) -> i64 {
        (self.squares as f64).sqrt().round() as i64
    }
}

/// Which samples are added up, in addition to the query, and how.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SampleOptions {
    /// Only those outside of MPI: neither an open call nor a function of the call path is of MPI.
    pub outside_mpi: bool,
    /// Whether the order of the samples is kept, which takes memory for each of them.
    pub in_order: bool,
}

/// An open call, or one around it, is of a region in which samples are wanted.
const WITHIN: u32 = 1;
/// An open call, or one around it, is of MPI.
const MPI: u32 = 2;

/// What samples of a trace are chosen by.
pub(super) struct Chosen {
    window: Window,
    in_order: bool,
    /// By type of event: where the call path is, and what the sample represents.
    types: FxHashMap<EventTypeId, (Option<usize>, Option<usize>)>,
    /// By region.
    marks: Vec<u32>,
    /// The marks that samples need to have, and those that they must not have.
    needed: u32,
    refused: u32,
    /// Call paths with a function of MPI, if these are refused.
    mpi_paths: FxHashSet<u32>,
}

impl Chosen {
    /// Returns `None` if no type of event is of samples.
    pub(super) fn of(
        definitions: &Definitions,
        query: &Query,
        options: SampleOptions,
    ) -> Option<Self> {
        let types = definitions.event_types.values();
        let types = types.filter(|of| of.role == Role::Sample && query.takes_event_type(of.id));
        let places = types.map(|of| {
            let place = |name| definitions.element(of.id, name);
            (of.id, (place(element::CALL_PATH), place(element::WEIGHT)))
        });
        let types: FxHashMap<_, _> = places.collect();
        let kinds = RegionKinds::of(definitions);
        let mut marks = Vec::new();
        for id in definitions.regions.keys() {
            let is_within = query.takes_region(*id);
            let is_mpi = kinds.get(*id) == RegionKind::Mpi;
            marks.resize(id.index(), 0);
            marks.push(if is_within { WITHIN } else { 0 } | if is_mpi { MPI } else { 0 });
        }
        (!types.is_empty()).then(|| Self {
            window: query.window(),
            in_order: options.in_order,
            types,
            marks,
            needed: if query.is_by_region() { WITHIN } else { 0 },
            refused: if options.outside_mpi { MPI } else { 0 },
            mpi_paths: match options.outside_mpi {
                true => mpi_paths(definitions),
                false => FxHashSet::default(),
            },
        })
    }

    /// Returns whether events of a type are samples.
    pub(super) fn is_sample(&self, event_type: EventTypeId) -> bool {
        self.types.contains_key(&event_type)
    }
}

/// Returns the call paths with a function of MPI.
fn mpi_paths(definitions: &Definitions) -> FxHashSet<u32> {
    let mut paths: FxHashSet<u32> = FxHashSet::default();
    // A caller has a smaller number.
    for (id, path) in &definitions.call_paths {
        let of_caller = |caller: CallPathId| paths.contains(&caller.get());
        let is_mpi = match path.place {
            CodePlace::Line(region, ..) => is_mpi_code(definitions, region),
            CodePlace::Unknown | CodePlace::Address(..) => false,
        };
        if is_mpi || path.caller.is_some_and(of_caller) {
            paths.insert(id.get());
        }
    }
    paths
}

/// The samples of a slice.
pub(super) struct SampleState<'c> {
    chosen: &'c Chosen,
    /// By number of the location and call path.
    pub(super) sums: FxHashMap<(usize, u32), SampleSum>,
    /// By number of the location: call paths with the time spent in each, in order, if they are wanted.
    pub(super) in_order: FxHashMap<usize, Vec<(u32, i64)>>,
}

impl<'c> SampleState<'c> {
    pub(super) fn new(chosen: &'c Chosen) -> Self {
        Self {
            chosen,
            sums: FxHashMap::default(),
            in_order: FxHashMap::default(),
        }
    }
}

impl Analysis for SampleState<'_> {
    const PASS: Pass = Pass::OrderedCalls;
    const SLICES: SliceLength = SliceLength::Long;

    fn enter(&mut self, _: usize, frames: &[Frame], region: RegionId, _: i64) -> u32 {
        let around = frames.last().map_or(0, |frame| frame.tag);
        around | self.chosen.marks.get(region.index()).copied().unwrap_or(0)
    }

    fn other(&mut self, location: usize, frames: &[Frame], chunk: &OrderedChunk, event: usize) {
        let chosen = self.chosen;
        let columns = chunk.columns(event);
        let Some((path, weight)) = chosen.types.get(&columns.event_type) else {
            return;
        };
        let marks = frames.last().map_or(0, |frame| frame.tag);
        let is_wanted = marks & chosen.needed == chosen.needed && marks & chosen.refused == 0;
        if !is_wanted || !chosen.window.contains(chunk.time_ns(event)) {
            return;
        }
        let ordinal = chunk.ordinal(event);
        let integer = |place: Option<usize>| columns.columns.get(place?)?.integer(ordinal);
        // A path that is lost has a number that is not defined.
        let path = integer(*path).and_then(|path| u32::try_from(path).ok());
        let path = path.unwrap_or(u32::MAX);
        if chosen.mpi_paths.contains(&path) {
            return;
        }
        let weight = integer(*weight).unwrap_or(0);
        let time_ns = i64::try_from(weight.max(0)).unwrap_or(i64::MAX);
        self.sums.entry((location, path)).or_default().add(time_ns);
        if chosen.in_order {
            push(self.in_order.entry(location).or_default(), path, time_ns);
        }
    }

    fn merge(&mut self, later: Self) {
        for (key, sum) in later.sums {
            self.sums.entry(key).or_default().merge(&sum);
        }
        for (location, paths) in later.in_order {
            let all = self.in_order.entry(location).or_default();
            paths.into_iter().for_each(|(path, ns)| push(all, path, ns));
        }
    }
}

/// Appends a sample; those of one path that follow each other become one.
fn push(samples: &mut Vec<(u32, i64)>, path: u32, time_ns: i64) {
    match samples.last_mut() {
        Some(last) if last.0 == path => last.1 = last.1.saturating_add(time_ns),
        _ => samples.push((path, time_ns)),
    }
}

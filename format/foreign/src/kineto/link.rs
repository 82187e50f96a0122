//! Which events are a collective operation: of up to five that describe one call, the one by which it is counted.

use std::io;

use annals_format::CollectiveOperation;
use rustc_hash::{FxHashMap, FxHashSet};

use super::calls::{Call, CallTable, Deed, step_of};
use super::nesting::Lanes;
use super::sorted::{Kind, NO_CALL, NONE, Record, Sorted};

/// Number of steps of a file.
const MOST_STEPS: usize = 1 << 20;
/// Number of lanes of a file, in addition to one for each location.
const MOST_LANES: usize = 1 << 12;
/// Number of the step of operations before the first one.
pub(super) const BEFORE_STEPS: i64 = i64::MIN;

/// An operation of a process, by the event by which it is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    /// Number of that event in the file.
    pub(super) order: u64,
    pub(super) call: Call,
    /// The step in which it was called; [`BEFORE_STEPS`] before the first. 0 if the file has no steps.
    pub(super) step: i64,
    /// When it was called.
    pub(super) called_ns: i64,
    /// Whether it may bound clocks: the event lasts as long as the operation.
    pub(super) is_whole: bool,
}

/// The operations of a file.
#[derive(Default)]
pub(super) struct Links {
    pub(super) operations: Vec<Operation>,
    /// Number of lanes by location, and of events that are in the second or a later one.
    pub(super) lanes: Vec<usize>,
    pub(super) in_later_lanes: u64,
    /// Events for which there is no lane.
    pub(super) without_lane: u64,
    /// Calls on the host whose kernel belongs to another call, or is not there.
    pub(super) without_kernel: u64,
}

/// A call on the host: events of it are within each other.
struct HostCall {
    kind: Kind,
    order: u64,
    call: Call,
    called_ns: i64,
    has_kernel: bool,
}

/// A kernel of a collective operation.
struct DeviceCall {
    order: u64,
    call: Call,
    started_ns: i64,
    correlation: u64,
    external_id: u64,
}

#[derive(Default)]
struct Linking {
    links: Links,
    host: Vec<HostCall>,
    device: Vec<DeviceCall>,
    /// Annotations around kernels: they count if the file has no kernels.
    around_device: Vec<DeviceCall>,
    /// Calls on the host by correlation of their runtime calls, and by number of their operators.
    by_correlation: FxHashMap<u64, usize>,
    by_external_id: FxHashMap<u64, usize>,
    /// Start and number of each step.
    steps: Vec<(i64, i64)>,
}

/// Returns the operations of a file, and how many lanes its locations need.
///
/// # Errors
/// If the events cannot be read.
pub(super) fn link(sorted: &Sorted, table: &CallTable) -> io::Result<Links> {
    let names = sorted.names()?;
    let names = region_names(&names);
    let mut linking = Linking::default();
    let mut location = None;
    let mut lanes: Lanes<Option<usize>> = Lanes::new(0);
    sorted.for_each(|record, _| {
        if location != Some(record.place.location) {
            location = Some(record.place.location);
            let taken = linking.links.lanes.iter().map(|lanes| lanes - 1).sum();
            lanes = Lanes::new(1 + MOST_LANES.saturating_sub(taken));
        }
        if record.kind != Kind::Instant {
            let name = names.get(record.region as usize).map_or("", |name| name.1);
            linking.take(record, name, table, &mut lanes);
        }
        Ok(())
    })?;
    Ok(linking.finish(table))
}

/// Returns categories and names of regions, by number.
pub(super) fn region_names(mut names: &[u8]) -> Vec<(&str, &str)> {
    let mut all = Vec::new();
    while let Some((length, rest)) = names.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some((name, rest)) = rest.split_at_checked(length) else {
            break;
        };
        let name = std::str::from_utf8(name).unwrap_or_default();
        all.push(name.split_once('\0').unwrap_or_default());
        names = rest;
    }
    all
}

impl Linking {
    fn take(
        &mut self,
        record: &Record,
        name: &str,
        table: &CallTable,
        lanes: &mut Lanes<Option<usize>>,
    ) {
        let place = record.place;
        let call = (record.call != NO_CALL).then(|| table.calls[record.call as usize]);
        let lane = lanes.add(place.start_ns, record.end_ns(), None, |_, _, _| {});
        let Some(lane) = lane else {
            self.links.without_lane += 1;
            return;
        };
        let location = place.location as usize;
        let needed = &mut self.links.lanes;
        needed.resize(needed.len().max(location + 1), 1);
        needed[location] = needed[location].max(lane + 1);
        self.links.in_later_lanes += u64::from(lane != 0);
        let open = lanes.open(lane);
        let around = open.iter().rev().nth(1).and_then(|(_, around)| *around);
        let mut own = around;
        match (record.kind, call) {
            (Kind::Step, _) if self.steps.len() < MOST_STEPS => {
                self.steps
                    .extend(step_of(name).map(|step| (place.start_ns, step)));
            }
            (Kind::Kernel | Kind::DeviceAnnotation, Some(call)) => {
                let calls = match record.kind {
                    Kind::Kernel => &mut self.device,
                    _ => &mut self.around_device,
                };
                calls.push(DeviceCall {
                    order: place.order,
                    call,
                    started_ns: place.start_ns,
                    correlation: record.correlation,
                    external_id: record.external_id,
                });
            }
            (Kind::Dispatcher | Kind::Annotation | Kind::Descriptor, Some(call)) => {
                own = Some(self.host_call(record, call, around));
            }
            (Kind::Runtime, _) => {
                if let Some(around) = around.filter(|_| record.correlation != NONE) {
                    self.by_correlation.insert(record.correlation, around);
                }
            }
            _ => {}
        }
        lanes.set_innermost(lane, own);
    }

    /// Adds an event of a call on the host. Returns the number of the call.
    fn host_call(&mut self, record: &Record, call: Call, around: Option<usize>) -> usize {
        let number = around.unwrap_or(self.host.len());
        match self.host.get_mut(number) {
            None => self.host.push(HostCall {
                kind: record.kind,
                order: record.place.order,
                call,
                called_ns: record.place.start_ns,
                has_kernel: false,
            }),
            Some(known) => {
                let rank = |kind: Kind, call: &Call| match kind {
                    // What lasts as long as the operation first.
                    Kind::Annotation if call.is_blocking => 3,
                    Kind::Descriptor => 2,
                    Kind::Annotation => 1,
                    _ => 0,
                };
                let is_better = rank(record.kind, &call) > rank(known.kind, &known.call);
                let described = [call, known.call].into_iter();
                let best = described.max_by_key(|call| {
                    (
                        call.deed != Deed::Unknown,
                        call.group.is_some(),
                        call.sequence.is_some(),
                    )
                });
                let is_blocking = call.is_blocking || known.call.is_blocking;
                known.call = Call {
                    is_blocking,
                    ..best.unwrap_or(call)
                };
                if is_better {
                    (known.kind, known.order) = (record.kind, record.place.order);
                }
            }
        }
        if record.external_id != NONE {
            self.by_external_id.insert(record.external_id, number);
        }
        number
    }

    fn step_at(&self, called_ns: i64) -> i64 {
        if self.steps.is_empty() {
            return 0;
        }
        let after = self
            .steps
            .partition_point(|(start_ns, _)| *start_ns <= called_ns);
        let step = after.checked_sub(1).map(|at| self.steps[at].1);
        step.unwrap_or(BEFORE_STEPS)
    }

    fn finish(mut self, table: &CallTable) -> Links {
        self.steps.sort_unstable();
        let mut device = std::mem::take(&mut self.device);
        if device.is_empty() {
            device = std::mem::take(&mut self.around_device);
        }
        let mut described = FxHashSet::default();
        for kernel in &device {
            let by_launch = self.by_correlation.get(&kernel.correlation);
            let number = by_launch.or_else(|| self.by_external_id.get(&kernel.external_id));
            let host = number.copied();
            let mut call = kernel.call;
            let mut called_ns = kernel.started_ns;
            if let Some(host) = host.map(|host| &mut self.host[host]) {
                called_ns = host.called_ns;
                if call.group.is_none() {
                    call = match host.call.deed {
                        Deed::Unknown => call,
                        _ => host.call,
                    };
                }
                if std::mem::replace(&mut host.has_kernel, true) {
                    // One of several kernels of a call: the first counts.
                    continue;
                }
            }
            described.extend(call.group.zip(call.sequence));
            self.add(kernel.order, call, called_ns, true);
        }
        let has_others =
            !device.is_empty() || self.host.iter().any(|call| call.kind != Kind::Dispatcher);
        for host in std::mem::take(&mut self.host) {
            let is_known = host.call.group.zip(host.call.sequence);
            let is_counted = host.has_kernel
                || is_known.is_some_and(|known| described.contains(&known))
                || (host.kind == Kind::Dispatcher && has_others);
            if is_counted {
                continue;
            }
            if !device.is_empty() && !host.call.is_blocking {
                // Part of a group of calls with one kernel, or its kernel was not recorded.
                self.links.without_kernel += u64::from(host.call.deed != Deed::Unknown);
                continue;
            }
            self.add(host.order, host.call, host.called_ns, host.call.is_blocking);
        }
        debug_assert!(self.links.operations.len() <= table.calls.len());
        self.links
            .operations
            .sort_by_key(|operation| operation.called_ns);
        self.links
    }

    fn add(&mut self, order: u64, mut call: Call, called_ns: i64, is_whole: bool) {
        if call.deed == Deed::Unknown {
            return;
        }
        if call.deed == Deed::Collective(CollectiveOperation::Barrier) {
            (call.sent, call.received) = (None, None);
        }
        self.links.operations.push(Operation {
            order,
            call,
            step: self.step_at(called_ns),
            called_ns,
            is_whole,
        });
    }
}

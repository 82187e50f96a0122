//! Samples of call paths, of all threads of the process.
//!
//! The kernel writes them to rings ([`ring`]); a thread of ours empties these, and makes call paths of registers and stacks ([`unwind`]).
//! The sampled threads do nothing for it: no signal, no handler, no interrupted system call. Where the system does not permit that, a
//! signal handler writes to other rings ([`timers`]).
#![expect(
    unsafe_code,
    reason = "the system is asked for the processor time of other threads"
)]

mod made_code;
mod ring;
mod timers;
mod unwind;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use annals_recorder::names::{element, property};
use annals_recorder::{
    CallPathId, ClockSpec, CodePlace, EventType, EventTypeSpec, Recorder, Reference, Role,
    SourceId, SourceSpec, ThreadStream,
};

use self::made_code::{MOST_EACH_TIME, MadeCode};
use self::ring::{Entry, Sample};
pub(crate) use self::unwind::Files;

/// How long a thread that was started is not sampled at most, and how old a sample becomes before it is in the recording.
pub(crate) const PERIOD: Duration = Duration::from_millis(20);

/// How long rings are left alone at least: a descriptor that the program has taken may be ready all the time.
pub(crate) const LEAST_PERIOD: Duration = Duration::from_micros(500);

/// Names of the recorder's threads begin so.
const OWN_NAMES: &[u8] = b"annals-";

/// Threads are listed once in this number of rounds even if their number has not changed.
const MOST_ROUNDS: u32 = 5;

/// Percentage of a process's processor time that may be in no sample before this is noted.
const MOST_UNKNOWN: u64 = 2;

/// Most call paths.
const MOST_PATHS: usize = 1 << 20;

/// The sampled threads, and what their samples have in common.
pub(crate) struct Sampling {
    engine: Engine,
    period_ns: u64,
    source: SourceId,
    event_type: EventType<(u32, u64, u64)>,
    threads: BTreeMap<u32, Thread>,
    /// Threads of the recorder.
    own: BTreeSet<u32>,
    pub(crate) files: Files,
    made_code: MadeCode,
    paths: HashMap<(Option<CallPathId>, CodePlace), CallPathId>,
    addresses: Vec<u64>,
    /// When sampling began, reference clock.
    began_ns: u64,
    has_searched: bool,
    /// Number of links of the directory of threads when they were listed, and how many rounds ago.
    listed: (u64, u32),
    /// Processor time of sampled threads that have ended, nanoseconds.
    ended_ns: u64,
    /// Whether it is noted that a thread is not sampled.
    has_missed: bool,
    /// The thread that empties the rings.
    reader: u32,
}

/// What takes the samples.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Engine {
    /// perf_event_open(2).
    Kernel,
    /// A signal handler.
    Timers,
}

enum Ring {
    Kernel(ring::Ring),
    Timers(timers::Ring),
}

impl Ring {
    fn open(engine: Engine, thread: u32, period_ns: u64) -> io::Result<Self> {
        match engine {
            Engine::Kernel => ring::Ring::open(thread, period_ns).map(Self::Kernel),
            Engine::Timers => timers::Ring::open(thread, period_ns).map(Self::Timers),
        }
    }

    fn descriptor(&self) -> Option<RawFd> {
        match self {
            Self::Kernel(ring) => ring.descriptor(),
            Self::Timers(_) => None,
        }
    }

    fn used_ns(&self) -> u64 {
        match self {
            Self::Kernel(ring) => ring.used_ns(),
            Self::Timers(ring) => ring.used_ns(),
        }
    }

    fn take_all(&mut self, each: impl FnMut(Entry<'_>)) {
        match self {
            Self::Kernel(ring) => ring.take_all(each),
            Self::Timers(ring) => ring.take_all(each),
        }
    }
}

struct Thread {
    ring: Ring,
    stream: ThreadStream,
}

/// Makes the files those that are in memory now.
type Refresh<'a> = &'a mut dyn FnMut(&mut Files);

impl Sampling {
    /// Begins to sample the threads that the process has.
    ///
    /// # Errors
    /// If samples cannot be defined, or the system does not permit to sample the calling thread.
    pub(crate) fn begin(recorder: &Recorder, period: Duration) -> Result<Self, String> {
        let asked_ns = period.as_nanos() as u64;
        // Before anything is defined: a refusal leaves no trace in the recording.
        let (engine, name, description, period_ns) =
            match Ring::open(Engine::Kernel, this_thread(), asked_ns) {
                Ok(_) => {
                    let description = "call paths of threads, by perf_event_open".to_owned();
                    (
                        Engine::Kernel,
                        "perf-event".to_owned(),
                        description,
                        asked_ns,
                    )
                }
                Err(error) => {
                    let why = explain(&error);
                    let period_ns = timers::begin(asked_ns)
                        .map_err(|error| format!("{why}; by timers neither: {error}"))?;
                    let name = format!("timers (asked for: {period:?})");
                    let description = format!("call paths of threads, by timers: {why}");
                    (Engine::Timers, name, description, period_ns)
                }
            };
        let defined = |error: annals_recorder::RecorderError| error.to_string();
        let clock = recorder
            .add_clock(&ClockSpec::reference())
            .map_err(defined)?;
        let source = SourceSpec::ordered("samples")
            .description(&description)
            .clock(clock);
        let source = recorder.add_source(&source).map_err(defined)?;
        let spec = EventTypeSpec::new("sample")
            .description("where a thread was, and the processor time that this represents")
            .role(Role::Sample)
            .reference(element::CALL_PATH, Reference::CallPath)
            .element_in(element::WEIGHT, "ns")
            .element_in(element::PREEMPTED, "ns");
        let event_type = recorder.add_event_type(&spec).map_err(defined)?;
        let nothing = recorder.add_string("").map_err(defined)?;
        let map = format!("/tmp/perf-{}.map", std::process::id());
        recorder.note_threads();
        let value = format!("{name} {period_ns}");
        recorder
            .add_property(property::SAMPLING, &value)
            .map_err(defined)?;
        let mut sampling = Self {
            engine,
            period_ns,
            source,
            event_type,
            threads: BTreeMap::new(),
            own: BTreeSet::new(),
            files: Files::new(),
            made_code: MadeCode::new(map.into(), nothing),
            paths: HashMap::new(),
            addresses: Vec::new(),
            began_ns: Recorder::reference_ns() as u64,
            has_searched: false,
            listed: (0, 0),
            ended_ns: 0,
            has_missed: false,
            reader: 0,
        };
        // Others in the first round: threads of the recorder may have no names yet.
        sampling.attach(recorder, this_thread());
        Ok(sampling)
    }

    /// Returns the descriptors to wait for.
    pub(crate) fn descriptors(&self) -> Vec<libc::pollfd> {
        let rings = self.threads.values().map(|thread| &thread.ring);
        let descriptors = rings.filter_map(Ring::descriptor);
        let of = descriptors.map(|descriptor| libc::pollfd {
            fd: descriptor,
            events: libc::POLLIN,
            revents: 0,
        });
        of.collect()
    }

    /// Records what is in the rings. Then begins to sample new threads, and ends with those whose descriptor is among `ended`. `refresh` is
    /// called at most once, when a sample is in a file that is not known.
    pub(crate) fn take_all(&mut self, recorder: &Recorder, ended: &[RawFd], refresh: Refresh<'_>) {
        // Timers do not say which threads begin and end.
        let now: Option<BTreeSet<u32>> =
            (self.engine == Engine::Timers && self.may_have_changed()).then(|| threads().collect());
        let mut is_new_thread = now.as_ref().is_some_and(|now| self.has_unknown(now));
        if let Some(why) = timers::why_ended() {
            self.miss(recorder, this_thread(), &why);
        }
        let mut refresh = Some(refresh);
        let mut threads = std::mem::take(&mut self.threads);
        for thread in threads.values_mut() {
            let Thread { ring, stream } = thread;
            ring.take_all(|entry| match entry {
                Entry::Sample(sample) => self.record(recorder, stream, &sample, &mut refresh),
                Entry::Lost(count) => stream.report_dropped(&self.event_type, count),
                Entry::NewThread => is_new_thread = true,
            });
        }
        let has_ended = |number: &u32, thread: &Thread| {
            let descriptor = thread.ring.descriptor();
            descriptor.is_some_and(|descriptor| ended.contains(&descriptor))
                || now.as_ref().is_some_and(|now| !now.contains(number))
        };
        let ended = threads.extract_if(.., |number, thread| has_ended(number, thread));
        self.ended_ns += ended.map(|(_, thread)| thread.ring.used_ns()).sum::<u64>();
        self.threads = threads;
        if is_new_thread || !std::mem::replace(&mut self.has_searched, true) {
            self.attach_all(recorder);
        }
    }

    /// Takes note that the calling thread empties the rings from now on.
    pub(crate) fn be_reader(&mut self) {
        self.reader = this_thread();
    }

    /// Ends sampling: adds how much processor time the emptying of rings took.
    pub(crate) fn end(self, recorder: &Recorder) {
        let living = self.threads.keys().chain(&self.own);
        let known_ns = self.ended_ns + living.map(|thread| processor_ns(*thread)).sum::<u64>();
        let all_ns = time_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
        let unknown_ns = all_ns.saturating_sub(known_ns);
        if unknown_ns > MOST_UNKNOWN * all_ns / 100 + 10 * self.period_ns {
            let why = format!(
                "threads that ended soon used {:.3?} of the {:.3?} of processor time of the process",
                Duration::from_nanos(unknown_ns),
                Duration::from_nanos(all_ns)
            );
            let _ = recorder.add_property(property::NOT_SAMPLED, &why);
        }
        let ns = processor_ns(self.reader).to_string();
        let _ = recorder.add_property(property::SAMPLING_TIME, &ns);
        self.made_code.end(recorder);
    }

    fn record(
        &mut self,
        recorder: &Recorder,
        stream: &ThreadStream,
        sample: &Sample<'_>,
        refresh: &mut Option<Refresh<'_>>,
    ) {
        let mut addresses = std::mem::take(&mut self.addresses);
        let mut is_whole = self.files.calls_of(sample, &mut addresses);
        let is_known = |address: &u64| self.files.place_of(*address).is_some();
        if !addresses.iter().all(is_known)
            && let Some(refresh) = refresh.take()
        {
            refresh(&mut self.files);
            self.made_code.grow(recorder, MOST_EACH_TIME);
            is_whole = self.files.calls_of(sample, &mut addresses);
        }
        let mut path = match is_whole {
            true => Some(None),
            false => self.path(recorder, None, CodePlace::Unknown).map(Some),
        };
        // What the recorder does in a thread of the program is one call.
        let own = addresses
            .iter()
            .rposition(|address| self.files.is_own(*address));
        for address in addresses[own.unwrap_or(0)..].iter().rev() {
            let place = match self.files.place_of(*address) {
                Some((module, address)) => CodePlace::Address(Some(module), address),
                None => self.made_code.place_of(recorder, *address, sample.time_ns),
            };
            path = path.and_then(|caller| self.path(recorder, caller, place).map(Some));
        }
        self.addresses = addresses;
        match path.flatten() {
            Some(path) => {
                let values = (path.get(), sample.weight_ns, sample.preempted_ns);
                stream.raise(&self.event_type, sample.time_ns, values);
            }
            None => stream.report_dropped(&self.event_type, 1),
        }
    }

    /// Returns the number of a call path, which is defined if it is not. `None` if there is no room for it.
    fn path(
        &mut self,
        recorder: &Recorder,
        caller: Option<CallPathId>,
        place: CodePlace,
    ) -> Option<CallPathId> {
        let key = (caller, place);
        if let Some(path) = self.paths.get(&key) {
            return Some(*path);
        }
        if self.paths.len() == MOST_PATHS {
            return None;
        }
        let path = recorder.add_call_path(caller, place).ok()?;
        self.paths.insert(key, path);
        Some(path)
    }

    /// Begins to sample all threads of the process that are not sampled yet, until there is no new one.
    fn attach_all(&mut self, recorder: &Recorder) {
        loop {
            let new: Vec<u32> = threads()
                .filter(|thread| !self.threads.contains_key(thread))
                .collect();
            let mut has_new = false;
            for thread in new {
                has_new |= self.attach(recorder, thread);
            }
            if !has_new {
                return;
            }
        }
    }

    /// Notes that a thread is not sampled, if it is the first one.
    fn miss(&mut self, recorder: &Recorder, thread: u32, why: &str) {
        if !std::mem::replace(&mut self.has_missed, true) {
            let why = format!("thread {thread} and maybe others: {why}");
            let _ = recorder.add_property(property::NOT_SAMPLED, &why);
        }
    }

    /// Returns whether threads may have begun or ended since the last call that returned this: their number has changed, or it was long ago.
    fn may_have_changed(&mut self) -> bool {
        // The directory has a link for each thread.
        let links = std::fs::metadata("/proc/self/task").map_or(0, |task| task.nlink());
        let (last_links, rounds) = self.listed;
        let may_have = links != last_links || rounds >= MOST_ROUNDS;
        self.listed = (links, if may_have { 0 } else { rounds + 1 });
        may_have
    }

    /// Returns whether one of these threads may be sampled and is not yet.
    fn has_unknown(&mut self, now: &BTreeSet<u32>) -> bool {
        self.own.retain(|thread| now.contains(thread));
        let is_known = |thread| self.threads.contains_key(thread) || self.own.contains(thread);
        !now.iter().all(is_known)
    }

    /// Returns whether the thread is sampled now.
    fn attach(&mut self, recorder: &Recorder, thread: u32) -> bool {
        let name = std::fs::read(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
        let name = name.strip_suffix(b"\n").unwrap_or(&name);
        if name.starts_with(OWN_NAMES) {
            self.own.insert(thread);
            return false;
        }
        let now_ns = Recorder::reference_ns() as u64;
        let ring = match Ring::open(self.engine, thread, self.period_ns) {
            Ok(ring) => ring,
            // It has ended.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return false,
            Err(error) => {
                self.miss(recorder, thread, &explain(&error));
                return false;
            }
        };
        let missed_ns = processor_ns(thread).min(now_ns.saturating_sub(self.began_ns));
        let missed = missed_ns / self.period_ns;
        let stream = recorder.open_thread_stream(self.source, thread, name, now_ns);
        let Some(stream) = stream else {
            let why =
                "the buffer has no room for one more stream: `record --buffer` makes it larger";
            self.miss(recorder, thread, why);
            return false;
        };
        if missed != 0 {
            stream.report_dropped(&self.event_type, missed);
        }
        self.threads.insert(thread, Thread { ring, stream });
        true
    }
}

/// Returns the threads of the process, by number.
fn threads() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn this_thread() -> u32 {
    // SAFETY: the call touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Returns the processor time that a thread of this process has used, nanoseconds.
fn processor_ns(thread: u32) -> u64 {
    time_ns(processor_clock(thread))
}

/// Returns the clock of a thread's processor time, as clock_getcpuclockid(3) makes it: the complement of the number, the kind "all
/// processor time", and that it is of a thread.
fn processor_clock(thread: u32) -> libc::clockid_t {
    !(thread as libc::clockid_t) << 3 | 0b110
}

/// Reads a clock, nanoseconds. 0 if there is none.
fn time_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid to write to.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        _ => 0,
    }
}

/// Returns why the system does not permit or support sampling, in words.
fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
            match level.as_deref().map(str::trim) {
                Ok(level) if level.parse().is_ok_and(|level: i32| level > 2) => format!(
                    "perf_event_open is not permitted: kernel.perf_event_paranoid is {level}, and 2 or less is needed"
                ),
                _ => "perf_event_open is not permitted here, as in many containers".to_owned(),
            }
        }
        Some(libc::ENOSYS) => "the system has no perf_event_open".to_owned(),
        Some(libc::EMFILE) => "no file descriptor is free (ulimit -n)".to_owned(),
        _ => error.to_string(),
    }
}

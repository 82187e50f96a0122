//! What each thread has entered and not left, its teams, and what is left when a runtime does not say so.
//!
//! Only its own thread changes what is here. A thread that has started a team stores when it ended: runtimes report the end of a member's last
//! barrier only with its next team, or never, and the member's leaves have that time. The thread that finishes the recording leaves
//! what others have entered, by streams that it opens for them; from then on no thread raises anything here.
//!
//! A thread's state is taken by another one when the thread has ended, and never freed: a member's pointer to it stays valid.
#![expect(
    unsafe_code,
    reason = "states of threads are reached through pointers, and threads end"
)]

use std::ffi::c_void;
use std::io::Write as _;
use std::mem::offset_of;
use std::ptr::{null, null_mut};
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use annals_instrument::region_of;
use annals_recorder::{Elements, EventType, Recorder, RegionId, attach, attached, uncancelled};

use crate::constructs::{self, is_boundary, is_lock};
use crate::events::{self, Events};

/// Most constructs that a thread may be in, one inside the other. Those inside of them are not recorded.
const MOST_FRAMES: usize = 256;

/// Number of ended teams whose members may learn late that they have.
const MOST_EARLIER: usize = 32;

/// Most teams that a thread may have started, one inside the other, whose members are known.
const MOST_TEAMS: usize = 16;

/// How a thread has left a task that it does not execute any more, and that is not complete (`ompt_task_switch`).
const SWITCH: u32 = 7;

/// A region number that no region has: the construct is not recorded.
const NO_REGION: u32 = u32::MAX;

const RELAXED: Ordering = Ordering::Relaxed;

/// A construct that a thread is in.
struct Frame {
    /// Number of the region in the high half, the construct in the low one.
    what: AtomicU64,
    /// Number of the task, of a task.
    task: AtomicU64,
}

/// A team, in the state of the thread that has started it, which alone changes it. Members read one line of it: when they join, and in it
/// the end of the team before, whose members they mostly are.
#[repr(C, align(64))]
pub(crate) struct Team {
    /// Number that no other team has. 0: none yet.
    id: AtomicU64,
    /// Where it was started.
    address: AtomicUsize,
    /// The last one that has ended.
    ended: Ended,
    /// What it executes, where that is not known to the runtime alone: a function, what that is passed, and the construct in it.
    work: [AtomicUsize; 2],
    construct: AtomicU8,
    owner: AtomicPtr<Thread>,
    /// Number of teams around it that its owner has started, too.
    level: AtomicUsize,
    /// Those that have ended before, by their numbers.
    earlier: [Ended; MOST_EARLIER],
}

/// A team that has ended, and when.
struct Ended {
    id: AtomicU64,
    tick: AtomicU64,
}

impl Ended {
    fn set(&self, id: u64, tick: u64) {
        self.id.store(0, RELAXED);
        self.tick.store(tick, Ordering::Release);
        self.id.store(id, Ordering::Release);
    }

    /// Returns when a team ended, if it is this one.
    #[inline(always)]
    fn tick_of(&self, id: u64) -> Option<u64> {
        let is_it = || self.id.load(Ordering::Acquire) == id;
        let tick = is_it().then(|| self.tick.load(Ordering::Acquire))?;
        // Another one may have ended meanwhile.
        is_it().then_some(tick)
    }
}

impl Team {
    /// Stores what the team executes: the address of a function, what that is passed, and the construct in which it begins (0: none).
    pub(crate) fn set_work(&self, work: [usize; 2], construct: u8) {
        for (place, word) in self.work.iter().zip(work) {
            place.store(word, RELAXED);
        }
        self.construct.store(construct, RELAXED);
    }

    /// Returns what the team executes.
    #[inline(always)]
    pub(crate) fn work(&self) -> ([usize; 2], u8) {
        let work = [&self.work[0], &self.work[1]].map(|word| word.load(RELAXED));
        (work, self.construct.load(RELAXED))
    }

    /// Returns where it was started.
    pub(crate) fn address(&self) -> usize {
        self.address.load(RELAXED)
    }

    fn earlier(&self, id: u64) -> &Ended {
        &self.earlier[id as usize % MOST_EARLIER]
    }
}

/// The name of a thread by the numbers that it has in its teams, without what is before them.
type Path = [u8; 16];

/// The state of a thread.
pub(crate) struct Thread {
    /// Whether a thread has it.
    is_used: AtomicBool,
    /// The next state in the list of all.
    next: AtomicPtr<Thread>,
    /// Number of its recorder: what it has entered is of another one otherwise.
    recorder: AtomicU32,
    system_id: AtomicI32,
    depth: AtomicUsize,
    /// Constructs that it has entered beyond its frames.
    beyond: AtomicUsize,
    frames: [Frame; MOST_FRAMES],
    teams: [Team; MOST_TEAMS],
    team_depth: AtomicUsize,
    /// Number of teams that it has started.
    started: AtomicU64,
    /// The team of which it is a member that was started by another thread. 0: none.
    member_of: AtomicU64,
    team: AtomicPtr<Team>,
    /// Number of ends that the runtime has reported late, of this recorder.
    estimated: AtomicU64,
    /// Its numbers in its teams. Zeros: it was never a member.
    path: [AtomicU64; 2],
    /// Place of this state in the list of all, from 1.
    number: AtomicU64,
}

// Zeros are a state without anything.
const _: () = assert!(size_of::<Thread>() < 1 << 15);
// What members read is in one line.
const _: () = assert!(offset_of!(Team, construct) < 64);

/// All states.
static ALL: AtomicPtr<Thread> = AtomicPtr::new(null_mut());
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Number of threads that have started a team and were members of none.
static ROOTS: AtomicU64 = AtomicU64::new(0);

/// Whether anything is recorded.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Calls a function when a thread ends. 0: there is none yet; else number + 1.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Begins to record.
pub(crate) fn begin(recorder: &Recorder) {
    if KEY.load(RELAXED) == 0 {
        let mut key = 0;
        // SAFETY: a place for the key, and a function that lives as long as the library.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(end_thread)) } == 0 {
            KEY.store(key + 1, RELAXED);
        }
    }
    static BEGUN: AtomicU32 = AtomicU32::new(0);
    // Not again after the end.
    if BEGUN.swap(recorder.number(), Ordering::AcqRel) != recorder.number() {
        recorder.before_finish(finish);
        IS_ON.store(true, Ordering::Release);
    }
}

/// The calling thread and the recorder.
#[derive(Clone, Copy)]
pub(crate) struct Here {
    pub(crate) events: &'static Events,
    thread: &'static Thread,
}

/// Returns the calling thread. `None` while nothing is recorded.
#[inline(always)]
pub(crate) fn here() -> Option<Here> {
    if !IS_ON.load(RELAXED) {
        return None;
    }
    let events = events::get()?;
    // SAFETY: null, or a state, which is never freed.
    let thread = match unsafe { attached().cast::<Thread>().as_ref() } {
        Some(thread) if thread.recorder.load(RELAXED) == events.number => thread,
        known => new_thread(known, events)?,
    };
    Some(Here { events, thread })
}

#[cold]
#[inline(never)]
fn new_thread(known: Option<&'static Thread>, events: &Events) -> Option<&'static Thread> {
    // A forked child's recorder is another one.
    begin(events.recorder);
    let recorder = events.number;
    let thread = match known {
        Some(known) => known,
        None => uncancelled(claim)?,
    };
    // SAFETY: no requirements.
    thread.system_id.store(unsafe { libc::gettid() }, RELAXED);
    thread.forget();
    if thread.recorder.swap(recorder, RELAXED) != recorder {
        thread.estimated.store(0, RELAXED);
    }
    Some(thread)
}

/// Returns a state for the calling thread: that of one that has ended, or a new one.
fn claim() -> Option<&'static Thread> {
    let key = KEY.load(RELAXED).checked_sub(1)?;
    let is_claimed = |thread: &&Thread| {
        let used = thread
            .is_used
            .compare_exchange(false, true, Ordering::AcqRel, RELAXED);
        used.is_ok()
    };
    let thread = threads().find(is_claimed).unwrap_or_else(|| {
        // SAFETY: zeros are a valid state: atomics, and null pointers.
        let thread: &'static mut Thread = Box::leak(unsafe { Box::new_zeroed().assume_init() });
        *thread.is_used.get_mut() = true;
        *thread.number.get_mut() = COUNT.fetch_add(1, RELAXED) + 1;
        let thread: *mut Thread = thread;
        let mut first = ALL.load(Ordering::Acquire);
        loop {
            // SAFETY: a state, which is never freed.
            unsafe { &*thread }.next.store(first, RELAXED);
            match ALL.compare_exchange(first, thread, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: a state, which is never freed.
                Ok(_) => break unsafe { &*thread },
                Err(other) => first = other,
            }
        }
    });
    attach(std::ptr::from_ref(thread).cast());
    // SAFETY: a key of this library; the value is not null, so that the thread's end is reported.
    unsafe { libc::pthread_setspecific(key, std::ptr::from_ref(thread).cast()) };
    Some(thread)
}

/// Returns the states of all threads.
fn threads() -> impl Iterator<Item = &'static Thread> {
    // SAFETY: null, or a state, which is never freed.
    let of = |thread: *mut Thread| unsafe { thread.as_ref() };
    std::iter::successors(of(ALL.load(Ordering::Acquire)), move |thread| {
        of(thread.next.load(RELAXED))
    })
}

/// Called when a thread ends.
extern "C" fn end_thread(thread: *mut c_void) {
    // A panic must not cross into the C library.
    let _ = std::panic::catch_unwind(|| {
        // SAFETY: a state, which is never freed.
        let thread = unsafe { &*thread.cast::<Thread>().cast_const() };
        if let Some(here) = here().filter(|here| std::ptr::eq(here.thread, thread)) {
            here.leave_to(0);
        }
        thread.forget();
        attach(null());
        thread.is_used.store(false, Ordering::Release);
    });
}

impl Thread {
    /// Forgets what was entered: it is of another recorder, or another thread.
    fn forget(&self) {
        self.depth.store(0, RELAXED);
        self.beyond.store(0, RELAXED);
        self.team_depth.store(0, RELAXED);
        self.member_of.store(0, RELAXED);
        self.path.iter().for_each(|word| word.store(0, RELAXED));
    }

    fn path(&self) -> Path {
        let [a, b] = [&self.path[0], &self.path[1]].map(|word| word.load(RELAXED).to_le_bytes());
        let mut path = Path::default();
        path[..8].copy_from_slice(&a);
        path[8..].copy_from_slice(&b);
        path
    }

    fn set_path(&self, path: &Path) {
        for (word, bytes) in self.path.iter().zip(path.chunks_exact(8)) {
            let bytes = bytes.try_into().expect("chunks of 8 bytes");
            word.store(u64::from_le_bytes(bytes), RELAXED);
        }
    }

    /// Returns when the team ended of which it is a member. `None` if it has not, or there is none; 0 if that is not known any more.
    #[inline(always)]
    fn ended_tick(&self) -> Option<u64> {
        let id = self.member_of.load(RELAXED);
        if id == 0 {
            return None;
        }
        // SAFETY: part of a state, which is never freed.
        let team = unsafe { self.team.load(RELAXED).as_ref() }?;
        if let Some(tick) = team.ended.tick_of(id) {
            return Some(tick);
        }
        if team.id.load(Ordering::Acquire) == id {
            return None;
        }
        Some(team.earlier(id).tick_of(id).unwrap_or(0))
    }

    /// Returns the construct of a frame, and its region if it is recorded.
    fn frame(&self, place: usize) -> (u8, Option<RegionId>) {
        let what = self.frames[place].what.load(RELAXED);
        let region = (what >> 32) as u32;
        (
            what as u8,
            (region != NO_REGION).then(|| RegionId::new(region)),
        )
    }
}

impl Here {
    /// Enters a construct, whose code is at this address.
    #[inline(always)]
    pub(crate) fn enter(self, construct: u8, address: usize) {
        let recorder = self.events.recorder;
        let region = region_of(recorder, construct, address);
        self.enter_region(construct, region);
    }

    /// Enters a region.
    #[inline(always)]
    pub(crate) fn enter_region(self, construct: u8, region: Option<RegionId>) {
        if self.push(construct, region, 0)
            && let Some(region) = region
        {
            self.events.recorder.enter(region);
        }
    }

    /// Enters a region, and raises an event at the same moment.
    #[inline(always)]
    pub(crate) fn enter_with<E: Elements>(
        self,
        construct: u8,
        region: Option<RegionId>,
        task: u64,
        event: &EventType<E>,
        values: E::Values<'_>,
    ) {
        if !self.push(construct, region, task) {
            return;
        }
        match region {
            Some(region) => self.events.recorder.enter_with(region, event, values),
            None => self.events.recorder.raise(event, values),
        }
    }

    /// Notes that a construct is entered. Returns whether there is room.
    #[inline(always)]
    fn push(self, construct: u8, region: Option<RegionId>, task: u64) -> bool {
        self.end_try(&[]);
        let thread = self.thread;
        let depth = thread.depth.load(RELAXED);
        let Some(frame) = thread.frames.get(depth) else {
            thread.beyond.fetch_add(1, RELAXED);
            return false;
        };
        let region = region.map_or(NO_REGION, RegionId::get);
        let what = u64::from(region) << 32 | u64::from(construct);
        frame.what.store(what, RELAXED);
        frame.task.store(task, RELAXED);
        thread.depth.store(depth + 1, Ordering::Release);
        true
    }

    /// Leaves a construct. Has no effect if the thread is not in it.
    #[inline(always)]
    pub(crate) fn leave(self, construct: u8) {
        self.leave_any(&[construct]);
    }

    /// Leaves the innermost construct of these. Has no effect if the thread is in none.
    #[inline(always)]
    pub(crate) fn leave_any(self, constructs: &[u8]) {
        if let Some(place) = self.find(constructs) {
            self.leave_to(place);
        }
    }

    /// Raises an event, and leaves the innermost construct of these at the same moment. Raises it alone if the thread is in none.
    #[inline(always)]
    pub(crate) fn leave_with<E: Elements>(
        self,
        constructs: &[u8],
        event: &EventType<E>,
        values: E::Values<'_>,
    ) {
        let recorder = self.events.recorder;
        let Some(place) = self.find(constructs) else {
            return recorder.raise(event, values);
        };
        self.leave_to(place + 1);
        self.thread.depth.store(place, Ordering::Release);
        match self.thread.frame(place).1 {
            Some(region) => recorder.leave_with(region, event, values),
            None => recorder.raise(event, values),
        }
    }

    /// Returns whether the innermost construct is one of these.
    pub(crate) fn is_in(self, constructs: &[u8]) -> bool {
        let depth = self.thread.depth.load(RELAXED);
        depth != 0 && constructs.contains(&self.thread.frame(depth - 1).0)
    }

    /// Returns the place of the innermost of these constructs. Counts one that was entered beyond the frames as left.
    #[inline(always)]
    fn find(self, constructs: &[u8]) -> Option<usize> {
        self.end_try(constructs);
        let thread = self.thread;
        let depth = thread.depth.load(RELAXED);
        if depth == MOST_FRAMES && thread.beyond.load(RELAXED) != 0 {
            thread.beyond.fetch_sub(1, RELAXED);
            return None;
        }
        for place in (0..depth).rev() {
            let construct = thread.frame(place).0;
            if constructs.contains(&construct) {
                return Some(place);
            }
            if is_boundary(construct) {
                return None;
            }
        }
        None
    }

    /// Leaves the wait for a lock that was not acquired, unless it is one of these constructs: a thread that does something else does not
    /// wait, so that it has only tried. LLVM's runtime up to 15 does not report the difference. It was left when it was entered.
    #[inline(always)]
    fn end_try(self, constructs: &[u8]) {
        if let Some(last) = self.thread.depth.load(RELAXED).checked_sub(1)
            && let Some(frame) = self.thread.frames.get(last)
        {
            let construct = frame.what.load(RELAXED) as u8;
            if is_lock(construct) && !constructs.contains(&construct) {
                self.thread.depth.store(last, Ordering::Release);
                if let (_, Some(region)) = self.thread.frame(last) {
                    self.events.recorder.leave_since(region, 0);
                }
            }
        }
    }

    /// Leaves everything down to this number of constructs: at the end of the team of which the thread is a member, if it has ended.
    #[inline(always)]
    fn leave_to(self, depth: usize) {
        let (thread, recorder) = (self.thread, self.events.recorder);
        let mut left = thread.depth.load(RELAXED);
        while left > depth {
            left -= 1;
            thread.depth.store(left, Ordering::Release);
            let (_, region) = thread.frame(left);
            match (region, thread.ended_tick()) {
                (Some(region), None) => recorder.leave(region),
                (Some(region), Some(tick)) => {
                    recorder.leave_since(region, tick);
                    let estimated = thread.estimated.load(RELAXED);
                    thread.estimated.store(estimated + 1, RELAXED);
                }
                (None, _) => {}
            }
        }
    }

    /// Enters a parallel region, for which a team begins. `None` if the thread has started too many.
    pub(crate) fn begin_team(self, address: usize) -> Option<&'static Team> {
        let thread = self.thread;
        self.enter(constructs::PARALLEL, address);
        let depth = thread.team_depth.load(RELAXED);
        thread.team_depth.store(depth + 1, RELAXED);
        let team = thread.teams.get(depth)?;
        let started = thread.started.load(RELAXED) + 1;
        thread.started.store(started, RELAXED);
        let id = thread.number.load(RELAXED) << 40 | (started & ((1 << 40) - 1));
        team.address.store(address, RELAXED);
        team.owner
            .store(std::ptr::from_ref(thread).cast_mut(), RELAXED);
        team.level.store(depth, RELAXED);
        team.id.store(id, Ordering::Release);
        Some(team)
    }

    /// Leaves the innermost parallel region that the thread has started, and stores that its team has ended.
    pub(crate) fn end_team(self) {
        let (thread, recorder) = (self.thread, self.events.recorder);
        let depth = thread.team_depth.load(RELAXED).saturating_sub(1);
        thread.team_depth.store(depth, RELAXED);
        let Some(place) = self.find(&[constructs::PARALLEL]) else {
            return;
        };
        self.leave_to(place + 1);
        thread.depth.store(place, Ordering::Release);
        if let (_, Some(region)) = thread.frame(place) {
            recorder.leave(region);
        }
        if let Some(team) = thread.teams.get(depth) {
            let (id, tick) = (team.id.load(RELAXED), recorder.tick());
            team.earlier(id).set(id, tick);
            team.ended.set(id, tick);
        }
    }

    /// Begins what the thread does as a member of a team that another one has started, as the one of this number.
    pub(crate) fn join(self, team: Option<&'static Team>, number: usize) {
        let thread = self.thread;
        // What was not reported of the team before.
        if thread.member_of.load(RELAXED) != 0 {
            self.leave_to(0);
        }
        let Some(team) = team else {
            return self.enter(constructs::PARALLEL, 0);
        };
        thread
            .member_of
            .store(team.id.load(Ordering::Acquire), RELAXED);
        let place = std::ptr::from_ref(team).cast_mut();
        thread.team.store(place, RELAXED);
        if thread.path[0].load(RELAXED) == 0 {
            self.name(team, number);
        }
        self.enter(constructs::PARALLEL, team.address.load(RELAXED));
    }

    /// Ends what the thread does as a member of a team: when the team has ended, if that is known.
    pub(crate) fn part(self) {
        if let Some(place) = self.find(&[constructs::PARALLEL]) {
            self.leave_to(place);
        }
        self.thread.member_of.store(0, RELAXED);
    }

    /// Names the thread by its number, after those of the thread that has started its team.
    #[cold]
    fn name(self, team: &Team, number: usize) {
        // SAFETY: null, or a state, which is never freed.
        let owner = unsafe { team.owner.load(RELAXED).as_ref() };
        let owner = owner.map(|owner| {
            if owner.path[0].load(RELAXED) == 0 {
                // A thread of the program. Members of the first one's teams have their numbers alone.
                let root = ROOTS.fetch_add(1, RELAXED);
                let mut path = Path::default();
                let _ = match root {
                    0 => path.as_mut_slice().write_all(b"."),
                    _ => write!(path.as_mut_slice(), "r{root}."),
                };
                owner.set_path(&path);
            }
            owner.path()
        });
        let owner = owner.unwrap_or_default();
        let text = |path: &Path| {
            let length = path
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(path.len());
            String::from_utf8_lossy(&path[..length]).into_owned()
        };
        let owner = text(&owner);
        let mut before = match owner.strip_suffix('.') {
            Some("") => String::new(),
            Some(root) => format!("{root}."),
            None => format!("{owner}."),
        };
        // In the teams between, the thread that has started this one has number 0.
        before += &"0.".repeat(team.level.load(RELAXED));
        let mut path = Path::default();
        let _ = write!(path.as_mut_slice(), "{before}{number}");
        self.thread.set_path(&path);
        let name = format!("OMP {}", text(&path));
        self.events.recorder.name_thread(name.as_bytes());
    }

    /// Has the thread execute a task: leaves those that are inside of it, and enters it if the thread is not in it. `None` means that of
    /// the team.
    pub(crate) fn switch(self, task: Option<Task>) {
        let thread = self.thread;
        let number = task.map_or(0, |task| task.number());
        let depth = thread.depth.load(RELAXED);
        // The innermost team: its tasks are inside.
        let mut tasks = (0..depth).rev().map(|place| (place, thread.frame(place).0));
        let mut inside = 0;
        let is_there = loop {
            match tasks.next() {
                Some((place, constructs::TASK)) => {
                    if thread.frames[place].task.load(RELAXED) == number {
                        break true;
                    }
                    inside += 1;
                }
                Some((_, constructs::PARALLEL)) | None => break false,
                Some(_) => {}
            }
        };
        if is_there || task.is_none() {
            for _ in 0..inside {
                if let Some(place) = self.find(&[constructs::TASK]) {
                    let number = thread.frames[place].task.load(RELAXED);
                    let end = &self.events.end;
                    self.leave_with(&[constructs::TASK], end, (number, SWITCH));
                }
            }
        }
        if let Some(task) = task.filter(|_| !is_there) {
            let region = Some(task.region());
            let begin = &self.events.begin;
            self.enter_with(constructs::TASK, region, number, begin, (number,));
        }
    }

    /// Ends what the thread executes of a task.
    pub(crate) fn end_task(self, task: Task, status: u32) {
        let (thread, end) = (self.thread, &self.events.end);
        let number = task.number();
        let is_in = self
            .find(&[constructs::TASK])
            .is_some_and(|place| thread.frames[place].task.load(RELAXED) == number);
        if is_in {
            self.leave_with(&[constructs::TASK], end, (number, status));
        } else {
            self.events.recorder.raise(end, (number, status));
        }
    }

    /// Creates a task: its region is at this address. `None` if no room is left.
    pub(crate) fn new_task(self, address: usize) -> Option<Task> {
        let thread = self.thread;
        let region = region_of(self.events.recorder, constructs::TASK, address)?;
        let started = thread.started.load(RELAXED) + 1;
        thread.started.store(started, RELAXED);
        let number =
            (thread.number.load(RELAXED) as u32) << 20 | (started as u32 & ((1 << 20) - 1));
        Some(Task(u64::from(region.get() + 1) << 32 | u64::from(number)))
    }
}

/// A task: the number of its region + 1 in the high half, its own in the low one. Numbers repeat after a million tasks of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Task(u64);

impl Task {
    /// Returns a task by what was stored with it. `None` means that of a team.
    pub(crate) fn of(stored: u64) -> Option<Self> {
        (stored >> 32 != 0).then_some(Self(stored))
    }

    pub(crate) const fn stored(self) -> u64 {
        self.0
    }

    pub(crate) const fn number(self) -> u64 {
        self.0 & 0xffff_ffff
    }

    const fn region(self) -> RegionId {
        RegionId::new((self.0 >> 32) as u32 - 1)
    }
}

/// Leaves what threads have entered, when the recording is about to be finished.
fn finish() {
    if !IS_ON.swap(false, Ordering::AcqRel) {
        return;
    }
    // Other recorders are finished, too: a panic must not prevent that.
    let _ = std::panic::catch_unwind(|| {
        let Some(events) = events::get() else { return };
        let (recorder, now) = (events.recorder, events.recorder.tick());
        let of_recorder = |thread: &&Thread| thread.recorder.load(RELAXED) == recorder.number();
        let estimated = threads().filter(of_recorder);
        let mut estimated: u64 = estimated.map(|thread| thread.estimated.load(RELAXED)).sum();
        for thread in threads().filter(|thread| thread.is_used.load(Ordering::Acquire)) {
            let depth = thread.depth.swap(0, Ordering::AcqRel).min(MOST_FRAMES);
            if depth == 0 || thread.recorder.load(RELAXED) != recorder.number() {
                continue;
            }
            let regions = (0..depth).rev().filter_map(|place| thread.frame(place).1);
            if std::ptr::eq(attached().cast(), thread) {
                regions.for_each(|region| recorder.leave(region));
                continue;
            }
            let id = thread.system_id.load(RELAXED) as u32;
            let tick = thread.ended_tick().unwrap_or(now);
            let stream = recorder.open_thread_stream(events.ends, id, b"", tick);
            if let Some(stream) = stream {
                estimated += depth as u64;
                regions.for_each(|region| stream.leave(region, tick));
            }
        }
        if estimated != 0 {
            let _ = recorder.add_property("openmp.estimated-ends", &estimated.to_string());
        }
    });
}

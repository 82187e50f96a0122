//! Which thread is inside which callback.
//! Freeing a registration depends on this, and no thread waits.
//!
//! A thread that is about to call back stores that in a private frame, *then* checks that the
//! registration is still live and the callback is still the one it found, and calls. A thread that
//! ends a registration, or removes a callback, does that first, *then* reads all frames. So either
//! the caller finds the end, or the ender finds the caller. (This is the scheme of hazard
//! pointers.) Between the caller's two steps there is no fence of the processor: the ender, which
//! is rare, puts one into all threads (`membarrier`).
//!
//! The end of a registration belongs to the thread that finds it ending and finds no frame left
//! that names it: the ender, or the last caller when it leaves. Exactly one of them gets it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize};

use super::types::Safety;
use crate::id_pool::IdPool;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::thread::THREAD;

/// Most threads with private frames.
const LANES: usize = 1024;
/// Frames of a thread: calls back that are nested, in callbacks and signal handlers.
const DEPTH: usize = 4;
/// Frames for threads without a private one.
const SHARED: usize = 64;

/// Marks a thread as inside a callback of the registration `key`.
/// 0 means that the frame is free.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    key: AtomicU64,
    /// Address of the callback.
    entry: AtomicU64,
    pub(crate) progress: Progress,
}

/// What ends something that was left: with its owner, and what its context requires.
pub(crate) type End = fn(frame: &Frame, owner: *const (), required: Safety);

/// Something to be run inside a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    /// Ends it if it is left.
    pub(crate) end: End,
    /// Null, or valid for ever.
    pub(crate) owner: *const (),
    pub(crate) required: Safety,
    /// Whether the code that runs is in another object than this crate's: then a walk through the callers shows
    /// whether it was left.
    pub(crate) is_elsewhere: bool,
}

/// What runs inside a frame, for its thread: see [`in_progress`](super::in_progress). Only valid while it runs.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Where the thread's stack was.
    at: AtomicUsize,
    /// The frame around, or null.
    before: AtomicPtr<()>,
    owner: AtomicPtr<()>,
    /// The address of an [`End`].
    end: AtomicPtr<()>,
    required: AtomicU8,
    is_elsewhere: AtomicBool,
}

impl Progress {
    #[inline(always)]
    pub(crate) fn begin(&self, at: usize, before: *const (), running: Running) {
        self.at.store(at, Ordering::Relaxed);
        self.before.store(before.cast_mut(), Ordering::Relaxed);
        self.owner
            .store(running.owner.cast_mut(), Ordering::Relaxed);
        self.end.store(running.end as *mut (), Ordering::Relaxed);
        self.required
            .store(running.required as u8, Ordering::Relaxed);
        self.is_elsewhere
            .store(running.is_elsewhere, Ordering::Relaxed);
    }

    pub(crate) fn at(&self) -> usize {
        self.at.load(Ordering::Relaxed)
    }

    /// Returns the frame around, or null, and what runs.
    pub(crate) fn get(&self) -> (*const (), Running) {
        let end = self.end.load(Ordering::Relaxed);
        let required = usize::from(self.required.load(Ordering::Relaxed));
        let running = Running {
            #[expect(unsafe_code, reason = "functions are kept as addresses")]
            // SAFETY: only `begin` stores here, and only functions of this type; a frame that is asked has begun.
            end: unsafe { std::mem::transmute::<*mut (), End>(end) },
            owner: self.owner.load(Ordering::Relaxed),
            required: Safety::ALL.get(required).copied().unwrap_or(Safety::None),
            is_elsewhere: self.is_elsewhere.load(Ordering::Relaxed),
        };
        (self.before.load(Ordering::Relaxed), running)
    }
}

/// Keeps the compiler from moving loads and stores across it.
/// The other side's [`heavy_fence`] does the same for the processor.
#[inline(always)]
fn light_fence() {
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Makes all threads pass a fence.
pub(crate) fn heavy_fence() {
    #[cfg(not(loom))]
    crate::sys::barrier_in_all_threads();
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

impl Frame {
    #[inline]
    fn is_free(&self) -> bool {
        self.key.load(Ordering::Relaxed) == 0
    }

    /// Takes one of the thread's private frames.
    /// A signal handler that interrupts this finds it taken, or has released it before it returns:
    /// the key is stored first.
    #[inline]
    pub(crate) fn enter(&self, key: u64) {
        self.key.store(key, Ordering::Relaxed);
    }

    /// Takes a frame that other threads want, too.
    fn try_enter(&self, key: u64) -> bool {
        let (order, seen) = (Ordering::SeqCst, Ordering::Relaxed);
        self.key.compare_exchange(0, key, order, seen).is_ok()
    }

    /// Announces the callback.
    /// Loads after this call decide whether it may be called.
    #[inline]
    pub(crate) fn announce(&self, entry: u64) {
        self.entry.store(entry, Ordering::Relaxed);
        light_fence();
    }

    /// Releases the frame.
    /// Loads after this call decide whether the registration is ending.
    #[inline]
    pub(crate) fn leave(&self) {
        // Release: what the callback did happens before the end.
        self.entry.store(0, Ordering::Release);
        self.key.store(0, Ordering::Release);
        light_fence();
    }

    /// Returns the key of what its thread is inside, or 0.
    pub(crate) fn key(&self) -> u64 {
        self.key.load(Ordering::Relaxed)
    }

    pub(crate) fn holds_key(&self, key: u64) -> bool {
        self.key.load(Ordering::Acquire) == key
    }

    pub(crate) fn holds_entry(&self, entry: u64) -> bool {
        self.entry.load(Ordering::Acquire) == entry
    }
}

/// A registration's life, in one word: its key and its state.
#[derive(Debug, Default)]
pub(crate) struct Life(AtomicU64);

const LIVE: u64 = 1;
const ENDING: u64 = 2;
const ENDED: u64 = 3;

impl Life {
    /// Returns the key of the registration that is live.
    #[inline]
    pub(crate) fn live_key(&self) -> Option<u64> {
        let state = self.0.load(Ordering::Acquire);
        (state & 3 == LIVE).then_some(state >> 2)
    }

    #[inline]
    pub(crate) fn is_live(&self, key: u64) -> bool {
        self.0.load(Ordering::Acquire) == key << 2 | LIVE
    }

    #[inline]
    pub(crate) fn is_ending(&self, key: u64) -> bool {
        self.0.load(Ordering::Acquire) == key << 2 | ENDING
    }

    /// Returns whether it belongs to no registration.
    pub(crate) fn is_free(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    pub(crate) fn begin(&self, key: u64) {
        self.0.store(key << 2 | LIVE, Ordering::Release);
    }

    /// Begins the end; true for the one call that did.
    pub(crate) fn begin_end(&self, key: u64) -> bool {
        let (from, to) = (key << 2 | LIVE, key << 2 | ENDING);
        let (order, seen) = (Ordering::SeqCst, Ordering::Relaxed);
        self.0.compare_exchange(from, to, order, seen).is_ok()
    }

    /// Ends an ending registration, if no frame names it any more.
    /// Returns `true` to the one caller that may now do what follows the last callback.
    pub(crate) fn try_end<'a>(
        &self,
        key: u64,
        mut frames: impl Iterator<Item = &'a Frame>,
    ) -> bool {
        // Of two threads that leave concurrently, one finds the other's frame empty.
        fence(Ordering::SeqCst);
        if frames.any(|frame| frame.holds_key(key)) {
            return false;
        }
        let (from, to) = (key << 2 | ENDING, key << 2 | ENDED);
        let (order, seen) = (Ordering::SeqCst, Ordering::Relaxed);
        self.0.compare_exchange(from, to, order, seen).is_ok()
    }

    /// Frees the place for the next registration.
    pub(crate) fn release(&self) {
        self.0.store(0, Ordering::Release);
    }
}

/// The frames of a thread, away from those of others.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ThreadFrames([Frame; DEPTH]);

/// All frames of the process.
#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Box<[ThreadFrames]>,
    shared: Box<[Frame]>,
    ids: IdPool,
    /// How many lanes were ever used.
    used: AtomicU64,
}

/// Returns the process's lanes: a thread has one, whatever it calls back for.
pub(crate) fn lanes() -> &'static Lanes {
    static ALL: OnceLock<Lanes> = OnceLock::new();
    ALL.get_or_init(|| {
        crate::sys::register_barrier();
        crate::thread_streams::prepare();
        Lanes {
            lanes: (0..LANES).map(|_| ThreadFrames::default()).collect(),
            shared: (0..SHARED).map(|_| Frame::default()).collect(),
            ids: IdPool::new(LANES),
            used: AtomicU64::new(0),
        }
    })
}

impl Lanes {
    /// Takes a frame for the calling thread. Returns `None` when all are taken.
    #[inline(always)]
    pub(crate) fn enter(&'static self, key: u64) -> Option<&'static Frame> {
        let lane = THREAD
            .with(|thread| thread.lane.get())
            .cast::<ThreadFrames>();
        #[expect(
            unsafe_code,
            reason = "benches/event_interface shows what a raise costs"
        )]
        // SAFETY: null, or a lane of the process's one `Lanes`, which stay for ever.
        if let Some(ThreadFrames(frames)) = unsafe { lane.as_ref() }
            && frames[0].is_free()
        {
            frames[0].enter(key);
            return Some(&frames[0]);
        }
        self.enter_elsewhere(key, lane)
    }

    /// Takes a frame for the calling thread inside another callback, or when it has no lane yet.
    #[cold]
    #[inline(never)]
    fn enter_elsewhere(
        &'static self,
        key: u64,
        lane: *const ThreadFrames,
    ) -> Option<&'static Frame> {
        let lane = self.number_of(lane).or_else(|| self.claim());
        let mut own = lane.map_or(&[][..], |lane| &self.lanes[lane].0).iter();
        if let Some(frame) = own.find(|frame| frame.is_free()) {
            frame.enter(key);
            return Some(frame);
        }
        self.shared.iter().find(|frame| frame.try_enter(key))
    }

    /// Returns the number of a lane, or `None` for null.
    fn number_of(&self, lane: *const ThreadFrames) -> Option<usize> {
        let distance = lane.addr().checked_sub(self.lanes.as_ptr().addr())?;
        Some(distance / size_of::<ThreadFrames>()).filter(|number| *number < self.lanes.len())
    }

    /// Claims a lane for the calling thread, if its end can be reported.
    fn claim(&self) -> Option<usize> {
        if !crate::thread::is_recorded() || !crate::sys::at_thread_end() {
            return None;
        }
        let lane = self.ids.claim()?;
        self.used.fetch_max(lane as u64 + 1, Ordering::SeqCst);
        // A handler that interrupts this gets a separate lane, and keeps it until then.
        let here = std::ptr::from_ref(&self.lanes[lane]);
        let before = THREAD.with(|thread| thread.lane.replace(here.cast()));
        if let Some(before) = self.number_of(before.cast()) {
            self.ids.release(before);
        }
        Some(lane)
    }

    /// Releases the lane of a thread that ends.
    pub(crate) fn release(&self, lane: *const ThreadFrames) {
        if let Some(lane) = self.number_of(lane) {
            self.ids.release(lane);
        }
    }

    /// Returns all frames that may be taken.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &Frame> {
        let used = self.used.load(Ordering::SeqCst) as usize;
        let own = self.lanes[..used].iter().flat_map(|lane| &lane.0);
        own.chain(&self.shared)
    }
}

/// Every interleaving of a few threads: `RUSTFLAGS="--cfg loom" cargo test -p annals-recorder --lib
/// models`.
#[cfg(all(test, loom))]
mod models {
    #![expect(unsafe_code, reason = "loom checks that no two accesses meet")]

    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    use loom::thread;

    use super::*;

    const KEY: u64 = 5;

    /// Runs every interleaving with up to three preemptions. More take hours, and find no more
    /// errors.
    fn model(work: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(work);
    }

    struct World {
        life: Life,
        frames: [Frame; 3],
        /// Data that callbacks use, and that the free-callback frees.
        resource: UnsafeCell<bool>,
        /// Written by the thread that frees, read by the thread that ends.
        said: UnsafeCell<bool>,
        ends: AtomicU64,
    }

    impl World {
        fn new() -> Arc<Self> {
            let life = Life::default();
            life.begin(KEY);
            Arc::new(Self {
                life,
                frames: Default::default(),
                said: UnsafeCell::new(false),
                resource: UnsafeCell::new(true),
                ends: AtomicU64::new(0),
            })
        }

        fn raise(&self, number: usize) {
            let Some(key) = self.life.live_key() else {
                return;
            };
            let frame = &self.frames[number];
            frame.enter(key);
            frame.announce(1);
            if self.life.is_live(key) {
                // SAFETY: the registration is live; that is what is checked.
                self.resource.with(|is_there| assert!(unsafe { *is_there }));
            }
            frame.leave();
            if self.life.is_ending(key) {
                self.try_end();
            }
        }

        /// Frees like `Slot::free`, inside a private frame.
        fn free(&self, number: usize) -> bool {
            let frame = &self.frames[number];
            frame.enter(KEY);
            let is_first = self.life.begin_end(KEY);
            if is_first {
                // SAFETY: no thread ends it before this frame is left; that is what is checked.
                self.said.with_mut(|is_said| unsafe { *is_said = true });
                heavy_fence();
            }
            frame.leave();
            if self.life.is_ending(KEY) {
                self.try_end();
            }
            is_first
        }

        fn try_end(&self) {
            if self.life.try_end(KEY, self.frames.iter()) {
                // SAFETY: no thread is inside any more; that is what is checked.
                self.resource
                    .with_mut(|is_there| unsafe { *is_there = false });
                // SAFETY: no thread is inside any more; that is what is checked.
                self.said.with(|is_said| assert!(unsafe { *is_said }));
                self.ends.fetch_add(1, Ordering::Relaxed);
                self.life.release();
            }
        }
    }

    /// Two threads call back while a third frees: the free callback runs once, after the last of
    /// them.
    #[test]
    fn no_callback_comes_behind_the_free_callback() {
        model(|| {
            let world = World::new();
            let threads = [0, 1].map(|number| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.raise(number))
            });
            assert!(world.free(2));
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(world.ends.load(Ordering::Relaxed), 1);
            assert!(world.life.is_free());
        });
    }

    /// Two threads free concurrently, and one calls back.
    #[test]
    fn a_registration_ends_once() {
        model(|| {
            let world = World::new();
            let raiser = Arc::clone(&world);
            let raiser = thread::spawn(move || raiser.raise(0));
            let other = Arc::clone(&world);
            let other = thread::spawn(move || other.free(1));
            let mine = world.free(2);
            raiser.join().unwrap();
            assert_ne!(other.join().unwrap(), mine);
            assert_eq!(world.ends.load(Ordering::Relaxed), 1);
        });
    }

    /// A callback is replaced while it may be called: it is dropped after its last call, or kept.
    #[test]
    fn a_replaced_callback_is_dropped_behind_its_last_call() {
        model(|| {
            let frame = Arc::new(Frame::default());
            let current = Arc::new(AtomicU64::new(1));
            let first = Arc::new(UnsafeCell::new(true));
            let raiser = {
                let (frame, current, first) =
                    (Arc::clone(&frame), Arc::clone(&current), Arc::clone(&first));
                thread::spawn(move || {
                    frame.enter(KEY);
                    let entry = current.load(Ordering::Acquire);
                    frame.announce(entry);
                    if current.load(Ordering::Acquire) == entry && entry == 1 {
                        // SAFETY: still the current one; that is what is checked.
                        first.with(|is_there| assert!(unsafe { *is_there }));
                    }
                    frame.leave();
                })
            };
            current.store(2, Ordering::SeqCst);
            heavy_fence();
            if !frame.holds_entry(1) {
                // SAFETY: no thread is inside, and none can find it any more; that is what is
                // checked.
                first.with_mut(|is_there| unsafe { *is_there = false });
            }
            raiser.join().unwrap();
        });
    }
}

//! Registrations: the callbacks for an event type, perhaps bound to an object (MPI 4.1 §16.3.8.4).
#![expect(
    unsafe_code,
    reason = "callbacks are reached through pointers that frames guard: benches/event_interface shows what a raise costs"
)]

use std::fmt;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::in_progress::{self, keep_panic};
use super::instance::Instance;
use super::lanes::{End, Frame, Lanes, Life, Running, heavy_fence, lanes};
use super::source::SourceState;
use super::table::Table;
use super::types::{Info, Safety};

/// A registration handle.
/// Freed handles, and those of other runtimes, are recognised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Registration(u64);

const KEY_BITS: u32 = 40;

impl Registration {
    pub(crate) const fn new(slot: usize, key: u64) -> Self {
        Self((slot as u64) << KEY_BITS | key)
    }

    /// Returns the handle as a number, for other languages; never 0.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the handle that has this number; any number is safe to use.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) const fn slot(self) -> usize {
        (self.0 >> KEY_BITS) as usize
    }

    pub(crate) const fn key(self) -> u64 {
        self.0 & ((1 << KEY_BITS) - 1)
    }
}

/// Returns a key that no registration had before, or `None` when all were used.
pub(crate) fn next_key() -> Option<u64> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let key = NEXT.fetch_add(1, Ordering::Relaxed);
    (key < 1 << KEY_BITS).then_some(key)
}

type EventCall = Box<dyn Fn(&Instance<'_>, Registration, Safety) + Send + Sync>;
type DroppedCall = Box<dyn Fn(&Dropped) + Send + Sync>;

/// The callback for an instance: called with the instance, the registration, and what the context
/// requires.
pub struct Callback {
    call: EventCall,
    user_data: usize,
    is_elsewhere: bool,
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callback").finish_non_exhaustive()
    }
}

impl Callback {
    /// Creates a callback.
    /// It runs in the threads that raise: in several concurrently, and also nested in itself. Its panic is resumed in
    /// the raise, when the other callbacks were called.
    pub fn new(call: impl Fn(&Instance<'_>, Registration, Safety) + Send + Sync + 'static) -> Self {
        let call = move |instance: &Instance<'_>, registration, required| {
            keep_panic(|| call(instance, registration, required));
        };
        Self::foreign(call, false)
    }

    /// Creates a callback for a function of another language, which may leave it in its ways. `is_elsewhere`: whether its
    /// code is in another object than this crate's.
    #[doc(hidden)]
    pub fn foreign(
        call: impl Fn(&Instance<'_>, Registration, Safety) + Send + Sync + 'static,
        is_elsewhere: bool,
    ) -> Self {
        Self {
            call: Box::new(call),
            user_data: 0,
            is_elsewhere,
        }
    }

    /// Adds a number that the dropped handler gets where this callback would be called: the address
    /// of a program's own data, in other languages.
    #[must_use]
    pub fn user_data(mut self, user_data: usize) -> Self {
        self.user_data = user_data;
        self
    }
}

/// The argument of a dropped handler: instances of one source that a registration did not get since
/// the last call (MPI 4.1 §16.3.8.5).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Dropped {
    /// How many, all together; the largest possible value when there were more.
    pub count: u64,
    /// Of these, raised where no callback is registered for what the context requires, by level.
    pub no_callback: [u64; 4],
    /// Of these, reported by the source, which lost them itself.
    pub reported: u64,
    /// Of these, lost because there was no room to keep them until they could be delivered.
    pub undelivered: u64,
    /// Of which registration.
    pub registration: Registration,
    /// Index of the source.
    pub source: i32,
    /// The safety that the context of this call requires.
    pub required: Safety,
    /// The user data of the callback that would be called in this context.
    pub user_data: usize,
}

/// Why a registration did not get an instance.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lost {
    NoCallback(Safety),
    Reported,
    Undelivered,
}

impl Lost {
    const fn index(self) -> usize {
        match self {
            Self::NoCallback(required) => required.index(),
            Self::Reported => 4,
            Self::Undelivered => 5,
        }
    }
}

/// Counts of one registration and source, by [`Lost`].
#[derive(Debug, Default)]
pub(crate) struct DropRow([AtomicU64; 6]);

impl DropRow {
    fn is_empty(&self) -> bool {
        self.0
            .iter()
            .all(|count| count.load(Ordering::Relaxed) == 0)
    }

    fn add(&self, lost: Lost, count: u64) {
        let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
        let add = |sum: u64| Some(sum.saturating_add(count));
        let _ = self.0[lost.index()].fetch_update(order, seen, add);
    }

    fn take(&self) -> [u64; 6] {
        std::array::from_fn(|index| self.0[index].swap(0, Ordering::AcqRel))
    }
}

type FreeCall = Box<dyn Fn(Registration, Safety) + Send + Sync>;

enum Call {
    Event(EventCall),
    Dropped(DroppedCall),
    Free(FreeCall),
}

struct Entry {
    call: Call,
    user_data: usize,
    /// See [`Running`].
    is_elsewhere: bool,
}

/// A function that runs after the last callback of a registration, with two numbers, so that a
/// signal handler can set it.
pub(crate) type FreeFunction = fn(Registration, Safety, [usize; 2]);

fn call_parked(registration: Registration, required: Safety, [address, _]: [usize; 2]) {
    let entry = std::ptr::with_exposed_provenance::<Entry>(address);
    // SAFETY: made by `Slot::park`, and no thread drops what a registration has while that is
    // ending.
    let entry = unsafe { &*entry };
    if let Call::Free(call) = &entry.call {
        call(registration, required);
    }
}

/// The parts of a registration that change under a lock.
#[derive(Default)]
struct Book {
    info: Info,
    callback_info: [Info; 4],
    /// The current callbacks, and former ones that may still be running.
    entries: Vec<*mut Entry>,
    /// Functions that may be called at the end of a registration.
    /// Kept until it is over, whichever thread ends it.
    parked: Vec<*mut Entry>,
}

// SAFETY: the entries are `Send` and `Sync`; the pointers own them.
unsafe impl Send for Book {}

/// A place for one registration of an event type after the other.
pub(crate) struct Slot {
    pub(crate) index: usize,
    pub(crate) event_type: usize,
    /// Whether it is of the process's runtime, and stays for ever.
    is_of_process: bool,
    pub(crate) life: Life,
    object: AtomicU64,
    /// The runtime's stamp when the registration was allocated.
    since: AtomicU64,
    /// By their own level.
    callbacks: [AtomicPtr<Entry>; 4],
    /// By what a context requires: the callback with the lowest level that it allows. Changed with
    /// the book open, as `callbacks` is.
    chosen: [AtomicPtr<Entry>; 4],
    handler: AtomicPtr<Entry>,
    pub(crate) drops: Table<DropRow>,
    free_function: AtomicPtr<()>,
    free_data: [AtomicUsize; 2],
    book: Mutex<Book>,
    pub(crate) next: OnceLock<Arc<Slot>>,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("index", &self.index)
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let book = self.book.get_mut().unwrap_or_else(PoisonError::into_inner);
        for entry in book.entries.drain(..).chain(book.parked.drain(..)) {
            // SAFETY: made by `Box::into_raw`; a raising thread holds the slot's event type, so
            // none is raising now.
            drop(unsafe { Box::from_raw(entry) });
        }
    }
}

/// Ends a callback that was left.
fn end_callback(frame: &Frame, slot: *const (), required: Safety) {
    let key = frame.key();
    // SAFETY: null, or the slot of the process's runtime that the callback was of: it stays for ever.
    match unsafe { slot.cast::<Slot>().as_ref() } {
        Some(slot) => slot.leave(frame, key, required),
        None => frame.leave(),
    }
}

/// Ends a free callback that was left.
fn end_free(frame: &Frame, slot: *const (), _required: Safety) {
    frame.leave();
    // SAFETY: null, or the slot of the process's runtime that the callback was of: it stays for ever.
    if let Some(slot) = unsafe { slot.cast::<Slot>().as_ref() } {
        slot.life.release();
    }
}

impl Slot {
    pub(crate) fn new(index: usize, event_type: usize, is_of_process: bool) -> Self {
        Self {
            index,
            event_type,
            is_of_process,
            life: Life::default(),
            object: AtomicU64::new(0),
            since: AtomicU64::new(0),
            callbacks: [const { AtomicPtr::new(null_mut()) }; 4],
            chosen: [const { AtomicPtr::new(null_mut()) }; 4],
            handler: AtomicPtr::new(null_mut()),
            drops: Table::default(),
            free_function: AtomicPtr::new(null_mut()),
            free_data: [const { AtomicUsize::new(0) }; 2],
            book: Mutex::default(),
            next: OnceLock::new(),
        }
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a registration.
    /// The slot is free, and no other thread begins one. `callback_info` contains the hints that
    /// callbacks have.
    pub(crate) fn begin(
        &self,
        key: u64,
        object: u64,
        since: u64,
        info: Info,
        callback_info: &Info,
        lanes: &Lanes,
    ) -> Registration {
        self.collect(lanes);
        let mut book = self.book();
        book.info = info;
        book.callback_info = std::array::from_fn(|_| callback_info.clone());
        drop(book);
        for row in self.drops.iter() {
            row.take();
        }
        self.object.store(object, Ordering::Release);
        self.since.store(since, Ordering::Release);
        self.life.begin(key);
        Registration::new(self.index, key)
    }

    pub(crate) fn with_info<T>(&self, work: impl FnOnce(&mut Info) -> T) -> T {
        work(&mut self.book().info)
    }

    pub(crate) fn with_callback_info<T>(
        &self,
        level: Safety,
        work: impl FnOnce(&mut Info) -> T,
    ) -> T {
        work(&mut self.book().callback_info[level.index()])
    }

    pub(crate) fn has_callback(&self, level: Safety) -> bool {
        !self.callbacks[level.index()]
            .load(Ordering::Acquire)
            .is_null()
    }

    /// Puts a callback in its place, or takes the one away that is there.
    pub(crate) fn set_callback(
        &self,
        level: Safety,
        info: Info,
        callback: Option<Callback>,
        lanes: &Lanes,
    ) {
        let entry = callback.map(|callback| Entry {
            call: Call::Event(callback.call),
            user_data: callback.user_data,
            is_elsewhere: callback.is_elsewhere,
        });
        let mut book = self.book();
        book.callback_info[level.index()] = info;
        Self::put(&self.callbacks[level.index()], entry, &mut book);
        for (place, from) in self.chosen.iter().zip(0..) {
            let fitting = self.callbacks[from..].iter();
            let mut fitting = fitting.map(|place| place.load(Ordering::SeqCst));
            let entry = fitting.find(|entry| !entry.is_null());
            place.store(entry.unwrap_or(null_mut()), Ordering::SeqCst);
        }
        drop(book);
        self.collect_some(lanes);
    }

    pub(crate) fn set_handler(
        &self,
        handler: Option<impl Fn(&Dropped) + Send + Sync + 'static>,
        is_elsewhere: bool,
        lanes: &Lanes,
    ) {
        let is_none = handler.is_none();
        let entry = handler.map(|handler| Entry {
            call: Call::Dropped(Box::new(handler)),
            user_data: 0,
            is_elsewhere,
        });
        Self::put(&self.handler, entry, &mut self.book());
        if is_none {
            for row in self.drops.iter() {
                row.take();
            }
        }
        self.collect_some(lanes);
    }

    /// Keeps a function to be called at the end.
    /// It is dropped some time after that, and not in a signal handler that happens to be the last.
    pub(crate) fn park(&self, call: FreeCall) -> (FreeFunction, [usize; 2]) {
        let entry = Entry {
            call: Call::Free(call),
            user_data: 0,
            is_elsewhere: false,
        };
        let entry = Box::into_raw(Box::new(entry));
        self.book().parked.push(entry);
        (call_parked, [entry.expose_provenance(), 0])
    }

    fn put(place: &AtomicPtr<Entry>, entry: Option<Entry>, book: &mut Book) {
        let entry = entry.map_or(null_mut(), |entry| Box::into_raw(Box::new(entry)));
        if !entry.is_null() {
            book.entries.push(entry);
        }
        place.swap(entry, Ordering::SeqCst);
    }

    /// Drops former callbacks when there are many.
    fn collect_some(&self, lanes: &Lanes) {
        const MANY: usize = 16;
        if self.book().entries.len() >= MANY {
            self.collect(lanes);
        }
    }

    /// Drops former callbacks that no thread is in.
    pub(crate) fn collect(&self, lanes: &Lanes) {
        let mut book = self.book();
        let is_live = self.life.live_key().is_some();
        if !is_live && !self.life.is_free() {
            // The end is not over, and what it calls is among these.
            return;
        }
        let is_current = |entry: *mut Entry| {
            // What is chosen is among the callbacks, while the book is open.
            let mut places = self.callbacks.iter().chain([&self.handler]);
            is_live && places.any(|place| place.load(Ordering::SeqCst) == entry)
        };
        let has_parked = !is_live && !book.parked.is_empty();
        if !has_parked && book.entries.iter().all(|entry| is_current(*entry)) {
            return;
        }
        if !is_live {
            // These are not called any more: a thread that still reads them finds the registration
            // over.
            let places = self.callbacks.iter().chain(&self.chosen);
            for place in places.chain([&self.handler]) {
                place.store(null_mut(), Ordering::SeqCst);
            }
        }
        heavy_fence();
        // A finished registration cannot be freed again: other callbacks that were parked for that
        // are not called any more.
        let mut former = match is_live {
            true => Vec::new(),
            false => std::mem::take(&mut book.parked),
        };
        book.entries.retain(|entry| {
            let address = entry.expose_provenance() as u64;
            let is_used = || lanes.frames().any(|frame| frame.holds_entry(address));
            let is_kept = is_current(*entry) || is_used();
            if !is_kept {
                former.push(*entry);
            }
            is_kept
        });
        // What is dropped may call back into this slot.
        drop(book);
        for entry in former {
            // SAFETY: made by `Box::into_raw`; in no place and in no frame, and a frame that
            // announces it from here on does not find it in its place (see `lanes`). Off the list,
            // so dropped once.
            drop(unsafe { Box::from_raw(entry) });
        }
    }

    /// Leaves a frame.
    #[inline]
    fn leave(&self, frame: &Frame, key: u64, required: Safety) {
        frame.leave();
        if self.life.is_ending(key) {
            self.try_end(key, required);
        }
    }

    /// Protects what `find` finds while the frame is held. Returns `None` when it finds nothing or the
    /// registration is ending.
    #[inline]
    fn protect(&self, frame: &Frame, key: u64, find: impl Fn() -> *mut Entry) -> Option<&Entry> {
        loop {
            let entry = find();
            frame.announce(entry.expose_provenance() as u64);
            if !self.life.is_live(key) {
                return None;
            }
            if find() == entry {
                // SAFETY: null, or announced in a frame and then still in its place: a thread that
                // removes it finds the frame (`Slot::collect`), which is held until the caller leaves it.
                return unsafe { entry.as_ref() };
            }
        }
    }

    /// Returns how something of this slot runs inside a frame.
    #[inline]
    fn running(&self, end: End, required: Safety, is_elsewhere: bool) -> Running {
        let owner = match self.is_of_process {
            true => std::ptr::from_ref(self).cast(),
            false => null(),
        };
        Running {
            end,
            owner,
            required,
            is_elsewhere,
        }
    }

    /// Returns the callback with the lowest level that the context allows.
    #[inline]
    fn callback_for(&self, required: Safety) -> *mut Entry {
        self.chosen[required.index()].load(Ordering::Acquire)
    }

    /// Returns the highest level that has a callback.
    fn highest(&self) -> Option<usize> {
        let is_there = |place: &AtomicPtr<Entry>| !place.load(Ordering::Acquire).is_null();
        self.callbacks.iter().rposition(is_there)
    }

    /// Calls back for an instance, or counts it as dropped; not if the registration was made after
    /// `stamp`.
    #[inline(always)]
    pub(crate) fn deliver(
        &self,
        instance: &Instance<'_>,
        required: Safety,
        is_bound: bool,
        stamp: u64,
        lanes: &'static Lanes,
    ) {
        let Some(key) = self.life.live_key() else {
            return;
        };
        let Some(frame) = in_progress::enter(lanes, key) else {
            self.count_lost(instance.source, Lost::Undelivered, 1);
            return;
        };
        let is_for = (stamp == u64::MAX || self.since.load(Ordering::Acquire) <= stamp)
            && (!is_bound
                || instance.object.map(|object| object.0)
                    == Some(self.object.load(Ordering::Acquire)));
        if is_for {
            match self.protect(frame, key, || self.callback_for(required)) {
                Some(Entry {
                    call: Call::Event(call),
                    is_elsewhere,
                    ..
                }) => {
                    let running = self.running(end_callback, required, *is_elsewhere);
                    in_progress::run(frame, running, || {
                        call(instance, Registration::new(self.index, key), required);
                    });
                }
                _ if self.life.is_live(key) => {
                    self.count_lost(instance.source, Lost::NoCallback(required), 1);
                }
                _ => {}
            }
        }
        self.leave(frame, key, required);
    }

    /// Returns whether the registration is one for this object, of a type that is bound or not.
    pub(crate) fn is_for(&self, object: Option<u64>, is_bound: bool) -> bool {
        !is_bound || object == Some(self.object.load(Ordering::Acquire))
    }

    /// Counts instances that the registration does not get; if it has a handler that wants to know.
    #[cold]
    pub(crate) fn count_lost(&self, source: &SourceState, lost: Lost, count: u64) {
        if count == 0 || self.handler.load(Ordering::Acquire).is_null() {
            return;
        }
        if let Some(row) = self.drops.get(source.index) {
            row.add(lost, count);
            self.note_untold(source);
        }
    }

    /// Marks the source, so that it reports this registration's drops before its next event.
    fn note_untold(&self, source: &SourceState) {
        if let Some(highest) = self.highest() {
            source.untold.fetch_or(1 << highest, Ordering::SeqCst);
        }
    }

    /// Marks all sources with drops, which can be reported now that there is a callback.
    pub(crate) fn note_all_untold<'a>(&self, sources: impl Iterator<Item = &'a SourceState>) {
        for source in sources {
            if self
                .drops
                .get(source.index)
                .is_some_and(|row| !row.is_empty())
            {
                self.note_untold(source);
            }
        }
    }

    /// Calls the dropped handler with what was dropped of a source, if it may be called in this
    /// context.
    #[cold]
    #[inline(never)]
    pub(crate) fn report_dropped(
        &self,
        source: &SourceState,
        lanes: &'static Lanes,
        required: Safety,
    ) {
        let Some(row) = self.drops.get(source.index).filter(|row| !row.is_empty()) else {
            return;
        };
        let Some(key) = self.life.live_key() else {
            return;
        };
        if self
            .highest()
            .is_none_or(|highest| highest < required.index())
        {
            self.note_untold(source);
            return;
        }
        let Some(frame) = in_progress::enter(lanes, key) else {
            self.note_untold(source);
            return;
        };
        // Only read: its entry is not needed once the handler is called.
        let user_data = self
            .protect(frame, key, || self.callback_for(required))
            .map(|callback| callback.user_data);
        let handler = self.protect(frame, key, || self.handler.load(Ordering::Acquire));
        if let (Some(handler), Some(user_data)) = (handler, user_data)
            && let Call::Dropped(call) = &handler.call
        {
            let [a, b, c, d, reported, undelivered] = row.take();
            let no_callback = [a, b, c, d];
            let counts = no_callback.iter().chain([&reported, &undelivered]);
            let dropped = Dropped {
                count: counts.fold(0, |sum: u64, count| sum.saturating_add(*count)),
                no_callback,
                reported,
                undelivered,
                registration: Registration::new(self.index, key),
                source: source.index as i32,
                required,
                user_data,
            };
            if dropped.count != 0 {
                let running = self.running(end_callback, required, handler.is_elsewhere);
                in_progress::run(frame, running, || call(&dropped));
            }
        }
        self.leave(frame, key, required);
    }

    /// Frees a registration.
    /// Returns `false` if it is over already, or ending. The function runs after the last callback,
    /// perhaps during this call.
    pub(crate) fn free(
        &self,
        key: u64,
        function: Option<FreeFunction>,
        data: [usize; 2],
        lanes: &'static Lanes,
        required: Safety,
    ) -> Option<bool> {
        // Like a caller: while it is inside, no thread ends the registration before all of this is
        // stored.
        let frame = in_progress::enter(lanes, key)?;
        if !self.life.begin_end(key) {
            self.leave(frame, key, required);
            return Some(false);
        }
        let function = function.map_or(null_mut(), |function| function as *mut ());
        self.free_function.store(function, Ordering::SeqCst);
        for (word, value) in self.free_data.iter().zip(data) {
            word.store(value, Ordering::SeqCst);
        }
        heavy_fence();
        self.leave(frame, key, required);
        Some(true)
    }

    /// Ends an ending registration, if no thread is inside any more.
    #[cold]
    #[inline(never)]
    pub(crate) fn try_end(&self, key: u64, required: Safety) {
        if !self.life.try_end(key, lanes().frames()) {
            return;
        }
        let function = self.free_function.load(Ordering::SeqCst);
        let data = [0, 1].map(|index: usize| self.free_data[index].load(Ordering::SeqCst));
        if !function.is_null() {
            // SAFETY: only `begin_end` stores here, and only functions of this type.
            let function = unsafe { std::mem::transmute::<*mut (), FreeFunction>(function) };
            let call = || function(Registration::new(self.index, key), required, data);
            match lanes().enter(key) {
                Some(frame) => {
                    in_progress::run(frame, self.running(end_free, required, false), call);
                    frame.leave();
                }
                // It is not found if it is left: the slot stays taken then.
                None => call(),
            }
        }
        self.life.release();
    }
}

//! One call of an MPI function: its arguments as machine words, forwarded as they were passed,
//! between an enter and a leave.
//!
//! Every argument of every MPI function is an `int`, an address, or an integer of 64 bits: System
//! V's calling convention for x86-64 and AArch64's pass each of them in a word, whatever the binary
//! interface. Upper halves of words that contain an `int` mean nothing.
//!
//! Invariant CALLER: the arguments of a call are those that the program passed, as MPI requires of
//! it.
#![expect(
    unsafe_code,
    reason = "functions of a C library are called by address, and its callers' memory is read"
)]

use annals_recorder::stack::stack_pointer;
use annals_recorder::{Depth, Elements, EventType, RegionId, Uncancelled};

use crate::abi::Abi;
use crate::caller_memory::CallerMemory;
use crate::events;
use crate::in_progress::{self, Nested};
use crate::library;
use crate::mpi_t;
use crate::signatures::{At, SITES};
use crate::stack;
use crate::start;
use crate::state::{self, Mpi};

/// The function that is called.
pub(crate) trait Site: Copy {
    /// Returns its number.
    fn index(self) -> usize;
    /// Returns the positions of its arguments.
    fn at(self) -> At;
    /// Calls the next function after this library.
    ///
    /// # Safety
    /// - The arguments are those of this function, and what MPI demands of them holds.
    #[inline(always)]
    unsafe fn call<const N: usize>(self, args: &[usize; N]) -> usize {
        // SAFETY: invariant CALLER (module docs); and the function of this number.
        unsafe { forward(library::next(self.index()), args) }
    }
}

/// A function that is known at compile time, for the functions that are called most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<const INDEX: usize>;

impl<const INDEX: usize> Site for Known<INDEX> {
    #[inline(always)]
    fn index(self) -> usize {
        INDEX
    }

    #[inline(always)]
    fn at(self) -> At {
        const { SITES[INDEX] }
    }
}

/// Any function, by its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Any(pub(crate) usize);

impl Site for Any {
    #[inline]
    fn index(self) -> usize {
        self.0
    }

    #[inline]
    fn at(self) -> At {
        SITES[self.0]
    }
}

/// A function that is called through the stack, with the context that the stack passes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InStack {
    pub(crate) index: usize,
    pub(crate) context: usize,
}

impl Site for InStack {
    #[inline]
    fn index(self) -> usize {
        self.index
    }

    #[inline]
    fn at(self) -> At {
        SITES[self.index]
    }

    #[inline]
    unsafe fn call<const N: usize>(self, args: &[usize; N]) -> usize {
        let (function, tool) = stack::next(self.index);
        // SAFETY: invariant CALLER (module docs); the stack's function is called as QMPI defines
        // it.
        let call = || unsafe { forward_in_stack(function, self.context, tool, args) };
        stack::pass_on(call)
    }
}

/// A call: the function, and its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<const N: usize, S> {
    site: S,
    args: [usize; N],
}

macro_rules! forward {
    ($($count:literal: $($place:literal)*;)*) => {
        /// Calls the function at this address.
        ///
        /// # Safety
        /// - It is a function with this number of arguments, or fewer, and they are valid for it.
        #[inline(always)]
        unsafe fn forward<const N: usize>(function: usize, args: &[usize; N]) -> usize {
            match N {
                $($count => {
                    type Function = unsafe extern "C-unwind" fn($(forward!(@word $place)),*) -> usize;
                    // SAFETY: invariant CALLER (module docs).
                    let function: Function = unsafe { std::mem::transmute(function) };
                    // SAFETY: invariant CALLER (module docs).
                    unsafe { function($(args[$place]),*) }
                })*
                _ => unreachable!("no function of MPI has that number of arguments"),
            }
        }

        /// Calls the function at this address as QMPI defines it: with the context that the stack
        /// passes on, and the tool that the function belongs to.
        ///
        /// # Safety
        /// - It is a function with this number of arguments, or fewer, and they are valid for it.
        pub(crate) unsafe fn forward_in_stack<const N: usize>(
            function: usize,
            context: usize,
            tool: i32,
            args: &[usize; N],
        ) -> usize {
            match N {
                $($count => {
                    type Function =
                        unsafe extern "C-unwind" fn(usize, i32, $(forward!(@word $place)),*) -> usize;
                    // SAFETY: invariant CALLER (module docs).
                    let function: Function = unsafe { std::mem::transmute(function) };
                    // SAFETY: invariant CALLER (module docs).
                    unsafe { function(context, tool, $(args[$place]),*) }
                })*
                _ => unreachable!("no function of MPI has that number of arguments"),
            }
        }
    };
    (@word $place:literal) => { usize };
}

forward! {
    0: ;
    1: 0;
    2: 0 1;
    3: 0 1 2;
    4: 0 1 2 3;
    5: 0 1 2 3 4;
    6: 0 1 2 3 4 5;
    7: 0 1 2 3 4 5 6;
    8: 0 1 2 3 4 5 6 7;
    9: 0 1 2 3 4 5 6 7 8;
    10: 0 1 2 3 4 5 6 7 8 9;
    11: 0 1 2 3 4 5 6 7 8 9 10;
    12: 0 1 2 3 4 5 6 7 8 9 10 11;
    13: 0 1 2 3 4 5 6 7 8 9 10 11 12;
}

impl<const N: usize, S: Site> Call<N, S> {
    /// Creates a call that a program makes.
    ///
    /// # Safety
    /// - The arguments are those of this function, and what MPI demands of them holds: addresses
    ///   are valid for what it reads and writes there.
    #[inline(always)]
    pub(crate) const unsafe fn new(site: S, args: [usize; N]) -> Self {
        Self { site, args }
    }

    /// Returns the function's number.
    #[inline(always)]
    pub(crate) fn index(&self) -> usize {
        self.site.index()
    }

    /// Returns the positions of its arguments.
    #[inline(always)]
    pub(crate) fn at(&self) -> At {
        self.site.at()
    }

    /// Returns an argument as it was passed.
    #[inline(always)]
    pub(crate) const fn word(&self, at: u8) -> usize {
        self.args[at as usize]
    }

    #[inline(always)]
    pub(crate) const fn int(&self, at: u8) -> i32 {
        self.args[at as usize] as u32 as i32
    }

    /// Returns a count, by value.
    #[inline(always)]
    pub(crate) fn count(&self, at: u8) -> i64 {
        if self.at().is_wide {
            self.args[at as usize] as i64
        } else {
            self.int(at) as i64
        }
    }

    #[inline(always)]
    pub(crate) fn handle(&self, abi: &Abi, at: u8) -> usize {
        abi.handle(self.args[at as usize])
    }

    #[inline(always)]
    pub(crate) const fn place(&self, at: u8) -> CallerMemory {
        CallerMemory(self.args[at as usize])
    }

    /// Replaces an argument by another address. The caller ensures that it is valid for what the
    /// function does with it.
    #[inline(always)]
    pub(crate) const fn replace(&mut self, at: u8, address: usize) {
        self.args[at as usize] = address;
    }

    /// Makes the call.
    #[inline(always)]
    pub(crate) fn forward(&self) -> usize {
        // SAFETY: the caller of `new` has guaranteed valid arguments.
        unsafe { self.site.call(&self.args) }
    }
}

/// A call in progress.
#[derive(Debug)]
pub(crate) struct Frame {
    /// `None` means that nothing of this call is recorded.
    pub(crate) mpi: Option<&'static Mpi>,
    region: Option<RegionId>,
    depth: u8,
}

impl Frame {
    /// Enters a call, which begins now.
    #[inline(always)]
    pub(crate) fn begin(index: usize) -> Self {
        let depth = Depth::deeper();
        let mpi = state::get();
        if depth == 0
            && !mpi_t::is_due()
            && let Some(mpi) = mpi
            && let Some(region) = mpi.known_region(index)
        {
            Depth::note(stack_pointer(), region.get());
            return Self {
                mpi: Some(mpi),
                region: Some(region),
                depth,
            };
        }
        Self::begin_rare(index, depth, stack_pointer())
    }

    #[cold]
    #[inline(never)]
    fn begin_rare(index: usize, depth: u8, at: usize) -> Self {
        let _uncancelled = Uncancelled::begin();
        // In a stack of tools, all calls come from the library, and the program's calls are known.
        let (depth, is_own) = match depth {
            0 => (0, false),
            depth if stack::has(index) => (depth, false),
            depth => match in_progress::find_left(depth, at) {
                Nested::No => (0, false),
                Nested::OfProgram(live) => (live, false),
                Nested::OfLibrary(live) => (live, true),
            },
        };
        Depth::set(depth.saturating_add(1));
        if depth == 0 && mpi_t::is_due() {
            events::poll();
        }
        let mpi = if is_own { None } else { start::get_or_start() };
        let region = mpi.and_then(|mpi| mpi.region(index));
        let noted = region.map_or(in_progress::NO_REGION, RegionId::get);
        match depth {
            0 => Depth::note(at, noted),
            depth => in_progress::note_nested(depth, at, noted),
        }
        Self { mpi, region, depth }
    }

    /// Returns whether no other call of this thread is in progress.
    pub(crate) const fn is_outermost(&self) -> bool {
        self.depth == 0
    }

    /// Makes a call without recording it.
    #[cold]
    #[inline(never)]
    pub(crate) fn pass<const N: usize, S: Site>(self, call: &Call<N, S>) -> usize {
        let result = call.forward();
        self.leave();
        result
    }

    /// Enters. The functions called `…_here` become part of what calls them: for the calls of which
    /// there are most.
    #[inline(always)]
    pub(crate) fn enter_here(&self) {
        if let (Some(mpi), Some(region)) = (self.mpi, self.region) {
            mpi.recorder.enter(region);
        }
    }

    /// Enters, and raises an event about what the call begins.
    #[inline(always)]
    pub(crate) fn enter_with_here<E: Elements>(
        &self,
        event_type: &EventType<E>,
        values: E::Values<'_>,
    ) {
        match (self.mpi, self.region) {
            (Some(mpi), Some(region)) => mpi.recorder.enter_with(region, event_type, values),
            (Some(mpi), None) => mpi.raise(event_type, values),
            _ => {}
        }
    }

    /// Enters a call on a communicator that is not known yet. Returns the time, for the event that can
    /// be raised only when the library has accepted the handle (see [`Mpi::raise_since`]).
    #[cold]
    #[inline(never)]
    pub(crate) fn enter_unknown(&self) -> u64 {
        let Some(mpi) = self.mpi else {
            return 0;
        };
        let start = mpi.recorder.tick();
        if let Some(region) = self.region {
            mpi.recorder.enter_at(region, start);
        }
        start
    }

    /// Leaves, when the call has returned.
    #[inline(always)]
    pub(crate) fn leave_here(self) {
        if let (Some(mpi), Some(region)) = (self.mpi, self.region) {
            mpi.recorder.leave(region);
        }
        Depth::set(self.depth);
    }

    /// Leaves, when the call has returned, with an event about what it has done.
    #[inline(always)]
    pub(crate) fn leave_with_here<E: Elements>(
        self,
        event_type: &EventType<E>,
        values: E::Values<'_>,
    ) {
        match (self.mpi, self.region) {
            (Some(mpi), Some(region)) => mpi.recorder.leave_with(region, event_type, values),
            (Some(mpi), None) => mpi.raise(event_type, values),
            _ => {}
        }
        Depth::set(self.depth);
    }

    /// Enters a call that all processes of its communicator make.
    #[inline(never)]
    pub(crate) fn enter_all<const N: usize, S: Site>(&self, call: &Call<N, S>) {
        let known = self.mpi.and_then(|mpi| {
            let comm = mpi.communicator(call.handle(&mpi.abi, call.at().comm))?;
            Some((mpi, (comm.object, comm.next_call() as i64)))
        });
        match known {
            Some((mpi, values)) => self.enter_with_here(&mpi.types.communicator_call, values),
            None => self.enter_here(),
        }
    }

    /// See [`Frame::enter_here`].
    #[inline(never)]
    pub(crate) fn enter(&self) {
        self.enter_here();
    }

    /// See [`Frame::enter_with_here`].
    #[inline(never)]
    pub(crate) fn enter_with<E: Elements>(&self, event_type: &EventType<E>, values: E::Values<'_>) {
        self.enter_with_here(event_type, values);
    }

    /// See [`Frame::leave_here`].
    #[inline(never)]
    pub(crate) fn leave(self) {
        self.leave_here();
    }

    /// See [`Frame::leave_with_here`].
    #[inline(never)]
    pub(crate) fn leave_with<E: Elements>(self, event_type: &EventType<E>, values: E::Values<'_>) {
        self.leave_with_here(event_type, values);
    }
}

/// Records only that a function was called. For most functions, nothing else is recorded.
#[inline(never)]
pub(crate) fn plain<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    let frame = Frame::begin(call.index());
    frame.enter_here();
    let result = call.forward();
    frame.leave_here();
    result
}

/// Forwards a program's call of a function that is recorded in the stack: it will come through
/// there.
#[cold]
#[inline(never)]
pub(crate) fn enter_stack<const N: usize, S: Site>(call: Call<N, S>) -> usize {
    stack::enter(|| call.forward())
}

/// Records and forwards a call that arrives through QMPI's stack.
///
/// # Safety
/// - The arguments are those of this function, and what MPI demands of them holds.
#[inline(always)]
pub(crate) unsafe fn in_stack<const N: usize>(
    index: usize,
    context: usize,
    args: [usize; N],
    room: impl FnOnce(Call<N, InStack>) -> usize,
) -> usize {
    // SAFETY: invariant CALLER (module docs).
    let call = unsafe { Call::new(InStack { index, context }, args) };
    if stack::is_recorded() {
        room(call)
    } else {
        call.forward()
    }
}

/// Forwards a call of a function that returns a double.
///
/// # Safety
/// - The function of this number has no arguments and returns a double.
pub(crate) unsafe fn double(index: usize) -> f64 {
    type Function = unsafe extern "C-unwind" fn() -> f64;
    // SAFETY: invariant CALLER (module docs).
    let function: Function = unsafe { std::mem::transmute(library::next(index)) };
    // SAFETY: invariant CALLER (module docs).
    let call = || unsafe { function() };
    if stack::has(index) {
        stack::enter(call)
    } else {
        plain_double(index, call)
    }
}

/// Forwards a call in the stack of a function that returns a double.
///
/// # Safety
/// - The function of this number has no arguments and returns a double.
pub(crate) unsafe fn double_in_stack(index: usize, context: usize) -> f64 {
    type Function = unsafe extern "C-unwind" fn(usize, i32) -> f64;
    let (function, tool) = stack::next(index);
    // SAFETY: invariant CALLER (module docs); and as QMPI has it.
    let function: Function = unsafe { std::mem::transmute(function) };
    // SAFETY: invariant CALLER (module docs).
    let call = || stack::pass_on(|| unsafe { function(context, tool) });
    if stack::is_recorded() {
        plain_double(index, call)
    } else {
        call()
    }
}

fn plain_double(index: usize, call: impl FnOnce() -> f64) -> f64 {
    let frame = Frame::begin(index);
    frame.enter_here();
    let result = call();
    frame.leave_here();
    result
}

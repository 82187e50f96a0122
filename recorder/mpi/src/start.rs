//! Begins to record, at a program's first call of MPI.

use annals_recorder::say;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::abi::Abi;
use crate::begun;
use crate::callers;
use crate::event_types::Types;
use crate::events;
use crate::library;
use crate::pmpi::Pmpi;
use crate::settings::{self, Chosen};
use crate::signatures::FUNCTIONS;
use crate::stack;
use crate::state::{self, Mpi};
use crate::unseen;

/// Returns the state, begun now if it was not, or `None` when it cannot be.
#[cold]
pub(crate) fn get_or_start() -> Option<&'static Mpi> {
    const NONE: u8 = 0;
    const STARTING: u8 = 1;
    const DONE: u8 = 2;
    static STATE: AtomicU8 = AtomicU8::new(NONE);
    if let Some(mpi) = state::get() {
        // A forked child has its own state.
        return Some(mpi);
    }
    if !library::is_known() {
        // The program may load an MPI library later.
        return None;
    }
    let (order, seen) = (Ordering::AcqRel, Ordering::Relaxed);
    if STATE.compare_exchange(NONE, STARTING, order, seen).is_err() {
        // Starting has failed; or another thread is starting, and this thread's call is not
        // recorded.
        return None;
    }
    if let Err(why) = std::panic::catch_unwind(start).unwrap_or_else(|_| Err(String::new())) {
        say(format_args!("MPI is not recorded: {why}"));
    }
    STATE.store(DONE, Ordering::Release);
    if let Some(mpi) = state::get().filter(|mpi| mpi.pmpi.is_begun()) {
        begun::found(mpi);
    }
    state::get()
}

fn start() -> Result<(), String> {
    stack::register(true);
    callers::adopt();
    let Some(abi) = Abi::detect() else {
        return Err(format!(
            "the library is none whose binary interface is known (MPICH's, Open MPI's, or the standard's): `{}`",
            library::version()
                .lines()
                .next()
                .unwrap_or_default()
                .escape_debug()
        ));
    };
    settings::note_unknown();
    if let Some(chosen) = Chosen::from_env(settings::REGIONS)? {
        for (index, function) in FUNCTIONS.iter().enumerate() {
            let is_named = chosen.has(&function.name.to_string_lossy());
            if !chosen.has(function.group) && !is_named {
                state::switch_off(index);
            }
        }
        if !chosen.is_only("none") {
            chosen.note_unused(settings::REGIONS, "function or group");
        }
    }
    let recorder = annals_instrument::recorder().ok_or("the recorder cannot be started")?;
    unseen::store(recorder);
    let types = Types::add(recorder).map_err(|error| error.to_string())?;
    let pmpi = Pmpi::load();
    let version = library::version();
    let properties = [
        (
            "mpi.implementation",
            version.lines().next().unwrap_or_default(),
        ),
        ("mpi.interface", abi.kind.name()),
    ];
    for (key, value) in properties {
        recorder
            .add_property(key, value)
            .map_err(|error| error.to_string())?;
    }
    events::begin(recorder, &abi, &version)?;
    let request_empty = library::object(c"ompi_request_empty");
    state::set(Mpi::new(recorder, abi, pmpi, types, request_empty));
    Ok(())
}

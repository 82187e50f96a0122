//! The functions that programs call: one for each function of MPI, generated from `functions.tsv`.
//!
//! This is the only module that imports what calls mean. Programs, the MPI library and the loader
//! call it; no module does.
#![expect(
    unsafe_code,
    reason = "functions that C programs call, and a constructor that the loader calls"
)]
#![allow(non_snake_case, reason = "the names are MPI's")]

use crate::addresses::{self, Addresses};
use crate::call::{self, Any, Call, Known};
use crate::callers;
use crate::collective::{collective, collective_init, icollective};
use crate::communicator_calls::{comm_free, comm_idup, comm_new, comm_other};
use crate::completion::{
    cancel, request_free, test, testall, testany, testsome, wait, waitall, waitany, waitsome,
};
use crate::files::{file_access, file_all, file_close, file_open, file_request};
use crate::lifecycle::{
    abort, finalize, init, pcontrol, session_finalize, session_init, set_name, type_free,
};
use crate::p2p::{
    improbe, imrecv, irecv, isend, isendrecv, mprobe, mrecv, precv_init, probe, psend_init, recv,
    recv_init, send, send_init, sendrecv, start, startall,
};
use crate::rma::{rma, rma_request, win_free, win_new, win_sync};
use crate::stack;
use crate::unseen;

include!(concat!(env!("OUT_DIR"), "/entry_points.rs"));

/// Before the program begins: bindings that are in memory already call this library.
extern "C" fn prepare() {
    // A panic must not cross into the loader.
    let _ = std::panic::catch_unwind(|| {
        addresses::provide(&WRAPPERS, &STACKED);
        callers::adopt();
        annals_instrument::when_started(unseen::store);
        annals_runtimes::prepare();
        stack::register(false);
    });
}

#[used]
#[unsafe(link_section = ".init_array")]
static PREPARE: extern "C" fn() = prepare;

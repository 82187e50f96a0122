//! Functions of MPI that the program may call past this library, and those whose calls the user's settings leave out.

use std::sync::atomic::{AtomicU8, Ordering};

use annals_recorder::Recorder;
use annals_recorder::names::property;

use crate::signatures::{COUNT, FUNCTIONS};

/// A caller, or a lookup, reaches the function past this library.
pub(crate) const PAST: u8 = 1;
/// It is in the recording.
const STORED: u8 = 2;
/// That its calls are left out is in the recording.
const LEFT_OUT: u8 = 4;

/// By number of the function.
static FOUND: [AtomicU8; COUNT] = [const { AtomicU8::new(0) }; COUNT];

/// Notes how a function is called. Returns whether that is new.
pub(crate) fn note(index: usize, how: u8) -> bool {
    FOUND[index].fetch_or(how, Ordering::Relaxed) & how != how
}

/// Stores which functions calls are made of that this library does not see, as far as that is not stored yet.
pub(crate) fn store(recorder: &Recorder) {
    let (mut waiting, mut others) = (Vec::new(), Vec::new());
    for (found, function) in FOUND.iter().zip(&FUNCTIONS) {
        let is_past = found.load(Ordering::Relaxed) & PAST != 0;
        if is_past && found.fetch_or(STORED, Ordering::Relaxed) & STORED == 0 {
            let names = if function.waits {
                &mut waiting
            } else {
                &mut others
            };
            names.push(function.name.to_string_lossy());
        }
    }
    let found = [
        (property::MPI_UNSEEN, waiting),
        (property::MPI_UNSEEN_OTHERS, others),
    ];
    for (key, names) in found.into_iter().filter(|(_, names)| !names.is_empty()) {
        let _ = recorder.add_property(key, &names.join(" "));
    }
}

/// Stores that calls of a function that waits are left out.
#[cold]
pub(crate) fn store_left_out(recorder: &Recorder, index: usize) {
    let function = &FUNCTIONS[index];
    if function.waits && note(index, LEFT_OUT) {
        let name = function.name.to_string_lossy();
        let _ = recorder.add_property(property::MPI_LEFT_OUT, &name);
    }
}

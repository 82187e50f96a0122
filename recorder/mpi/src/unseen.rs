//! Functions of MPI that the program may call past this library, and those whose calls the user's settings leave out.

use std::sync::atomic::{AtomicU8, Ordering};

use annals_recorder::Recorder;
use annals_recorder::names::property;

use crate::signatures::{COUNT, FUNCTIONS};

/// A caller, or a lookup, reaches the function past this library.
pub(crate) const PAST: u8 = 1;
/// An object uses the function of Fortran's module `mpi_f08`.
pub(crate) const FORTRAN_2008: u8 = 2;
/// A Fortran library calls `PMPI_…`: what MPICH's module `mpi_f08` does.
pub(crate) const BINDING: u8 = 4;
/// It is in the recording.
const STORED: u8 = 8;
/// That its calls are left out is in the recording.
const LEFT_OUT: u8 = 16;

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
        let known = found.load(Ordering::Relaxed);
        let of_fortran = FORTRAN_2008 | BINDING;
        let is_past = known & PAST != 0 || known & of_fortran == of_fortran;
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

/// Returns the number of the function of MPI that a symbol of Fortran's module `mpi_f08` calls, such as `mpi_recv_f08ts_`.
pub(crate) fn of_fortran_2008(symbol: &[u8]) -> Option<usize> {
    let symbol = symbol.strip_prefix(b"p").unwrap_or(symbol);
    let name = symbol.strip_prefix(b"mpi_")?;
    let name = &name[..name.windows(4).position(|part| part == b"_f08")?];
    FUNCTIONS.iter().position(|function| {
        let function = function.name.to_bytes().strip_prefix(b"MPI_");
        function.is_some_and(|function| function.eq_ignore_ascii_case(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_mpi_f08_are_known() {
        let name = |symbol: &[u8]| of_fortran_2008(symbol).map(|index| FUNCTIONS[index].name);
        assert_eq!(name(b"mpi_recv_f08ts_"), Some(c"MPI_Recv"));
        assert_eq!(name(b"pmpi_comm_rank_f08_"), Some(c"MPI_Comm_rank"));
        assert_eq!(name(b"mpi_send_f08ts_large_"), Some(c"MPI_Send"));
        assert_eq!(name(b"mpi_send_"), None);
        assert_eq!(name(b"MPI_Send"), None);
    }
}

//! The library's performance variables (MPI_T): those that the user chose, as metrics, sampled at calls of the
//! program's, on a period.
#![expect(unsafe_code, reason = "functions of a C library, found at run time")]

use std::collections::HashSet;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use annals_recorder::{ElementType, Metric, Recorder};

use crate::abi::{Abi, Kind};
use crate::chosen::{Chosen, PVARS};
use crate::library::library_functions;
use crate::state::lock;
use crate::tool_events::{self, Constants, TEXT_ROOM, element_type, text};

library_functions! {
    Interface;
    get_num c"PMPI_T_pvar_get_num" (count: *mut c_int);
    get_info c"PMPI_T_pvar_get_info"
        (index: c_int, name: *mut c_char, name_len: *mut c_int, verbosity: *mut c_int, class: *mut c_int,
            datatype: *mut usize, names: *mut usize, desc: *mut c_char, desc_len: *mut c_int, bind: *mut c_int,
            readonly: *mut c_int, continuous: *mut c_int, atomic: *mut c_int);
    session_create c"PMPI_T_pvar_session_create" (session: *mut *mut c_void);
    handle_alloc c"PMPI_T_pvar_handle_alloc"
        (session: *mut c_void, index: c_int, object: *const c_void, handle: *mut *mut c_void, count: *mut c_int);
    start c"PMPI_T_pvar_start" (session: *mut c_void, handle: *mut c_void);
    read c"PMPI_T_pvar_read" (session: *mut c_void, handle: *mut c_void, to: *mut c_void);
}

/// Where a variable's values go.
enum To {
    Signed(Metric<i64>),
    Unsigned(Metric<u64>),
    Float(Metric<f64>),
}

/// A variable that is sampled.
struct Sampled {
    /// The library's handle, an address.
    handle: usize,
    /// Bytes of a value.
    width: usize,
    to: To,
}

/// All that are.
struct Variables {
    interface: Interface,
    recorder: &'static Recorder,
    session: usize,
    sampled: Vec<Sampled>,
}

static VARIABLES: Mutex<Option<Variables>> = Mutex::new(None);

/// Chooses what is sampled, when MPI_Init has returned.
pub(crate) fn begin(recorder: &'static Recorder, abi: &Abi) -> Result<(), String> {
    let Some(chosen) = Chosen::from_env(PVARS)? else {
        return Ok(());
    };
    let interface = Interface::load();
    let (mut count, mut session) = (0, null_mut());
    // SAFETY: valid places.
    let is_there = tool_events::is_there(abi)
        && unsafe { interface.get_num(&raw mut count) }
        // SAFETY: as above.
        && unsafe { interface.session_create(&raw mut session) };
    if !is_there {
        return Err("the library has none".to_owned());
    }
    let mut known = HashSet::new();
    let mut sampled = Vec::new();
    for index in 0..count {
        // Libraries list some that they then know nothing of.
        let Some(variable) = Described::of(&interface, index) else {
            continue;
        };
        let is_bound = variable.bind != Constants::of(abi.kind).no_object;
        if is_bound || variable.is_garbage(abi) || element_type(abi, variable.datatype).is_none() {
            continue;
        }
        if !chosen.has(&variable.name) {
            continue;
        }
        let Some(element) = element_type(abi, variable.datatype) else {
            continue;
        };
        // MPICH has pairs of a timer and a counter with one name.
        let mut name = variable.name.clone();
        if !known.insert(name.clone()) {
            name = format!("{name} of class {}", variable.class);
            if !known.insert(name.clone()) {
                continue;
            }
        }
        let Some(handle) = handle(&interface, session, index, variable.is_continuous) else {
            continue;
        };
        let error = |error: annals_recorder::RecorderError| error.to_string();
        let (width, to) = match element {
            ElementType::I32 => (
                4,
                To::Signed(recorder.add_metric(&name, "").map_err(error)?),
            ),
            ElementType::I64 => (
                8,
                To::Signed(recorder.add_metric(&name, "").map_err(error)?),
            ),
            ElementType::U32 => (
                4,
                To::Unsigned(recorder.add_metric(&name, "").map_err(error)?),
            ),
            ElementType::F64 => (8, To::Float(recorder.add_metric(&name, "").map_err(error)?)),
            _ => (
                8,
                To::Unsigned(recorder.add_metric(&name, "").map_err(error)?),
            ),
        };
        sampled.push(Sampled { handle, width, to });
    }
    chosen.note_unused(PVARS, "performance variable");
    if sampled.is_empty() {
        return Ok(());
    }
    *lock(&VARIABLES) = Some(Variables {
        interface,
        recorder,
        session: session.expose_provenance(),
        sampled,
    });
    tool_events::start_ticker();
    sample();
    Ok(())
}

/// What a library says of a variable.
struct Described {
    name: String,
    class: i32,
    datatype: usize,
    bind: i32,
    is_continuous: bool,
}

impl Described {
    fn of(interface: &Interface, index: i32) -> Option<Self> {
        let (mut name, mut desc) = ([0; TEXT_ROOM], [0; TEXT_ROOM]);
        let (mut name_len, mut desc_len) = (TEXT_ROOM as c_int, TEXT_ROOM as c_int);
        let (mut verbosity, mut class, mut datatype, mut names, mut bind) = (0, 0, 0, 0, 0);
        let (mut readonly, mut continuous, mut atomic) = (0, 0, 0);
        // SAFETY: valid places, and how long they are.
        let is_there = unsafe {
            interface.get_info(
                index,
                name.as_mut_ptr(),
                &raw mut name_len,
                &raw mut verbosity,
                &raw mut class,
                &raw mut datatype,
                &raw mut names,
                desc.as_mut_ptr(),
                &raw mut desc_len,
                &raw mut bind,
                &raw mut readonly,
                &raw mut continuous,
                &raw mut atomic,
            )
        };
        is_there.then(|| Self {
            name: text(&name),
            class,
            datatype,
            bind,
            is_continuous: continuous != 0,
        })
    }

    /// MPICH's timers that have not been stopped have no value.
    fn is_garbage(&self, abi: &Abi) -> bool {
        let timer = match abi.kind {
            Kind::Mpich => 248,
            Kind::OpenMpi => return false,
            Kind::Standard => 9,
        };
        self.class == timer && !self.is_continuous
    }
}

/// A handle of a variable that has one value, started.
fn handle(
    interface: &Interface,
    session: *mut c_void,
    index: i32,
    is_continuous: bool,
) -> Option<usize> {
    let (mut handle, mut count) = (null_mut(), 0);
    // SAFETY: the session just made, bound to nothing, and valid places.
    let is_there =
        unsafe { interface.handle_alloc(session, index, null(), &raw mut handle, &raw mut count) };
    if !is_there || count != 1 {
        return None;
    }
    // SAFETY: as above, and the handle just made.
    let is_on = is_continuous || unsafe { interface.start(session, handle) };
    is_on.then(|| handle.expose_provenance())
}

/// Records the values that the variables have now; from a call of the program's, not in a callback.
pub(crate) fn sample() {
    // Another thread is at it.
    let Ok(variables) = VARIABLES.try_lock() else {
        return;
    };
    let Some(variables) = variables.as_ref() else {
        return;
    };
    let session = std::ptr::with_exposed_provenance_mut(variables.session);
    for one in &variables.sampled {
        let mut word = 0_u64;
        let handle = std::ptr::with_exposed_provenance_mut(one.handle);
        let to = (&raw mut word).cast();
        // SAFETY: what the library gave, never given back; one value is no longer than a word.
        if !unsafe { variables.interface.read(session, handle, to) } {
            continue;
        }
        let is_short = one.width == 4;
        match &one.to {
            To::Signed(metric) if is_short => {
                variables
                    .recorder
                    .metric(metric, i64::from(word as u32 as i32));
            }
            To::Signed(metric) => variables.recorder.metric(metric, word as i64),
            To::Unsigned(metric) => variables.recorder.metric(metric, word),
            To::Float(metric) => variables.recorder.metric(metric, f64::from_bits(word)),
        }
    }
}

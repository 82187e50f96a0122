//! The library's performance variables (MPI_T): those that the user chose, as metrics, sampled at
//! calls of the program's, on a period.
#![expect(unsafe_code, reason = "functions of a C library, found at run time")]

use std::collections::{BTreeMap, HashSet};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use annals_recorder::{ElementType, Metric, Recorder};

use crate::abi::{Abi, AbiKind};
use crate::library::library_functions;
use crate::mpi_t::{self, Constants, TEXT_ROOM, element_type, text};
use crate::settings::{self, Chosen, PVARS};
use crate::sync::lock;

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
    handle_free c"PMPI_T_pvar_handle_free" (session: *mut c_void, handle: *mut *mut c_void);
    session_free c"PMPI_T_pvar_session_free" (session: *mut *mut c_void);
}

/// Maximum number of values of one variable that are recorded.
const MOST_VALUES: usize = 256;
/// Maximum number of names in one line about omitted variables.
const MOST_NAMES: usize = 8;
/// Property of a process: the variables that were chosen and are not recorded.
const LEFT_OUT: &str = "mpi.pvars-left-out";

/// The metric of a value, by the type of the metric.
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
    /// A metric for each value.
    to: Vec<To>,
}

/// Why a chosen variable is not recorded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Why {
    Bound,
    Datatype,
    Timer,
    TooMany,
    Unreadable,
}

impl Why {
    const fn text(self) -> &'static str {
        match self {
            Self::Bound => "bound to an object of the program",
            Self::Datatype => "of a datatype that is none of MPI_T's for performance variables",
            Self::Timer => "timers, of which MPICH returns no time",
            Self::TooMany => "of too many values",
            Self::Unreadable => "the library does not return a value",
        }
    }
}

/// Omitted variables, by reason.
type LeftOut = BTreeMap<Why, Vec<String>>;

/// All variables that are sampled.
struct Variables {
    interface: Interface,
    recorder: &'static Recorder,
    session: usize,
    sampled: Vec<Sampled>,
}

static VARIABLES: Mutex<Option<Variables>> = Mutex::new(None);

/// Chooses the variables to sample. Called when MPI_Init has returned.
pub(crate) fn begin(recorder: &'static Recorder, abi: &Abi) -> Result<(), String> {
    let Some(chosen) = Chosen::from_env(PVARS)? else {
        return Ok(());
    };
    let interface = Interface::load();
    let (mut count, mut session) = (0, null_mut());
    // SAFETY: valid places.
    let is_there = mpi_t::is_there(abi)
        && unsafe { interface.get_num(&raw mut count) }
        // SAFETY: valid places.
        && unsafe { interface.session_create(&raw mut session) };
    if !is_there {
        return Err("the library has none".to_owned());
    }
    let mut names = HashSet::new();
    let mut sampled = Vec::new();
    let mut left_out = LeftOut::new();
    for index in 0..count {
        // Libraries list some variables that they then do not know.
        let Some(variable) = Described::of(&interface, index) else {
            continue;
        };
        if !chosen.has(&variable.name) {
            continue;
        }
        match sampled_of(&interface, session, index, &variable, abi) {
            Err(why) => left_out.entry(why).or_default().push(variable.name),
            Ok((handle, element, count)) => {
                let name = distinct_name(&mut names, &variable, abi);
                let to = metrics(recorder, &name, element, count)?;
                let width = width(element);
                sampled.push(Sampled { handle, width, to });
            }
        }
    }
    chosen.note_unused(PVARS, "performance variable");
    note_left_out(recorder, &left_out)?;
    if sampled.is_empty() {
        return Ok(());
    }
    *lock(&VARIABLES) = Some(Variables {
        interface,
        recorder,
        session: session.expose_provenance(),
        sampled,
    });
    mpi_t::start_ticker();
    sample();
    Ok(())
}

/// Starts a variable and reads it once. Returns its handle, the type and the number of its values.
fn sampled_of(
    interface: &Interface,
    session: *mut c_void,
    index: i32,
    variable: &Described,
    abi: &Abi,
) -> Result<(usize, ElementType, usize), Why> {
    if variable.bind != Constants::of(abi.kind).no_object {
        return Err(Why::Bound);
    }
    if variable.is_garbage(abi) {
        return Err(Why::Timer);
    }
    let element = element_type(abi, variable.datatype).ok_or(Why::Datatype)?;
    let (handle, count) = handle(interface, session, index, variable.is_continuous)?;
    let mut words = [0_u64; MOST_VALUES];
    if !read_values(interface, session.expose_provenance(), handle, &mut words) {
        return Err(Why::Unreadable);
    }
    Ok((handle, element, count))
}

const fn width(element: ElementType) -> usize {
    match element {
        ElementType::I32 | ElementType::U32 => 4,
        _ => 8,
    }
}

/// Returns a name that no other variable has: several may have one name, each of another class.
fn distinct_name(names: &mut HashSet<String>, variable: &Described, abi: &Abi) -> String {
    let mut name = variable.name.clone();
    if names.contains(&name) {
        name = format!("{} ({})", variable.name, variable.class_name(abi));
    }
    for number in 2.. {
        if names.insert(name.clone()) {
            break;
        }
        name = format!("{} ({number})", variable.name);
    }
    name
}

/// Defines a metric for each value: `name`, or `name[0]`, `name[1]`, ….
fn metrics(
    recorder: &Recorder,
    name: &str,
    element: ElementType,
    count: usize,
) -> Result<Vec<To>, String> {
    let metrics = (0..count).map(|index| {
        let name = match count {
            1 => name.to_owned(),
            _ => format!("{name}[{index}]"),
        };
        Ok(match element {
            ElementType::I32 | ElementType::I64 => To::Signed(recorder.add_metric(&name, "")?),
            ElementType::F64 => To::Float(recorder.add_metric(&name, "")?),
            _ => To::Unsigned(recorder.add_metric(&name, "")?),
        })
    });
    let metrics: Result<Vec<To>, annals_recorder::RecorderError> = metrics.collect();
    metrics.map_err(|error| error.to_string())
}

/// Reports the chosen variables that are not recorded: on standard error, and as a property of the
/// recording.
fn note_left_out(recorder: &Recorder, left_out: &LeftOut) -> Result<(), String> {
    let mut all = Vec::new();
    for (why, names) in left_out {
        let shown = names[..names.len().min(MOST_NAMES)].join(", ");
        let more = match names.len() - names.len().min(MOST_NAMES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        settings::note(format!(
            "{PVARS}: not recorded, {}: {shown}{more}",
            why.text()
        ));
        all.push(format!("{} ({})", names.join(", "), why.text()));
    }
    if all.is_empty() {
        return Ok(());
    }
    let added = recorder.add_property(LEFT_OUT, &all.join("; "));
    added.map_err(|error| error.to_string())
}

/// A variable as a library describes it.
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

    /// MPICH's timers return no times, whether they are continuous or not (its main branch of 2026,
    /// 5.1.0a1).
    fn is_garbage(&self, abi: &Abi) -> bool {
        abi.kind != AbiKind::OpenMpi && self.class == first_class(abi) + 8
    }

    /// Returns what the class is called, by the standard's constants without `MPI_T_PVAR_CLASS_`.
    fn class_name(&self, abi: &Abi) -> String {
        const NAMES: [&str; 10] = [
            "state",
            "level",
            "size",
            "percentage",
            "highwatermark",
            "lowwatermark",
            "counter",
            "aggregate",
            "timer",
            "generic",
        ];
        let index = usize::try_from(self.class - first_class(abi)).ok();
        let name = index.and_then(|index| NAMES.get(index));
        name.map_or_else(
            || format!("class {}", self.class),
            |name| (*name).to_owned(),
        )
    }
}

/// Returns the number of the first class, MPI_T_PVAR_CLASS_STATE.
const fn first_class(abi: &Abi) -> i32 {
    match abi.kind {
        AbiKind::Mpich => 240,
        AbiKind::OpenMpi => 0,
        AbiKind::Standard => 1,
    }
}

/// Returns a handle of a variable, started, and how many values it has.
fn handle(
    interface: &Interface,
    session: *mut c_void,
    index: i32,
    is_continuous: bool,
) -> Result<(usize, usize), Why> {
    let (mut handle, mut count) = (null_mut(), 0);
    // SAFETY: the session just made, bound to nothing, and valid places.
    let is_there =
        unsafe { interface.handle_alloc(session, index, null(), &raw mut handle, &raw mut count) };
    let count = usize::try_from(count).unwrap_or(0);
    if !is_there || count == 0 {
        return Err(Why::Unreadable);
    }
    if count > MOST_VALUES {
        return Err(Why::TooMany);
    }
    // SAFETY: valid places, and the handle just made.
    let is_on = is_continuous || unsafe { interface.start(session, handle) };
    if !is_on {
        return Err(Why::Unreadable);
    }
    Ok((handle.expose_provenance(), count))
}

/// Reads all values of a variable, one after the other as the library has them.
fn read_values(
    interface: &Interface,
    session: usize,
    handle: usize,
    words: &mut [u64; MOST_VALUES],
) -> bool {
    let session = std::ptr::with_exposed_provenance_mut(session);
    let handle = std::ptr::with_exposed_provenance_mut(handle);
    // SAFETY: what the library returned; no more values than there is room for, none longer than a
    // word.
    unsafe { interface.read(session, handle, words.as_mut_ptr().cast()) }
}

/// Records the values that the variables have now; from a call of the program's, not in a callback.
pub(crate) fn sample() {
    // Another thread is already sampling.
    let Ok(variables) = VARIABLES.try_lock() else {
        return;
    };
    let Some(variables) = variables.as_ref() else {
        return;
    };
    let recorder = variables.recorder;
    let mut words = [0_u64; MOST_VALUES];
    for one in &variables.sampled {
        if !read_values(
            &variables.interface,
            variables.session,
            one.handle,
            &mut words,
        ) {
            continue;
        }
        for (index, to) in one.to.iter().enumerate() {
            let word = match one.width {
                // Two to a word.
                4 => words[index / 2] >> (32 * (index % 2)) & 0xffff_ffff,
                _ => words[index],
            };
            match to {
                To::Signed(metric) if one.width == 4 => {
                    recorder.metric(metric, i64::from(word as u32 as i32));
                }
                To::Signed(metric) => recorder.metric(metric, word as i64),
                To::Unsigned(metric) => recorder.metric(metric, word),
                To::Float(metric) => recorder.metric(metric, f64::from_bits(word)),
            }
        }
    }
}

/// Returns all handles to the library, before the interface is released: nothing is sampled any
/// more. Returns whether there were any.
pub(crate) fn release() -> bool {
    let Some(variables) = lock(&VARIABLES).take() else {
        return false;
    };
    let session = std::ptr::with_exposed_provenance_mut(variables.session);
    for one in &variables.sampled {
        let mut handle = std::ptr::with_exposed_provenance_mut(one.handle);
        // SAFETY: what the library returned, once.
        unsafe { variables.interface.handle_free(session, &raw mut handle) };
    }
    let mut session = session;
    // SAFETY: what the library returned, once, without handles.
    unsafe { variables.interface.session_free(&raw mut session) };
    true
}

//! Kokkos Tools: functions that Kokkos finds in the libraries that `KOKKOS_TOOLS_LIBS` names, and calls
//! (`Kokkos_Profiling_C_Interface.h`).
//!
//! Kernels, fences, deep copies and regions of the program are regions; sections, which may overlap, are intervals.
#![expect(unsafe_code, reason = "functions that Kokkos calls, with its pointers")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use annals_recorder::{EventType, EventTypeSpec, Recorder, Result, Role, Text, say};

use crate::events;
use crate::named;
use crate::threads::{self, Here, here};

/// The versions of the interface whose functions have the types of those here.
const VERSIONS: std::ops::RangeInclusive<u64> = 20_150_628..=20_211_015;

/// What a thread is in. Constructs of OpenMP have smaller numbers.
const KERNEL: u8 = 200;
const FENCE: u8 = 201;
const COPY: u8 = 202;
const REGION: u8 = 203;

/// Types of events.
struct Types {
    recorder: &'static Recorder,
    /// Device.
    kernel: EventType<(u32,)>,
    /// Space, label, address, bytes.
    allocate: EventType<(Text, Text, u64, u64)>,
    deallocate: EventType<(Text, Text, u64, u64)>,
    /// Space and label from which data are copied, and to which; bytes.
    copy: EventType<(Text, Text, Text, Text, u64)>,
    /// Section, name.
    section: EventType<(u32, Text)>,
    start: EventType<(u32,)>,
    stop: EventType<(u32,)>,
    /// Name.
    event: EventType<(Text,)>,
}

/// Null until Kokkos has begun, and with versions that are not known.
static TYPES: AtomicPtr<Types> = AtomicPtr::new(null_mut());

impl Types {
    fn add(recorder: &'static Recorder) -> Result<Self> {
        let spec = |name: &str, description: &str, role| {
            let spec = EventTypeSpec::new(name);
            spec.description(description).role(role)
        };
        let point = |name, description| spec(name, description, Role::Point);
        let data = |name, description| {
            let spec = point(name, description).element("space").element("label");
            spec.element("address").element_in("bytes", "bytes")
        };
        let section = |name, description, role| {
            let spec = spec(name, description, role).element("section");
            recorder.add_event_type(&spec.key("section"))
        };
        let copied = point("kokkos.copy", "data are copied")
            .element("from_space")
            .element("from")
            .element("to_space")
            .element("to");
        Ok(Self {
            recorder,
            kernel: recorder.add_event_type(
                &point("kokkos.kernel", "a kernel or a fence begins").element("device"),
            )?,
            allocate: recorder.add_event_type(&data("kokkos.allocate", "memory is allocated"))?,
            deallocate: recorder.add_event_type(&data("kokkos.deallocate", "memory is freed"))?,
            copy: recorder.add_event_type(&copied.element_in("bytes", "bytes"))?,
            section: recorder.add_event_type(
                &point("kokkos.section", "a section has this name")
                    .element("section")
                    .element("name"),
            )?,
            start: section("kokkos.section_start", "a section begins", Role::Begin)?,
            stop: section("kokkos.section_stop", "a section ends", Role::End)?,
            event: recorder.add_event_type(
                &point("kokkos.event", "the program has marked this").element("name"),
            )?,
        })
    }
}

/// Returns the calling thread and the types. `None` while nothing is recorded, and in a forked child.
#[inline(always)]
fn recorded() -> Option<(Here, &'static Types)> {
    // SAFETY: null, or leaked by `begin`.
    let types = unsafe { TYPES.load(Ordering::Acquire).as_ref() }?;
    let here = here()?;
    std::ptr::eq(types.recorder, here.events.recorder).then_some((here, types))
}

/// Returns the text that Kokkos passes. Empty for null.
fn text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return b"";
    }
    // SAFETY: Kokkos passes a C string, which lives while the call lasts.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// The name of a space of memory (`Kokkos_Profiling_SpaceHandle`), filled up with zeros.
#[repr(C)]
pub(crate) struct Space([c_char; 64]);

impl Space {
    fn name(&self) -> &[u8] {
        let length = self.0.iter().position(|byte| *byte == 0);
        // SAFETY: its bytes.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), length.unwrap_or(64)) }
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_init_library(_: c_int, version: u64, _: u32, _: *const c_void) {
    // A panic must not cross into Kokkos.
    let _ = std::panic::catch_unwind(|| begin(version));
}

fn begin(version: u64) {
    if !VERSIONS.contains(&version) {
        let (least, most) = (VERSIONS.start(), VERSIONS.end());
        return say(format_args!(
            "Kokkos is not recorded: its interface for tools has version {version}, and known are those from {least} to {most}"
        ));
    }
    if !events::start() {
        return;
    }
    let Some(recorder) = events::get().map(|events| events.recorder) else {
        return;
    };
    match Types::add(recorder) {
        Ok(types) => {
            threads::begin(recorder);
            let _ = recorder.add_property("kokkos.interface", &version.to_string());
            TYPES.store(Box::into_raw(Box::new(types)), Ordering::Release);
        }
        Err(error) => say(format_args!("Kokkos is not recorded: {error}")),
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_finalize_library() {
    TYPES.store(null_mut(), Ordering::Release);
}

/// `Kokkos_Tools_ToolSettings`: whether kernels are waited for with each event, and room for more.
#[repr(C)]
pub(crate) struct Settings([u8; 256]);

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_request_tool_settings(_: u32, settings: *mut Settings) {
    // The program is not to wait for what it would not wait for alone.
    // SAFETY: null, or Kokkos's settings.
    if let Some(settings) = unsafe { settings.as_mut() } {
        settings.0[0] = 0;
    }
}

fn begin_kernel(
    construct: u8,
    name: *const c_char,
    group: &'static str,
    device: u32,
    id: *mut u64,
) {
    let Some((here, types)) = recorded() else {
        return;
    };
    let region = named::region(types.recorder, text(name), group);
    here.enter_with(construct, region, 0, &types.kernel, (device,));
    // SAFETY: null, or Kokkos's place for a number that the end has.
    if let Some(id) = unsafe { id.as_mut() } {
        *id = u64::from(construct);
    }
}

fn leave(construct: u8) {
    if let Some((here, _)) = recorded() {
        here.leave(construct);
    }
}

/// Declares the functions for the begin and the end of kernels.
macro_rules! kernels {
    ($($begin:ident $end:ident $construct:ident $group:literal;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub(crate) extern "C" fn $begin(name: *const c_char, device: u32, id: *mut u64) {
                begin_kernel($construct, name, $group, device, id);
            }

            #[unsafe(no_mangle)]
            pub(crate) extern "C" fn $end(_: u64) {
                leave($construct);
            }
        )*
    };
}

kernels! {
    kokkosp_begin_parallel_for kokkosp_end_parallel_for KERNEL "kokkos.for";
    kokkosp_begin_parallel_reduce kokkosp_end_parallel_reduce KERNEL "kokkos.reduce";
    kokkosp_begin_parallel_scan kokkosp_end_parallel_scan KERNEL "kokkos.scan";
    kokkosp_begin_fence kokkosp_end_fence FENCE "kokkos.fence";
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_push_profile_region(name: *const c_char) {
    if let Some((here, types)) = recorded() {
        here.enter_region(
            REGION,
            named::region(types.recorder, text(name), "kokkos.region"),
        );
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_pop_profile_region() {
    leave(REGION);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_allocate_data(
    space: Space,
    label: *const c_char,
    address: *const c_void,
    bytes: u64,
) {
    if let Some((_, types)) = recorded() {
        let data = (space.name(), text(label), address.addr() as u64, bytes);
        types.recorder.raise(&types.allocate, data);
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_deallocate_data(
    space: Space,
    label: *const c_char,
    address: *const c_void,
    bytes: u64,
) {
    if let Some((_, types)) = recorded() {
        let data = (space.name(), text(label), address.addr() as u64, bytes);
        types.recorder.raise(&types.deallocate, data);
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_begin_deep_copy(
    to_space: Space,
    to: *const c_char,
    _: *const c_void,
    from_space: Space,
    from: *const c_char,
    _: *const c_void,
    bytes: u64,
) {
    let Some((here, types)) = recorded() else {
        return;
    };
    let (from, to) = (text(from), text(to));
    let region = named::region(types.recorder, b"deep copy", "kokkos.copy");
    let copied = (from_space.name(), from, to_space.name(), to, bytes);
    here.enter_with(COPY, region, 0, &types.copy, copied);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_end_deep_copy() {
    leave(COPY);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_create_profile_section(name: *const c_char, id: *mut u32) {
    static SECTIONS: AtomicU32 = AtomicU32::new(0);
    let number = SECTIONS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: null, or Kokkos's place for the section's number.
    if let Some(id) = unsafe { id.as_mut() } {
        *id = number;
    }
    if let Some((_, types)) = recorded() {
        types.recorder.raise(&types.section, (number, text(name)));
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_start_profile_section(section: u32) {
    if let Some((_, types)) = recorded() {
        types.recorder.raise(&types.start, (section,));
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_stop_profile_section(section: u32) {
    if let Some((_, types)) = recorded() {
        types.recorder.raise(&types.stop, (section,));
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_destroy_profile_section(_: u32) {}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_profile_event(name: *const c_char) {
    if let Some((_, types)) = recorded() {
        types.recorder.raise(&types.event, (text(name),));
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_declare_metadata(key: *const c_char, value: *const c_char) {
    let Some((_, types)) = recorded() else {
        return;
    };
    let add = std::panic::AssertUnwindSafe(|| {
        let [key, value] = [key, value].map(|one| annals_recorder::text_of(text(one)));
        let _ = types
            .recorder
            .add_property(&format!("kokkos.{key}"), &value);
    });
    // A panic must not cross into Kokkos.
    let _ = std::panic::catch_unwind(add);
}

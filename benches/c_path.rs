//! Compares the costs of an event from C, through `libannals.so`, and from Rust: the same loops, in one process,
//! alternating.
//!
//! `cargo bench --profile dist -p annals-capi --bench c_path`; `ANNALS_BENCH_ROUNDS` sets the number of rounds
//! (default 101).
#![expect(unsafe_code, reason = "the C loops are loaded at run time and called")]

use std::ffi::{CString, c_char, c_void};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use annals_recorder::{EventType, EventTypeSpec, Options, Recorder, RegionId, Text};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Few enough to fit the buffer: the writers work between the rounds, not in parallel with them.
const CALLS: u64 = 20_000;
/// How long the writers have, after each loop.
const PAUSE: Duration = Duration::from_millis(5);
const LOOPS: [&str; 5] = ["empty", "pair", "three", "six", "text"];

/// Builds the shared library as users get it, and the loops against it.
fn build(directory: &Path) -> PathBuf {
    let prefix = directory.join("prefix");
    let mut install = Command::new("bash");
    install.arg(Path::new(ROOT).join("recorder/capi/install.sh"));
    install
        .arg("--prefix")
        .arg(&prefix)
        .env("CARGO", env!("CARGO"));
    let status = install.stdout(std::process::Stdio::null()).status();
    assert!(status.expect("bash runs").success());
    let library = directory.join("c_path.so");
    let mut rpath = std::ffi::OsString::from("-Wl,-rpath,");
    rpath.push(prefix.join("lib"));
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-O2", "-shared", "-fPIC", "-Wall", "-Werror"]);
    compile.arg("-I").arg(prefix.join("include"));
    compile.arg(Path::new(ROOT).join("benches/c_path.c"));
    compile.arg("-o").arg(&library);
    compile
        .arg("-L")
        .arg(prefix.join("lib"))
        .arg("-lannals")
        .arg(rpath);
    assert!(compile.status().expect("cc runs").success());
    library
}

/// The loops in C.
struct C {
    loops: Vec<extern "C" fn(u64)>,
}

impl C {
    fn start(library: &Path, directory: &Path) -> Self {
        let c = |path: &Path| CString::new(path.to_str().expect("UTF-8")).expect("no zero in it");
        // SAFETY: the path is a C string; the library's initialisers are those of libannals.so.
        let handle = unsafe { libc::dlopen(c(library).as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{} is loaded", library.display());
        let find = |name: &str| -> *mut c_void {
            let name = CString::new(name).expect("no zero in it");
            // SAFETY: the handle is open, the name a C string.
            let function = unsafe { libc::dlsym(handle, name.as_ptr()) };
            assert!(!function.is_null(), "{name:?} is there");
            function
        };
        // SAFETY: benches/c_path.c defines it so.
        let start: extern "C" fn(*const c_char) -> i32 =
            unsafe { std::mem::transmute(find("c_path_start")) };
        assert_eq!(start(c(directory).as_ptr()), 0, "the recorder starts");
        let loops = LOOPS.map(|name| {
            // SAFETY: benches/c_path.c defines them so.
            unsafe { std::mem::transmute(find(&format!("c_path_{name}"))) }
        });
        Self {
            loops: loops.to_vec(),
        }
    }
}

/// The loops in Rust. Each function that raises is out of line, as the calls from C are.
struct Rust {
    recorder: Recorder,
    region: RegionId,
    three: EventType<(u32, u32, u64)>,
    six: EventType<(u32, u32, u32, u64, u64, u32)>,
    text: EventType<(Text,)>,
}

impl Rust {
    fn start(directory: &Path) -> Self {
        let recorder = Recorder::start(&Options::new(directory)).expect("a recorder");
        let spec = |name: &str, elements: &[&str]| {
            let spec = EventTypeSpec::new(name);
            elements.iter().fold(spec, |spec, name| spec.element(*name))
        };
        let three = recorder.add_event_type(&spec("three", &["a", "b", "c"]));
        let six = recorder.add_event_type(&spec("six", &["a", "b", "c", "d", "e", "f"]));
        let text = recorder.add_event_type(&spec("text", &["text"]));
        Self {
            region: recorder.add_region("region").expect("a region"),
            three: three.expect("an event type"),
            six: six.expect("an event type"),
            text: text.expect("an event type"),
            recorder,
        }
    }

    #[inline(never)]
    fn enter(&self, region: RegionId) {
        self.recorder.enter(region);
    }

    #[inline(never)]
    fn leave(&self, region: RegionId) {
        self.recorder.leave(region);
    }

    #[inline(never)]
    fn raise_three(&self, a: u32, b: u32, c: u64) {
        self.recorder.raise(&self.three, (a, b, c));
    }

    #[inline(never)]
    fn raise_six(&self, a: u32, b: u32, c: u32, d: u64, e: u64, f: u32) {
        self.recorder.raise(&self.six, (a, b, c, d, e, f));
    }

    #[inline(never)]
    fn raise_text(&self, text: &[u8]) {
        self.recorder.raise(&self.text, (text,));
    }

    fn run(&self, name: &str, calls: u64) {
        let mut random = 88_172_645_463_325_252_u64;
        for call in 0..calls {
            let word = next(&mut random);
            work(word);
            match name {
                "pair" => {
                    self.enter(self.region);
                    work(word >> 20);
                    self.leave(self.region);
                }
                "three" => self.raise_three(word as u32 >> 20 & 7, 42, 4096),
                "six" => self.raise_six(word as u32 & 63, 0, word as u32 >> 8 & 3, 4096, call, 3),
                "text" => self.raise_text(b"state changed"),
                _ => {
                    black_box(word);
                }
            }
        }
    }
}

/// xorshift64 (Marsaglia, "Xorshift RNGs", 2003), as in C.
#[inline(always)]
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// What the program does between events: 0 to 15 dependent steps.
#[inline(always)]
fn work(word: u64) {
    let mut value = word;
    for _ in 0..word % 16 {
        value = black_box(value.rotate_left(5) ^ word);
    }
}

fn ns_per_call(run: impl FnOnce()) -> f64 {
    std::thread::sleep(PAUSE);
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64 / CALLS as f64
}

/// Of several rounds, the first quartile: others use the processor, too.
fn quartile(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 4]
}

fn main() {
    let rounds = std::env::var("ANNALS_BENCH_ROUNDS").ok();
    let rounds: usize = rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(101);
    let scratch = std::env::temp_dir().join(format!("annals-c-path-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).expect("a directory");
    let c = C::start(&build(&scratch), &scratch.join("c"));
    let rust = Rust::start(&scratch.join("rust"));
    let mut times = vec![[const { Vec::new() }; 2]; LOOPS.len()];
    for _ in 0..rounds.max(1) {
        for ((name, of_loop), in_c) in LOOPS.iter().zip(&mut times).zip(&c.loops) {
            of_loop[0].push(ns_per_call(|| rust.run(name, CALLS)));
            of_loop[1].push(ns_per_call(|| in_c(CALLS)));
        }
    }
    println!(
        "ns per call, first quartile of {rounds} rounds; the loop without events is taken off"
    );
    println!(
        "{:<28}{:>8}{:>8}{:>8}{:>16}",
        "", "Rust", "C", "C more", "more per event"
    );
    let times = times.into_iter().map(|both| both.map(quartile));
    let times: Vec<[f64; 2]> = times.collect();
    let empty = times[0];
    for (name, [rust, c]) in LOOPS.iter().zip(&times).skip(1) {
        let title = match *name {
            "pair" => "enter + leave",
            "three" => "event with three elements",
            "six" => "event with six elements",
            _ => "event with a text",
        };
        let (rust, c) = (rust - empty[0], c - empty[1]);
        let more = c - rust;
        let events = if *name == "pair" { 2.0 } else { 1.0 };
        let each = more / events;
        println!("{title:<28}{rust:>8.1}{c:>8.1}{more:>8.1}{each:>16.1}");
    }
    rust.recorder.finish();
    drop(rust);
    let _ = std::fs::remove_dir_all(&scratch);
}

//! Extra work by functions that samples have shown: of all sampled call paths in a region, the function that has most of it, and its line.

use annals_format::{CallPathId, CodePlace, Definitions, RegionId, StringId};
use rustc_hash::FxHashMap;

use crate::call_paths::CallPaths;

/// In these libraries, a thread waits for others: starts of their files' names.
const THREAD_LIBRARIES: [&str; 3] = ["libgomp", "libiomp", "libomp"];

/// Functions of these libraries, too, are named by their caller in the program.
const RUNTIME_LIBRARIES: [&str; 14] = [
    "ld-linux",
    "libc++",
    "libc-",
    "libc.",
    "libgcc_s",
    "libgfortran",
    "libm-",
    "libm.",
    "libmvec",
    "libpthread",
    "libquadmath",
    "libstdc++",
    "linux-vdso",
    "[vdso]",
];

/// Parts of the paths of libraries' sources that are compiled into programs: of C++, and of Rust as it is released and installed.
const RUNTIME_SOURCES: [&str; 3] = ["/include/c++/", "/rustc/", "/rustlib/src/rust/library/"];

/// A call of a sample's path: function, source file and line.
type Call = (RegionId, StringId, u32);

/// The function with most of the sampled work in a path.
#[derive(Clone, Debug)]
pub(crate) struct SampledWork {
    /// The path in which the samples were taken.
    pub(crate) around: u32,
    /// Functions from the outermost on, without those of the path around.
    pub(crate) functions: Vec<RegionId>,
    /// Source file and line of the function that has most of it; line 0 if it is not known.
    pub(crate) file: StringId,
    pub(crate) line: u32,
    /// The work, nanoseconds, that was given for its paths.
    pub(crate) ns: i64,
    /// Whether more than a tenth of it is waiting for other threads of the process.
    pub(crate) waits_for_threads: bool,
}

/// Finds, in each path around samples, the innermost function with more than half of the work of these samples: paths and nanoseconds.
/// Returns the rest by path, too: with the samples of no such function in the path around them.
pub(crate) fn sampled_work(
    definitions: &Definitions,
    paths: &CallPaths,
    work: &FxHashMap<u32, i64>,
) -> (FxHashMap<u32, i64>, Vec<SampledWork>) {
    let mut rest: FxHashMap<u32, i64> = FxHashMap::default();
    let mut sampled: FxHashMap<u32, Vec<(Vec<Call>, i64)>> = FxHashMap::default();
    for (path, ns) in work {
        match paths.sample(*path) {
            Some((around, sample)) => {
                let calls = calls_of(definitions, paths, around, sample);
                sampled.entry(around).or_default().push((calls, *ns));
            }
            None => *rest.entry(*path).or_default() += ns,
        }
    }
    let mut found = Vec::new();
    for (around, samples) in sampled {
        let all_ns: i64 = samples.iter().map(|sample| sample.1).sum();
        let most = most_of(definitions, around, samples);
        let named_ns = most.as_ref().map_or(0, |most| most.ns);
        *rest.entry(around).or_default() += all_ns - named_ns;
        found.extend(most);
    }
    rest.retain(|_, ns| *ns != 0);
    (rest, found)
}

fn most_of(
    definitions: &Definitions,
    around: u32,
    mut samples: Vec<(Vec<Call>, i64)>,
) -> Option<SampledWork> {
    let all_ns: i64 = samples.iter().map(|sample| sample.1).sum();
    let mut functions: Vec<RegionId> = Vec::new();
    let mut found = None;
    loop {
        let depth = functions.len();
        let mut by_function: FxHashMap<RegionId, i64> = FxHashMap::default();
        for (calls, ns) in &samples {
            if let Some(call) = calls.get(depth) {
                *by_function.entry(call.0).or_default() += ns;
            }
        }
        let Some((function, ns)) = by_function.into_iter().max_by_key(|(id, ns)| (*ns, *id)) else {
            return found;
        };
        if 2 * ns <= all_ns {
            return found;
        }
        samples.retain(|(calls, _)| calls.get(depth).is_some_and(|call| call.0 == function));
        functions.push(function);
        if is_of_program(definitions, function) {
            let (file, line) = main_line(&samples, depth);
            let waiting = samples
                .iter()
                .filter(|(calls, _)| is_waiting(definitions, calls));
            let waiting_ns: i64 = waiting.map(|sample| sample.1).sum();
            found = Some(SampledWork {
                waits_for_threads: 10 * waiting_ns > ns,
                around,
                functions: functions.clone(),
                file,
                line,
                ns,
            });
        }
    }
}

/// Returns the line of the calls at a depth with most of the work.
fn main_line(samples: &[(Vec<Call>, i64)], depth: usize) -> (StringId, u32) {
    let mut by_line: FxHashMap<(StringId, u32), i64> = FxHashMap::default();
    for (calls, ns) in samples {
        let (_, file, line) = calls[depth];
        *by_line.entry((file, line)).or_default() += ns;
    }
    let most = by_line.into_iter().max_by_key(|(line, ns)| (*ns, *line));
    most.map_or((StringId::new(0), 0), |most| most.0)
}

fn is_of_program(definitions: &Definitions, function: RegionId) -> bool {
    let region = definitions.regions.get(&function);
    let source = region.map_or("", |region| definitions.string(region.file));
    is_code_of_program(file_of(definitions, function), source)
        && definitions.region_name(function) != "_start"
}

/// Returns the name of the executable or library that contains a function.
fn file_of(definitions: &Definitions, function: RegionId) -> &str {
    let region = definitions.regions.get(&function);
    region.map_or("", |region| definitions.string(region.group))
}

/// Returns whether a function in this executable or library, and with this source file, is the program's, and not of a language or of
/// the system.
pub(crate) fn is_code_of_program(module: &str, source: &str) -> bool {
    let mut others = RUNTIME_LIBRARIES.iter().chain(&THREAD_LIBRARIES);
    let mut sources = RUNTIME_SOURCES.iter();
    !others.any(|start| module.starts_with(start)) && !sources.any(|part| source.contains(part))
}

/// Returns whether the last function of the program has called a library of threads.
fn is_waiting(definitions: &Definitions, calls: &[Call]) -> bool {
    let is_of_program = |call: &Call| is_of_program(definitions, call.0);
    let last = calls.iter().rposition(is_of_program);
    calls[last.map_or(0, |last| last + 1)..].iter().any(|call| {
        let file = file_of(definitions, call.0);
        THREAD_LIBRARIES.iter().any(|start| file.starts_with(start))
    })
}

/// Returns the calls of a sample from the outermost on, without those that the path around it has already.
fn calls_of(
    definitions: &Definitions,
    paths: &CallPaths,
    around: u32,
    sample: CallPathId,
) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut next = Some(sample);
    while let Some(path) = next.and_then(|id| definitions.call_paths.get(&id)) {
        if let CodePlace::Line(region, file, line) = path.place {
            calls.push((region, file, line));
        }
        next = path.caller;
    }
    calls.reverse();
    let entered = paths.region(around);
    let known = calls.iter().rposition(|call| Some(call.0) == entered);
    calls.drain(..known.map_or(0, |last| last + 1));
    calls
}

impl SampledWork {
    /// Returns all paths of samples of this function.
    pub(crate) fn paths<'a>(
        &'a self,
        definitions: &'a Definitions,
        paths: &'a CallPaths,
    ) -> impl Iterator<Item = u32> + 'a {
        paths.samples().filter(move |path| {
            paths.sample(*path).is_some_and(|(around, sample)| {
                let calls = calls_of(definitions, paths, around, sample);
                let functions = calls.iter().map(|call| call.0);
                around == self.around
                    && functions
                        .take(self.functions.len())
                        .eq(self.functions.iter().copied())
            })
        })
    }

    /// Returns how many of the functions, the innermost ones, distinguish this path from others to the same function; at most `most`.
    pub(crate) fn distinct(
        &self,
        definitions: &Definitions,
        paths: &CallPaths,
        most: usize,
    ) -> usize {
        let mut distinct = 1;
        for (around, sample) in paths.samples().filter_map(|path| paths.sample(path)) {
            let calls = calls_of(definitions, paths, around, sample);
            let functions: Vec<RegionId> = calls.iter().map(|call| call.0).collect();
            for end in 1..=functions.len() {
                let other = &functions[..end];
                let pairs = other.iter().rev().zip(self.functions.iter().rev());
                let common = pairs.take_while(|(one, other)| one == other).count();
                if common > 0 && other != self.functions {
                    distinct = distinct.max(common + 1);
                }
            }
        }
        distinct.min(most).min(self.functions.len())
    }

    /// Returns the names of the regions and functions, from the outermost on.
    pub(crate) fn names(&self, definitions: &Definitions, paths: &CallPaths) -> Vec<String> {
        let mut names = paths.names(self.around, definitions);
        let functions = self.functions.iter();
        names.extend(functions.map(|function| definitions.region_name(*function)));
        names
    }
}

/// Returns by how much the difference between a sampled time and the mean of its peers may be chance: two standard deviations, nanoseconds.
/// Samples are a Poisson process: the variance of a sum of n samples is n periods squared.
pub(crate) fn difference_error_ns(own_ns: i64, mean_ns: f64, peers: usize, period_ns: f64) -> f64 {
    let variance = (own_ns as f64 + mean_ns / peers.max(1) as f64) * period_ns;
    2.0 * variance.sqrt()
}

/// Returns how much processor time a sample of a process represents, as it was asked for, nanoseconds. `None` if it is not sampled.
pub(crate) fn sampling_period_ns(
    definitions: &Definitions,
    process: annals_format::ProcessId,
) -> Option<i64> {
    let key = annals_format::names::property::SAMPLING;
    let mut properties = definitions.properties.iter();
    let property = properties.find(|d| d.process == process && definitions.string(d.key) == key)?;
    let (_, period) = definitions.string(property.value).rsplit_once(' ')?;
    period.parse().ok()
}

#[cfg(test)]
mod tests {
    use annals_format::{CallPath, Definition, Region};

    use super::*;

    /// Functions `main` (0), `solve` (1), `exp` (2, of libm), `write` (3), and `sum` (4, compiled into the program), with their paths.
    fn definitions() -> Definitions {
        let mut d = Definitions::default();
        for (number, text) in [
            "",
            "main",
            "solve",
            "exp",
            "write",
            "sum",
            "heat.c",
            "libm.so.6",
            "/rustc/5980/library/core/src/iter/traits/accum.rs",
        ]
        .into_iter()
        .enumerate()
        {
            d.add(Definition::String(
                StringId::new(number as u32),
                text.to_owned(),
            ));
        }
        for (id, group, file) in [(0, 0, 6), (1, 0, 6), (2, 7, 6), (3, 0, 6), (4, 0, 8)] {
            d.add(Definition::Region(Region {
                id: RegionId::new(id),
                name: StringId::new(id + 1),
                file: StringId::new(file),
                line: 1,
                group: StringId::new(group),
            }));
        }
        // main:10; main:10 > solve:61; main:10 > solve:61 > exp; main:10 > write:90; main:10 > solve:62; main:10 > solve:61 > sum.
        for (id, caller, region, line) in [
            (0, None, 0, 10),
            (1, Some(0), 1, 61),
            (2, Some(1), 2, 5),
            (3, Some(0), 3, 90),
            (4, Some(0), 1, 62),
            (5, Some(1), 4, 164),
        ] {
            d.add(Definition::CallPath(CallPath {
                id: CallPathId::new(id),
                caller: caller.map(CallPathId::new),
                place: CodePlace::Line(RegionId::new(region), StringId::new(6), line),
            }));
        }
        d
    }

    fn found(work: &[(u32, i64)]) -> (FxHashMap<u32, i64>, Vec<SampledWork>, CallPaths) {
        let mut paths = CallPaths::default();
        let numbers = work.iter().map(|(sample, ns)| {
            (
                paths.sampled(CallPaths::OUTSIDE, CallPathId::new(*sample)),
                *ns,
            )
        });
        let numbers: FxHashMap<u32, i64> = numbers.collect();
        let (rest, found) = sampled_work(&definitions(), &paths, &numbers);
        (rest, found, paths)
    }

    #[test]
    fn the_innermost_function_of_the_program_with_most_of_the_work_is_named_with_its_line() {
        let (rest, found, paths) = found(&[(1, 10), (2, 10), (5, 60), (4, 10), (3, 10)]);
        let d = definitions();
        let [most] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(most.names(&d, &paths), ["main", "solve"]);
        assert_eq!((most.line, most.ns), (61, 90));
        assert_eq!(rest[&CallPaths::OUTSIDE], 10);
        assert_eq!(most.paths(&d, &paths).count(), 4);
        assert_eq!(most.distinct(&d, &paths, 3), 1);
        let other = SampledWork {
            functions: vec![RegionId::new(3), RegionId::new(1)],
            ..most.clone()
        };
        assert_eq!(other.distinct(&d, &paths, 3), 2);
    }

    #[test]
    fn work_that_is_divided_is_that_of_the_caller() {
        let (rest, found, paths) = found(&[(1, 50), (3, 50)]);
        let [most] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(most.names(&definitions(), &paths), ["main"]);
        assert_eq!(most.ns, 100);
        assert!(rest.is_empty());
    }
}

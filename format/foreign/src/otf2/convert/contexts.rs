//! Calling contexts of samples: they become call paths. And the generators of interrupts, which say what a sample represents.

use crate::otf2::{DefinitionKind, GlobalDefinition, GlobalDefinitions};
use rustc_hash::{FxHashMap, FxHashSet};

/// One calling context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// Number of its call path: larger than its caller's.
    pub(crate) path: u32,
    /// Number of its caller's call path.
    pub(crate) caller: Option<u32>,
    /// Numbers, in the archive, of its region, and of the source file in which it is.
    pub(crate) region: u64,
    pub(crate) file: Option<u64>,
    /// Line of the source file, or 0.
    pub(crate) line: u32,
}

/// The calling contexts and generators of interrupts of an archive.
#[derive(Default, Debug)]
pub(crate) struct Contexts {
    by_id: FxHashMap<u64, Context>,
    /// Ids, by the number of the call path.
    ids: Vec<u64>,
    /// By generator of interrupts, its period in nanoseconds if it is a time.
    periods: FxHashMap<u64, u64>,
}

impl Contexts {
    pub(crate) fn of(definitions: &GlobalDefinitions) -> Self {
        let mut contexts = Self::default();
        for (id, _) in definitions.of_kind(DefinitionKind::CallingContext) {
            contexts.add(definitions, id);
        }
        let generators = definitions.of_kind(DefinitionKind::InterruptGenerator);
        let periods = generators.filter_map(|(id, generator)| Some((id, period_ns(generator)?)));
        contexts.periods = periods.collect();
        contexts
    }

    /// Adds a context, after its callers. One of a circle of callers has none.
    fn add(&mut self, definitions: &GlobalDefinitions, id: u64) {
        let (mut chain, mut seen) = (Vec::new(), FxHashSet::default());
        let mut next = Some(id);
        while let Some(id) = next.filter(|id| !self.by_id.contains_key(id) && seen.insert(*id)) {
            let Some(found) = definitions.find(DefinitionKind::CallingContext, id) else {
                break;
            };
            chain.push((id, found));
            next = found.bits("parent");
        }
        for (id, found) in chain.into_iter().rev() {
            let place = found
                .bits("source_code_location")
                .and_then(|place| definitions.find(DefinitionKind::SourceCodeLocation, place));
            let line = place.and_then(|place| place.bits("line_number"));
            let caller = found
                .bits("parent")
                .and_then(|caller| self.by_id.get(&caller));
            let context = Context {
                path: self.ids.len() as u32,
                caller: caller.map(|caller| caller.path),
                region: found.bits("region").unwrap_or(u64::MAX),
                file: place.and_then(|place| place.bits("file")),
                line: line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0),
            };
            self.by_id.insert(id, context);
            self.ids.push(id);
        }
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Context> {
        self.by_id.get(&id)
    }

    /// Returns the period of a generator of interrupts, nanoseconds. `None` if it counts other things than time.
    pub(crate) fn period_ns(&self, generator: u64) -> Option<u64> {
        self.periods.get(&generator).copied()
    }

    /// Returns these contexts and all their callers, callers first.
    pub(crate) fn with_callers(&self, ids: impl Iterator<Item = u64>) -> Vec<Context> {
        let mut is_wanted = vec![false; self.ids.len()];
        for id in ids {
            let mut next = self.get(id).map(|context| context.path);
            while let Some(path) = next.filter(|path| !is_wanted[*path as usize]) {
                is_wanted[path as usize] = true;
                next = self.by_id[&self.ids[path as usize]].caller;
            }
        }
        let wanted = self.ids.iter().zip(is_wanted).filter(|(_, wanted)| *wanted);
        wanted.map(|(id, _)| self.by_id[id]).collect()
    }
}

/// Returns the period of a generator of interrupts: base to the power of exponent, times period, seconds.
fn period_ns(generator: &GlobalDefinition) -> Option<u64> {
    const TIME: u64 = 0;
    let bits = |name| generator.bits(name);
    let base = if bits("base")? == 0 { 2.0_f64 } else { 10.0 };
    let power = base.powi(i32::try_from(bits("exponent")? as i64).ok()?);
    let ns = 1e9 * bits("period")? as f64 * power;
    let is_time = bits("interrupt_generator_mode")? == TIME;
    (is_time && (1.0..1e18).contains(&ns)).then(|| ns.round() as u64)
}

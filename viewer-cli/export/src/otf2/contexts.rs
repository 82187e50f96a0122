//! Call paths of samples, as calling contexts; and the generator of interrupts by which a process was sampled.

use super::definitions::OutputDefinitions;
use super::inputs::{UNDEFINED, bits};
use annals_foreign::otf2::DefinitionKind;
use annals_foreign::otf2::conventions::UNKNOWN_CALLER;
use annals_format::names::property;
use annals_format::{CallPathId, CodePlace, Definitions, ProcessId, StringId};

impl OutputDefinitions<'_> {
    /// Returns calling context, unwind distance and generator of interrupts of a sample. `None` if its call path is lost.
    pub(super) fn sample(
        &mut self,
        process: ProcessId,
        location: usize,
        path: u64,
    ) -> Option<[u64; 3]> {
        let path = u32::try_from(path).ok().map(CallPathId::new)?;
        let context = self.calling_context(path)?;
        let last = self.contexts.last.insert(location, path);
        let distance = changed_calls(self.ours, last, path);
        Some([context, distance, self.generator(process)])
    }

    fn calling_context(&mut self, path: CallPathId) -> Option<u64> {
        // Callers have smaller numbers, and may be many.
        let mut chain = Vec::new();
        let mut next = Some(path);
        while let Some(path) = next.filter(|path| !self.contexts.by_path.contains_key(path)) {
            let found = self.ours.call_paths.get(&path)?;
            chain.push(*found);
            next = found.caller;
        }
        for found in chain.into_iter().rev() {
            let id = self.new_id(DefinitionKind::CallingContext);
            let (region, place) = match found.place {
                CodePlace::Line(region, file, line) => (
                    self.region(region.get().into()),
                    self.source_place(file, line),
                ),
                CodePlace::Unknown | CodePlace::Address(..) => (self.unknown_region(), UNDEFINED),
            };
            let caller = found
                .caller
                .and_then(|caller| self.contexts.by_path.get(&caller));
            let caller = caller.copied().unwrap_or(UNDEFINED);
            let data = [id, region, place, caller].map(bits).to_vec();
            self.add("CallingContext", id, data);
            self.contexts.by_path.insert(found.id, id);
        }
        self.contexts.by_path.get(&path).copied()
    }

    fn source_place(&mut self, file: StringId, line: u32) -> u64 {
        if line == 0 {
            return UNDEFINED;
        }
        if let Some(id) = self.contexts.places.get(&(file, line)) {
            return *id;
        }
        let id = self.new_id(DefinitionKind::SourceCodeLocation);
        let text = self.string_of(file.get().into());
        self.add(
            "SourceCodeLocation",
            id,
            [id, text, line.into()].map(bits).to_vec(),
        );
        self.contexts.places.insert((file, line), id);
        id
    }

    fn unknown_region(&mut self) -> u64 {
        let known = self.contexts.unknown;
        let id = known.unwrap_or_else(|| self.new_region(UNKNOWN_CALLER, "", 0, 1));
        self.contexts.unknown = Some(id);
        id
    }

    /// Returns the generator of interrupts of a process: the one that its property names, with a period in nanoseconds.
    fn generator(&mut self, process: ProcessId) -> u64 {
        if let Some(id) = self.contexts.generators.get(&process) {
            return *id;
        }
        let ours = self.ours;
        let mut properties = ours.properties.iter();
        let property =
            properties.find(|d| d.process == process && ours.string(d.key) == property::SAMPLING);
        let value = property.map_or("", |property| ours.string(property.value));
        let parts = value.rsplit_once(' ');
        let parts = parts.and_then(|(name, period)| Some((name, period.parse().ok()?)));
        let (name, period_ns) = parts.unwrap_or((value, 0));
        let id = self.new_id(DefinitionKind::InterruptGenerator);
        let name = self.string(name);
        // By time; period times ten to the power of -9, seconds.
        let data = [id, name, 0, 1, -9_i64 as u64, period_ns]
            .map(bits)
            .to_vec();
        self.add("InterruptGenerator", id, data);
        self.contexts.generators.insert(process, id);
        id
    }
}

/// Returns how many calls of a path have changed since the path before.
fn changed_calls(definitions: &Definitions, last: Option<CallPathId>, path: CallPathId) -> u64 {
    let caller = |path: CallPathId| definitions.call_paths.get(&path)?.caller;
    let (mut one, mut other, mut changed) = (Some(path), last, 0);
    while one != other {
        // Callers have smaller numbers: the larger one is not a caller of the other.
        if one > other {
            one = one.and_then(caller);
            changed += 1;
        } else {
            other = other.and_then(caller);
        }
    }
    changed
}

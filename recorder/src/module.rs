//! Functions as regions: their file, and their address in it.
//! Their names are resolved later, from symbols.

use annals_format::{
    CallPath, CallPathId, CodePlace, Definition, Function, Module, ModuleId, Region, RegionId,
    StringId,
};

use crate::builtin::PROCESS;
use crate::clock::reference_ns;
use crate::definer::Definer;
use crate::error::{RecorderError, Result};
use crate::gate::Moment;
use crate::memory::FunctionEntry;
use crate::raiser::Raiser;
use crate::recorder::Recorder;

/// A program or library file in the process's memory, to be added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModuleSpec {
    /// Where the file is.
    pub path: String,
    /// The build id that the linker assigned to this build; empty when it has none.
    pub build_id: Vec<u8>,
    /// Address in memory less address in the file; wraps.
    pub base: u64,
}

impl Recorder {
    /// Adds a module. A module that is loaded again is added again.
    ///
    /// # Errors
    /// `RecorderError::Finished`, or `RecorderError::Full` if there is no room for another
    /// definition.
    pub fn add_module(&self, spec: &ModuleSpec) -> Result<ModuleId> {
        self.define(|definer| definer.module(spec))
    }

    /// Defines that a module is not in the process's memory any more.
    ///
    /// # Errors
    /// If there is no such module, the recording is finished, or there is no room for another
    /// definition.
    pub fn remove_module(&self, module: ModuleId) -> Result<()> {
        self.define(|definer| {
            let mut module = definer.known_module(module)?.clone();
            module.unloaded_ns = Some(reference_ns());
            definer.add(Definition::Module(module))
        })
    }

    /// Adds a string, or finds it: for a [`CodePlace::Line`].
    ///
    /// # Errors
    /// `RecorderError::Finished`, or `RecorderError::Full` if there is no room for another
    /// definition.
    pub fn add_string(&self, text: &str) -> Result<StringId> {
        self.define(|definer| definer.string(text))
    }

    /// Adds a call path: a place in code that was reached from the call path of its caller.
    ///
    /// # Errors
    /// `RecorderError::Finished`, or `RecorderError::Full` if there is no room for another
    /// definition.
    pub fn add_call_path(
        &self,
        caller: Option<CallPathId>,
        place: CodePlace,
    ) -> Result<CallPathId> {
        self.define(|definer| {
            let id = CallPathId::new(definer.definitions().call_paths.len() as u32);
            let path = CallPath { id, caller, place };
            definer.add(Definition::CallPath(path))?;
            Ok(id)
        })
    }

    /// Defines a region that was [reserved](Raiser::reserve_region): the function at this address
    /// of the module's file. It is called `module+0xaddress` until someone adds a symbol.
    ///
    /// # Errors
    /// If there is no such module, the recording is finished, or there is no room for another
    /// definition.
    pub fn define_function(&self, region: RegionId, module: ModuleId, offset: u64) -> Result<()> {
        self.define(|definer| definer.function(region, module, offset))
    }

    /// Defines a region that was [reserved](Raiser::reserve_region): a construct, such as a loop that threads share, at this address of the
    /// module's file. The line of the address is added to its name when someone reads the file's debug information.
    ///
    /// # Errors
    /// If there is no such module, the recording is finished, or there is no room for another
    /// definition.
    pub fn define_construct(
        &self,
        region: RegionId,
        module: ModuleId,
        offset: u64,
        name: &str,
        group: &str,
    ) -> Result<()> {
        self.define(|definer| {
            definer.known_module(module)?;
            definer.reserved(region, name, group)?;
            definer.add(Definition::Function(Function {
                region,
                module,
                offset,
            }))
        })
    }

    /// Defines a region that was [reserved](Raiser::reserve_region) and is no function of a module, with a name and a group.
    ///
    /// # Errors
    /// `RecorderError::Finished`, or `RecorderError::Full` if there is no room for another
    /// definition.
    pub fn define_reserved(&self, region: RegionId, name: &str, group: &str) -> Result<()> {
        self.define(|definer| definer.reserved(region, name, group))
    }
}

impl Raiser<'_> {
    /// Reserves a region's number, to be raised with immediately and defined soon.
    /// Returns `None` if no number is left. Safe in signal handlers. Until the region is defined or
    /// [announced](Self::announce_function), a reader of a killed process's recording finds the number only.
    pub fn reserve_region(self) -> Option<RegionId> {
        self.shared().next_region_id()
    }

    /// Returns how many functions can be announced that are not defined yet.
    pub fn function_entries(self) -> usize {
        self.shared().memory.division().function_count
    }

    /// Writes into the live file which function a reserved region is, so that a reader of a killed process's recording
    /// can name it. `entry` is less than [`Self::function_entries`]: no other thread uses this entry, and
    /// the region that it announced before is defined. Safe in signal handlers, and waits for nothing.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn announce_function(self, entry: usize, region: RegionId, function: &FunctionEntry) {
        if self.shared().guard.is_on() {
            self.shared().memory.put_function(entry, region, function);
        }
    }

    /// Returns whether any rule is about regions, so that a reserved region needs [`Self::rule_region`].
    pub fn rules_name_regions(self) -> bool {
        self.shared().rules.name_regions()
    }

    /// Applies the rules to a reserved region, by its name, before its first event. Safe in signal handlers, and
    /// waits for nothing.
    pub fn rule_region(self, region: RegionId, name: &str) {
        let shared = self.shared();
        let gates = &shared.gates;
        gates.rule_region(&shared.rules, region, name, Moment::First);
    }

    /// Writes into the live file where a file is in memory that is not added yet, for the functions in it. Returns its number for
    /// [`FunctionModule::Announced`](crate::FunctionModule::Announced); `None` if no entry is left, or its path or build id is too long for one. Safe in
    /// signal handlers, and waits for nothing.
    pub fn announce_module(self, path: &[u8], build_id: &[u8], base: u64) -> Option<u16> {
        let shared = self.shared();
        let number = shared.guard.is_on().then(|| shared.next_module_entry())??;
        let is_written = shared.memory.put_module(number, path, build_id, base);
        is_written.then_some(number as u16)
    }
}

impl Definer<'_> {
    fn module(&mut self, spec: &ModuleSpec) -> Result<ModuleId> {
        let id = ModuleId::new(self.definitions().modules.len() as u32);
        let path = self.string(&spec.path)?;
        let module = Module {
            id,
            process: PROCESS,
            path,
            // More than any linker makes, and than readers take.
            build_id: spec.build_id.iter().copied().take(64).collect(),
            base: spec.base,
            loaded_ns: reference_ns(),
            unloaded_ns: None,
        };
        self.add(Definition::Module(module))?;
        Ok(id)
    }

    fn known_module(&self, module: ModuleId) -> Result<&Module> {
        let known = self.definitions().modules.get(&module);
        known.ok_or(RecorderError::Unknown {
            what: "module",
            number: module.get(),
        })
    }

    fn function(&mut self, region: RegionId, module: ModuleId, offset: u64) -> Result<()> {
        let path = self.definitions().string(self.known_module(module)?.path);
        let (name, file) = (
            Module::function_name(path, offset),
            Module::file_name(path).to_owned(),
        );
        self.reserved(region, &name, &file)?;
        let function = Function {
            region,
            module,
            offset,
        };
        self.add(Definition::Function(function))
    }

    fn reserved(&mut self, id: RegionId, name: &str, group: &str) -> Result<()> {
        let region = Region {
            id,
            name: self.string(name)?,
            file: self.string("")?,
            line: 0,
            group: self.string(group)?,
        };
        self.new_region(region, Moment::Later)
    }
}

#[cfg(test)]
mod tests {
    use annals_format::{Recording, Reference};

    use super::*;
    use crate::{EventTypeSpec, Options};

    #[test]
    fn a_reserved_region_can_be_raised_before_it_is_defined() {
        let directory = tempfile::tempdir().unwrap();
        let recorder = Recorder::start(&Options::new(directory.path())).unwrap();
        let before = recorder.add_region("before").unwrap();
        let function = recorder.raiser().reserve_region().unwrap();
        let behind = recorder.add_region("behind").unwrap();
        assert_eq!(
            [before, function, behind].map(RegionId::get),
            [0, 1, 2],
            "one row of numbers"
        );
        recorder.raiser().enter(function).unwrap();
        recorder.raiser().leave(function).unwrap();
        let spec = ModuleSpec {
            path: "/usr/lib/libx.so.1".to_owned(),
            build_id: vec![1, 2, 3],
            base: 0x7000,
        };
        let module = recorder.add_module(&spec).unwrap();
        recorder.define_function(function, module, 0x1139).unwrap();
        recorder.remove_module(module).unwrap();
        assert!(recorder.remove_module(ModuleId::new(7)).is_err());
        // Other definitions can still be added.
        let spec = EventTypeSpec::new("x").reference("region", Reference::Region);
        recorder.add_event_type::<(RegionId,)>(&spec).unwrap();
        let status = recorder.finish();
        let read = Recording::read(&std::fs::read(status.path).unwrap(), None, |_| false).unwrap();
        let d = &read.definitions;
        assert_eq!(d.region_name(function), "libx.so.1+0x1139");
        assert_eq!(d.functions[&function].offset, 0x1139);
        let module = &d.modules[&module];
        assert_eq!(
            (module.build_id.as_slice(), module.base),
            (&[1, 2, 3][..], 0x7000)
        );
        assert!(module.unloaded_ns >= Some(module.loaded_ns));
        assert_eq!(d.region_name(behind), "behind");
    }
}

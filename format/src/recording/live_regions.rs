//! Regions that a live file shows and no definition names yet: functions that were called just before the reading.

use std::collections::HashMap;

use crate::definitions::{Definition, Definitions, Function, Module, Property, Region};
use crate::ids::{ModuleId, ProcessId, RegionId, StringId};
use crate::live::{LiveFunction, LiveFunctionModule, LiveImage, LiveModule};
use crate::names::property;

const PROCESS: ProcessId = ProcessId::new(0);

/// Defines the functions of a live file that are not defined yet, as their recorder would; and every other region id
/// that was assigned, so that regions without names stay apart.
pub(super) fn define(definitions: &mut Definitions, live: &LiveImage) {
    let strings = definitions.strings.iter();
    let mut adder = Adder {
        strings: strings.map(|(id, text)| (text.clone(), *id)).collect(),
        definitions,
    };
    for function in &live.functions {
        // A recorder defines the region, and then which function it is: a kill may come between the two.
        let has_region = adder.definitions.regions.contains_key(&function.region);
        let is_function = adder.definitions.functions.contains_key(&function.region);
        if !has_region || (!is_function && function.module != LiveFunctionModule::Unknown) {
            adder.define_function(live, function);
        }
    }
    let assigned = (0..live.region_count).map(RegionId::new);
    let regions = &adder.definitions.regions;
    let unnamed: Vec<RegionId> = assigned.filter(|id| !regions.contains_key(id)).collect();
    let pid = live.header.pid;
    for region in &unnamed {
        // Regions of equal names are one region of a trace.
        let name = format!("unnamed region {} of process {pid}", region.get());
        adder.define_region(*region, &name, "");
    }
    let counts = [
        (property::UNNAMED_REGIONS, unnamed.len() as u64),
        (property::UNRECORDED_CHILDREN, live.children),
    ];
    for (key, count) in counts.into_iter().filter(|(_, count)| *count != 0) {
        let property = Property {
            process: PROCESS,
            key: adder.string(key),
            value: adder.string(&count.to_string()),
        };
        adder.definitions.add(Definition::Property(property));
    }
}

struct Adder<'a> {
    definitions: &'a mut Definitions,
    strings: HashMap<String, StringId>,
}

impl Adder<'_> {
    /// Returns the id of a string; defines it if it is new.
    fn string(&mut self, text: &str) -> StringId {
        if let Some(id) = self.strings.get(text) {
            return *id;
        }
        let last = self.definitions.strings.keys().next_back();
        let id = StringId::new(last.map_or(0, |id| id.get().saturating_add(1)));
        self.definitions
            .add(Definition::String(id, text.to_owned()));
        self.strings.insert(text.to_owned(), id);
        id
    }

    fn define_region(&mut self, id: RegionId, name: &str, group: &str) {
        let region = Region {
            id,
            name: self.string(name),
            file: self.string(""),
            line: 0,
            group: self.string(group),
        };
        self.definitions.add(Definition::Region(region));
    }

    fn define_function(&mut self, live: &LiveImage, function: &LiveFunction) {
        let (module, in_memory) = match function.module {
            LiveFunctionModule::Defined(base) => {
                let module = self.loaded_module(|module| module.base == base);
                (module, function.address.wrapping_add(base))
            }
            LiveFunctionModule::Entry(number) => {
                let module = live.modules.get(&number);
                let base = module.map_or(0, |module| module.base);
                let module = module.map(|module| self.module(module));
                (module, function.address.wrapping_add(base))
            }
            LiveFunctionModule::Unknown => (None, function.address),
        };
        let Some(module) = module else {
            self.define_region(function.region, &format!("{in_memory:#x}"), "");
            return;
        };
        let path = self.definitions.modules.get(&module);
        let path = path.map_or("", |module| self.definitions.string(module.path));
        let name = Module::function_name(path, function.address);
        let group = Module::file_name(path).to_owned();
        self.define_region(function.region, &name, &group);
        self.definitions.add(Definition::Function(Function {
            region: function.region,
            module,
            offset: function.address,
        }));
    }

    /// Returns the module that was defined last, of those in memory for which this holds.
    fn loaded_module(&self, holds: impl Fn(&Module) -> bool) -> Option<ModuleId> {
        let modules = self.definitions.modules.values().rev();
        let mut loaded = modules.filter(|module| module.unloaded_ns.is_none());
        loaded.find(|module| holds(module)).map(|module| module.id)
    }

    /// Returns the id of a module of the live file; defines it if it is not defined.
    fn module(&mut self, module: &LiveModule) -> ModuleId {
        let path = self.string(&module.path);
        let is_same = |known: &Module| {
            known.base == module.base && known.path == path && known.build_id == module.build_id
        };
        if let Some(id) = self.loaded_module(is_same) {
            return id;
        }
        let last = self.definitions.modules.keys().next_back();
        let id = ModuleId::new(last.map_or(0, |id| id.get().saturating_add(1)));
        self.definitions.add(Definition::Module(Module {
            id,
            process: PROCESS,
            path,
            build_id: module.build_id.clone(),
            base: module.base,
            loaded_ns: module.loaded_ns,
            unloaded_ns: None,
        }));
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::layout as l;
    use crate::testing::{FUNCTIONS_AT, LiveMaker, PAGES_AT, put_word};

    fn defined(live: &LiveImage) -> Definitions {
        let mut definitions = Definitions::default();
        definitions.add_all(&live.definitions).unwrap();
        define(&mut definitions, live);
        definitions
    }

    fn names(definitions: &Definitions, ids: &[u32]) -> Vec<String> {
        let ids = ids.iter().map(|id| RegionId::new(*id));
        ids.map(|id| definitions.region_name(id)).collect()
    }

    #[test]
    fn functions_of_the_table_are_defined_with_their_modules() {
        let mut live = LiveMaker::new();
        let program = Definition::Module(Module {
            id: ModuleId::new(3),
            process: PROCESS,
            path: StringId::new(0),
            build_id: vec![9],
            base: 0x5000,
            loaded_ns: 1,
            unloaded_ns: None,
        });
        let unloaded = Definition::Module(Module {
            id: ModuleId::new(4),
            process: PROCESS,
            path: StringId::new(1),
            build_id: Vec::new(),
            base: 0x5000,
            loaded_ns: 1,
            unloaded_ns: Some(2),
        });
        live.define(&Definition::String(StringId::new(0), "/bin/solver".into()));
        live.define(&Definition::String(StringId::new(1), "/lib/gone.so".into()));
        live.define(&program);
        live.define(&unloaded);
        live.module(7, 0x9000, b"/lib/plugin.so", &[1, 2]);
        live.word(l::REGION_COUNT, 4);
        live.function(0, 0, 0x1139, (0x5000, 0));
        live.function(1, 1, 0x40, (0x9000, 8));
        live.function(2, 2, 0x50, (0x9000, 9));
        live.function(5, 3, 0x60, (0x9000, 8));
        let definitions = defined(&live.image());
        assert_eq!(
            names(&definitions, &[0, 1, 2, 3]),
            ["solver+0x1139", "plugin.so+0x40", "0x50", "plugin.so+0x60"],
            "an entry whose module is not known has its address"
        );
        // Killed after it had defined the region, and before the function.
        live.define(&Definition::Region(Region {
            id: RegionId::new(0),
            name: StringId::new(2),
            file: StringId::new(2),
            line: 0,
            group: StringId::new(2),
        }));
        live.define(&Definition::String(
            StringId::new(2),
            "solver+0x1139".into(),
        ));
        let definitions = defined(&live.image());
        let function = definitions.functions[&RegionId::new(0)];
        assert_eq!(
            (function.module, function.offset),
            (ModuleId::new(3), 0x1139)
        );
        let module = definitions.functions[&RegionId::new(1)].module;
        assert_eq!(definitions.functions[&RegionId::new(3)].module, module);
        let module = &definitions.modules[&module];
        assert_eq!((module.base, &module.build_id[..]), (0x9000, &[1, 2][..]));
        assert!(
            definitions.properties.is_empty(),
            "nothing is without a name"
        );
    }

    #[test]
    fn regions_without_an_entry_stay_apart_and_are_counted() {
        let mut live = LiveMaker::new();
        live.word(l::REGION_COUNT, 3);
        live.function(0, 1, 0x1139, (0, 1));
        let definitions = defined(&live.image());
        assert_eq!(
            names(&definitions, &[0, 1, 2]),
            [
                "unnamed region 0 of process 1",
                "0x1139",
                "unnamed region 2 of process 1"
            ]
        );
        let properties: Vec<_> = definitions.properties.iter().collect();
        let [property] = &properties[..] else {
            panic!("one property");
        };
        assert_eq!(definitions.string(property.key), property::UNNAMED_REGIONS);
        assert_eq!(definitions.string(property.value), "2");
    }

    #[test]
    fn a_definition_counts_and_not_the_entry_that_was_there_before_it() {
        let mut live = LiveMaker::new();
        live.define(&Definition::String(StringId::new(0), "main".into()));
        live.define(&Definition::Region(Region {
            id: RegionId::new(0),
            name: StringId::new(0),
            file: StringId::new(0),
            line: 0,
            group: StringId::new(0),
        }));
        live.word(l::REGION_COUNT, 1);
        live.function(0, 0, 0x1139, (0, 0));
        assert_eq!(names(&defined(&live.image()), &[0]), ["main"]);
    }

    #[test]
    fn as_many_regions_are_assigned_as_a_live_file_of_this_length_can_have() {
        let mut live = LiveMaker::new();
        live.word(l::REGION_COUNT, u64::MAX);
        let most = live.bytes.len() / 64;
        assert_eq!(defined(&live.image()).regions.len(), most);
    }

    #[test]
    fn an_entry_that_changes_while_it_is_read_is_left_out() {
        let mut live = LiveMaker::new();
        live.function(0, 0, 0x10, (0, 0));
        live.function(1, 1, 0x20, (0, 0));
        assert_eq!(live.image().functions.len(), 2);
        let changed = FUNCTIONS_AT + l::MODULE_COUNT * l::MODULE_LEN + l::FUNCTION_ADDRESS;
        let file = crate::testing::Changing::new(live, move |bytes, offset| {
            if offset == FUNCTIONS_AT as u64 {
                put_word(bytes, changed, 0x30);
            }
        });
        let functions = LiveImage::read(&file).unwrap().functions;
        let regions: Vec<u32> = functions.iter().map(|found| found.region.get()).collect();
        assert_eq!(regions, [1]);
    }

    #[test]
    fn the_table_is_read_after_the_pages_and_before_the_definitions() {
        // The function is met when the pages are read, and defined when its entry is read: then the entry is reused.
        let mut live = LiveMaker::new();
        live.word(l::REGION_COUNT, 1);
        let mut is_reused = false;
        let file = crate::testing::Changing::new(live, move |bytes, offset| {
            let mut next = LiveMaker::new();
            next.word(l::REGION_COUNT, 1);
            if offset == PAGES_AT as u64 {
                next.function(0, 0, 0x10, (0, 1));
            } else if offset == FUNCTIONS_AT as u64 && !std::mem::replace(&mut is_reused, true) {
                next.define(&Definition::String(StringId::new(0), "main".into()));
                next.function(0, 0, 0x10, (0, 1));
            } else {
                return;
            }
            bytes.copy_from_slice(&next.bytes);
        });
        let image = LiveImage::read(&file).unwrap();
        assert_eq!(names(&defined(&image), &[0]), ["0x10"]);
        assert!(!image.definitions.is_empty());
    }
}

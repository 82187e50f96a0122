//! Regions of code, and where functions are in the program files that were loaded.

use super::record::{Record, read_process, read_string};
use crate::error::{FormatError, Result};
use crate::ids::{ModuleId, ProcessId, RegionId, StringId};
use crate::wire::{Put, Wire};

/// Maximum size of a build id, bytes.
const MAX_BUILD_ID: usize = 64;

/// A named span of code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its number.
    pub id: RegionId,
    /// Its name.
    pub name: StringId,
    /// Source file; the empty string if unknown.
    pub file: StringId,
    /// Line; 0 if unknown.
    pub line: u32,
    /// Group the region belongs to (`mpi`, `io`, …); the empty string if it has none.
    pub group: StringId,
}

impl Record for Region {
    const KIND: u64 = 9;

    fn highest_id(&self) -> u32 {
        self.id.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.id.get().into());
        out.put_varint(self.name.get().into());
        out.put_varint(self.file.get().into());
        out.put_varint(self.line.into());
        out.put_varint(self.group.get().into());
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            id: RegionId::new(w.varint_u32("region id")?),
            name: read_string(w)?,
            file: read_string(w)?,
            line: w.varint_u32("line")?,
            group: read_string(w)?,
        })
    }
}

/// The regions that a process of a trace has defined, by their numbers in the trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionSet {
    /// The process.
    pub process: ProcessId,
    /// Its regions, ascending.
    pub regions: Vec<RegionId>,
}

impl Record for RegionSet {
    const KIND: u64 = 10;

    fn highest_id(&self) -> u32 {
        self.process.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.process.get().into());
        out.put_varint(self.regions.len() as u64);
        let mut previous = 0;
        for region in &self.regions {
            out.put_varint(u64::from(region.get().wrapping_sub(previous)));
            previous = region.get();
        }
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        let process = read_process(w)?;
        let count = w.count(1, "number of regions")?;
        let mut regions = Vec::with_capacity(count);
        let mut previous = 0_u32;
        for _ in 0..count {
            previous = previous.wrapping_add(w.varint_u32("region id")?);
            regions.push(RegionId::new(previous));
        }
        Ok(Self { process, regions })
    }
}

/// A program or library file in a process's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Its number.
    pub id: ModuleId,
    /// The process whose memory it is in.
    pub process: ProcessId,
    /// Path of the file.
    pub path: StringId,
    /// The linker's identity of this very build; empty if the file has none.
    pub build_id: Vec<u8>,
    /// Address in memory minus address in the file; wraps.
    pub base: u64,
    /// When it was first observed, reference clock, nanoseconds.
    pub loaded_ns: i64,
    /// When it was found to be gone, reference clock, nanoseconds. `None` if it was not.
    pub unloaded_ns: Option<i64>,
}

impl Module {
    /// Returns the name of a function as long as its symbol is not known: `file+0xaddress`.
    pub fn function_name(path: &str, offset: u64) -> String {
        format!("{}+{offset:#x}", Self::file_name(path))
    }

    /// Returns the last part of a path.
    pub fn file_name(path: &str) -> &str {
        path.rsplit('/').next().unwrap_or_default()
    }
}

impl Record for Module {
    const KIND: u64 = 18;

    fn highest_id(&self) -> u32 {
        self.id.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.id.get().into());
        out.put_varint(self.process.get().into());
        out.put_varint(self.path.get().into());
        out.put_bytes(&self.build_id);
        out.put_varint(self.base);
        out.put_signed(self.loaded_ns);
        out.push(self.unloaded_ns.is_some().into());
        out.put_signed(self.unloaded_ns.unwrap_or(0));
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        let id = ModuleId::new(w.varint_u32("module id")?);
        let process = read_process(w)?;
        let path = read_string(w)?;
        let start = w.position();
        let build_id = w.bytes("build id")?.to_vec();
        if build_id.len() > MAX_BUILD_ID {
            let most = "a build id of at most 64 bytes";
            return Err(FormatError::invalid(start, most, build_id.len()));
        }
        let base = w.varint("base of a module")?;
        let loaded_ns = w.signed("start of a module")?;
        let is_gone = w.u8("unloaded flag")? != 0;
        let end_ns = w.signed("end of a module")?;
        Ok(Self {
            id,
            process,
            path,
            build_id,
            base,
            loaded_ns,
            unloaded_ns: is_gone.then_some(end_ns),
        })
    }
}

/// A region that is a function of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// The region.
    pub region: RegionId,
    /// The module that contains the function.
    pub module: ModuleId,
    /// Its address in the module's file.
    pub offset: u64,
}

impl Record for Function {
    const KIND: u64 = 19;

    fn highest_id(&self) -> u32 {
        self.region.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.region.get().into());
        out.put_varint(self.module.get().into());
        out.put_varint(self.offset);
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            region: RegionId::new(w.varint_u32("region id")?),
            module: ModuleId::new(w.varint_u32("module id")?),
            offset: w.varint("address of a function")?,
        })
    }
}

/// The symbol of a region, found later: it replaces the region's own name, file and line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// The region.
    pub region: RegionId,
    /// Its name.
    pub name: StringId,
    /// Source file; the empty string if unknown.
    pub file: StringId,
    /// Line; 0 if unknown.
    pub line: u32,
}

impl Record for Symbol {
    const KIND: u64 = 20;

    fn highest_id(&self) -> u32 {
        self.region.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.region.get().into());
        out.put_varint(self.name.get().into());
        out.put_varint(self.file.get().into());
        out.put_varint(self.line.into());
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        Ok(Self {
            region: RegionId::new(w.varint_u32("region id")?),
            name: read_string(w)?,
            file: read_string(w)?,
            line: w.varint_u32("line")?,
        })
    }
}

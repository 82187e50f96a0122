//! Call paths of samples, and the source lines of the addresses in them.

use super::record::{Record, read_string};
use crate::error::{FormatError, Result};
use crate::ids::{CallPathId, ModuleId, RegionId, StringId};
use crate::wire::{Put, Wire};

/// One call of a call path, and through its caller the whole path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallPath {
    /// Its number.
    pub id: CallPathId,
    /// The call that this one was made in; smaller than `id`. `None` for an outermost one.
    pub caller: Option<CallPathId>,
    /// Where the program was in this call.
    pub place: CodePlace,
}

/// A place in a program's code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CodePlace {
    /// It is not known: the callers could not be followed further.
    Unknown,
    /// An address in a module's file, or, without a module, in the process's memory. It is within the instruction
    /// that was executed, or that called.
    Address(Option<ModuleId>, u64),
    /// A line of a source file in a region. The file is empty and the line 0 if they are not known.
    Line(RegionId, StringId, u32),
}

/// Numbers of the variants of [`CodePlace`].
mod place {
    pub(super) const UNKNOWN: u8 = 0;
    pub(super) const MEMORY: u8 = 1;
    pub(super) const MODULE: u8 = 2;
    pub(super) const LINE: u8 = 3;
}

impl Record for CallPath {
    const KIND: u64 = 31;

    fn highest_id(&self) -> u32 {
        self.id.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.id.get().into());
        // By how much the caller's number is smaller; 0: there is none.
        let distance = |caller: CallPathId| self.id.get().wrapping_sub(caller.get());
        out.put_varint(self.caller.map_or(0, distance).into());
        match self.place {
            CodePlace::Unknown => out.push(place::UNKNOWN),
            CodePlace::Address(None, address) => {
                out.push(place::MEMORY);
                out.put_varint(address);
            }
            CodePlace::Address(Some(module), address) => {
                out.push(place::MODULE);
                out.put_varint(module.get().into());
                out.put_varint(address);
            }
            CodePlace::Line(region, file, line) => {
                out.push(place::LINE);
                out.put_varint(region.get().into());
                out.put_varint(file.get().into());
                out.put_varint(line.into());
            }
        }
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        let id = w.varint_u32("call path id")?;
        let start = w.position();
        let caller = match w.varint_u32("distance to the caller")? {
            0 => None,
            distance => {
                let caller = id.checked_sub(distance).map(CallPathId::new);
                let expected = "a distance to a caller with a smaller number";
                Some(caller.ok_or_else(|| FormatError::invalid(start, expected, distance))?)
            }
        };
        let start = w.position();
        let place = match w.u8("kind of a place in code")? {
            place::MEMORY => CodePlace::Address(None, w.varint("address in memory")?),
            place::MODULE => {
                let module = ModuleId::new(w.varint_u32("module id")?);
                CodePlace::Address(Some(module), w.varint("address of a call")?)
            }
            place::LINE => {
                let region = RegionId::new(w.varint_u32("region id")?);
                CodePlace::Line(region, read_string(w)?, w.varint_u32("line")?)
            }
            place::UNKNOWN => CodePlace::Unknown,
            other => {
                let expected = "a kind of a place in code from 0 to 3";
                return Err(FormatError::invalid(start, expected, other));
            }
        };
        Ok(Self {
            id: CallPathId::new(id),
            caller,
            place,
        })
    }
}

/// The source lines of an address in a module, found later: of the function that contains it, and of those that the compiler
/// has inlined there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeLines {
    /// The module.
    pub module: ModuleId,
    /// The address in the module's file.
    pub address: u64,
    /// The function that contains the address first, then what is inlined in it. At least one.
    pub frames: Vec<CodeFrame>,
}

/// A function at an address, and its line there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodeFrame {
    /// Name of the function.
    pub name: StringId,
    /// Source file in which it begins; the empty string if unknown.
    pub file: StringId,
    /// Line at which it begins; 0 if unknown.
    pub line: u32,
    /// Source file of its code at the address; the empty string if unknown.
    pub at_file: StringId,
    /// Line of its code at the address; 0 if unknown.
    pub at_line: u32,
}

impl Record for CodeLines {
    const KIND: u64 = 32;

    fn highest_id(&self) -> u32 {
        self.module.get()
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.module.get().into());
        out.put_varint(self.address);
        out.put_varint(self.frames.len() as u64);
        for frame in &self.frames {
            out.put_varint(frame.name.get().into());
            out.put_varint(frame.file.get().into());
            out.put_varint(frame.line.into());
            out.put_varint(frame.at_file.get().into());
            out.put_varint(frame.at_line.into());
        }
    }

    fn read(w: &mut Wire<'_>) -> Result<Self> {
        let module = ModuleId::new(w.varint_u32("module id")?);
        let address = w.varint("address in a module")?;
        let start = w.position();
        // Five numbers each.
        let count = w.count(5, "number of functions at an address")?;
        if count == 0 {
            return Err(FormatError::invalid(start, "at least one function", 0));
        }
        let mut frames = Vec::with_capacity(count);
        for _ in 0..count {
            frames.push(CodeFrame {
                name: read_string(w)?,
                file: read_string(w)?,
                line: w.varint_u32("line")?,
                at_file: read_string(w)?,
                at_line: w.varint_u32("line")?,
            });
        }
        Ok(Self {
            module,
            address,
            frames,
        })
    }
}

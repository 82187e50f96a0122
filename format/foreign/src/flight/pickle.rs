//! Reads pickles of plain data (protocols 2 to 5): numbers, texts, lists, tuples, maps. Nothing is executed: an opcode that names a class, makes a
//! call or needs what is outside of the file is an error with its offset and name.
//!
//! The opcodes are those of Python's `pickletools`.

use std::io::Read;

use annals_format::{FormatError, Result};
use rustc_hash::FxHashMap;

use super::value::{Value, Values, invalid};

/// Length of a name that a message shows.
const SHOWN: usize = 80;

/// The state of the machine that a pickle is a program for.
struct Machine<'a, R> {
    input: R,
    offset: u64,
    values: &'a mut Values,
    stack: Vec<Value>,
    /// Lengths of the stack at its marks.
    marks: Vec<usize>,
    memo: FxHashMap<u32, Value>,
}

/// Reads a pickle to its end. Nothing may follow it.
pub(super) fn read_pickle(input: impl Read, values: &mut Values) -> Result<Value> {
    let mut machine = Machine {
        input,
        offset: 0,
        values,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: FxHashMap::default(),
    };
    let [opcode, protocol] = machine.bytes("the protocol of a pickle")?;
    if opcode != 0x80 || !(2..=5).contains(&protocol) {
        let found = format!("{opcode:#04x} {protocol:#04x}");
        return Err(invalid(0, "a pickle of protocol 2 to 5", found));
    }
    loop {
        let at = machine.offset;
        let [opcode] = machine.bytes("an opcode of the pickle")?;
        if opcode == b'.' {
            break;
        }
        machine.step(opcode, at)?;
    }
    let result = machine.pop(machine.offset)?;
    let mut more = Vec::new();
    let read = machine.input.by_ref().take(1).read_to_end(&mut more);
    read.map_err(|error| machine.failed(error))?;
    match more.first() {
        Some(byte) => Err(invalid(
            machine.offset,
            "the end of the file after the pickle",
            format!("{byte:#04x}"),
        )),
        None if machine.stack.is_empty() && machine.marks.is_empty() => Ok(result),
        None => Err(invalid(machine.offset, "one value", "several")),
    }
}

impl<R: Read> Machine<'_, R> {
    fn failed(&self, error: std::io::Error) -> FormatError {
        FormatError::Io {
            offset: self.offset,
            error,
        }
    }

    /// Reads bytes of which the number is known.
    fn bytes<const COUNT: usize>(&mut self, expected: &'static str) -> Result<[u8; COUNT]> {
        let mut bytes = [0; COUNT];
        let read = self.input.read_exact(&mut bytes);
        read.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => FormatError::UnexpectedEnd {
                offset: self.offset,
                expected,
            },
            _ => self.failed(error),
        })?;
        self.offset += COUNT as u64;
        Ok(bytes)
    }

    /// Reads a length of 1, 4 or 8 bytes.
    fn length(&mut self, width: usize) -> Result<u64> {
        let expected = "a length";
        Ok(match width {
            1 => u64::from(self.bytes::<1>(expected)?[0]),
            4 => u64::from(u32::from_le_bytes(self.bytes(expected)?)),
            _ => u64::from_le_bytes(self.bytes(expected)?),
        })
    }

    /// Reads a text. What is not UTF-8 is replaced.
    fn text(&mut self, width: usize) -> Result<Value> {
        let at = self.offset;
        let length = self.length(width)?;
        let count = usize::try_from(length).unwrap_or(usize::MAX);
        self.values.charge(count, at)?;
        let mut bytes = Vec::new();
        let read = self.input.by_ref().take(length).read_to_end(&mut bytes);
        read.map_err(|error| self.failed(error))?;
        self.offset += bytes.len() as u64;
        if bytes.len() as u64 != length {
            return Err(FormatError::UnexpectedEnd {
                offset: self.offset,
                expected: "a text",
            });
        }
        self.values.add_text(&String::from_utf8_lossy(&bytes), at)
    }

    /// Reads an integer with its length in bytes before it.
    fn long(&mut self, width: usize) -> Result<Value> {
        let at = self.offset;
        let length = self.length(width)?;
        let beyond = || {
            invalid(
                at,
                "an integer of at most 64 bits",
                format!("{length} bytes"),
            )
        };
        let mut bytes = [0; 16];
        let count = usize::try_from(length).ok().filter(|count| *count <= 9);
        for place in &mut bytes[..count.ok_or_else(beyond)?] {
            *place = self.bytes::<1>("an integer")?[0];
        }
        // Two's complement, the sign in its last byte.
        if let Some(last) = count.and_then(|count| count.checked_sub(1))
            && bytes[last] & 0x80 != 0
        {
            bytes[last + 1..].fill(0xff);
        }
        let value = i128::from_le_bytes(bytes);
        match (i64::try_from(value), u64::try_from(value)) {
            (Ok(value), _) => Ok(Value::Integer(value)),
            (_, Ok(value)) => Ok(Value::Float(value as f64)),
            _ => Err(beyond()),
        }
    }

    /// Removes a value from the stack, above its last mark.
    fn pop(&mut self, at: u64) -> Result<Value> {
        let mark = self.marks.last().copied().unwrap_or(0);
        let value = match self.stack.len() > mark {
            true => self.stack.pop(),
            false => None,
        };
        value.ok_or_else(|| invalid(at, "a value on the stack of the pickle", "none"))
    }

    /// Returns the values above the last mark, and removes both.
    fn pop_mark(&mut self, at: u64) -> Result<Vec<Value>> {
        let mark = self.marks.pop();
        let mark = mark.ok_or_else(|| invalid(at, "a mark in the pickle", "none"))?;
        Ok(self.stack.split_off(mark))
    }

    /// Returns the value on top of the stack, which stays there.
    fn top(&mut self, at: u64) -> Result<Value> {
        let value = self.pop(at)?;
        self.stack.push(value);
        Ok(value)
    }

    fn put(&mut self, number: u32, at: u64) -> Result<()> {
        let value = self.top(at)?;
        self.values.charge(4 * size_of::<(u32, Value)>(), at)?;
        self.memo.insert(number, value);
        Ok(())
    }

    fn get(&mut self, number: u32, at: u64) -> Result<Value> {
        let value = self.memo.get(&number).copied();
        value.ok_or_else(|| invalid(at, "a number of the memo", format!("{number}, never put")))
    }

    fn tuple(&mut self, count: usize, at: u64) -> Result<Value> {
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(self.pop(at)?);
        }
        items.reverse();
        self.values.add_list(items, at)
    }

    /// Does what an opcode says.
    fn step(&mut self, opcode: u8, at: u64) -> Result<()> {
        let value = match opcode {
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'K' => Value::Integer(i64::from(self.bytes::<1>("an integer")?[0])),
            b'M' => Value::Integer(i64::from(u16::from_le_bytes(self.bytes("an integer")?))),
            b'J' => Value::Integer(i64::from(i32::from_le_bytes(self.bytes("an integer")?))),
            0x8a => self.long(1)?,
            0x8b => self.long(4)?,
            b'G' => Value::Float(f64::from_be_bytes(self.bytes("a number")?)),
            // Bytes are taken for text.
            0x8c | b'C' => self.text(1)?,
            b'X' | b'B' => self.text(4)?,
            0x8d | 0x8e | 0x96 => self.text(8)?,
            b'}' => self.values.add_map(at)?,
            b']' | b')' => self.values.add_list(Vec::new(), at)?,
            0x85..=0x87 => self.tuple(usize::from(opcode - 0x84), at)?,
            b't' => {
                let items = self.pop_mark(at)?;
                self.values.add_list(items, at)?
            }
            b'h' => {
                let [number] = self.bytes("a number of the memo")?;
                self.get(u32::from(number), at)?
            }
            b'j' => {
                let number = self.bytes("a number of the memo")?;
                self.get(u32::from_le_bytes(number), at)?
            }
            _ => return self.change(opcode, at),
        };
        self.values.charge(2 * size_of::<Value>(), at)?;
        self.stack.push(value);
        Ok(())
    }

    /// Does what an opcode says that pushes no value.
    fn change(&mut self, opcode: u8, at: u64) -> Result<()> {
        match opcode {
            b'(' => {
                self.values.charge(2 * size_of::<usize>(), at)?;
                self.marks.push(self.stack.len());
            }
            b'q' => {
                let [number] = self.bytes("a number of the memo")?;
                self.put(u32::from(number), at)?;
            }
            b'r' => {
                let number = self.bytes("a number of the memo")?;
                self.put(u32::from_le_bytes(number), at)?;
            }
            0x94 => self.put(self.memo.len() as u32, at)?,
            b'a' => {
                let item = self.pop(at)?;
                let list = self.top(at)?;
                self.values.append(list, &[item], at)?;
            }
            b'e' => {
                let items = self.pop_mark(at)?;
                let list = self.top(at)?;
                self.values.append(list, &items, at)?;
            }
            b's' => {
                let (value, key) = (self.pop(at)?, self.pop(at)?);
                let map = self.top(at)?;
                self.values.set(map, (key, value), at)?;
            }
            b'u' => {
                let items = self.pop_mark(at)?;
                let map = self.top(at)?;
                if items.len() % 2 != 0 {
                    return Err(invalid(at, "keys with their values", "one without"));
                }
                for item in items.chunks_exact(2) {
                    self.values.set(map, (item[0], item[1]), at)?;
                }
            }
            // A frame: nothing follows from its length.
            0x95 => drop(self.bytes::<8>("the length of a frame")?),
            _ => return Err(self.refuse(opcode, at)),
        }
        Ok(())
    }

    /// Returns the error of an opcode that is not of plain data, with what it names.
    fn refuse(&mut self, opcode: u8, at: u64) -> FormatError {
        let name = match opcode {
            b'c' => "GLOBAL",
            0x93 => "STACK_GLOBAL",
            b'R' => "REDUCE",
            b'b' => "BUILD",
            b'i' => "INST",
            b'o' => "OBJ",
            0x81 => "NEWOBJ",
            0x92 => "NEWOBJ_EX",
            b'P' => "PERSID",
            b'Q' => "BINPERSID",
            0x82 => "EXT1",
            0x83 => "EXT2",
            0x84 => "EXT4",
            0x97 => "NEXT_BUFFER",
            0x98 => "READONLY_BUFFER",
            0x80 => "a second PROTO",
            _ => "the opcode",
        };
        let named = match opcode {
            b'c' | b'i' => {
                let mut line = Vec::new();
                let mut lines = 0;
                while lines < 2 && line.len() < SHOWN {
                    let Ok([byte]) = self.bytes("a name") else {
                        break;
                    };
                    lines += usize::from(byte == b'\n');
                    line.push(if byte == b'\n' { b' ' } else { byte });
                }
                String::from_utf8_lossy(&line).trim_end().to_owned()
            }
            0x93 => {
                let names = self.stack.iter().rev().take(2).rev();
                let names = names.filter_map(|value| self.values.text(*value));
                let names = names.map(|name| name.chars().take(SHOWN).collect::<String>());
                names.collect::<Vec<String>>().join(" ")
            }
            _ => format!("{opcode:#04x}"),
        };
        invalid(
            at,
            "plain data, as a dump has it: nothing of a pickle is executed",
            format!("{name} {named}"),
        )
    }
}

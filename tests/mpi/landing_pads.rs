//! The object code of what lies between the program's frame above and the MPI library's function: unwinding must find nothing there. A
//! landing pad, or an action, would be a destructor or a catch, which forced unwinding must not pass.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use addr2line::gimli::{
    self, BaseAddresses, CieOrFde, EhFrame, NativeEndian, Pointer, Reader, UnwindSection,
};
use object::{Object, ObjectSection, ObjectSymbol};

use crate::support::{ROOT, output, prefix};

type Slice<'a> = gimli::EndianSlice<'a, NativeEndian>;

/// Returns whether the library is to be built for release, which takes minutes: with `ANNALS_LONG=1`.
fn is_release() -> bool {
    std::env::var("ANNALS_LONG").is_ok_and(|long| long == "1")
}

/// Returns the library as users get it, or else as the tests use it.
fn library() -> PathBuf {
    if is_release() {
        let target = Path::new(ROOT).join("target/release-mpi");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--release", "-p", "annals-mpi", "--target-dir"]);
        output(build.arg(&target).current_dir(ROOT));
        return target.join("release/libannals_mpi.so");
    }
    prefix().join("lib/libannals_mpi.so")
}

/// Returns how many call sites of a table of exceptions have a landing pad or an action (Itanium C++ ABI, "Exception Handling
/// Tables").
fn landing_pads(mut table: Slice<'_>) -> gimli::Result<usize> {
    const OMITTED: u8 = 0xff;
    const ULEB128: u8 = 0x01;
    const UDATA4: u8 = 0x03;
    assert_eq!(table.read_u8()?, OMITTED, "landing pads begin elsewhere");
    if table.read_u8()? != OMITTED {
        table.read_uleb128()?;
    }
    let encoding = table.read_u8()?;
    let length = table.read_uleb128()?;
    let mut sites = table.split(length as usize)?;
    let number = |sites: &mut Slice<'_>| match encoding {
        ULEB128 => sites.read_uleb128(),
        UDATA4 => sites.read_u32().map(u64::from),
        other => panic!("call sites are encoded as {other:#x}"),
    };
    let mut found = 0;
    while !sites.is_empty() {
        let [_start, _length, pad] = [
            number(&mut sites)?,
            number(&mut sites)?,
            number(&mut sites)?,
        ];
        let action = sites.read_uleb128()?;
        found += usize::from(pad != 0 || action != 0);
    }
    Ok(found)
}

/// Returns the landing pads of an object's functions, by the address of the function: zeros for those with no table.
fn all_landing_pads(file: &object::File<'_>) -> gimli::Result<BTreeMap<u64, usize>> {
    let section = |name: &str| file.section_by_name(name).expect("the section");
    let frames = section(".eh_frame");
    let tables = section(".gcc_except_table");
    let bases = BaseAddresses::default()
        .set_eh_frame(frames.address())
        .set_text(section(".text").address());
    let data = frames.data().expect("its bytes");
    let tables_data = tables.data().expect("its bytes");
    let eh_frame = EhFrame::new(data, NativeEndian);
    let mut entries = eh_frame.entries(&bases);
    let mut found = BTreeMap::new();
    while let Some(entry) = entries.next()? {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let frame = partial.parse(|_, bases, offset| eh_frame.cie_from_offset(bases, offset))?;
        let count = match frame.lsda() {
            None => 0,
            Some(Pointer::Direct(address)) => {
                let at = (address - tables.address()) as usize;
                landing_pads(Slice::new(&tables_data[at..], NativeEndian))?
            }
            Some(Pointer::Indirect(_)) => panic!("a table is named by an address in memory"),
        };
        found.insert(frame.initial_address(), count);
    }
    Ok(found)
}

#[test]
fn unwinding_finds_nothing_in_the_wrappers() {
    let path = library();
    let bytes = std::fs::read(&path).expect("the library");
    let file = object::File::parse(&*bytes).expect("an object");
    let pads = all_landing_pads(&file).expect("tables of exceptions");
    let mut wrappers = 0;
    let mut wrong = Vec::new();
    for symbol in file.dynamic_symbols().filter(|s| s.is_definition()) {
        let name = symbol.name().expect("a name");
        let is_wrapper = ["MPI_", "mpi_", "QMPI_", "MPIX_"]
            .iter()
            .any(|start| name.starts_with(start));
        let Some(count) = pads.get(&symbol.address()).filter(|_| is_wrapper) else {
            continue;
        };
        wrappers += 1;
        // The event path is part of these. Less optimised, it has landing pads, though not around the call that is forwarded.
        let has_event_path = ["send", "recv", "MPI_Send", "MPI_Recv", "MPI_Wait"]
            .iter()
            .any(|part| name.contains(part));
        if *count != 0 && (is_release() || !has_event_path) {
            wrong.push(format!("{name}: {count}"));
        }
    }
    // The test can fail: other functions of the library have some.
    assert!(pads.values().any(|count| *count != 0));
    assert!(wrappers > 400, "{wrappers}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

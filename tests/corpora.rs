//! Runs the fuzz targets on all inputs that the fuzzer kept, with the stable compiler.

#[expect(unreachable_pub, reason = "a crate of its own, for the fuzzer")]
#[path = "fuzz/src/lib.rs"]
mod targets;

use std::path::Path;

#[test]
fn every_input_of_the_corpora_is_survived() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    for (name, target) in targets::TARGETS {
        let entries = std::fs::read_dir(corpora.join(name)).expect("a corpus");
        let paths = entries.map(|entry| entry.expect("an input").path());
        let mut paths: Vec<_> = paths.collect();
        paths.sort();
        assert!(paths.len() > 20, "{name} has {} inputs", paths.len());
        for path in paths {
            let bytes = std::fs::read(&path).expect("an input");
            // Printed only when the target fails.
            eprintln!("{}", path.display());
            target(&bytes);
            // And each half of it.
            let (first, second) = bytes.split_at(bytes.len() / 2);
            target(first);
            target(second);
        }
    }
}

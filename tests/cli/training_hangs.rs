//! `trace-cli stuck` on dumps of PyTorch's flight recorder: what it says, and its exit codes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Returns a directory of samples, if it is here.
fn samples(name: &str) -> Option<PathBuf> {
    let samples = "../../shared/reference/flight-recorder-samples";
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(samples)
        .join(name);
    if !path.exists() {
        println!("NOT TESTED: {} is not there", path.display());
        return None;
    }
    Some(path)
}

fn stuck(inputs: &[PathBuf], arguments: &[&str]) -> Output {
    let mut stuck = Command::new(env!("CARGO_BIN_EXE_trace-cli"));
    stuck.arg("stuck").args(inputs).args(arguments);
    stuck.output().expect("trace-cli")
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// Copies the sample in which rank 3 is missing, without its JSON.
fn copy(directory: &Path) -> Option<Vec<PathBuf>> {
    let sample = samples("gloo-4-missing")?;
    let ranks = (0..4).map(|rank| format!("rank_{rank}"));
    let copied = ranks.map(|name| {
        let to = directory.join(&name);
        std::fs::copy(sample.join(&name), &to).expect("a copy");
        to
    });
    Some(copied.collect())
}

#[test]
fn the_rank_that_is_missing_in_an_operation_is_named_from_pickles_and_json() {
    let (Some(sample), Some(late)) = (samples("gloo-4-missing"), samples("gloo-4-late")) else {
        return;
    };
    let json: Vec<PathBuf> = (0..4)
        .map(|rank| sample.join(format!("rank_{rank}.json")))
        .collect();
    for inputs in [vec![sample], json] {
        let output = stuck(&inputs, &[]);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(text.starts_with("Rank 3 had entered no operation after gloo:all_gather, its 25th collective on default_pg"), "{text}");
        assert!(
            text.contains(
                "Ranks 0 to 2 waited for it in gloo:all_reduce, their 26th collective on default_pg"
            ),
            "{text}"
        );
        let output = stuck(&inputs, &["--json"]);
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(answer["origin"], "dumps");
        assert_eq!(answer["findings"][0]["kind"], "elsewhere");
        assert_eq!(answer["findings"][0]["ranks"], serde_json::json!([3]));
        assert_eq!(answer["findings"].as_array().map(Vec::len), Some(1));
        assert_eq!(
            answer["spans"][0],
            serde_json::json!({"rank": 0, "group": "default_pg", "first": 1, "last": 26})
        );
    }
    let fine = stuck(&[late], &[]);
    assert_eq!(fine.status.code(), Some(0));
    assert!(text(&fine).starts_with("No rank is known to have waited for another one."));
}

#[test]
fn a_dump_that_is_missing_damaged_or_there_twice_is_named_and_the_others_are_right() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(files) = copy(directory.path()) else {
        return;
    };
    let without = stuck(&files[..3], &[]);
    let said = text(&without);
    assert_eq!(without.status.code(), Some(3), "{said}");
    assert!(
        said.contains("There is no dump of 1 rank: 3.") && said.contains("whether rank 3 did"),
        "{said}"
    );
    let whole = std::fs::read(&files[1]).expect("a dump");
    let damaged: [(&str, &[u8]); 4] = [
        ("the file is empty", b""),
        ("at byte 500", &whole[..500]),
        ("GLOBAL posix system", b"\x80\x04cposix\nsystem\n."),
        ("a pickle or JSON", b"not a dump"),
    ];
    for (why, bytes) in damaged {
        std::fs::write(&files[1], bytes).expect("a file");
        for inputs in [vec![directory.path().to_owned()], files.clone()] {
            let output = stuck(&inputs, &[]);
            let said = text(&output);
            assert_eq!(output.status.code(), Some(3), "{said}");
            assert!(
                said.starts_with("Rank 3 had entered no operation")
                    && said.contains("Ranks 0 and 2 waited for it"),
                "{said}"
            );
            assert!(
                said.contains("The dump of rank 1 cannot be read: ") && said.contains(why),
                "{said}"
            );
        }
    }
    std::fs::write(&files[1], whole).expect("a file");
    std::fs::copy(&files[0], directory.path().join("other_rank_0")).expect("a copy");
    let twice = stuck(&[directory.path().to_owned()], &[]);
    let said = text(&twice);
    assert_eq!(twice.status.code(), Some(3), "{said}");
    assert!(
        said.contains("a second dump of the same groups") && said.starts_with("Rank 3 had"),
        "{said}"
    );
}

#[test]
fn no_dump_takes_more_than_256_mib() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = "import pickle, sys, json\nd = sys.argv[1]\n\
        text = 'x' * (40 << 20)\n\
        pickle.dump({'version': '2.10', 'entries': [{'profiling_name': text, 'frames': [{'name': text}] * 9}] * 9000}, open(d + '/text_0', 'wb'), 4)\n\
        pickle.dump({'version': '2.10', 'entries': [{'record_id': n} for n in range(400000)]}, open(d + '/many_0', 'wb'), 4)\n\
        pickle.dump([[] for n in range(30000000)], open(d + '/lists_0', 'wb'), 4)\n\
        open(d + '/json_0', 'w').write('[' + '{},' * 5000000 + '{}]')\n\
        open(d + '/numbers_0', 'w').write('{\"version\": \"2.10\", \"pg_config\": {\"0\": {\"ranks\": [' + '0,' * 30000000 + '0]}}}')\n\
        open(d + '/groups_0', 'w').write('{\"version\": \"2.10\", \"entries\": [' + ','.join('{\"pg_id\": %d}' % n for n in range(100000)) + ']}')\n";
    let made = Command::new("python3")
        .args(["-c", program])
        .arg(directory.path())
        .status();
    assert!(made.expect("Python").success());
    for name in [
        "text_0",
        "many_0",
        "lists_0",
        "json_0",
        "numbers_0",
        "groups_0",
    ] {
        // Address space includes the program itself and the stacks of threads.
        let limited = format!("ulimit -v {}; exec \"$0\" stuck \"$1\"", 256 << 10);
        let output = Command::new("bash")
            .args(["-c", &limited, env!("CARGO_BIN_EXE_trace-cli")])
            .arg(directory.path().join(name))
            .output()
            .expect("bash");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            matches!(output.status.code(), Some(0 | 1 | 3)),
            "{name}: {:?} {errors}",
            output.status
        );
        assert!(!errors.contains("panicked"), "{name}: {errors}");
    }
}

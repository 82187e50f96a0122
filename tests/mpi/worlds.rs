//! Messages between the processes of different worlds: those that a program has spawned, and those that have connected.

use std::process::Command;

use crate::support::{ask, flavours, prefix, text_of};
use crate::{check_report, merged};

#[test]
fn messages_between_worlds_are_matched_and_counted_where_a_world_is_missing() {
    for flavour in flavours().filter(|flavour| ["mpich", "openmpi"].contains(&flavour.name)) {
        let mut two = flavour.clone();
        two.processes = 2;
        let program = two.program("worlds.c");
        let directory = two.scratch().join("worlds");
        let path = directory.to_string_lossy();
        let cli = prefix().join("bin/trace-cli");
        let before = [&cli.to_string_lossy(), "record", "-o", &path, "--"];
        let run = two.run_behind(&before, &program, &[]);
        assert_eq!(run.status.code(), Some(0), "{}: {run:?}", flavour.name);
        let printed = text_of(&run.stdout);
        let sent = printed
            .lines()
            .filter_map(|line| line.strip_prefix("sent ")?.parse::<u64>().ok());
        let sent: u64 = sent.sum();
        let (_, report) = merged(&directory);
        let trace = directory.join("run.annals");
        assert_eq!(check_report(&report, flavour.name), sent);
        let collectives = &report["causality"]["collectives"];
        // Twice: operations of all, of two halves, and of each world alone.
        assert_eq!(collectives["operations"], 2 * 6, "{collectives}");
        let archive = two.scratch().join("worlds-archive");
        let mut merge = Command::new(prefix().join("bin/trace-merge"));
        merge.arg(&trace).args(["--format", "otf2", "-o"]);
        let written = merge.arg(&archive).output().expect("trace-merge");
        assert!(written.status.success(), "{}: {written:?}", flavour.name);
        let (_, report) = merged(&archive);
        assert_eq!(report["causality"]["messages"]["matched"], sent, "{report}");

        std::fs::remove_file(trace).expect("the trace");
        // Without the first world, messages with its processes are counted, not left out.
        let table: serde_json::Value =
            serde_json::from_str(&ask(&["info"], &directory)).expect("a table");
        let processes = table["processes"].as_array().expect("processes");
        for process in processes
            .iter()
            .filter(|process| process["first_rank"] == 0)
        {
            let end = format!("-{}.annals", process["pid"]);
            let files = std::fs::read_dir(&directory).expect("a directory");
            let mut files = files.map(|file| file.expect("a file").path());
            let of_process = files.find(|file| file.to_string_lossy().ends_with(&end));
            std::fs::remove_file(of_process.expect("a recording")).expect("a file");
        }
        let messages = ask(&["messages"], &directory);
        let messages: serde_json::Value = serde_json::from_str(&messages).expect("a table");
        let count = |key: &str| messages[key].as_u64().expect("a number");
        // Of each spawned process: on its intercommunicator 2, in a ring of four processes 10, between the two halves 4 and
        // within its world 2, all with neighbours; the first one has connected with the first world's.
        assert_eq!(count("matched"), 2 * (2 * 10 / 2 + 2 * 2), "{messages}");
        assert_eq!(
            count("without_peer") + 2 * count("matched"),
            count("sends") + count("receives"),
            "{messages}"
        );
    }
}

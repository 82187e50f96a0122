//! Rules that are given at the start apply from the first call on, so that no function is given the time of others.

use super::*;

#[test]
fn rules_given_at_the_start_apply_to_the_first_call() {
    let scratch = tempfile::tempdir().expect("a directory");
    let program = scratch.path().join("filtered");
    compile_c("filtered.c", &program, &["-ldl", "-pthread"]);
    let plugin = scratch.path().join("libplugin.so");
    compile_c("filtered_plugin.c", &plugin, &["-shared", "-fPIC"]);
    let linked = scratch.path().join("linked");
    std::os::unix::fs::symlink(&program, &linked).expect("a link");
    let everything = [
        "again",
        "in_thread",
        "inner",
        "main",
        "plugged",
        "setup",
        "solve",
    ];
    let cases: &[(&Path, &str, &[&str])] = &[
        (&program, "off region setup", &["setup"]),
        (&linked, "off region setup", &["setup"]),
        (
            &program,
            "off region set*; off region again",
            &["setup", "again"],
        ),
        (&program, "off region in_thread", &["in_thread"]),
        (
            &program,
            "off region libplugin.so+0x*",
            &["inner", "plugged"],
        ),
        (
            &program,
            "off region *; on region solve; on region main",
            &["again", "in_thread", "inner", "plugged", "setup"],
        ),
        (&program, "off region main", &["main"]),
    ];
    for (number, (program, rules, off)) in cases.iter().enumerate() {
        let run_directory = scratch.path().join(format!("run-{number}"));
        let mut record = trace_cli();
        record.arg("record").arg("-o").arg(&run_directory);
        record.args(["--filter", rules, "--"]).arg(program);
        output(record.arg(&plugin));
        let regions = regions(&run_directory, &[]);
        let mut names: Vec<&str> = regions
            .iter()
            .map(|region| region["region"].as_str().expect("a name"))
            .collect();
        names.sort_unstable();
        let expected: Vec<&str> = everything
            .into_iter()
            .filter(|name| !off.contains(name))
            .collect();
        assert_eq!(names, expected, "{rules}");
        for region in &regions {
            assert_eq!(region["unleft_calls"], 0, "{rules}: {region}");
            assert_eq!(region["unmatched_leaves"], 0, "{rules}: {region}");
            let least_ns = match region["region"].as_str() {
                Some("main") => 50_000_000,
                Some("solve") => 100_000_000,
                _ => 0,
            };
            let exclusive_ns = region["exclusive_ns"].as_u64().expect("a time");
            assert!(exclusive_ns >= least_ns, "{rules}: {region}");
        }
    }
}

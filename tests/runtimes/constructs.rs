//! Each construct's number of calls is that which the program has counted itself.

use std::collections::BTreeMap;

use crate::support::{RUNTIMES, Recorded, Runtime, record};

/// Returns the numbers that the program has printed.
fn counted(recorded: &Recorded) -> BTreeMap<String, u64> {
    let (said, errors) = recorded.said();
    let lines = said.lines().map(|line| {
        let (name, number) = line.rsplit_once(' ').expect("a name and a number");
        (name.to_owned(), number.parse().expect("a number"))
    });
    let counted: BTreeMap<_, _> = lines.collect();
    assert!(!counted.is_empty(), "{errors}");
    counted
}

/// Returns the names of a construct's regions.
fn names(runtime: Runtime, construct: &str) -> Vec<String> {
    let loop_of = |schedule: &str| match runtime {
        // It does not say which.
        Runtime::Libomp(..16) => "!$omp for".to_owned(),
        _ => format!("!$omp for schedule({schedule})"),
    };
    match construct {
        "dynamic" if matches!(runtime, Runtime::Libomp(16..)) => {
            vec![loop_of("dynamic"), loop_of("guided")]
        }
        "dynamic" | "guided" | "static" => vec![loop_of(construct)],
        "barrier" => ["!$omp barrier", "!$omp implicit barrier"]
            .map(str::to_owned)
            .into(),
        lock if lock.starts_with("omp_") => vec![lock.to_owned()],
        other => vec![format!("!$omp {other}")],
    }
}

fn check(runtime: Runtime, how: &str, recorded: &Recorded) {
    let (calls, mut counted) = (recorded.calls(), counted(recorded));
    let add = |counted: &mut BTreeMap<String, u64>, from: &str, to: &str| {
        let number = counted.remove(from).unwrap_or(0);
        *counted.entry(to.to_owned()).or_default() += number;
    };
    match runtime {
        // The older one reports loops of all schedules alike, and a lock that is tried like one that is waited for.
        Runtime::Libomp(..16) => {
            add(&mut counted, "try", "omp_set_lock");
            add(&mut counted, "dynamic", "static");
            add(&mut counted, "guided", "static");
        }
        // Guided loops with few turns are dynamic.
        Runtime::Libomp(_) => add(&mut counted, "guided", "dynamic"),
        Runtime::Libgomp => {}
    }
    counted.remove("try");
    // A task that is not tied to a thread is executed in parts.
    let tasks = counted.remove("task").unwrap_or(0);
    assert_eq!(
        recorded.events("openmp.task_create"),
        tasks,
        "{runtime:?} {how}"
    );
    let parts = calls.get("!$omp task").copied().unwrap_or(0);
    let untied = counted["single"];
    assert!(
        (tasks..=tasks + untied).contains(&parts),
        "{runtime:?} {how}: {parts} parts of {tasks} tasks"
    );
    let teams = recorded.events("openmp.team");
    let is_right = (1..counted["parallel"]).contains(&teams);
    assert!(is_right, "{runtime:?} {how}: {teams} teams");
    for (construct, expected) in counted {
        let names = names(runtime, &construct);
        let found: u64 = names.iter().filter_map(|name| calls.get(name)).sum();
        let is_inlined = runtime == Runtime::Libgomp && ["static", "masked"].contains(&&*construct);
        let expected = if is_inlined { 0 } else { expected };
        assert_eq!(found, expected, "{runtime:?} {how}: {construct}: {calls:?}");
    }
    let info = recorded.ask(&["info"]);
    assert_eq!(
        (&info["complete"], info["dropped"].as_u64()),
        (&true.into(), Some(0))
    );
}

#[test]
fn each_construct_is_recorded_as_often_as_it_was_executed() {
    for runtime in RUNTIMES {
        let program = runtime.compile("constructs.c", &[]);
        let program = program.to_str().expect("UTF-8");
        for (how, code, threads) in [
            ("return", 0, vec!["OMP 1", "OMP 2", "main"]),
            // The first two have ended the program.
            ("exit", 7, vec!["OMP 1", "OMP 2", "main"]),
            ("nested", 0, vec!["OMP 0.1", "OMP 1", "OMP 1.1", "main"]),
            ("fork", 0, vec!["OMP 1", "main"]),
        ] {
            let recorded = record(&[], &[], &[program, how]);
            assert_eq!(
                recorded.output.status.code(),
                Some(code),
                "{:?}",
                recorded.said()
            );
            check(runtime, how, &recorded);
            let found = recorded.threads();
            assert_eq!(found, threads, "{runtime:?} {how}");
        }
    }
}

#[test]
fn threads_of_the_program_have_teams_whose_threads_are_named_after_them() {
    for runtime in RUNTIMES {
        let program = runtime.compile("constructs.c", &[]);
        let recorded = record(&[], &[], &[program.to_str().expect("UTF-8"), "threads"]);
        assert!(recorded.output.status.success(), "{:?}", recorded.said());
        check(runtime, "threads", &recorded);
        let threads = recorded.threads();
        let members = threads.iter().filter(|name| name.starts_with("OMP "));
        // Threads that have ended may have lent theirs to others.
        assert!(
            (1..=4).contains(&members.count()),
            "{runtime:?}: {threads:?}"
        );
    }
}

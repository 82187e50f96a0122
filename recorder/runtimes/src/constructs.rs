//! What the constructs of OpenMP are called, and their groups, by which analyses know what threads do in them.

use annals_instrument::Construct;

macro_rules! constructs {
    ($($number:literal $name:ident $text:literal $group:literal;)*) => {
        $(pub(crate) const $name: u8 = $number;)*

        /// By number, from 1.
        pub(crate) const ALL: &[Construct] = &[$(Construct { name: $text, group: $group }),*];
    };
}

constructs! {
    1 PARALLEL "!$omp parallel" "openmp.parallel";
    2 LOOP "!$omp for" "openmp.work-sharing";
    3 LOOP_STATIC "!$omp for schedule(static)" "openmp.work-sharing";
    4 LOOP_DYNAMIC "!$omp for schedule(dynamic)" "openmp.work-sharing";
    5 LOOP_GUIDED "!$omp for schedule(guided)" "openmp.work-sharing";
    6 SECTIONS "!$omp sections" "openmp.work-sharing";
    7 SINGLE "!$omp single" "openmp.work-sharing";
    8 WORKSHARE "!$omp workshare" "openmp.work-sharing";
    9 DISTRIBUTE "!$omp distribute" "openmp.work-sharing";
    10 TASKLOOP "!$omp taskloop" "openmp.work-sharing";
    11 SCOPE "!$omp scope" "openmp.block";
    12 BARRIER "!$omp barrier" "openmp.barrier";
    13 IMPLICIT_BARRIER "!$omp implicit barrier" "openmp.barrier";
    14 TASKWAIT "!$omp taskwait" "openmp.task-wait";
    15 TASKGROUP "!$omp taskgroup" "openmp.block";
    16 TASKGROUP_WAIT "!$omp taskgroup wait" "openmp.task-wait";
    17 REDUCTION "!$omp reduction" "openmp.block";
    18 CRITICAL "!$omp critical" "openmp.lock";
    19 CRITICAL_BLOCK "!$omp critical sblock" "openmp.block";
    20 ATOMIC "!$omp atomic" "openmp.lock";
    21 ATOMIC_BLOCK "!$omp atomic sblock" "openmp.block";
    22 ORDERED "!$omp ordered" "openmp.lock";
    23 ORDERED_BLOCK "!$omp ordered sblock" "openmp.block";
    24 LOCK "omp_set_lock" "openmp.lock";
    25 NEST_LOCK "omp_set_nest_lock" "openmp.lock";
    26 MASKED "!$omp masked" "openmp.block";
    27 TASK "!$omp task" "openmp.task";
}

/// Returns whether ends of constructs inside of this one are not ends of those around it.
pub(crate) const fn is_boundary(construct: u8) -> bool {
    matches!(construct, PARALLEL | TASK)
}

/// Returns whether a thread waits for a lock in it, and does nothing else.
pub(crate) const fn is_lock(construct: u8) -> bool {
    matches!(construct, LOCK | NEST_LOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_places_in_the_table() {
        let name = |number: u8| ALL[usize::from(number) - 1].name;
        assert_eq!(name(PARALLEL), "!$omp parallel");
        assert_eq!(name(BARRIER), "!$omp barrier");
        assert_eq!(name(TASK), "!$omp task");
        assert_eq!(usize::from(TASK), ALL.len());
    }
}

//! Analyses of traces: values in, values out.
//!
//! An analysis reads the events or calls of a [`Query`](annals_merger::Query) once, or twice where it says so. It is a
//! state that adds what it is given, and that is merged with the state of the next slice of the trace: several threads
//! work on slices, and the result does not depend on their number. States add integers; quotients are computed at the end.
//!
//! Nothing here knows a terminal, an argument of a command line or a file format.
//!
//! ```no_run
//! use annals_analysis::{Grouping, region_statistics};
//! use annals_merger::{Query, Reader};
//!
//! # fn main() -> annals_merger::Result<()> {
//! let reader = Reader::open("run.annals")?;
//! let (statistics, _) = region_statistics(&reader, &Query::new(), Grouping::Rank)?;
//! for ((group, region), of_region) in &statistics {
//!     let name = reader.definitions().region_name(*region);
//!     println!("{group:?} {name}: {} calls", of_region.counted.calls);
//! }
//! # Ok(())
//! # }
//! ```

mod bins;
mod call_paths;
mod call_tree;
mod collectives;
mod colour;
mod communicators;
mod critical_path;
mod distribution;
mod efficiencies;
mod event_loop;
mod extra_work;
mod findings;
mod hybrid;
mod intervals;
mod lanes;
mod locations;
mod losses;
mod lost_time;
mod lost_time_rows;
mod messages;
mod metrics;
mod mpi_coverage;
mod mpi_functions;
mod mpi_window;
mod over_time;
mod oversubscription;
mod overview;
mod patterns;
mod recording_cost;
mod references;
mod region_kinds;
mod region_rows;
mod region_statistics;
mod row;
mod sampled_threads;
mod sampled_work;
mod samples;
mod short_calls;
mod thread_work;
mod time_profile;
mod wait_list;
mod wait_states;
mod waits;

pub use annals_merger::{Analysis, Pass, SliceLength};
pub use bins::{bin_of, bin_start, bounded};
pub use call_paths::CallPaths;
pub use call_tree::{TreeCounter, TreeNode, call_tree};
pub use collectives::{
    CollectiveBegin, CollectiveInstance, CollectiveRow, CollectiveWait, Collectives,
    IncompleteCollective, collectives, first_loss_of_collectives, for_each_collective,
    operation_name,
};
pub use colour::{Colour, region_colour};
pub use critical_path::{CriticalPath, PathRank, PathRegion, PathStay};
pub use distribution::{Bins, Extent, Values};
pub use efficiencies::{Efficiencies, EfficiencyModel, RunTimes};
pub use event_loop::{LoopRow, event_loop, task_locations};
pub use findings::{
    DumpFindings, Ending, Finding, FindingKind, Findings, Life, Origin, Position, RankDump, Span,
    Stay, WaitFor, WaitKind, bad_end, dump_findings, findings,
};
pub use hybrid::{HybridEfficiencies, HybridTimes};
pub use intervals::{
    IntervalPair, IntervalPoint, IntervalRow, Intervals, MOST_OPEN_INTERVALS, intervals,
};
pub use lanes::{
    BinRange, FULL, LaneBin, LaneColumn, Lanes, OverviewCache, OwnTime, TimeColumns, fill_step,
    innermost, open_overview_file, own_times,
};
pub use locations::LocationNames;
pub use losses::concerns;
pub use lost_time::{LEAST_SHARE, LostTime, LostTimeOptions, PhaseRow, lost_time};
pub use lost_time_rows::{CauseRow, ExtraWork, RankTimes, SampledLine, WaitStateRow, WorstWait};
pub use messages::{MessageLosses, MessagePairRow, Messages, for_each_message, messages};
pub use metrics::{MetricPoint, MetricRow, metrics};
pub use mpi_coverage::MpiCoverage;
pub use mpi_window::{PartOfRun, part_of_run, starts_or_ends_mpi};
pub use over_time::{EfficiencyChange, efficiencies_over_time, efficiency_change};
pub use oversubscription::Oversubscription;
pub use overview::{BinTimes, CallOverview, LongCall, MOST_LONG_CALLS, call_overview};
pub use patterns::{
    Family, MemberPart, PartWait, collective_waits, late_receiver, late_sender, wrong_order,
};
pub use recording_cost::{CostSums, EventCost, RecordingCost, call_cost_ns};
pub use references::referred;
pub use region_kinds::{RegionKind, RegionKinds, ThreadConstruct};
pub use region_rows::{
    AWAIT, OutsideTime, RegionNames, RegionRow, RegionSums, RegionTimes, RunTime, region_times,
    run_times, waits_mark,
};
pub use region_statistics::{
    Group, Grouping, RegionStats, Statistics, count_region_statistics, region_statistics,
};
pub use row::{
    Column, Get, Heading, OUTSIDE, Row, Unit, Value, WithTotal, data_columns, joined_path,
    put_columns, uncertain_text,
};
pub use samples::{
    NotSampled, PlaceNames, SampleBy, SampleNode, SampleOptions, SamplePlace, SampleRow, SampleSum,
    SampleSummary, SampleTree, SampleTreeRow, Samples, Sampling, UNKNOWN as UNKNOWN_FUNCTION,
    samples, sampling,
};
pub use short_calls::{ShortCalls, is_short};
pub use thread_work::{RegionWork, ThreadTimes, is_mostly_silent, silent_times, thread_work};
pub use time_profile::{TimeProfile, time_profile};
pub use wait_list::longest_wait_states;
pub use wait_states::{
    CommunicationTimes, Delay, LocationTimes, PhaseTimes, WaitObserver, WaitPattern, WaitState,
    WorkSum, wait_states, wait_states_once,
};
pub use waits::{LateSide, LongestWaits, MessageWait, MessageWaits, Wait, WaitCause};

/// The code of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

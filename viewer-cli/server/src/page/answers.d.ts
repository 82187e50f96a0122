// What the server answers, for the type checker: nothing of it is in the page. Trace times are decimal text.

export interface Trace {
  id: string;
  name: string;
  state: 'preparing' | 'ready' | 'replaced' | 'failed';
  what?: string;
  why?: string;
  done?: string;
  total?: string;
}

export interface Location {
  id: number;
  name: string;
  process: number;
  rank: number;
  depth: number | null;
  clock_error_ns: number | null;
}

export interface Group {
  lane: string;
  kind: 'process' | 'host' | 'source' | 'all';
  name: string;
  locations: number[];
  depth: number | null;
}

export interface LaneAnswer {
  name: string;
  from_ns: string;
  to_ns: string;
  /** Start and end of the time between MPI_Init and MPI_Finalize, the first view. Null: the whole run. */
  parallel_part: [string, string] | null;
  events: string;
  complete: boolean;
  damage: string[];
  locations: Location[];
  groups: Group[];
  /** Id, name, colour, colour of text on it, kind. */
  regions: [number, string, string, string, string][];
  metrics: [number, string][];
  has_message_bins: boolean;
  has_metric_bins: boolean;
}

/** `begin` and `end` are made by the page: nanoseconds from the start of the window that was asked for. */
export interface Message {
  from: number | null;
  from_ns: string;
  to: number | null;
  to_ns: string;
  bytes: string | null;
  tag: number | null;
  begin: number;
  end: number;
}

export interface Operation {
  cause: number | null;
  members: number;
  last: number | null;
  to_ns: string;
  begins: [number | null, string][];
  begin?: number;
  end: number;
}

export interface MessageAnswer {
  events_to_read?: string;
  messages?: Message[];
  message_count?: string;
  operations?: Operation[];
  operation_count?: string;
}

/** Messages from one lane to another. */
export interface MessagePair {
  from: string | null;
  to: string | null;
  count: string;
  bytes: string;
  longest_ns: string;
}

/** Those received in a bin. `begin` and `end` are made by the page. */
export interface MessageBin extends MessagePair {
  bin: string;
  begin: number;
  end: number;
}

/** Messages by bin of time. The level is null where the overview has none that are short enough; nothing but the damage is there then. */
export interface MessageBinAnswer {
  level: number | null;
  damage?: string[];
  from_ns?: string;
  to_ns?: string;
  count?: string;
  bytes?: string;
  pairs?: MessagePair[];
  pair_count?: number;
  bins?: MessageBin[];
  bin_count?: number;
  /** Of the whole run. */
  run?: {
    sends: string;
    receives: string;
    matched: string;
    unmatched_sends: string;
    unmatched_receives: string;
    unmatchable_by_loss: string;
    over_limit: string;
    without_peer: string;
  };
}

export interface Wait {
  location: number;
  from_ns: string;
  wait_ns: number;
  pattern: string;
  wait_state: string;
  for: number;
  begin: number;
  end: number;
}

export interface WaitState {
  pattern: string;
  wait_state: string;
  path: string[];
  communicator: string | null;
  count: number;
  wait_ns: number;
  share: number;
}

export interface Cause {
  rank: number;
  region: string;
  cost_ns: number;
  extra: { path: string[] }[];
}

export interface WaitAnswer {
  events_to_read?: string;
  waits?: Wait[];
  wait_states?: WaitState[];
  causes?: Cause[];
  /** What of MPI the trace does not have, if waits are not known. */
  mpi?: { unseen: string[]; unseen_others: string[]; left_out: string[] };
}

/** `null`: the trace has no samples. */
export type SampleAnswer = {
  events_to_read?: string;
  functions?: { function: string | null; module: string | null; samples: number; self_ns: number; self_error_ns: number; share: number }[];
  count?: number;
  samples?: number;
} | null;

export interface Loss {
  location: number | null;
  from_ns: string;
  to_ns: string;
  count: string;
  is_lower_bound: boolean;
  cause: string;
  is_suppressed: boolean;
  from: bigint;
  to: bigint;
}

export interface Curve {
  name: string;
  unit?: string;
  rank: number;
  location?: string;
  min: number;
  max: number;
  points: { from_ns: string; min: number; max: number; mean: number }[];
}

export interface RegionRow {
  region: string;
  calls: number;
  exclusive_ns: number;
  share: number;
}

export interface Call {
  depth: number;
  region: number;
  name: string;
  file?: string;
  line?: number;
  begin_ns: string;
  end_ns: string | null;
  duration_ns?: string;
  is_open?: boolean;
  is_uncertain?: boolean;
}

export interface CallAnswer {
  calls: Call[];
  events: { time_ns: string; name: string; region: string | null; elements: [string, string][] }[];
}

export interface SearchAnswer {
  regions: { region: number; name: string; calls: string | null }[];
  region_count: number;
  locations: { location: number; rank: number; name: string }[];
}

export interface FindAnswer {
  at_ns: string | null;
  location?: number | null;
}

//! Calls of collective operations and messages between processes: what an event says of them.

use annals_format::CollectiveOperation;
use rustc_hash::FxHashMap;

use super::json::{Event, Number, Text, parse_ranks};
use super::sorted::Kind;

/// Names of the libraries that annotations begin with.
const LIBRARIES: [&str; 7] = ["nccl", "gloo", "xccl", "hccl", "mccl", "ucc", "mpi"];
/// Libraries whose annotation lasts as long as the operation. Others only start it on a device.
const BLOCKING: [&str; 3] = ["gloo", "ucc", "mpi"];
/// Number of calls of a file that are kept.
const MOST_CALLS: usize = 1 << 18;
/// Number of groups and descriptions of calls of a file.
const MOST_TEXTS: usize = 1 << 14;

/// What a call does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Deed {
    /// Not known, or nothing that other processes take part in.
    Unknown,
    Collective(CollectiveOperation),
    Send,
    Receive,
}

/// A call, as far as an event describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Call {
    pub(super) deed: Deed,
    /// Number of its group in the table. `None` means that it is not known.
    pub(super) group: Option<u32>,
    /// Number of its text in the table: what calls of one operation have in common in all processes.
    pub(super) text: u32,
    /// Number of the operation in its group.
    pub(super) sequence: Option<u64>,
    pub(super) sent: Option<u64>,
    pub(super) received: Option<u64>,
    /// The root, or the other process.
    pub(super) peer: Option<u32>,
    /// Whether the operation is over when its annotation ends.
    pub(super) is_blocking: bool,
}

/// A group of processes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Group {
    pub(super) name: String,
    /// Empty if they are not known.
    pub(super) ranks: Vec<u32>,
    /// Number of processes; 0 if it is not known.
    pub(super) size: u32,
}

/// The calls of a file.
#[derive(Default)]
pub(super) struct CallTable {
    pub(super) calls: Vec<Call>,
    pub(super) groups: Vec<Group>,
    pub(super) texts: Vec<String>,
    group_numbers: FxHashMap<String, Option<u32>>,
    text_numbers: FxHashMap<String, u32>,
    /// Calls of which there was no room for a description.
    pub(super) left_out: u64,
    /// A rank that a descriptor names as this process's.
    pub(super) rank: Option<u32>,
}

/// Returns what an operation's name means in any of its forms: `allreduce`, `all_reduce`, `_allgather_base`.
fn deed_of(name: &str) -> Deed {
    use CollectiveOperation as Op;
    let letters = name
        .chars()
        .filter(|c| *c != '_')
        .flat_map(char::to_lowercase);
    let letters: String = letters.collect();
    let is = |start: &str| letters.starts_with(start);
    if is("allreduce") {
        Deed::Collective(Op::Allreduce)
    } else if is("allgather") {
        Deed::Collective(Op::Allgather)
    } else if is("reducescatter") {
        Deed::Collective(Op::ReduceScatterBlock)
    } else if is("alltoall") {
        Deed::Collective(Op::Alltoall)
    } else if is("broadcast") {
        Deed::Collective(Op::Broadcast)
    } else if is("reduce") {
        Deed::Collective(Op::Reduce)
    } else if is("gather") {
        Deed::Collective(Op::Gather)
    } else if is("scatter") {
        Deed::Collective(Op::Scatter)
    } else if is("barrier") {
        Deed::Collective(Op::Barrier)
    } else if is("sendrecv") {
        Deed::Unknown
    } else if is("send") {
        Deed::Send
    } else if is("recv") {
        Deed::Receive
    } else {
        Deed::Unknown
    }
}

/// Returns the library and the operation of an annotation like `nccl:all_reduce`.
fn annotated(name: &str) -> Option<(&str, &str)> {
    let (library, operation) = name.split_once(':')?;
    LIBRARIES.contains(&library).then_some((library, operation))
}

/// Returns what is after the library's part of a kernel's name like `ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)`.
fn of_kernel(name: &str) -> Option<&str> {
    let is_of_library = name.starts_with("nccl") || name.starts_with("rccl");
    let (_, operation) = name.split_once("Kernel_").filter(|_| is_of_library)?;
    Some(operation)
}

/// Returns what an event of a category is.
pub(super) fn kind_of(event: &Event) -> Kind {
    let name = event.name.as_str();
    let has_descriptor = !event.text(Text::Collective).is_empty();
    match event.category.as_str() {
        "kernel" | "Kernel" | "collective_comm" if has_descriptor || of_kernel(name).is_some() => {
            Kind::Kernel
        }
        "kernel" | "Kernel" | "gpu_memcpy" | "gpu_memset" | "Memcpy" | "Memset" => Kind::Device,
        "cpu_op" | "Operator" if name.starts_with("c10d::") => Kind::Dispatcher,
        "cpu_op" | "Operator" if name == "record_param_comms" => Kind::Descriptor,
        "user_annotation" if annotated(name).is_some() => Kind::Annotation,
        "gpu_user_annotation" if annotated(name).is_some() => Kind::DeviceAnnotation,
        "user_annotation" | "cpu_op" | "Operator" if step_of(name).is_some() => Kind::Step,
        category if category.ends_with("_runtime") || category.ends_with("_driver") => {
            Kind::Runtime
        }
        "Runtime" => Kind::Runtime,
        _ => Kind::Slice,
    }
}

/// Returns the number of a step of the profiler.
pub(super) fn step_of(name: &str) -> Option<i64> {
    name.strip_prefix("ProfilerStep#")?.parse().ok()
}

/// Returns the bytes of an element of a type of PyTorch.
fn element_bytes(data_type: &str) -> Option<u64> {
    let name = data_type.trim_start_matches("c10::").to_ascii_lowercase();
    Some(match name.as_str() {
        "char" | "signed char" | "byte" | "unsigned char" | "bool" | "int8" | "uint8" => 1,
        name if name.starts_with("float8") => 1,
        "half" | "bfloat16" | "short" | "short int" | "int16" | "uint16" | "float16" => 2,
        "float" | "int" | "unsigned int" | "float32" | "int32" | "uint32" => 4,
        "double" | "long" | "long int" | "complexfloat" | "int64" | "uint64" | "float64" => 8,
        "complexdouble" => 16,
        _ => return None,
    })
}

/// Returns the product of the only dimensions in a text like `[[3, 4]]`. `None` if there is not exactly one tensor.
fn elements_of(dimensions: &str) -> Option<u64> {
    let inner = dimensions.strip_prefix("[[")?.strip_suffix("]]")?;
    let mut sizes = inner.split(',').map(|size| size.trim().parse::<u64>().ok());
    sizes.try_fold(1, |product: u64, size| product.checked_mul(size?))
}

/// Returns whether a list of sizes of parts has an empty one.
fn has_empty(splits: &str) -> bool {
    parse_ranks(splits).is_some_and(|sizes| sizes.contains(&0))
}

impl CallTable {
    /// Adds what an event of this kind says. `None` if it is not of a call, or there is no room.
    pub(super) fn add(&mut self, event: &Event, kind: Kind) -> Option<u32> {
        let call = match kind {
            Kind::Kernel | Kind::Descriptor => self.described(event, of_kernel(&event.name)),
            Kind::Annotation | Kind::DeviceAnnotation => {
                let (library, operation) = annotated(&event.name)?;
                let call = self.described(event, Some(operation));
                Call {
                    is_blocking: BLOCKING.contains(&library),
                    ..call
                }
            }
            Kind::Dispatcher => self.described(event, event.name.strip_prefix("c10d::")),
            _ => return None,
        };
        if self.calls.len() >= MOST_CALLS {
            self.left_out += 1;
            return None;
        }
        self.calls.push(call);
        Some(self.calls.len() as u32 - 1)
    }

    fn described(&mut self, event: &Event, named: Option<&str>) -> Call {
        use CollectiveOperation as Op;
        let descriptor = event.text(Text::Collective);
        let mut deed = if descriptor.is_empty() {
            named.map_or(Deed::Unknown, deed_of)
        } else {
            deed_of(descriptor)
        };
        if [Text::InSplit, Text::OutSplit]
            .iter()
            .any(|splits| has_empty(event.text(*splits)))
            && deed == Deed::Collective(Op::Alltoall)
        {
            deed = Deed::Collective(Op::Alltoallv);
        }
        let small = |number| {
            event
                .number(number)
                .and_then(|rank| u32::try_from(rank).ok())
        };
        let mut peer = match deed {
            Deed::Collective(Op::Broadcast | Op::Scatter) | Deed::Receive => small(Number::Source),
            Deed::Collective(Op::Reduce | Op::Gather) | Deed::Send => small(Number::Destination),
            _ => None,
        };
        if !descriptor.is_empty() {
            self.rank = self.rank.or(small(Number::Rank));
        }
        if let Some((_, pair)) = named.and_then(|named| named.split_once(' '))
            && let Some((from, to)) = pair.split_once("->")
        {
            let other = if deed == Deed::Send { to } else { from };
            peer = peer.or(other.trim().parse().ok());
        }
        let of_type = |data_type: &str| element_bytes(data_type.trim_matches(['[', ']', '"']));
        let bytes = |count: Option<u64>, size: Option<u64>| count?.checked_mul(size?);
        let (mut sent, mut received);
        if descriptor.is_empty() {
            let size = of_type(event.text(Text::InputType));
            sent = bytes(elements_of(event.text(Text::Dimensions)), size);
            received = sent.filter(|_| deed == Deed::Collective(Op::Allreduce));
        } else {
            let size = of_type(event.text(Text::DataType));
            sent = bytes(event.unsigned(Number::InElements), size);
            received = bytes(event.unsigned(Number::OutElements), size);
        }
        if matches!(
            deed,
            Deed::Collective(Op::Broadcast | Op::Scatter | Op::Reduce | Op::Gather | Op::Barrier)
        ) {
            // Descriptors do not say which side a process is on.
            (sent, received) = (None, None);
        }
        Call {
            deed,
            group: self.group(event),
            text: self.text(deed, event.text(Text::Dimensions)),
            sequence: event.unsigned(Number::Sequence),
            sent,
            received,
            peer,
            is_blocking: false,
        }
    }

    fn text(&mut self, deed: Deed, dimensions: &str) -> u32 {
        // The shape of what a process gets from others may differ between processes.
        let text = match deed {
            Deed::Collective(CollectiveOperation::Allreduce | CollectiveOperation::Broadcast) => {
                format!("{deed:?} {dimensions}")
            }
            Deed::Send | Deed::Receive => String::from("message"),
            _ => format!("{deed:?}"),
        };
        if let Some(known) = self.text_numbers.get(&text) {
            return *known;
        }
        if self.texts.len() >= MOST_TEXTS {
            return 0;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.clone());
        self.text_numbers.insert(text, number);
        number
    }

    /// Returns the number of the group that the descriptor of an event names.
    fn group(&mut self, event: &Event) -> Option<u32> {
        let [name, ranks] = [Text::GroupName, Text::GroupRanks].map(|text| event.text(text));
        let size = event.unsigned(Number::GroupSize).unwrap_or(0);
        if event.text(Text::Collective).is_empty() || (name.is_empty() && ranks.is_empty()) {
            return None;
        }
        let line = [Number::RankStart, Number::RankStride].map(|number| event.unsigned(number));
        let key = format!("{name}\0{ranks}\0{size}\0{line:?}");
        if let Some(known) = self.group_numbers.get(&key) {
            return *known;
        }
        let number = u32::try_from(self.groups.len()).ok()?;
        if self.groups.len() >= MOST_TEXTS {
            return None;
        }
        let size = u32::try_from(size).unwrap_or(0);
        let ranks = parse_ranks(ranks).or_else(|| match line {
            // The list is cut after 30 ranks.
            [Some(start), Some(stride)] if size <= 1 << 16 => (0..u64::from(size))
                .map(|place| u32::try_from(start.checked_add(stride.checked_mul(place)?)?).ok())
                .collect(),
            _ => None,
        });
        let ranks = ranks.unwrap_or_default();
        self.groups.push(Group {
            name: name.to_owned(),
            size: if ranks.is_empty() {
                size
            } else {
                ranks.len() as u32
            },
            ranks,
        });
        self.group_numbers.insert(key, Some(number));
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_known_by_each_of_its_names() {
        use CollectiveOperation as Op;
        for (names, operation) in [
            (
                &[
                    "allreduce",
                    "all_reduce",
                    "allreduce_",
                    "AllReduce_Sum_f32_RING_LL(x)",
                ][..],
                Op::Allreduce,
            ),
            (
                &[
                    "_allgather_base",
                    "_all_gather_base",
                    "allgather_",
                    "AllGather_RING_LL",
                ],
                Op::Allgather,
            ),
            (
                &[
                    "reduce_scatter",
                    "_reduce_scatter_base",
                    "ReduceScatter_Sum",
                ],
                Op::ReduceScatterBlock,
            ),
            (&["all_to_all", "alltoall_base_"], Op::Alltoall),
            (&["reduce", "reduce_", "Reduce_Sum"], Op::Reduce),
            (
                &["broadcast", "broadcast_", "Broadcast_RING"],
                Op::Broadcast,
            ),
        ] {
            for name in names {
                assert_eq!(deed_of(name), Deed::Collective(operation), "{name}");
            }
        }
        assert_eq!(deed_of("send 0->1"), Deed::Send);
        assert_eq!(deed_of("recv_"), Deed::Receive);
        for name in ["wait", "init", "SendRecv(ncclDevComm*)", "coalesced"] {
            assert_eq!(deed_of(name), Deed::Unknown, "{name}");
        }
    }
}

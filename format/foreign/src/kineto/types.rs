//! Event types of the recordings.

use annals_format::{ElementSpec, ElementType, EventTypeId, RecordingBuilder, Reference, Role};

pub(super) const ENTER: EventTypeId = EventTypeId::new(0);
/// An operator: with the sizes of its inputs, or with all of its arguments.
pub(super) const ENTER_OPERATOR: EventTypeId = EventTypeId::new(1);
pub(super) const ENTER_DEVICE: EventTypeId = EventTypeId::new(2);
pub(super) const LEAVE: EventTypeId = EventTypeId::new(3);
pub(super) const LAUNCH: EventTypeId = EventTypeId::new(4);
pub(super) const START: EventTypeId = EventTypeId::new(5);
pub(super) const SEND: EventTypeId = EventTypeId::new(6);
pub(super) const RECEIVE: EventTypeId = EventTypeId::new(7);
pub(super) const COLLECTIVE_BEGIN: EventTypeId = EventTypeId::new(8);
pub(super) const COLLECTIVE_END: EventTypeId = EventTypeId::new(9);
pub(super) const MEMORY: EventTypeId = EventTypeId::new(10);

/// Defines the event types of a recording. `text`: the name of the element that an operator has.
pub(super) fn define(builder: &mut RecordingBuilder, text: &str) {
    use ElementType::{I64, String, U32, U64};
    let optional = |name, element_type| ElementSpec {
        is_optional: true,
        ..ElementSpec::new(name, element_type)
    };
    let bytes = |name| ElementSpec {
        unit: "B",
        ..optional(name, U64)
    };
    let region = ElementSpec::new("region", U32).referring(Reference::Region);
    let communicator = optional("communicator", U32).referring(Reference::String);
    let rank = |name| ElementSpec::new(name, I64).referring(Reference::Rank);
    let sequence = ElementSpec::new("sequence", U64);
    let launch = [rank("peer"), communicator, sequence];
    let message = [rank("peer"), communicator, sequence, bytes("bytes")];
    let collective = [
        ElementSpec::new("operation", I64),
        communicator,
        sequence,
        rank("root"),
        ElementSpec::new("size", I64),
        ElementSpec::new("place", I64),
        bytes("bytes_sent"),
        bytes("bytes_received"),
    ];
    let device = [
        region,
        bytes("bytes"),
        optional("grid", String),
        optional("block", String),
    ];
    let types = [
        ("enter", Role::Enter, &[region][..], ENTER),
        (
            "enter operator",
            Role::Enter,
            &[region, optional(text, String)],
            ENTER_OPERATOR,
        ),
        ("enter on device", Role::Enter, &device, ENTER_DEVICE),
        ("leave", Role::Leave, &[region], LEAVE),
        ("launch", Role::Send, &launch, LAUNCH),
        ("start", Role::Receive, &launch, START),
        ("send", Role::Send, &message, SEND),
        ("receive", Role::Receive, &message, RECEIVE),
        (
            "collective begin",
            Role::CollectiveBegin,
            &collective,
            COLLECTIVE_BEGIN,
        ),
        (
            "collective end",
            Role::CollectiveEnd,
            &collective,
            COLLECTIVE_END,
        ),
        (
            "memory",
            Role::Point,
            &[bytes("allocated"), bytes("total")],
            MEMORY,
        ),
    ];
    for (name, role, elements, id) in types {
        let defined = builder.event_type(name, role, elements);
        debug_assert_eq!(defined, id);
    }
}

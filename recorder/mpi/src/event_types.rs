//! The event types of MPI calls, and the elements that they have.

use annals_recorder::names::element;
use annals_recorder::names::property::MPI_LEFT_OUT;
use annals_recorder::{EventType, EventTypeSpec, Recorder, RecorderError, Reference, Role, Text};

/// A send or a receive: communicator, peer, tag, bytes, sequence number.
pub(crate) type Message = (u32, u32, u32, u64, i64);
/// Elements of events about requested messages: those of a message, and the request.
pub(crate) type Requested = (u32, u32, u32, u64, i64, u64);
/// Communicator, operation, root, bytes sent, bytes received, place, size, sequence number.
pub(crate) type Collective = (u32, u32, i32, u64, u64, u32, u32, i64);
/// The elements of [`Collective`], and the request.
pub(crate) type CollectiveRequested = (u32, u32, i32, u64, u64, u32, u32, i64, u64);

/// Declares [`Types`], in the order in which the event types are added: the first ones are cheapest
/// to raise.
macro_rules! event_types {
    ($($(#[$doc:meta])* $field:ident: $elements:ty = $spec:expr;)*) => {
        /// The event types that are raised in addition to enters and leaves.
        #[derive(Debug)]
        pub(crate) struct Types {
            $($(#[$doc])* pub(crate) $field: EventType<$elements>,)*
        }

        impl Types {
            /// Adds all event types to a recorder.
            pub(crate) fn add(recorder: &Recorder) -> Result<Self, RecorderError> {
                let mut left_out = Vec::new();
                let types = Self { $($field: {
                    let spec = $spec;
                    if recorder.leaves_out(&spec) {
                        left_out.push(spec.name().to_owned());
                    }
                    recorder.add_event_type(&spec)?
                },)* };
                if !left_out.is_empty() {
                    recorder.add_property(MPI_LEFT_OUT, &left_out.join(" "))?;
                }
                Ok(types)
            }
        }
    };
}

event_types! {
    send: Message = message("mpi.send", "a message is sent", Role::Send);
    receive: Message = message("mpi.receive", "a message is there", Role::Receive);
    isend: Requested = message("mpi.isend", "a message begins to be sent", Role::Send)
        .element(element::REQUEST);
    ireceive: Requested =
        message("mpi.ireceive", "a message that was waited for is there", Role::Receive)
            .element(element::REQUEST);
    /// Communicator, peer, tag, request.
    receive_start: (u32, i32, i32, u64) =
        spec("mpi.receive_start", "a message is waited for", Role::ReceiveStart)
            .reference(element::COMMUNICATOR, Reference::Object)
            .reference(element::PEER, Reference::Rank)
            .element(element::TAG)
            .element(element::REQUEST);
    /// Communicator, peer, tag, sequence number (-1: not known before the message is there, or a probe).
    blocking_start: (u32, i32, i32, i64) = spec(
        "mpi.blocking_receive_start",
        "a call waits for a message: it receives or probes",
        Role::ReceiveStart,
    )
    .reference(element::COMMUNICATOR, Reference::Object)
    .reference(element::PEER, Reference::Rank)
    .element(element::TAG)
    .element(element::SEQUENCE);
    /// Request, number of requests of the call.
    wait: (u64, u32) = spec("mpi.wait", "a call waits for this request", Role::Wait)
        .element(element::REQUEST)
        .element(element::COUNT);
    send_end: (u64,) =
        request("mpi.send_end", "the buffer of a message may be used again", Role::SendEnd);
    cancel: (u64,) = request("mpi.cancel", "no message is waited for any more", Role::Cancel);
    collective_begin: Collective = collective(
        "mpi.collective_begin",
        "a collective operation begins",
        Role::CollectiveBegin,
    );
    collective_end: Collective = collective(
        "mpi.collective_end",
        "a collective operation is done",
        Role::CollectiveEnd,
    );
    icollective_begin: CollectiveRequested = collective(
        "mpi.icollective_begin",
        "a non-blocking collective operation begins",
        Role::CollectiveBegin,
    )
    .element(element::REQUEST);
    icollective_end: CollectiveRequested = collective(
        "mpi.icollective_end",
        "a non-blocking collective operation is done",
        Role::CollectiveEnd,
    )
    .element(element::REQUEST);
    /// Window, target, bytes.
    put: (u32, i32, u64) = rma("mpi.put", "bytes go into another's window");
    /// Window, target, bytes.
    get: (u32, i32, u64) = rma("mpi.get", "bytes come out of another's window");
    /// Window, target, bytes.
    atomic: (u32, i32, u64) = rma("mpi.atomic", "bytes in another's window are changed");
    /// The request of a one-sided operation, raised after the operation itself.
    rma_request: (u64,) = request(
        "mpi.rma_request",
        "the one-sided operation before has this request",
        Role::Point,
    );
    /// The request of a one-sided operation that is complete.
    rma_end: (u64,) =
        request("mpi.rma_end", "a one-sided operation is complete here", Role::Point);
    /// File, bytes.
    read: (u32, u64) = file("mpi.read", "was read").element_in(element::BYTES, "bytes");
    /// File, bytes.
    write: (u32, u64) = file("mpi.write", "was written").element_in(element::BYTES, "bytes");
    /// File, request.
    file_start: (u32, u64) =
        file("mpi.file_start", "begins to be read or written").element(element::REQUEST);
    /// File, bytes, request.
    file_end: (u32, u64, u64) = file("mpi.file_end", "was read or written")
        .element_in(element::BYTES, "bytes")
        .element(element::REQUEST);
    /// Communicator, parent, size, place.
    communicator: (u32, u32, u32, u32) =
        spec("mpi.communicator", "a communicator was made", Role::Point)
            .reference(element::COMMUNICATOR, Reference::Object)
            .reference("parent", Reference::Object)
            .element(element::SIZE)
            .element(element::PLACE);
    /// Window, communicator.
    window: (u32, u32) = spec("mpi.window", "a window was made", Role::Point)
        .reference("window", Reference::Object)
        .reference(element::COMMUNICATOR, Reference::Object);
    /// Window, its communicator (-1: not known), target (-1: all or none), sequence number.
    window_sync: (u32, i64, i32, i64) =
        spec("mpi.window_sync", "processes synchronize about a window", Role::Point)
            .reference("window", Reference::Object)
            .reference(element::COMMUNICATOR, Reference::Object)
            .reference(element::PEER, Reference::Rank)
            .element(element::SEQUENCE);
    /// Communicator, sequence number.
    communicator_call: (u32, i64) = spec(
        "mpi.communicator_call",
        "a call begins that all processes of the communicator make",
        Role::Point,
    )
    .reference(element::COMMUNICATOR, Reference::Object)
    .element(element::SEQUENCE);
    /// File, sequence number.
    file_collective: (u32, i64) =
        file("mpi.file_collective", "begins to be read or written by all of its processes")
            .element(element::SEQUENCE);
    /// Object, name.
    named: (u32, Text) = spec("mpi.named", "the program named it", Role::Point)
        .reference("object", Reference::Object)
        .element("name");
    /// Communicator, peer, tag.
    unsent: (u32, u32, u32) = unsent("mpi.unsent", "a message was not sent: the call failed");
    /// Communicator, peer, tag, request.
    iunsent: (u32, u32, u32, u64) =
        unsent("mpi.iunsent", "a message was not sent: cancelled, or failed")
            .element(element::REQUEST);
    control: (i32,) = spec("mpi.pcontrol", "MPI_Pcontrol", Role::Point).element("level");
}

fn spec(name: &str, description: &str, role: Role) -> EventTypeSpec {
    EventTypeSpec::new(name).description(description).role(role)
}

fn message(name: &str, description: &str, role: Role) -> EventTypeSpec {
    spec(name, description, role)
        .reference(element::COMMUNICATOR, Reference::Object)
        .reference(element::PEER, Reference::Rank)
        .element(element::TAG)
        .element_in(element::BYTES, "bytes")
        .element(element::SEQUENCE)
}

fn collective(name: &str, description: &str, role: Role) -> EventTypeSpec {
    spec(name, description, role)
        .reference(element::COMMUNICATOR, Reference::Object)
        .element(element::OPERATION)
        .reference(element::ROOT, Reference::Rank)
        .element_in(element::BYTES_SENT, "bytes")
        .element_in(element::BYTES_RECEIVED, "bytes")
        .element(element::PLACE)
        .element(element::SIZE)
        .element(element::SEQUENCE)
}

fn request(name: &str, description: &str, role: Role) -> EventTypeSpec {
    spec(name, description, role).element(element::REQUEST)
}

fn unsent(name: &str, description: &str) -> EventTypeSpec {
    spec(name, description, Role::Cancel)
        .reference(element::COMMUNICATOR, Reference::Object)
        .reference(element::PEER, Reference::Rank)
        .element(element::TAG)
}

fn rma(name: &str, description: &str) -> EventTypeSpec {
    spec(name, description, Role::Point)
        .reference("window", Reference::Object)
        .reference(element::PEER, Reference::Rank)
        .element_in(element::BYTES, "bytes")
}

fn file(name: &str, description: &str) -> EventTypeSpec {
    spec(name, description, Role::Point).reference("file", Reference::Object)
}

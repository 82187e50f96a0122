//! What a recorder must do to take part. The methods of a [`Lane`] are the calls that are measured:
//! every contestant keeps each of them out of line, once, so that all have the same shape.

/// Events of the measured program, on one thread.
pub(crate) trait Lane {
    /// What an open region needs until it is left.
    type Open;

    /// Untimed, on the thread that raises events, before the first.
    fn begin(&mut self) {}
    /// Untimed, on the same thread, after the last.
    fn end(&mut self) {}

    /// Enters one of 64 regions.
    fn enter(&mut self, region: u32) -> Self::Open;
    /// Leaves it.
    fn leave(&mut self, region: u32, open: Self::Open);
    /// An event with three small elements.
    fn three(&mut self, a: u32, b: u32, c: u64);
    /// A message sent: four fields and two more elements.
    fn send(
        &mut self,
        receiver: u32,
        communicator: u32,
        tag: u32,
        length: u64,
        request: u64,
        datatype: u32,
    );
    /// An event of one of four types with one element.
    fn point(&mut self, kind: u32, value: u32);
    /// The value of a metric.
    fn metric(&mut self, value: i64);
    /// A short text.
    fn note(&mut self);
}

/// Events of a program that passes messages, beyond those of a [`Lane`].
pub(crate) trait MessageLane: Lane {
    /// A message sent, without more elements.
    fn sent(&mut self, receiver: u32, communicator: u32, tag: u32, length: u64);
    /// A message received.
    fn received(&mut self, sender: u32, communicator: u32, tag: u32, length: u64);
    /// A collective operation begins.
    fn collective_begin(&mut self);
    /// A collective operation ends.
    fn collective_end(&mut self, operation: u8, communicator: u32, root: u32, sent: u64, got: u64);
    /// The value of a metric that is a floating-point number.
    fn load(&mut self, value: f64);
}

/// A recorder that takes part in the event path's rounds.
pub(crate) trait Contestant: Sync {
    /// Its events on one thread.
    type Lane: Lane;

    /// Untimed, before a measurement on `lanes` threads.
    ///
    /// # Errors
    /// Why it cannot go on; it is then reported as not measured.
    fn prepare(&mut self, lanes: usize) -> Result<(), String> {
        let _ = lanes;
        Ok(())
    }

    /// Returns a lane; called on the thread that raises events.
    fn lane(&self, number: usize) -> Self::Lane;

    /// Untimed, after a measurement in which `raised` events were raised.
    ///
    /// # Errors
    /// Why it cannot go on; it is then reported as not measured.
    fn settle(&mut self, raised: u64) -> Result<(), String>;

    /// After the last round: were the events written that were raised?
    ///
    /// # Errors
    /// If the counts do not add up.
    fn finish(&mut self) -> Result<Check, String>;
}

/// What a contestant's own reader found.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(crate) struct Check {
    /// Events raised.
    pub(crate) raised: u64,
    /// Events read back; `None` means not checked.
    pub(crate) read: Option<u64>,
    /// Events that the recorder itself says it lost.
    pub(crate) lost: u64,
    /// How it was checked, or why not.
    pub(crate) how: String,
}

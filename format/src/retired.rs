//! Codes that development versions wrote, before the first release. None is ever used again, and a file that has one is refused in words:
//! what it means is not known any more.

use crate::block::BlockKind;

/// A code that is not used any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Retired {
    /// A kind of block.
    Block(u8),
    /// A kind of definition.
    Definition(u64),
}

/// Every such code, with what it was.
pub(crate) const RETIRED: [(Retired, &str); 2] = [
    (Retired::Block(3), "a trace chunk"),
    (Retired::Definition(15), "a clock map"),
];

impl Retired {
    /// Returns what a code was, if it is not used any more.
    pub(crate) fn name(self) -> Option<&'static str> {
        let known = RETIRED.iter().find(|(code, _)| *code == self);
        known.map(|(_, name)| *name)
    }
}

/// The kinds of blocks that are not used any more.
pub(crate) fn blocks() -> impl Iterator<Item = BlockKind> {
    RETIRED.iter().filter_map(|(code, _)| match code {
        Retired::Block(kind) => Some(BlockKind::from_code(*kind)),
        Retired::Definition(_) => None,
    })
}

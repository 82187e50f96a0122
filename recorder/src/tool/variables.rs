//! What performance and control variables have in common.

use super::cvar::{CvarHandleState, CvarState};
use super::pvar::{PvarHandleState, PvarState, SessionState};
use super::table::Table;

/// Most values of one variable: a wrong number must not make the program run out of memory.
pub(crate) const MAX_ITEMS: usize = 1 << 20;

/// The variables of a runtime, and who holds them.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    pub(crate) pvars: Table<PvarState>,
    pub(crate) sessions: Table<SessionState>,
    pub(crate) pvar_handles: Table<std::sync::Arc<PvarHandleState>>,
    pub(crate) cvars: Table<CvarState>,
    pub(crate) cvar_handles: Table<CvarHandleState>,
}

//! The variables of a runtime and their handles.

use super::cvar::{CvarHandleState, CvarState};
use super::pvar_state::{PvarHandleState, PvarState, SessionState};
use super::table::Table;

/// The variables of a runtime, with their sessions and handles.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    pub(crate) pvars: Table<PvarState>,
    pub(crate) sessions: Table<SessionState>,
    pub(crate) pvar_handles: Table<std::sync::Arc<PvarHandleState>>,
    pub(crate) cvars: Table<CvarState>,
    pub(crate) cvar_handles: Table<CvarHandleState>,
}

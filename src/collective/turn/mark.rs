//! Marks of a call for tools, while the host enqueues the call: a span of `tracing`, and with the feature `nvtx` a range in the
//! domain `symmetra`. Without a tool a mark costs two loads.

use tracing::span::EnteredSpan;
use tracing::{Level, span};

use crate::group::{EnqueuedCall, Group};

/// The mark of one call. Dropping the mark ends it.
pub(super) struct Mark {
    _span: EnteredSpan,
    #[cfg(feature = "nvtx")]
    _range: Option<nvtx::domain::LocalRange<'static>>,
}

impl Mark {
    /// Begins the mark of `call`, a call of `group`.
    pub(super) fn of(group: &Group, call: &EnqueuedCall) -> Self {
        Self {
            _span: span!(target: "symmetra::calls", Level::TRACE, "call", %call, group = %group.label(), rank = group.rank())
                .entered(),
            #[cfg(feature = "nvtx")]
            _range: ranges::begin(|| format!("{call}, rank {} of {}", group.rank(), group.label())),
        }
    }
}

#[cfg(feature = "nvtx")]
mod ranges {
    //! NVTX: a tool names its library in a variable, and NVTX loads that library at the first use.

    use std::ffi::CString;

    use nvtx::domain::{Domain, LocalRange};
    use once_cell::sync::OnceCell;

    use crate::variables::optional;

    /// The variable by which a tool names its library.
    const INJECTION: &str = "NVTX_INJECTION64_PATH";

    /// Begins a range with a text, if a tool is present.
    pub(super) fn begin(text: impl FnOnce() -> String) -> Option<LocalRange<'static>> {
        static DOMAIN: OnceCell<Option<Domain>> = OnceCell::new();
        let domain = DOMAIN.get_or_init(|| {
            let has_tool = optional(INJECTION).map_or(true, |path| path.is_some());
            has_tool.then(|| Domain::new(c"symmetra"))
        });
        domain.as_ref().map(|domain| domain.local_range(CString::new(text()).unwrap_or_default()))
    }
}

//! The variables of the environment.

use std::time::Duration;

use once_cell::sync::OnceCell;
use symmetra::{Device, DeviceKind};

use crate::error::{CallFailure, Result};
use crate::log;
use crate::variables::{PREFIX, names, own, variable};

/// Which communicators this library serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serve {
    /// A communicator whose ranks meet the conditions. The real NCCL serves the others.
    Auto,
    /// No communicator: the real NCCL serves all.
    Off,
    /// Every communicator: one that does not meet the conditions is an error.
    Only,
}

#[derive(Clone, Debug)]
pub(crate) struct FrontSettings {
    pub(crate) serve: Serve,
    pub(crate) device: DeviceKind,
    /// Whether several ranks may have one GPU.
    pub(crate) share: bool,
    /// Whether a call that fails keeps its stream until an abort.
    pub(crate) hold: bool,
    /// The most time of any wait.
    pub(crate) timeout: Option<Duration>,
    pub(crate) check_calls: bool,
    pub(crate) max_ctas: Option<u32>,
    /// Whether peers may not address each other's memory.
    pub(crate) no_p2p: bool,
    /// Whether graphs, and eager calls on any stream, keep one order.
    pub(crate) graph_mixing: bool,
    /// Whether openings return early, if `NCCL_COMM_BLOCKING` decides that.
    pub(crate) returns_early: Option<bool>,
    /// Whether every communicator is the real NCCL's, because `NCCL_COMM_ID` replaces ids.
    pub(crate) has_comm_id: bool,
}

/// The variables of this library.
const OWN: [&str; 8] = ["SERVE", "LIBRARY", "VERSION", "DEVICE", "SHARE", "TIMEOUT_S", "HOLD", "LOG"];

fn one_of<T: Copy>(name: &str, otherwise: T, values: &[(&str, T)]) -> Result<T> {
    let Some(value) = own(name) else { return Ok(otherwise) };
    values.iter().find(|(word, _)| *word == value).map(|(_, found)| *found).ok_or_else(|| {
        let words: Vec<_> = values.iter().map(|(word, _)| *word).collect();
        CallFailure::usage(format!("{PREFIX}{name} is {value}: the values are {}", words.join(", ")))
    })
}

fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(name: &str, least: T) -> Result<Option<T>> {
    let Some(value) = variable(name) else { return Ok(None) };
    match value.parse() {
        Ok(number) if number >= least => Ok(Some(number)),
        _ => Err(CallFailure::usage(format!("{name} is {value}: it must be a number from {least} on"))),
    }
}

impl FrontSettings {
    /// Whether the real library serves all communicators.
    pub(crate) fn is_off(&self) -> bool {
        self.has_comm_id || self.serve == Serve::Off
    }

    /// The device of the calling thread.
    pub(crate) fn current_device(&self) -> Result<Device> {
        Ok(match self.device {
            DeviceKind::Host => Device::host()?,
            _ => Device::current()?,
        })
    }

    fn read() -> Result<Self> {
        let kinds = [("host", DeviceKind::Host), ("cuda", DeviceKind::Cuda), ("hip", DeviceKind::Hip)];
        let built = if cfg!(feature = "cuda") {
            DeviceKind::Cuda
        } else if cfg!(feature = "hip") {
            DeviceKind::Hip
        } else {
            DeviceKind::Host
        };
        let is_on = |name: &str| variable(name).is_some_and(|value| value == "1");
        let blocking = variable("NCCL_COMM_BLOCKING");
        warn_of_unknown();
        Ok(Self {
            serve: one_of("SERVE", Serve::Auto, &[("auto", Serve::Auto), ("off", Serve::Off), ("only", Serve::Only)])?,
            device: one_of("DEVICE", built, &kinds)?,
            share: one_of("SHARE", false, &[("0", false), ("1", true)])?,
            hold: one_of("HOLD", true, &[("0", false), ("1", true)])?,
            timeout: number(&format!("{PREFIX}TIMEOUT_S"), 1)?.map(Duration::from_secs),
            check_calls: is_on("SYMMETRA_CHECK_CALLS") || log::is_info(),
            max_ctas: number("NCCL_MAX_CTAS", 1)?,
            no_p2p: is_on("NCCL_P2P_DISABLE"),
            graph_mixing: variable("NCCL_GRAPH_MIXING_SUPPORT").is_none_or(|value| value != "0"),
            returns_early: blocking.map(|value| value == "0"),
            has_comm_id: variable("NCCL_COMM_ID").is_some(),
        })
    }
}

/// One warning for each variable of this library's prefix that no version of the library reads.
fn warn_of_unknown() {
    for name in names() {
        if name.strip_prefix(PREFIX).is_some_and(|own| !OWN.contains(&own)) {
            log::warn(&format!("{name} is not a variable of symmetra: the names are {PREFIX}{{{}}}", OWN.join(", ")));
        }
    }
}

/// The settings, read at first use.
///
/// # Errors
/// A variable with a value outside its limit.
pub(crate) fn settings() -> Result<&'static FrontSettings> {
    static SETTINGS: OnceCell<Result<FrontSettings>> = OnceCell::new();
    SETTINGS.get_or_init(FrontSettings::read).as_ref().map_err(Clone::clone)
}

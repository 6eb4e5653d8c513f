//! Which library serves a communicator: decided once, from facts of all ranks, and equal on all ranks.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use symmetra::{Device, DeviceKind};

use crate::config::CommConfig;
use crate::error::{CallFailure, Result};
use crate::settings::{FrontSettings, Serve};

/// The most ranks that symmetra serves.
const MOST_RANKS: usize = 16;

/// The facts of one rank.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(crate) struct RankFacts {
    /// The version of this library.
    version: String,
    /// The boot id of the host and its network namespace.
    host: String,
    kind: String,
    /// The UUID of the GPU; empty for the host device.
    uuid: String,
    /// Why the rank does not want symmetra to serve; empty otherwise.
    refuses: String,
    /// Whether the rank accepts no other library.
    only: bool,
    share: bool,
    /// Whether the rank asks that calls are compared before they run.
    check_calls: bool,
    /// The most blocks of a call that the rank allows.
    most_blocks: Option<u32>,
}

/// The settings of a group that are equal on all ranks, from the wishes of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommonSettings {
    pub(crate) check_calls: bool,
    pub(crate) most_blocks: Option<u32>,
}

impl CommonSettings {
    /// Calls are compared if one rank asks for that, and take the least of the limits of all ranks.
    pub(crate) fn of(claims: &[RankFacts]) -> Self {
        Self {
            check_calls: claims.iter().any(|claim| claim.check_calls),
            most_blocks: claims.iter().filter_map(|claim| claim.most_blocks).min(),
        }
    }

    /// These settings with one more limit of blocks.
    pub(crate) fn at_most(self, blocks: Option<u32>) -> Self {
        Self { most_blocks: self.most_blocks.into_iter().chain(blocks).min(), ..self }
    }
}

/// The network namespace of the process.
fn network() -> String {
    std::fs::read_link("/proc/self/ns/net").map(|link| link.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The digits of a GPU's UUID.
fn uuid(device: &Device) -> String {
    device.uuid().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of these digits; `None` for other texts.
fn bytes_of(uuid: &str) -> Option<[u8; 16]> {
    u128::from_str_radix(uuid, 16).ok().filter(|_| uuid.len() == 32).map(u128::to_be_bytes)
}

impl RankFacts {
    pub(crate) fn new(device: &Device, settings: &FrontSettings, config: &CommConfig) -> Result<Self> {
        let refuses = match (settings.serve, settings.no_p2p) {
            (Serve::Off, _) => "SYMMETRA_NCCL_SERVE is off",
            (_, true) => "NCCL_P2P_DISABLE is 1",
            _ => "",
        };
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: format!("{} {}", symmetra::internal::boot_id(), network()),
            kind: device.kind().to_string(),
            uuid: match device.kind() {
                DeviceKind::Host => String::new(),
                _ => uuid(device),
            },
            refuses: refuses.to_owned(),
            only: settings.serve == Serve::Only,
            share: settings.share,
            check_calls: settings.check_calls,
            most_blocks: config.most_blocks,
        })
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        // A struct of strings and booleans always has a JSON form.
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn from_bytes(rank: usize, bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes)
            .map_err(|error| CallFailure::usage(format!("rank {rank} has another version of this library: {error}")))
    }
}

/// The claims of all ranks, in rank order.
pub(crate) fn read(claims: &[Vec<u8>]) -> Result<Vec<RankFacts>> {
    let claims = claims.iter().enumerate().map(|(rank, bytes)| RankFacts::from_bytes(rank, bytes));
    let claims: Vec<_> = claims.collect::<Result<_>>()?;
    let version = |claim: &RankFacts| claim.version.clone();
    let Some(first) = claims.first().map(version) else { return Ok(claims) };
    match claims.iter().position(|claim| claim.version != first) {
        Some(rank) => Err(CallFailure::usage(format!(
            "the version of symmetra is {first} on rank 0 and {} on rank {rank}",
            version(&claims[rank])
        ))),
        None => Ok(claims),
    }
}

/// Why the claims rule symmetra out; `None` if all conditions are met.
pub(crate) fn objection(claims: &[RankFacts]) -> Option<String> {
    let ranks = claims.len();
    let with_rank = |what: &dyn Fn(&RankFacts) -> bool| claims.iter().position(what);
    let first = claims.first()?;
    if ranks > MOST_RANKS {
        return Some(format!("{ranks} ranks are more than {MOST_RANKS}"));
    }
    if let Some(rank) = with_rank(&|claim| !claim.refuses.is_empty()) {
        return Some(format!("{} on rank {rank}", claims[rank].refuses));
    }
    if let Some(rank) = with_rank(&|claim| claim.host != first.host) {
        return Some(format!("ranks 0 and {rank} are on different hosts or in different network namespaces"));
    }
    if let Some(rank) = with_rank(&|claim| claim.kind != first.kind) {
        return Some(format!(
            "rank 0 has a device of kind {} and rank {rank} of kind {}",
            first.kind, claims[rank].kind
        ));
    }
    None
}

/// The ranks that have one GPU where no rank allows that.
///
/// # Errors
/// A text that names two ranks and the variable.
pub(crate) fn check_distinct(claims: &[RankFacts]) -> Result {
    if claims.iter().any(|claim| claim.share || claim.uuid.is_empty()) {
        return Ok(());
    }
    let mut seen = HashMap::new();
    for (rank, claim) in claims.iter().enumerate() {
        if let Some(earlier) = seen.insert(&claim.uuid, rank) {
            let text = format!("ranks {earlier} and {rank} have one GPU: SYMMETRA_NCCL_SHARE=1 allows that");
            return Err(CallFailure::usage(text));
        }
    }
    Ok(())
}

/// Why this rank's GPU cannot reach the GPU of another rank. GPUs that this process does not see are not asked.
pub(crate) fn unreachable(device: &Device, claims: &[RankFacts]) -> Result<Option<String>> {
    if device.kind() != DeviceKind::Cuda {
        return Ok(None);
    }
    for (rank, claim) in claims.iter().enumerate() {
        let Some(uuid) = bytes_of(&claim.uuid) else { continue };
        // The GPU is not opened: that would make a context there.
        let ordinal = device.ordinal_of(&uuid)?.filter(|ordinal| *ordinal != device.ordinal());
        if let Some(ordinal) = ordinal
            && !device.can_access(ordinal)?
        {
            return Ok(Some(format!("GPU {} cannot access the memory of rank {rank}", device.ordinal())));
        }
    }
    Ok(None)
}

/// Whether some rank accepts no other library.
pub(crate) fn only(claims: &[RankFacts]) -> bool {
    claims.iter().any(|claim| claim.only)
}

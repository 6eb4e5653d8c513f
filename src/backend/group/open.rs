//! Which backends a group needs, and their opening.

use std::sync::{Arc, Once};

use once_cell::sync::OnceCell;
use parking_lot::Mutex;

use super::{GroupBackends, GroupHosts};
use crate::backend::dispatch::Facts;
use crate::backend::explain::Backend;
use crate::backend::host::HostBackend;
use crate::backend::host::wire::Engines;
use crate::backend::hosts::Hosts;
use crate::backend::nccl::Ranks;
use crate::backend::quantised::QuantisedAllReduce;
use crate::bootstrap::until;
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::group::Determinism;

/// Whether this process has logged that NCCL is missing.
static SAID: Once = Once::new();

impl GroupBackends {
    /// Opens the backends that the group needs, and returns the facts that its ranks agreed on. Collective; blocks.
    pub(crate) fn open(
        reach: GroupHosts,
        ranks: &[usize],
        rank: usize,
        hosts: &Hosts,
        forced: Option<Backend>,
        quantised: Option<QuantisedAllReduce>,
        interface: Option<&str>,
    ) -> Result<(Arc<Self>, Arc<Facts>)> {
        let rank = ranks.iter().position(|other| *other == rank).unwrap_or(0);
        let (nccl, mesh, turn, failure) = (OnceCell::new(), OnceCell::new(), Mutex::new(0), OnceCell::new());
        let (world_size, interface) = (ranks.len(), interface.map(str::to_owned));
        let serving = Self { reach, rank, world_size, interface, nccl, mesh, turn, failure };
        let exact = serving.local().group().config().determinism == Determinism::Exact;
        let quantised = quantised.ok_or_else(|| "no codec is set".to_owned()).and_then(|setting| {
            serving.local().check_room(setting.codec).map_err(|error| error.to_string())?;
            let (config, kind) = (serving.local().group().config(), serving.local().device().kind());
            setting.tuned(config.tuning.as_ref(), kind, world_size)
        });
        let (hosts, unopened) =
            (hosts.of_group(ranks), Err("it is opened if a group needs it or is configured to use it".to_owned()));
        let (nccl, nccl_f8, host) = (unopened.clone(), unopened.clone(), unopened);
        let facts = Facts { hosts, forced, exact, quantised, nccl, nccl_f8, host };
        let facts = serving.equip(facts)?;
        Ok((Arc::new(serving), Arc::new(facts)))
    }

    /// Determines whether every rank has the backends that `facts` require, and opens those that are needed. Keeps
    /// backends that are already open. Collective; blocks.
    pub(crate) fn equip(&self, mut facts: Facts) -> Result<Facts> {
        let asked = |backend: Backend| match facts.forced {
            Some(forced) => forced == backend,
            None => facts.hosts.len() > 1,
        };
        let (nccl, host) = (asked(Backend::Nccl), asked(Backend::Host));
        if self.world_size == 1 || !(nccl || host) {
            return Ok(facts);
        }
        if nccl {
            let available = Ranks::available(self.local().device());
            facts.nccl_f8 = self.agree(available.clone().and_then(|f8| f8))?;
            facts.nccl = self.agree(available.map(drop))?;
            match &facts.nccl {
                Err(reason) if facts.forced == Some(Backend::Nccl) => {
                    SAID.call_once(|| crate::log!(WARN, "NCCL was asked for and cannot be used: {reason}"));
                }
                Err(reason) if self.local().device().kind() != DeviceKind::Host => {
                    SAID.call_once(|| crate::log!(WARN, "NCCL cannot be used, others serve its calls: {reason}"));
                }
                _ => {}
            }
        }
        if host {
            let engine = self.engines();
            let lacking = engine.as_ref().err().map(|error| match error {
                Error::Unsupported { reason, .. } => reason.clone(),
                error => error.to_string(),
            });
            facts.host = self.agree(lacking.map_or_else(Engines::check_operands, Err))?;
            if let (Ok(engines), true) = (engine, facts.needs(Backend::Host)) {
                self.together("connect the ranks", self.connect(&engines))?;
            }
        }
        if facts.needs(Backend::Nccl) {
            self.together("open NCCL", self.open_nccl())?;
        }
        Ok(facts)
    }

    /// Whether `own` is `Ok` on every rank; otherwise the reason of the lowest rank on which it is not.
    fn agree(&self, own: Result<(), String>) -> Result<Result<(), String>> {
        let words = own.err().unwrap_or_default();
        let all = self.all_gather_for("compare backends", words.as_bytes())?;
        let lacking = all.iter().enumerate().find(|(_, words)| !words.is_empty());
        Ok(lacking.map_or(Ok(()), |(rank, words)| Err(format!("rank {rank}: {}", String::from_utf8_lossy(words)))))
    }

    /// Opens the engines. Ranks of one host use loopback unless an interface is set.
    fn engines(&self) -> Result<Engines> {
        let hosts = Hosts::new(&[]);
        Engines::open(Some(self.interface.as_deref().unwrap_or("127.0.0.1")), &hosts)
    }

    fn connect(&self, engines: &Engines) -> Result<()> {
        let everyone: Vec<usize> = (0..self.world_size).collect();
        let deadlines = self.local().group().config().deadlines;
        let connected = || -> Result<HostBackend> {
            let wire = engines.connect(&mut self.as_bootstrap(), Some(&everyone), until(deadlines.open))?;
            let alone = || Error::bootstrap(format!("rank {} is not among the ranks that connect", self.rank));
            let mut wire = wire.ok_or_else(alone)?;
            // A rank of this host that waits elsewhere reports the rank for which it waits.
            wire.wait_first(&self.on_host())?;
            Ok(HostBackend::new(wire, deadlines))
        };
        self.mesh.get_or_try_init(connected).map(drop)
    }

    fn open_nccl(&self) -> Result<()> {
        let exchange = |bytes: &[u8]| self.all_gather_for("open NCCL", bytes);
        let open = || Ranks::open(self.local().group(), self.rank, self.world_size, exchange);
        self.nccl.get_or_try_init(open).map(drop)
    }
}

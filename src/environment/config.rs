//! The settings of an environment, and the values in force.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::layout::{ParallelLayout, Parallelism};
use super::quantised;
use super::rendezvous::InitMethod;
use crate::backend::{Backend, QuantisedAllReduce};
use crate::bootstrap::check_world_size;
use crate::device::{Device, DeviceKind};
use crate::error::{Error, Result};
use crate::group::Config;
use crate::settings::setters;
use crate::variables::{Launcher, Lookup, Process, Setting, SettingSource, library_path, number, text};

/// The settings of an [`Environment`](super::Environment). A field that is set overrides its variable.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct EnvConfig {
    /// Ranks that share each layer. Default 1.
    pub tensor_parallel_size: usize,
    /// Stages of a pipeline. Default 1.
    pub pipeline_parallel_size: usize,
    /// Replicas of the layers. Default 1.
    pub data_parallel_size: usize,
    /// The number of this replica, if each replica is started as a world of its own; `rank` and `world_size` then count
    /// within the replica. `None`: they count all ranks.
    pub data_parallel_rank: Option<usize>,
    /// This rank. `None`: from `RANK` or the variable of another launcher, or from the init method's object.
    pub rank: Option<usize>,
    /// The number of ranks. `None`: from `WORLD_SIZE` or the variable of another launcher, or from the init method's
    /// object.
    pub world_size: Option<usize>,
    /// The number of this rank's device on the host. `None`: from `LOCAL_RANK`, else from the launcher that gave the
    /// rank, else the rank's number among the ranks of the host.
    pub local_rank: Option<usize>,
    /// How the ranks meet. Default `env://`.
    pub init_method: InitMethod,
    /// The device of this rank. `None`: CUDA device `local_rank` if this build and host have CUDA, else the CPU. A
    /// device has no text form, so serde skips this field.
    #[serde(skip)]
    pub device: Option<Device>,
    /// The name of this host. Ranks with equal names share memory. `None`: the system's boot id.
    pub host: Option<String>,
    /// The interface for traffic between hosts: an IP address of this host or the name of an interface. No other
    /// interface is used. `None`: from `SYMMETRA_INTERFACE`, else the address from which this host reaches rank 0, if
    /// the init method names one.
    pub interface: Option<String>,
    /// The only backend for groups of more than one rank; a call that it does not serve is an error. `None`: from
    /// `SYMMETRA_BACKEND`, else the first backend that serves the call. Equal on every rank.
    pub backend: Option<Backend>,
    /// The all-reduces that use a codec by default. `None`: from `AITER_QUICK_REDUCE_QUANTIZATION` and
    /// `AITER_QUICK_REDUCE_MAX_SIZE_BYTES_MB`, else none. Equal on every rank.
    pub quantised: Option<QuantisedAllReduce>,
    /// The settings of every group's communicator. [Multicast](Config::multicast) applies only to the tensor parallel
    /// group, and to groups that share its communicator because they have the same ranks. In all other groups, scratch
    /// limits with their default value are lowered, so that these groups take less memory: `docs/tuning.md` has a
    /// table.
    pub communicator: Config,
}

setters! { EnvConfig {
    tensor_parallel_size: usize, pipeline_parallel_size: usize, data_parallel_size: usize,
    data_parallel_rank: Option<usize>, rank: Option<usize>, world_size: Option<usize>, local_rank: Option<usize>,
    init_method: InitMethod, device: Option<Device>, host: Option<String>, interface: Option<String>,
    backend: Option<Backend>, quantised: Option<QuantisedAllReduce>, communicator: Config,
} }

impl Default for EnvConfig {
    fn default() -> Self {
        Self {
            tensor_parallel_size: 1,
            pipeline_parallel_size: 1,
            data_parallel_size: 1,
            data_parallel_rank: None,
            rank: None,
            world_size: None,
            local_rank: None,
            init_method: InitMethod::Env,
            device: None,
            host: None,
            interface: None,
            backend: None,
            quantised: None,
            communicator: Config::default(),
        }
    }
}

/// The settings in force.
pub(super) struct Resolved {
    /// Rank in the world.
    pub(super) rank: usize,
    pub(super) layout: ParallelLayout,
    pub(super) init_method: InitMethod,
    /// `None`: not set; the number among the ranks of the host.
    pub(super) local_rank: Option<(usize, SettingSource)>,
    /// `None`: the GPU of the local rank if there is one.
    pub(super) device: Option<Device>,
    pub(super) host: Option<String>,
    pub(super) interface: Option<(String, SettingSource)>,
    pub(super) backend: Option<Backend>,
    pub(super) quantised: Option<QuantisedAllReduce>,
    pub(super) communicator: Config,
    pub(super) settings: Vec<Setting>,
}

/// The backend of this name.
fn backend_named(name: &str) -> Result<Backend> {
    name.parse().map_err(|_| {
        let names = Backend::ALL.map(Backend::name).join(", ");
        Error::invalid("SYMMETRA_BACKEND", name, format!("it must be {AUTO} or one of {names}"))
    })
}

/// The interface between hosts and the only backend, if any.
pub(super) struct Between {
    pub(super) interface: Option<(String, SettingSource)>,
    pub(super) backend: Option<Backend>,
    backend_source: SettingSource,
}

/// The settings of the program, else those of the environment variables.
pub(super) fn interface_and_backend(
    lookup: &impl Lookup,
    interface: Option<String>,
    backend: Option<Backend>,
) -> Result<Between> {
    let interface = text(lookup, interface, "SYMMETRA_INTERFACE")?;
    let backend = text(lookup, backend.map(|backend| backend.name().to_owned()), "SYMMETRA_BACKEND")?;
    let backend_source = backend.as_ref().map_or(SettingSource::Default, |(_, source)| *source);
    let backend = match backend.as_ref().map(|(name, _)| name.trim()) {
        None | Some(AUTO) => None,
        Some(name) => Some(backend_named(name)?),
    };
    Ok(Between { interface, backend, backend_source })
}

/// The value of `SYMMETRA_BACKEND` for the automatic choice.
const AUTO: &str = "auto";

/// The name of a backend in settings, or of the automatic choice.
pub(super) fn backend_name(backend: Option<Backend>) -> &'static str {
    backend.map_or(AUTO, Backend::name)
}

/// Chooses the device, and the settings that depend on it, after the ranks have met.
pub(super) fn choose_device(
    given: Option<&Device>,
    local: (usize, SettingSource),
    cuda_devices: usize,
) -> (Chosen, [Setting; 2]) {
    let (device, source) = match given {
        Some(device) => (Chosen::Given(device.clone()), SettingSource::Program),
        None if cuda_devices > 0 => (Chosen::Cuda(local.0), local.1),
        None => (Chosen::Host, SettingSource::Default),
    };
    let local = Setting { name: "local_rank", value: local.0.to_string(), source: local.1 };
    let setting = Setting { name: "device", value: device.to_string(), source };
    (device, [local, setting])
}

/// A device that the program opened, or one to open.
pub(super) enum Chosen {
    Given(Device),
    Host,
    Cuda(usize),
}

impl Chosen {
    pub(super) fn open(&self) -> Result<Device> {
        match self {
            Self::Given(device) => Ok(device.clone()),
            Self::Host => Device::host(),
            Self::Cuda(ordinal) => Device::cuda(*ordinal),
        }
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(device) => write!(out, "{} {}", device.kind(), device.ordinal()),
            Self::Host => write!(out, "{}", DeviceKind::Host),
            Self::Cuda(ordinal) => write!(out, "{} {ordinal}", DeviceKind::Cuda),
        }
    }
}

impl EnvConfig {
    /// The settings that an environment would have in this process, each with its source; the settings of its
    /// communicators come last. `otherwise` is the rank and world size if nothing sets them. Does not block.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for settings that [`Environment::init`](super::Environment::init) refuses.
    pub fn settings(self, otherwise: (usize, usize)) -> Result<Vec<Setting>> {
        self.settings_with(&Process, otherwise)
    }

    fn settings_with(mut self, lookup: &impl Lookup, otherwise: (usize, usize)) -> Result<Vec<Setting>> {
        let mut assumed = Vec::new();
        let launcher = Launcher::of(lookup);
        for (name, variable, set, value) in [
            ("rank", launcher.rank, &mut self.rank, otherwise.0),
            ("world_size", launcher.world_size, &mut self.world_size, otherwise.1),
        ] {
            if number(lookup, *set, variable)?.is_none() {
                *set = Some(value);
                assumed.push(name);
            }
        }
        let Resolved { layout, local_rank, device, interface, communicator, rank, mut settings, .. } =
            self.resolve_with(lookup, None)?;
        let unknown = settings.iter_mut().filter(|setting| assumed.contains(&setting.name));
        unknown.for_each(|setting| setting.source = SettingSource::Default);
        let local = local_rank.unwrap_or((rank, SettingSource::Derived));
        settings.extend(choose_device(device.as_ref(), local, Device::count(DeviceKind::Cuda)).1);
        settings.extend(interface.map(|(value, source)| Setting { name: "interface", value, source }));
        let usual = Config::default().entries(layout.world_size());
        settings.extend(communicator.entries(layout.world_size()).into_iter().zip(usual).map(
            |((name, value), usual)| {
                let source = if value == usual.1 { SettingSource::Default } else { SettingSource::Program };
                Setting { name, value, source }
            },
        ));
        Ok(settings)
    }

    /// `told`: the rank and world size of a bootstrap object.
    pub(super) fn resolve(self, told: Option<(usize, usize)>) -> Result<Resolved> {
        self.resolve_with(&Process, told)
    }

    fn resolve_with(self, lookup: &impl Lookup, told: Option<(usize, usize)>) -> Result<Resolved> {
        let launcher = Launcher::of(lookup);
        let (rank, world_size) = self.place(launcher, lookup, told)?;
        let local_rank = launcher.local_rank(lookup, self.local_rank, rank.1)?;
        if rank.0 >= world_size.0 {
            return Err(Error::invalid("rank", rank.0, format!("the world size is {}", world_size.0)));
        }
        let (tensor, pipeline, data) =
            (self.tensor_parallel_size, self.pipeline_parallel_size, self.data_parallel_size);
        let (rank, layout) = match self.data_parallel_rank {
            None => (rank, ParallelLayout::new(world_size.0, tensor, pipeline, data)?),
            Some(replica) => {
                let replica = self.replica(replica, world_size.0, told.is_some())?;
                let all = world_size.0.checked_mul(data);
                let all = all.ok_or_else(|| Error::invalid("world size", world_size.0, "it must fit 64 bits"))?;
                ((replica * world_size.0 + rank.0, rank.1), ParallelLayout::new(all, tensor, pipeline, data)?)
            }
        };
        // A bootstrap object may report any world size, and the memory for gathered data grows with it.
        check_world_size(layout.world_size())?;
        let Between { interface, backend, backend_source } =
            interface_and_backend(lookup, self.interface, self.backend)?;
        let (quantised, quantised_source) = quantised::resolve(self.quantised, lookup)?;
        let library = library_path(lookup)?.unwrap_or_else(|| ("by its usual name".to_owned(), SettingSource::Default));
        let (method, method_source) = match (&self.init_method, told) {
            (_, Some(_)) => ("a bootstrap object".to_owned(), SettingSource::Program),
            (InitMethod::Env, None) => (self.init_method.to_string(), SettingSource::Default),
            (method, None) => (method.to_string(), SettingSource::Program),
        };
        let size = |name, parallelism, default: usize| {
            let value = layout.size(parallelism);
            let source = if value == default { SettingSource::Default } else { SettingSource::Program };
            Setting { name, value: value.to_string(), source }
        };
        let settings = vec![
            size("tensor_parallel_size", Parallelism::Tensor, 1),
            size("pipeline_parallel_size", Parallelism::Pipeline, 1),
            size("data_parallel_size", Parallelism::Data, 1),
            Setting { name: "rank", value: rank.0.to_string(), source: rank.1 },
            Setting { name: "world_size", value: layout.world_size().to_string(), source: world_size.1 },
            Setting { name: "init_method", value: method, source: method_source },
            Setting { name: "backend", value: backend_name(backend).to_owned(), source: backend_source },
            Setting { name: "quantised", value: quantised::shown(quantised), source: quantised_source },
            Setting { name: "nccl_library", value: library.0, source: library.1 },
        ];
        Ok(Resolved {
            rank: rank.0,
            layout,
            init_method: self.init_method,
            local_rank,
            device: self.device,
            host: self.host,
            interface,
            backend,
            quantised,
            communicator: self.communicator,
            settings,
        })
    }

    /// Rank and world size, of the replica or of the whole world, with their sources.
    #[allow(clippy::type_complexity)]
    fn place(
        &self,
        launcher: &Launcher,
        lookup: &impl Lookup,
        told: Option<(usize, usize)>,
    ) -> Result<((usize, SettingSource), (usize, SettingSource))> {
        let (mut rank, mut world_size) = (self.rank, self.world_size);
        if let Some(told) = told {
            for (what, set, given) in [("rank", &mut rank, told.0), ("world size", &mut world_size, told.1)] {
                if set.is_some_and(|set| set != given) {
                    return Err(Error::invalid(
                        what,
                        set.unwrap_or(given),
                        format!("the bootstrap object has {given}"),
                    ));
                }
                *set = Some(given);
            }
        }
        launcher.place(lookup, rank, world_size)
    }

    fn replica(&self, replica: usize, world_size: usize, told: bool) -> Result<usize> {
        if told {
            let limit = "a bootstrap object connects all ranks, so it numbers them itself";
            return Err(Error::invalid("data_parallel_rank", replica, limit));
        }
        if replica >= self.data_parallel_size {
            let limit = format!("data_parallel_size is {}", self.data_parallel_size);
            return Err(Error::invalid("data_parallel_rank", replica, limit));
        }
        let product = self.tensor_parallel_size.saturating_mul(self.pipeline_parallel_size);
        if world_size != product {
            let (pipeline, tensor) = (self.pipeline_parallel_size, self.tensor_parallel_size);
            let limit = format!("a replica of {pipeline} pipeline x {tensor} tensor has {product} ranks");
            return Err(Error::invalid("world size", world_size, limit));
        }
        Ok(replica)
    }
}

#[cfg(test)]
#[path = "../../tests/unit/environment/config.rs"]
mod tests;

//! The groups of a layout, the settings of an environment and its variables.

use serde::Serialize;
use symmetra::environment::{EnvConfig, ParallelLayout, Parallelism, VARIABLES};
use symmetra::{Config, Device};

use harness::failure::CommandFailure;
use harness::table::Table;

/// The groups of one parallelism.
#[derive(Debug, Serialize)]
pub(super) struct Groups {
    parallelism: &'static str,
    groups: Vec<Vec<usize>>,
}

impl Groups {
    pub(super) fn ranks(&self) -> usize {
        self.groups.iter().map(Vec::len).sum()
    }

    /// Whether some group has this many ranks.
    fn has_group_of(&self, ranks: usize) -> bool {
        self.groups.iter().any(|group| group.len() == ranks)
    }
}

/// The layout of `sizes` = tensor, pipeline, data over as many ranks as the sizes require. Refuses `ranks`, if given,
/// unless it is the number of ranks of the layout or of one of its groups.
pub(super) fn layout(sizes: [usize; 3], ranks: Option<u64>) -> Result<Vec<Groups>, CommandFailure> {
    let [tensor, pipeline, data] = sizes;
    let world_size = sizes.iter().product();
    let layout = ParallelLayout::new(world_size, tensor, pipeline, data)?;
    let groups =
        |parallelism| Groups { parallelism: Parallelism::name(parallelism), groups: layout.groups(parallelism) };
    let layout: Vec<Groups> = Parallelism::ALL.map(groups).into();
    let has = |ranks: usize| ranks == world_size || layout.iter().any(|groups| groups.has_group_of(ranks));
    match ranks.map(|ranks| ranks as usize).filter(|ranks| !has(*ranks)) {
        None => Ok(layout),
        Some(ranks) => Err(CommandFailure::usage(format!(
            "--ranks is {ranks}, but --tp {tensor} --pp {pipeline} --dp {data} has {world_size} ranks and no group of {ranks}"
        ))),
    }
}

pub(super) fn layout_table(layout: &[Groups]) -> Table {
    let mut rows = Table::new(["", "groups of ranks"], []);
    for groups in layout {
        let words = groups.groups.iter().map(|ranks| format!("{ranks:?}")).collect::<Vec<_>>();
        rows.add_row([groups.parallelism.to_owned(), words.join(" ")]);
    }
    rows
}

/// Settings of an environment in this process: name, value, and source. The environment has `ranks` ranks unless a
/// variable or an option sets another number. Refused settings give the reason.
pub(super) fn settings(
    communicator: &Config,
    sizes: Option<[usize; 3]>,
    ranks: usize,
) -> Vec<(&'static str, String, String)> {
    let mut config = EnvConfig::default();
    config.communicator = communicator.clone();
    let mut world_size = ranks;
    if let Some([tensor, pipeline, data]) = sizes {
        (config.tensor_parallel_size, config.pipeline_parallel_size, config.data_parallel_size) =
            (tensor, pipeline, data);
        world_size = tensor * pipeline * data;
    }
    match config.settings((0, world_size)) {
        Ok(settings) => {
            settings.into_iter().map(|setting| (setting.name, setting.value, setting.source.to_string())).collect()
        }
        // The rest of the output may explain the refusal.
        Err(error) => vec![("none", error.to_string(), "refused".to_owned())],
    }
}

/// The NCCL that is found, or the RCCL if all GPUs are AMD GPUs; or why none is found.
#[cfg(feature = "nccl")]
pub(super) fn nccl(gpus: &[Device]) -> String {
    let kind = gpus.first().map_or(symmetra::DeviceKind::Cuda, Device::kind);
    symmetra::environment::nccl_library(kind)
        .map_or_else(|error| error.to_string(), |library| library.name().to_owned())
}

#[cfg(not(feature = "nccl"))]
pub(super) fn nccl(_gpus: &[Device]) -> String {
    "not built: build with the feature `nccl`".to_owned()
}

/// A variable and its value.
#[derive(Debug, Serialize)]
pub(super) struct ShownVariable {
    name: &'static str,
    /// `None`: unset.
    value: Option<String>,
    /// The source of the value: the environment, another variable, or the default.
    from: &'static str,
    default: &'static str,
    effect: &'static str,
}

/// Every variable; the value of a secret is hidden.
pub(super) fn variables() -> Vec<ShownVariable> {
    let value = |name: &str| {
        let value = std::env::var_os(name)?.to_string_lossy().into_owned();
        Some(if name.contains("SECRET") { "hidden".to_owned() } else { value })
    };
    let from = |name: &str| match (name, value(name)) {
        (_, None) => "default",
        ("VLLM_NCCL_SO_PATH", _) if value("SYMMETRA_NCCL_LIBRARY").is_some() => "SYMMETRA_NCCL_LIBRARY",
        _ => "environment",
    };
    let variable = |known: &symmetra::environment::Variable| ShownVariable {
        name: known.name,
        value: value(known.name),
        from: from(known.name),
        default: known.default,
        effect: known.effect,
    };
    VARIABLES.iter().map(variable).collect()
}

pub(super) fn variables_table(variables: &[ShownVariable]) -> Table {
    let mut rows = Table::new(["variable", "value", "from", "effect"], []);
    for ShownVariable { name, value, from, default, effect } in variables {
        rows.add_row([*name, value.as_deref().unwrap_or(*default), *from, *effect]);
    }
    rows
}

//! Environment variables: the known ones, and suggestions for unknown names.

mod launcher;
mod lookup;
mod report;
mod setting;

use std::sync::Once;

pub(crate) use launcher::Launcher;
#[cfg(feature = "nccl")]
pub(crate) use lookup::LIBRARY_NAMES;
pub(crate) use lookup::{Lookup, Process, flag, library_folders, library_path, number, optional, text};
pub(crate) use report::report_consequence;
pub use setting::{Setting, SettingSource};

/// A variable that symmetra reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Variable {
    /// Name.
    pub name: &'static str,
    /// Kind of value.
    pub kind: &'static str,
    /// Value when the variable is unset.
    pub default: &'static str,
    /// Effect.
    pub effect: &'static str,
}

/// Variables that configure AITER's quantised all-reduce.
pub(crate) struct QuickReduce {
    /// How values are sent.
    pub(crate) regime: &'static str,
    /// The largest message, in MiB.
    pub(crate) most_mib: &'static str,
    /// Whether bf16 becomes f16.
    cast: &'static str,
}

pub(crate) const QUICK_REDUCE: QuickReduce = QuickReduce {
    regime: "AITER_QUICK_REDUCE_QUANTIZATION",
    most_mib: "AITER_QUICK_REDUCE_MAX_SIZE_BYTES_MB",
    cast: "AITER_QUICK_REDUCE_CAST_BF16_TO_FP16",
};
/// The variable that names an NVSHMEM library.
pub(crate) const NVSHMEM_LIBRARY: &str = "SYMMETRA_NVSHMEM_LIBRARY";
/// The variable that names a cuBLASLt library.
pub(crate) const CUBLASLT_LIBRARY: &str = "SYMMETRA_CUBLASLT_LIBRARY";
/// The variable that allows multicast on GPUs.
pub(crate) const MULTICAST: &str = "SYMMETRA_MULTICAST";
/// The variable that disables NVLink multicast in NVSHMEM.
pub(crate) const NVSHMEM_DISABLE_NVLS: &str = "NVSHMEM_DISABLE_NVLS";
/// The variable with the unit of NVSHMEM's heap.
pub(crate) const NVSHMEM_CUMEM_GRANULARITY: &str = "NVSHMEM_CUMEM_GRANULARITY";
/// The variable by which torchrun signals that it keeps its own store at `MASTER_PORT`.
pub(crate) const AGENT_STORE: &str = "TORCHELASTIC_USE_AGENT_STORE";
const NO_EFFECT: &str = "no effect: sums are in single precision and keep the range of bf16";

/// Every variable that symmetra knows; `docs/environment.md` lists them. A setting in the program takes precedence over
/// a variable.
pub const VARIABLES: [Variable; 37] = [
    variable("RANK", "number", "required by env://", "this rank, of all ranks or of one data parallel replica"),
    variable(
        "WORLD_SIZE",
        "number",
        "required by env://",
        "how many ranks there are in all or in one data parallel replica",
    ),
    variable("LOCAL_RANK", "number", "place on the host", "which device of the host this rank works on"),
    variable("OMPI_COMM_WORLD_RANK", "number", "unset", "RANK by Open MPI's mpirun; read where RANK is unset"),
    variable("OMPI_COMM_WORLD_SIZE", "number", "unset", "WORLD_SIZE by the same"),
    variable("OMPI_COMM_WORLD_LOCAL_RANK", "number", "unset", "LOCAL_RANK by the same"),
    variable("PMI_RANK", "number", "unset", "RANK by MPICH's mpirun; read where those above are unset"),
    variable("PMI_SIZE", "number", "unset", "WORLD_SIZE by the same"),
    variable("MPI_LOCALRANKID", "number", "unset", "LOCAL_RANK by the same"),
    variable("SLURM_PROCID", "number", "unset", "RANK by srun; read where those above are unset"),
    variable("SLURM_NTASKS", "number", "unset", "WORLD_SIZE by the same"),
    variable("SLURM_LOCALID", "number", "unset", "LOCAL_RANK by the same"),
    variable("MASTER_ADDR", "host", "required by env://", "where rank 0 listens"),
    variable("MASTER_PORT", "port", "required by env://", "the port where rank 0 listens"),
    variable(
        "SYMMETRA_PORT",
        "port",
        "MASTER_PORT",
        "the port where rank 0 listens, if MASTER_PORT is another program's",
    ),
    variable(
        AGENT_STORE,
        "True or unset",
        "unset",
        "True: MASTER_PORT belongs to torchrun, and rank 0 listens at another port",
    ),
    variable("SYMMETRA_SECRET", "32 hex digits", "zeros", "what ranks prove to know when they meet by TCP"),
    variable(
        report::LAUNCHER,
        "path",
        "unset",
        "where ranks report to `symmetra launch` that another rank failed first",
    ),
    variable("SYMMETRA_BIND", "IP address", "loopback", "the interface rank 0 listens at"),
    variable("SYMMETRA_INTERFACE", "IP address or name", "the way to rank 0", "the interface between hosts"),
    variable("SYMMETRA_LOG", "level", "warn", "what is logged where the program has no subscriber"),
    variable("SYMMETRA_BACKEND", "auto, own, nccl or host", "auto", "the only backend that may serve groups"),
    variable("SYMMETRA_CHECK_CALLS", "0 or 1", "0", "1: ranks compare every call before it runs, on the device"),
    variable(
        "SYMMETRA_TIMING",
        "0 or 1",
        "0",
        "1: kernels record when each call begins and ends; on GPUs in builds with the feature `timing`",
    ),
    variable("SYMMETRA_DUMP", "path", "unset", "the folder where each rank of a failed group writes its last calls"),
    variable(MULTICAST, "0 or 1", "0", "1: groups on GPUs may open multicast, which has never been run there"),
    variable("SYMMETRA_NCCL_LIBRARY", "path", "libnccl.so.2, librccl.so.1", "the NCCL or RCCL to load"),
    variable("VLLM_NCCL_SO_PATH", "path", "unset", "the library to load where SYMMETRA_NCCL_LIBRARY is unset"),
    variable(CUBLASLT_LIBRARY, "path", "libcublasLt.so.13, .12", "the cuBLASLt that multiplies on GPUs"),
    variable(NVSHMEM_LIBRARY, "path", "libnvshmem_host.so.3", "the NVSHMEM to load"),
    variable(NVSHMEM_DISABLE_NVLS, "0 or 1", "0", "NVSHMEM's own; 1, without multicast, is required to use NVSHMEM"),
    variable(
        NVSHMEM_CUMEM_GRANULARITY,
        "bytes",
        "512M",
        "NVSHMEM's own; symmetric memory that is mapped into NVSHMEM's heap is a multiple of it",
    ),
    variable(
        QUICK_REDUCE.regime,
        "NONE, FP, FP8, INT8, INT6 or INT4",
        "unset",
        "the codec of large all-reduces of f16 and bf16; NONE, FP: none",
    ),
    variable(QUICK_REDUCE.cast, "flag", "unset", NO_EFFECT),
    variable(QUICK_REDUCE.most_mib, "number", "0", "the largest all-reduce that uses the codec, in MiB; 0: no limit"),
    variable("CUDA_VISIBLE_DEVICES", "list", "all", "which NVIDIA GPUs there are; read by the CUDA driver"),
    variable("HIP_VISIBLE_DEVICES", "list", "all", "which AMD GPUs there are; read by the HIP runtime"),
];

const fn variable(name: &'static str, kind: &'static str, default: &'static str, effect: &'static str) -> Variable {
    Variable { name, kind, default, effect }
}

static WARNED: Once = Once::new();

/// Warns once a process about unknown `SYMMETRA_*` variables, with the nearest known name, and about variables without
/// effect. Runs when ranks meet by environment variables and when an [`Environment`](crate::environment::Environment)
/// opens; a program may call it earlier.
pub fn warn_of_variables() {
    WARNED.call_once(|| {
        let names: Vec<String> = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
        for (name, nearest) in unknown(names.iter().map(String::as_str)) {
            crate::log!(WARN, "nothing reads the variable {name}; did you mean {nearest}?");
        }
        if names.iter().any(|name| name == QUICK_REDUCE.cast) {
            crate::log!(WARN, "the variable {} is set and has {NO_EFFECT}", QUICK_REDUCE.cast);
        }
    });
}

/// Each unknown `SYMMETRA_*` variable among `names`, with the known name that it resembles.
fn unknown<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<(String, &'static str)> {
    let ours = |name: &&str| name.starts_with("SYMMETRA_") && !name.starts_with("SYMMETRA_TEST_");
    let known = |name: &str| all().any(|variable| variable.name == name);
    names.into_iter().filter(ours).filter(|name| !known(name)).map(|name| (name.to_owned(), nearest(name))).collect()
}

/// Variables that are read when symmetra is built. They are known.
const BUILD: [Variable; 4] = [
    variable("SYMMETRA_CUDA_ARCHS", "list", "80,90a,100a", "the GPU architectures to build for"),
    variable("SYMMETRA_HIP_ARCHS", "list", "gfx90a,gfx942", "the AMD architectures to build for"),
    variable("SYMMETRA_RUST_ALONE", "flag", "unset", "whether the build compiles no C++"),
    variable("SYMMETRA_UPDATE", "flag", "unset", "whether tests rewrite generated files"),
];

/// Variables that only the library with the names of NCCL reads.
const FRONT: [Variable; 7] = [
    variable("SYMMETRA_NCCL_SERVE", "auto, off, only", "auto", "the communicators that symmetra serves"),
    variable("SYMMETRA_NCCL_VERSION", "number", "that of the real NCCL", "the version of NCCL that is reported"),
    variable("SYMMETRA_NCCL_DEVICE", "cuda, hip, host", "the first of the build", "the device kind"),
    variable("SYMMETRA_NCCL_SHARE", "0 or 1", "0", "1: several ranks may have one GPU"),
    variable("SYMMETRA_NCCL_TIMEOUT_S", "seconds", "600 s and 24 h", "the most time of an opening and of every wait"),
    variable("SYMMETRA_NCCL_HOLD", "0 or 1", "1", "1: a call that fails keeps its stream until the communicator ends"),
    variable("SYMMETRA_NCCL_LOG", "calls", "unset", "calls: a line for each communicator that opens"),
];

fn all() -> impl Iterator<Item = &'static Variable> {
    VARIABLES.iter().chain(&BUILD).chain(&FRONT)
}

fn nearest(name: &str) -> &'static str {
    let candidates = all().filter(|variable| variable.name.starts_with("SYMMETRA_"));
    // A name that is cut off means the whole name.
    let distance = |variable: &&Variable| (!variable.name.starts_with(name), strsim::levenshtein(name, variable.name));
    candidates.min_by_key(distance).map_or("", |variable| variable.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitfall_36_a_misspelt_variable_is_not_ignored_in_silence() {
        let names = [
            "PATH",
            "SYMMETRA_SECRETS",
            "SYMMETRA_SECRET",
            "SYMMETRA_NCCL_LIB",
            "SYMMETRA_TEST_DEVICE",
            "SYMMETRA_NCCL_HOLD",
        ];
        let expected = [
            ("SYMMETRA_SECRETS".to_owned(), "SYMMETRA_SECRET"),
            ("SYMMETRA_NCCL_LIB".to_owned(), "SYMMETRA_NCCL_LIBRARY"),
        ];
        assert_eq!(unknown(names), expected);
    }

    #[test]
    fn the_documentation_lists_every_variable() {
        let page = include_str!("../../docs/environment.md");
        for variable in all() {
            assert!(page.contains(&format!("| `{}` |", variable.name)), "{}", variable.name);
        }
    }
}

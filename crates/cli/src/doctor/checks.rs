//! The checks, in the order in which opening a group would meet them.

use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Resource, getrlimit};
use symmetra::DeviceKind;
use symmetra::bootstrap::Directory;
use symmetra::matmul::Multiplier;

use super::CheckResult;
use crate::all_reduce;
use harness::bytes;
use harness::devices::{GPUS, Gpu, MulticastWords, RankDevice};
use harness::failure::CommandFailure;
use harness::nvshmem;
use harness::ranks::RanksAs;

/// Runs every check and reports each as it is done.
pub(super) fn run(report: &mut dyn FnMut(CheckResult) -> Result<(), CommandFailure>) -> Result<(), CommandFailure> {
    report(sockets())?;
    report(shared_memory())?;
    report(locked_memory())?;
    report(group("2 ranks as threads on the CPU", [RankDevice::Host; 2], RanksAs::Threads))?;
    report(group("2 ranks as processes on the CPU", [RankDevice::Host; 2], RanksAs::Processes))?;
    report(multicast(RankDevice::Host))?;
    report(products(RankDevice::Host))?;
    shmem().into_iter().try_for_each(&mut *report)?;
    for gpu in &GPUS {
        let count = gpu.count();
        report(driver(gpu, count))?;
        for one in 0..count {
            report(versions((gpu.device)(one)))?;
            report(multicast((gpu.device)(one)))?;
            report(products((gpu.device)(one)))?;
        }
        for one in 0..count {
            for other in one + 1..count {
                report(peers((gpu.device)(one), (gpu.device)(other)))?;
            }
        }
    }
    Ok(())
}

fn sockets() -> CheckResult {
    let check = format!("unix sockets in {}", std::env::temp_dir().display());
    let connect = |directory: &Path| {
        let path = directory.join("rank0.sock");
        let listener = UnixListener::bind(&path)?;
        let _connected = UnixStream::connect(&path)?;
        listener.accept().map(drop)
    };
    let directory = Directory::new().map_err(|error| error.to_string());
    let tried =
        directory.and_then(|directory| connect(directory.path()).map_err(|error: std::io::Error| error.to_string()));
    match tried {
        Ok(()) => CheckResult::ok(check, "a rank can listen and another connect"),
        Err(error) => CheckResult::fail(
            check,
            error,
            "point TMPDIR to a short path on a local file system that is yours to write",
        ),
    }
}

fn shared_memory() -> CheckResult {
    let check = "shared memory (memfd)";
    let tried = memfd_create("symmetra-doctor", MemfdFlags::CLOEXEC).map_err(std::io::Error::from).and_then(|fd| {
        let file = std::fs::File::from(fd);
        file.set_len(1 << 20)?;
        file.write_all_at(b"pattern", 1 << 19)?;
        let mut read = [0; 7];
        file.read_exact_at(&mut read, 1 << 19)?;
        Ok(read == *b"pattern")
    });
    match tried {
        Ok(true) => CheckResult::ok(check, "it can be made and keeps what is written"),
        Ok(false) => CheckResult::fail(check, "it does not keep what is written", "check the system's memory"),
        Err(error) => {
            CheckResult::fail(check, error.to_string(), "allow memfd_create in the container's seccomp profile")
        }
    }
}

/// Most memory that one group pins: its control page.
const PINNED_BYTES: u64 = 64 << 10;

fn locked_memory() -> CheckResult {
    let check = "locked memory (ulimit -l)";
    if GPUS.iter().all(|gpu| gpu.count() == 0) {
        return CheckResult::none(check, "there is no GPU, and groups on the CPU lock none");
    }
    match getrlimit(Resource::Memlock).current {
        None => CheckResult::ok(check, "unlimited"),
        Some(limit) if limit >= PINNED_BYTES => {
            CheckResult::ok(check, format!("{} may be locked", bytes::format(limit)))
        }
        Some(limit) => CheckResult::fail(
            check,
            format!("{} may be locked, GPU groups need {} a rank", bytes::format(limit), bytes::format(PINNED_BYTES)),
            "raise it: `ulimit -l unlimited`, memlock in /etc/security/limits.conf, or `docker run --ulimit memlock=-1`",
        ),
    }
}

/// Opens a real group and reduces in it.
fn group(check: &str, devices: [RankDevice; 2], ranks_as: RanksAs) -> CheckResult {
    match probe(devices, ranks_as) {
        Ok(detail) => CheckResult::ok(check, detail),
        Err(detail) => {
            CheckResult::fail(check, detail, "the message names what was refused; SYMMETRA_LOG=debug logs more")
        }
    }
}

/// Sums a pattern between two ranks, through every algorithm: packets, their flags, and direct
/// reads and writes in both directions. Bounded by deadlines.
fn probe(devices: [RankDevice; 2], ranks_as: RanksAs) -> Result<String, String> {
    match all_reduce::probe(&devices, ranks_as) {
        Ok(wrong) if wrong.iter().all(|wrong| *wrong == 0) => Ok("sums are right".to_owned()),
        Ok(wrong) => Err(format!("{} elements are wrong in rank 0, {} in rank 1", wrong[0], wrong[1])),
        Err(failure) => Err(failure.message().unwrap_or_else(|| "no reason given".to_owned())),
    }
}

/// The library that a session of NVSHMEM would load, and its bootstrap plugin. Neither is required.
fn shmem() -> Vec<CheckResult> {
    let [library, plugin] = ["NVSHMEM", "NVSHMEM bootstrap plugin"];
    match nvshmem::describe() {
        None => vec![CheckResult::none(library, "this build has none (cargo build --features nvshmem)")],
        Some(Err(error)) => vec![CheckResult::none(library, error.to_string())],
        Some(Ok((name, found))) => {
            let found = match found {
                Ok(words) => CheckResult::ok(plugin, words),
                Err(error) => {
                    let elsewhere = "a session finds one only in the path of the dynamic loader";
                    CheckResult::none(plugin, format!("{error}; {elsewhere}"))
                }
            };
            vec![CheckResult::ok(library, name), found]
        }
    }
}

/// The facts that differ between vendors.
struct Vendor {
    /// The file that exists when the driver is loaded.
    node: &'static str,
    no_device: &'static str,
    topology: &'static str,
    health: &'static str,
}

fn vendor(kind: DeviceKind) -> Vendor {
    match kind {
        DeviceKind::Hip => Vendor {
            node: "/dev/kfd",
            no_device: "see that HIP_VISIBLE_DEVICES names a device, that you may open /dev/kfd (group render), and that libamdhip64 of the ROCm release of this build is found (LD_LIBRARY_PATH)",
            topology: "rocm-smi --showtopo",
            health: "rocm-smi",
        },
        _ => Vendor {
            node: "/dev/nvidiactl",
            no_device: "see that CUDA_VISIBLE_DEVICES names a device, and that the driver is not older than the toolkit of this build",
            topology: "nvidia-smi topo -p2p r",
            health: "nvidia-smi",
        },
    }
}

fn driver(gpu: &Gpu, count: usize) -> CheckResult {
    let check = format!("{} driver", gpu.vendor);
    let vendor = vendor(gpu.kind);
    match (gpu.built, count, Path::new(vendor.node).exists()) {
        (false, _, _) => CheckResult::none(
            check,
            format!("this build has no {} (cargo build --features {})", gpu.vendor, gpu.kind.name()),
        ),
        (true, 0, false) => CheckResult::none(check, "there is none, so ranks work on the CPU"),
        (true, 0, true) => CheckResult::fail(check, "a driver is loaded, but shows no device", vendor.no_device),
        (true, count, _) => CheckResult::ok(check, format!("{count} devices")),
    }
}

fn versions(one: RankDevice) -> CheckResult {
    let check = one.to_string();
    match one.open() {
        Ok(device) => CheckResult::ok(check, format!("{}, {}", device.name(), device.versions())),
        Err(error) => CheckResult::fail(
            check,
            error.to_string(),
            "install a driver that is not older than the toolkit of this build",
        ),
    }
}

/// The requirements of multicast, which no group needs. Opens no multicast.
fn multicast(one: RankDevice) -> CheckResult {
    let check = format!("multicast of {one}");
    match one.open().and_then(|device| MulticastWords::new(&device)) {
        Ok(words) if words.all() => CheckResult::ok(check, words.to_string()),
        Ok(words) => CheckResult::none(check, words.to_string()),
        Err(error) => CheckResult::none(check, error.to_string()),
    }
}

/// The library that multiplies matrices, which only GEMMs and plans need.
fn products(one: RankDevice) -> CheckResult {
    let check = format!("products on {one}");
    match one.open().and_then(|device| Multiplier::new(&device)) {
        Ok(multiplier) => CheckResult::ok(check, multiplier.library()),
        Err(error) => CheckResult::none(check, error.to_string()),
    }
}

/// One pair of GPUs, both ways: what the driver reports, then what is true.
fn peers(one: RankDevice, other: RankDevice) -> CheckResult {
    let check = format!("peer access {one} <-> {other}");
    let vendor = vendor(one.kind());
    let reports = |from: RankDevice, to: RankDevice| from.open()?.can_access(to.open()?.ordinal());
    for (from, to) in [(one, other), (other, one)] {
        match reports(from, to) {
            Ok(true) => {}
            Ok(false) => {
                let remedy = format!(
                    "see `{}`: the GPUs need a link of the vendor's or a common PCIe root, and no ACS or virtual machine between",
                    vendor.topology
                );
                return CheckResult::fail(check, format!("{from} cannot address memory of {to}"), remedy);
            }
            Err(error) => {
                let remedy = format!("see that both devices are healthy: `{}`", vendor.health);
                return CheckResult::fail(check, error.to_string(), remedy);
            }
        }
    }
    match probe([one, other], RanksAs::Processes) {
        Ok(detail) => CheckResult::ok(check, format!("pattern and flags arrive both ways: {detail}")),
        Err(detail) => {
            let remedy =
                "peer access is reported but does not work: turn off ACS and the IOMMU, or update firmware and driver";
            CheckResult::fail(check, detail, remedy)
        }
    }
}
